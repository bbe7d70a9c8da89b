//! The project's own chores: `cargo xtask check` enforces the rules of docs/ARCHITECTURE.md.
//!
//! This program reads the repository and runs cargo. It never changes a file.

mod check;
mod rules;
mod source;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own chores.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Checks the rules of docs/ARCHITECTURE.md, formatting, clippy and the dependencies.
    ///
    /// Example: cargo xtask check layers prose
    Check {
        /// The checks to run, in this order. Default: all of them.
        #[arg(value_enum)]
        checks: Vec<check::Check>,
    },
}

fn main() -> ExitCode {
    let Chore::Check { checks } = Arguments::parse().chore;
    match check::run(&checks) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}
