//! `kilonova bench`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::bench_accelerators::{self, Accelerators};
use super::bench_placement::{self, Placement};
use super::{Bench, Format};
use crate::bench::{self, Size};
use crate::failure::Failure;

/// Parts of `bench`.
#[derive(Debug, Subcommand)]
pub enum Part {
    /// Measure the Placement API alone, and beside another Placement.
    Placement(Placement),
    /// Measure the accelerator API and devices' reports, and beside a Cyborg.
    Accelerators(Box<Accelerators>),
}

pub(super) fn run(options: Bench) -> Result<ExitCode, Failure> {
    match options.part {
        Some(Part::Placement(part)) => return bench_placement::run(part),
        Some(Part::Accelerators(part)) => return bench_accelerators::run(*part),
        None => {}
    }
    let directory = options.directory.clone().unwrap_or_else(|| {
        std::env::temp_dir().join(format!("kilonova-bench-{}", std::process::id()))
    });
    std::fs::create_dir_all(&directory)
        .map_err(|e| Failure::failed(&format!("cannot make {}", directory.display()), e))?;
    let size = Size {
        hosts: options.hosts,
        servers: options.servers,
        clients: options.clients,
        database: options.database.as_deref(),
    };
    let rows = super::runtime()?.block_on(bench::run(&directory, &size));
    if options.directory.is_none() && rows.is_ok() {
        clear(directory)?;
    }
    let rows = rows?;
    if options.format == Format::Json {
        let rows: Vec<_> =
            rows.iter().map(|(what, value, unit)| json!([what, value, unit])).collect();
        println!("{}", json!(rows));
    } else {
        let store = if options.database.is_some() { "PostgreSQL" } else { "SQLite" };
        println!(
            "{store}: {} hosts, {} servers, {} clients",
            size.hosts, size.servers, size.clients
        );
        for (what, value, unit) in rows {
            println!("  {what:45} {value:10.2} {unit}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn clear(directory: PathBuf) -> Result<(), Failure> {
    std::fs::remove_dir_all(&directory)
        .map_err(|e| Failure::failed(&format!("cannot remove {}", directory.display()), e))
}
