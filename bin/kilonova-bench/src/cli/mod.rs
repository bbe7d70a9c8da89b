//! The command line of `kilonova-bench`: the options of the boots here, one file per other part.

mod accelerators;
mod packing;
mod placement;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use kilonova_program::Failure;
use serde_json::Value;

use crate::bench::{self, Piece, Size, Table};

const EXAMPLES: &str = "\
Examples:
  kilonova-bench --quick
  kilonova-bench --only growth --hosts 1000";

/// Measures servers on simulated hosts: boots, migrations, lists and deletes, by the number of hosts.
///
/// Measures the program that KILONOVA names. Default: `kilonova` in the directory of this program.
#[derive(Debug, Parser)]
#[command(name = "kilonova-bench", version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Arguments {
    /// A benchmark other than boots.
    #[command(subcommand)]
    part: Option<Part>,
    /// Parts to measure [default: growth, density, no-room and apart; growth with --database]. With
    /// --database, only the first part runs.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Piece>,
    /// Numbers of simulated hosts, one cloud for each. With --database only the last one runs
    /// [default: 100,1000,10000; 1000 with --database].
    #[arg(long, value_delimiter = ',')]
    hosts: Vec<usize>,
    /// Servers to boot [default: 4000].
    #[arg(long)]
    servers: Option<usize>,
    /// Operations of the mixed load [default: 3000].
    #[arg(long)]
    operations: Option<usize>,
    /// Servers to boot with the hosts in another process [default: 10000].
    #[arg(long)]
    servers_apart: Option<usize>,
    /// A smaller run: 100 and 1,000 hosts, 500 servers.
    #[arg(long)]
    quick: bool,
    /// Concurrent clients.
    #[arg(long, default_value_t = 32)]
    clients: usize,
    /// Starts no further part after this number of minutes.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// URL of an empty PostgreSQL database. Default: SQLite.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Process id of this PostgreSQL; shows the CPU time of this process and its children too.
    #[arg(long, value_name = "PID", requires = "database")]
    database_process: Option<u32>,
    /// Working directory (kept). Default: a temporary directory.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// Benchmarks other than boots.
#[derive(Debug, Subcommand)]
pub enum Part {
    /// Measure the Placement API, optionally compared with another Placement.
    Placement(placement::Placement),
    /// Measure the accelerator API and registrations, optionally compared with a Cyborg.
    Accelerators(Box<accelerators::Accelerators>),
    /// Replay traces of requests with the product's choice of hosts and devices. Starts no server.
    Packing(packing::Packing),
}

/// Runs the benchmark and prints its tables.
///
/// # Errors
/// When the benchmark cannot run.
pub fn run(options: Arguments) -> Result<ExitCode, Failure> {
    match options.part {
        Some(Part::Placement(part)) => return placement::run(part),
        Some(Part::Accelerators(part)) => return accelerators::run(*part),
        Some(Part::Packing(part)) => return packing::run(part),
        None => {}
    }
    let directory = options.directory.clone().unwrap_or_else(|| {
        std::env::temp_dir().join(format!("kilonova-bench-{}", std::process::id()))
    });
    std::fs::create_dir_all(&directory)
        .map_err(|e| Failure::failed(&format!("cannot make {}", directory.display()), e))?;
    let size = size(&options);
    let tables = runtime()?.block_on(bench::run(&directory, &size));
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

fn size(options: &Arguments) -> Size<'_> {
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
        // Each cloud needs an empty database.
        pieces.truncate(1);
        hosts.drain(..hosts.len() - 1);
    }
    // The largest requested number of hosts, or at most 1000 by default.
    let hosts_apart = options.hosts.iter().copied().max();
    let hosts_apart = hosts_apart.or_else(|| hosts.iter().copied().filter(|n| *n <= 1000).max());
    Size {
        pieces,
        hosts,
        hosts_apart,
        servers: options.servers.unwrap_or(quick(4000, 500)).max(1),
        operations: options.operations.unwrap_or(quick(3000, 500)),
        servers_apart: options.servers_apart.unwrap_or(quick(10_000, 500)).max(1),
        clients: options.clients.max(1),
        database: options.database.as_deref(),
        database_process: options.database_process,
        time: Duration::from_secs(options.minutes * 60),
    }
}

fn clear(directory: PathBuf) -> Result<(), Failure> {
    std::fs::remove_dir_all(&directory)
        .map_err(|e| Failure::failed(&format!("cannot remove {}", directory.display()), e))
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns.
    Table,
    /// One JSON document.
    Json,
}

/// The runtime of a command.
///
/// # Errors
/// When the threads cannot be started.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::failed("cannot start the runtime", e))
}
