//! `kilonova completion`: shell completion scripts.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Arguments;
use crate::failure::Failure;

/// Arguments of `completion`.
#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(options: CompletionArgs) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut Arguments::command(), "kilonova", &mut text);
    super::say(&String::from_utf8_lossy(&text));
    Ok(ExitCode::SUCCESS)
}
