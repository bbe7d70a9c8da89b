//! `kilonova server …`.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::Format;
use super::examples;
use crate::cloud::{CloudArgs, Compute, ComputeError};
use crate::failure::Failure;
use crate::operate::{explain, find};

/// Arguments of `server`.
#[derive(Debug, Args)]
pub struct ServerArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Explain a server's state, its cause and the next steps; also for a deleted server.
    #[command(after_help = examples::EXPLAIN)]
    Explain(Explain),
}

#[derive(Debug, Args)]
struct Explain {
    /// UUID of the server, or its name if unique. Example: vm1.
    #[arg(value_name = "SERVER", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    server: String,
    #[command(flatten)]
    cloud: CloudArgs,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub(super) fn run(options: ServerArgs) -> Result<ExitCode, Failure> {
    let Command::Explain(options) = options.command;
    let answer = super::runtime()?.block_on(async {
        let compute = Compute::open(&options.cloud).await?;
        let server = find::server(&compute, &options.server).await?;
        compute.get(&format!("/kilonova/servers/{server}")).await.map_err(ComputeError::fatal)
    })?;
    match options.format {
        Format::Table => super::say(&explain::page(&answer["server"]))?,
        Format::Json => super::say(&format!("{}\n", answer["server"]))?,
    }
    Ok(ExitCode::SUCCESS)
}
