//! `kilonova-agent`: makes a compute host match the controller's documents.
//!
//! Parses the command line, calls one module per command, and maps the result to an exit code: 0
//! success, 1 failure or a problem of the host, 2 refused before any change, 3 another agent
//! registered for this host.

mod check;
mod cli;
mod connection;
mod control;
mod facts;
mod join;
mod libvirt_tls;
mod monitor;
mod pki_dir;
mod run;
mod settings;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    match cli::run(arguments) {
        Ok(code) => code,
        Err(failure) => {
            failure.print("kilonova-agent");
            failure.exit_code()
        }
    }
}
