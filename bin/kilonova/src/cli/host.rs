//! `kilonova host …`.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::Format;
use super::examples;
use crate::cloud::{Compute, Door};
use crate::failure::Failure;
use crate::operate::drain::{self, Allowed, Wish};

/// Options of `host`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Give a host no new servers and move those that it has; exit 0 only when it is empty. May be
    /// ended at any time and run again.
    #[command(after_help = examples::DRAIN)]
    Drain(Drain),
    /// Let a host have servers again.
    #[command(after_help = examples::UNDRAIN)]
    Undrain(Undrain),
}

#[derive(Debug, Args)]
struct Drain {
    /// The host, as `openstack compute service list` calls it.
    #[arg(value_name = "HOST", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    host: String,
    /// Shut off, move and start again what cannot move while it runs: servers with a whole PCI
    /// function or an FPGA.
    #[arg(long)]
    cold: bool,
    /// Moves at once.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    parallel: u16,
    /// When to give up waiting; what was asked for goes on all the same.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    timeout: u32,
    /// Why, for whoever sees that it is disabled.
    #[arg(long, value_name = "TEXT", default_value = "drained by kilonova host drain", value_parser = reason)]
    reason: String,
    #[command(flatten)]
    door: Door,
    /// How to print what it came to.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

#[derive(Debug, Args)]
struct Undrain {
    /// The host.
    #[arg(value_name = "HOST", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    host: String,
    #[command(flatten)]
    door: Door,
}

fn reason(text: &str) -> Result<String, String> {
    match text.chars().count() {
        1..=255 => Ok(text.to_owned()),
        _ => Err("it has 1 to 255 characters".to_owned()),
    }
}

pub(super) fn run(options: Options) -> Result<ExitCode, Failure> {
    match options.command {
        Command::Drain(options) => drain(options),
        Command::Undrain(options) => super::runtime()?.block_on(async {
            let compute = Compute::open(&options.door).await?;
            let said = drain::undrain(&compute, &options.host).await?;
            super::say(&format!("{said}\n"));
            Ok(ExitCode::SUCCESS)
        }),
    }
}

fn drain(options: Drain) -> Result<ExitCode, Failure> {
    let wish = Wish {
        host: options.host,
        allowed: Allowed { cold: options.cold },
        parallel: usize::from(options.parallel),
        timeout: Duration::from_secs(options.timeout.into()),
        reason: options.reason,
        again: again(std::env::args()),
    };
    let report = super::runtime()?.block_on(async {
        let compute = Compute::open(&options.door).await?;
        drain::drain(&compute, &wish).await
    })?;
    match options.format {
        Format::Table => super::say(&report.text()),
        Format::Json => super::say(&format!("{}\n", report.json())),
    }
    Ok(ExitCode::from(report.exit_code()))
}

/// The command as it was typed.
fn again(words: impl Iterator<Item = String>) -> String {
    let quoted = words.map(|word| {
        let plain = |c: char| c.is_alphanumeric() || "-_=:./,@%+".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_was_typed_can_be_typed_again() {
        let words = ["kilonova", "host", "drain", "a b", "--reason", "it's"].map(str::to_owned);
        let said = super::again(words.into_iter());
        assert_eq!(said, "kilonova host drain 'a b' --reason 'it'\\''s'");
    }
}
