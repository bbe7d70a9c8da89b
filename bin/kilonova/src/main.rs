//! `kilonova`: the control plane and its tools.
//!
//! Reads the command line, hands over to one module per command and turns what comes back into an
//! exit code: 0 done, 1 failed, 2 refused before anything was changed.

mod cli;
mod cloud;
mod config;
mod doctor;
mod failure;
mod import;
mod operate;
mod serve;
mod state;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    match cli::run(arguments) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("kilonova: {failure}");
            failure.exit_code()
        }
    }
}
