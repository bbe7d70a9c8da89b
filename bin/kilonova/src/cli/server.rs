//! `kilonova server …`.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::Format;
use super::examples;
use crate::cloud::{Asked, Compute, Door};
use crate::failure::Failure;
use crate::operate::{explain, find};

/// Options of `server`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say what became of a server, why, and what to do next; also of one that was deleted.
    #[command(after_help = examples::EXPLAIN)]
    Explain(Explain),
}

#[derive(Debug, Args)]
struct Explain {
    /// The server's uuid, or a name that only one server has.
    #[arg(value_name = "SERVER", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    server: String,
    #[command(flatten)]
    door: Door,
    /// How to print.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub(super) fn run(options: Options) -> Result<ExitCode, Failure> {
    let Command::Explain(options) = options.command;
    let told = super::runtime()?.block_on(async {
        let compute = Compute::open(&options.door).await?;
        let server = find::server(&compute, &options.server).await?;
        compute.get(&format!("/kilonova/servers/{server}")).await.map_err(Asked::fatal)
    })?;
    match options.format {
        Format::Table => super::say(&explain::page(&told["server"])),
        Format::Json => super::say(&format!("{}\n", told["server"])),
    }
    Ok(ExitCode::SUCCESS)
}
