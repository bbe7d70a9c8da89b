//! `kilonova host …`.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use kilonova_ids::HostName;

use super::Format;
use super::examples;
use crate::cloud::{CloudArgs, Compute};
use crate::failure::Failure;
use crate::operate::drain::{self, DrainRequest};

/// Arguments of `host`.
#[derive(Debug, Args)]
pub struct HostArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Disable a host and move its servers away. The controllers perform the drain; this command shows its progress.
    /// The drain continues after Ctrl-C. Exits 0 only when the host is empty.
    #[command(after_help = examples::DRAIN)]
    Drain(Drain),
    /// Enable a host again.
    #[command(after_help = examples::UNDRAIN)]
    Undrain(Undrain),
}

#[derive(Debug, Args)]
struct Drain {
    /// Host name, as in `openstack compute service list`. Example: host1.
    #[arg(value_name = "HOST", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    host: String,
    /// Also move servers that cannot live-migrate (with a whole PCI function or an FPGA): stop, move,
    /// start.
    #[arg(long)]
    cold: bool,
    /// Concurrent moves.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=100))]
    parallel: u16,
    /// Show the progress until the drain ends (the default).
    #[arg(long, overrides_with = "no_wait")]
    wait: bool,
    /// Only start the drain. Exits 0 once it has started.
    #[arg(long, overrides_with = "wait")]
    no_wait: bool,
    /// Stop the drain of the host instead. Moves that were requested continue, and the host stays disabled.
    #[arg(long, conflicts_with_all = ["cold", "parallel", "wait", "no_wait", "timeout", "reason", "format"])]
    stop: bool,
    /// Seconds to wait. The drain continues after that.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    timeout: u32,
    /// Reason shown for the disabled host.
    #[arg(long, value_name = "TEXT", default_value = "drained by kilonova host drain", value_parser = reason)]
    reason: String,
    #[command(flatten)]
    cloud: CloudArgs,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

#[derive(Debug, Args)]
struct Undrain {
    /// Host name. Example: host1.
    #[arg(value_name = "HOST", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    host: String,
    #[command(flatten)]
    cloud: CloudArgs,
}

fn reason(text: &str) -> Result<String, String> {
    match text.chars().count() {
        1..=255 => Ok(text.to_owned()),
        _ => Err("it must have 1 to 255 characters".to_owned()),
    }
}

pub(super) fn run(options: HostArgs) -> Result<ExitCode, Failure> {
    match options.command {
        Command::Drain(options) => drain(options),
        Command::Undrain(options) => super::runtime()?.block_on(async {
            let compute = Compute::open(&options.cloud).await?;
            let result = drain::undrain(&compute, &HostName::verbatim(options.host)).await?;
            super::say_done(&format!("{result}\n"))?;
            Ok(ExitCode::SUCCESS)
        }),
    }
}

fn drain(options: Drain) -> Result<ExitCode, Failure> {
    let host = HostName::verbatim(options.host);
    if options.stop {
        let result = super::runtime()?.block_on(async {
            let compute = Compute::open(&options.cloud).await?;
            drain::stop(&compute, &host).await
        })?;
        super::say_done(&format!("{result}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let request = DrainRequest {
        host,
        cold: options.cold,
        parallel: options.parallel,
        timeout: Duration::from_secs(options.timeout.into()),
        reason: options.reason,
        again: again(std::env::args().filter(|word| word != "--no-wait")),
    };
    let report = super::runtime()?.block_on(async {
        let compute = Compute::open(&options.cloud).await?;
        if options.wait || !options.no_wait {
            drain::drain(&compute, &request).await
        } else {
            drain::begin(&compute, &request).await
        }
    })?;
    match options.format {
        Format::Table => super::say(&report.text())?,
        Format::Json => super::say(&format!("{}\n", report.json()))?,
    }
    Ok(ExitCode::from(report.exit_code()))
}

/// The command line as typed, quoted for a shell.
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
    fn a_command_line_is_quoted_for_reuse() {
        let words = ["kilonova", "host", "drain", "a b", "--reason", "it's"].map(str::to_owned);
        let text = super::again(words.into_iter());
        assert_eq!(text, "kilonova host drain 'a b' --reason 'it'\\''s'");
    }
}
