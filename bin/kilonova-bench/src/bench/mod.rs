//! `kilonova-bench`: simulated hosts, servers from POST to ACTIVE and through all that can be done
//! with them, and what it costs.
//!
//! The measured server is a process of its own; the clients share the machine with it, and on a
//! small one they take a good part of it. So CPU time per boot, which the clients are not in, says
//! more than boots per second.

pub mod accelerators;
mod apart;
mod client;
mod cloud;
mod density;
mod growth;
mod load;
mod mixed;
mod no_room;
pub mod placement;
mod process;
mod progress;
mod table;

use std::path::Path;
use std::time::{Duration, Instant};

use kilonova_program::Failure;

pub use self::table::Table;

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Piece {
    /// Boots, lists, mixed load, deletes and a second start, for each number of hosts.
    Growth,
    /// Boots on hosts that have many servers already.
    Density,
    /// The control plane with the hosts in a process of their own.
    Apart,
    /// Boots that find no room, alone and beside others that fit.
    NoRoom,
}

/// How much of it.
pub struct Size<'a> {
    /// What is measured.
    pub pieces: Vec<Piece>,
    /// Simulated hosts, each number by itself.
    pub hosts: Vec<usize>,
    /// Servers to boot.
    pub servers: usize,
    /// Operations of the mixed load.
    pub operations: usize,
    /// Servers to boot with the hosts in a process of their own.
    pub servers_apart: usize,
    /// Clients at once.
    pub clients: usize,
    /// The database, where it is not SQLite.
    pub database: Option<&'a str>,
    /// No further part is begun after this.
    pub time: Duration,
}

/// Runs it and returns the tables.
///
/// # Errors
/// When the measured server misbehaves.
pub async fn run(directory: &Path, size: &Size<'_>) -> Result<Vec<Table>, Failure> {
    let begun = Instant::now();
    let store = if size.database.is_some() { "PostgreSQL" } else { "SQLite" };
    let has_time = |what: &str| {
        let left = begun.elapsed() < size.time;
        if !left {
            eprintln!("kilonova-bench: {what} is left out: the time is over (--minutes)");
        }
        left
    };
    let mut tables = Vec::new();
    if size.pieces.contains(&Piece::Density) {
        tables.push(density::run(directory, size, store).await?);
    }
    if size.pieces.contains(&Piece::NoRoom) && has_time("boots that find no room") {
        tables.push(no_room::run(directory, size, store).await?);
    }
    if size.pieces.contains(&Piece::Apart) && has_time("the control plane alone") {
        let hosts = size.hosts.iter().copied().filter(|hosts| *hosts <= 1000).max();
        if let Some(hosts) = hosts {
            tables.push(apart::run(directory, size, store, hosts, size.servers_apart).await?);
        }
    }
    if size.pieces.contains(&Piece::Growth) {
        let mut figures = Vec::new();
        for hosts in &size.hosts {
            if !has_time(&format!("a cloud of {hosts} hosts")) {
                break;
            }
            figures.push(growth::measure(directory, size, *hosts).await?);
        }
        let more = growth::tables(store, size, &figures);
        tables.splice(0..0, more);
    }
    Ok(tables)
}

/// So many servers, but no more than half of what `hosts` hosts of eight GPUs have room for.
fn capped(servers: usize, hosts: usize, vgpus: usize) -> usize {
    servers.min(hosts * 8 * vgpus / 2)
}
