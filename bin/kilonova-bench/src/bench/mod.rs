//! `kilonova-bench`: the cost of servers on simulated hosts, from POST to ACTIVE and through their
//! operations.
//!
//! The measured server is a process of its own, and the clients share the machine with it. CPU time
//! per boot, which excludes the clients, therefore says more than boots per second.

pub mod accelerators;
mod apart;
mod client;
mod cloud;
mod controllers;
mod density;
mod growth;
mod load;
mod mixed;
mod no_room;
pub mod packing;
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
    /// Boots, lists, mixed load, deletes and a restart, for each number of hosts.
    Growth,
    /// Boots on hosts that have many servers already.
    Density,
    /// The controller, with the hosts in another process.
    Apart,
    /// Boots without room, alone and concurrently with boots that fit.
    NoRoom,
    /// One controller, and two side by side on the same PostgreSQL (needs --database).
    Controllers,
}

/// The size of the benchmark.
pub struct Size<'a> {
    /// The measured parts.
    pub pieces: Vec<Piece>,
    /// Numbers of simulated hosts, one cloud for each.
    pub hosts: Vec<usize>,
    /// Servers to boot.
    pub servers: usize,
    /// Operations of the mixed load.
    pub operations: usize,
    /// Simulated hosts in another process.
    pub hosts_apart: Option<usize>,
    /// Servers to boot with the hosts in another process.
    pub servers_apart: usize,
    /// Concurrent clients.
    pub clients: usize,
    /// The database URL, unless it is SQLite.
    pub database: Option<&'a str>,
    /// The process of PostgreSQL, if its CPU time is measured.
    pub database_process: Option<u32>,
    /// No further part is started after this time.
    pub time: Duration,
}

impl Size<'_> {
    /// CPU milliseconds that PostgreSQL has used so far, if they are measured.
    fn database_cpu_ms(&self) -> Option<f64> {
        self.database_process.map(|process| process::trees_cpu_ms(&[process]))
    }
}

/// Runs the benchmark and returns its tables.
///
/// # Errors
/// When the measured server misbehaves.
pub async fn run(directory: &Path, size: &Size<'_>) -> Result<Vec<Table>, Failure> {
    let begun = Instant::now();
    let store = if size.database.is_some() { "PostgreSQL" } else { "SQLite" };
    let has_time = |what: &str| {
        let left = begun.elapsed() < size.time;
        if !left {
            eprintln!("kilonova-bench: skipping {what}: no time left (--minutes)");
        }
        left
    };
    let mut tables = Vec::new();
    if size.pieces.contains(&Piece::Density) {
        tables.push(density::run(directory, size, store).await?);
    }
    if size.pieces.contains(&Piece::NoRoom) && has_time("boots without room") {
        tables.push(no_room::run(directory, size, store).await?);
    }
    if size.pieces.contains(&Piece::Apart)
        && has_time("the controller alone")
        && let Some(hosts) = size.hosts_apart
    {
        tables.push(apart::run(directory, size, store, hosts, size.servers_apart).await?);
    }
    if size.pieces.contains(&Piece::Controllers)
        && let Some(hosts) = size.hosts_apart
    {
        if size.database.is_none() {
            return Err(Failure::Refused("two controllers need a PostgreSQL: --database".into()));
        }
        tables.push(controllers::run(directory, size, hosts).await?);
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

/// `servers`, but at most half of the vGPUs of `hosts` hosts with eight GPUs.
fn capped(servers: usize, hosts: usize, vgpus: usize) -> usize {
    servers.min(hosts * 8 * vgpus / 2)
}
