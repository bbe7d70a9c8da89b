//! `kilonova-bench`: measures a `kilonova` program under load and prints tables.
//!
//! The measured server is the program that the environment variable `KILONOVA` names, or `kilonova` in
//! this program's directory. This program must never run a server in its own process.

mod bench;
mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    match cli::run(arguments) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("kilonova-bench: {failure}");
            failure.exit_code()
        }
    }
}
