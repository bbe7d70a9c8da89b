//! `kilonova-agent`: makes a compute host look like the control plane's documents say.
//!
//! Reads the command line, hands over to one module per command and turns what comes back into an exit
//! code: 0 done, 1 failed or something is wrong with the host, 2 refused before anything was changed,
//! 3 another agent speaks for this host.

mod check;
mod cli;
mod control;
mod facts;
mod join;
mod libvirt_tls;
mod pki_dir;
mod run;
mod settings;
mod vigil;
mod way;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    match cli::run(arguments) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("kilonova-agent: {failure}");
            failure.exit_code()
        }
    }
}
