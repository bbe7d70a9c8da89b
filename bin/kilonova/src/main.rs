//! `kilonova`: the controller and its tools.
//!
//! Parses the command line, runs one module per command, and returns its exit code: 0 success, 1
//! failure, 2 refused before any change.

mod cli;
mod cloud;
mod config;
mod doctor;
mod failure;
mod import;
mod operate;
mod progress;
mod serve;
mod state;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    match cli::run(arguments) {
        Ok(code) => code,
        Err(failure) => {
            failure.print("kilonova");
            failure.exit_code()
        }
    }
}
