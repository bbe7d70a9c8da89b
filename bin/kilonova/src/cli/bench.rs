//! `kilonova bench`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use serde_json::Value;

use super::bench_accelerators::{self, Accelerators};
use super::bench_placement::{self, Placement};
use super::{Bench, Format};
use crate::bench::{self, Piece, Size, Table};
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
    let size = size(&options);
    let tables = super::runtime()?.block_on(bench::run(&directory, &size));
    if options.directory.is_none() && tables.is_ok() {
        clear(directory)?;
    }
    let tables = tables?;
    if options.format == Format::Json {
        println!("{}", tables.iter().map(Table::json).collect::<Value>());
    } else {
        tables.iter().for_each(|table| println!("{}", table.lines()));
    }
    Ok(ExitCode::SUCCESS)
}

fn size(options: &Bench) -> Size<'_> {
    let quick = |usual: usize, quick: usize| if options.quick { quick } else { usual };
    let mut pieces = match (options.only.is_empty(), &options.database) {
        (false, _) => options.only.clone(),
        (true, None) => vec![Piece::Growth, Piece::Density, Piece::NoRoom, Piece::Apart],
        (true, Some(_)) => vec![Piece::Growth],
    };
    let mut hosts = match (options.hosts.is_empty(), &options.database) {
        (false, _) => options.hosts.clone(),
        (true, None) if options.quick => vec![100, 1000],
        (true, None) => vec![100, 1000, 10_000],
        (true, Some(_)) => vec![quick(1000, 100)],
    };
    if options.database.is_some() {
        // Each cloud begins with an empty database.
        pieces.truncate(1);
        hosts.drain(..hosts.len() - 1);
    }
    Size {
        pieces,
        hosts,
        servers: options.servers.unwrap_or(quick(4000, 500)).max(1),
        operations: options.operations.unwrap_or(quick(3000, 500)),
        servers_apart: options.servers_apart.unwrap_or(quick(10_000, 500)).max(1),
        clients: options.clients.max(1),
        database: options.database.as_deref(),
        time: Duration::from_secs(options.minutes * 60),
    }
}

fn clear(directory: PathBuf) -> Result<(), Failure> {
    std::fs::remove_dir_all(&directory)
        .map_err(|e| Failure::failed(&format!("cannot remove {}", directory.display()), e))
}
