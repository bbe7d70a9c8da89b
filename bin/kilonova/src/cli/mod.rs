//! The command line: one file per command.

mod bench;
mod bench_accelerators;
mod bench_placement;
mod discover;
mod doctor;
mod node;
mod placement;
mod serve;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::failure::Failure;

/// Servers with accelerators, spoken to by the OpenStack clients.
#[derive(Debug, Parser)]
#[command(name = "kilonova", version)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the services until SIGTERM or Ctrl-C.
    Serve(Serve),
    /// Check the ledger of a state directory; exit 1 when a rule is broken.
    Doctor(Doctor),
    /// Show which devices this machine could give to guests, and which of them the options offer.
    Discover(discover::Options),
    /// Run simulated hosts against a control plane in another process.
    Node(node::Options),
    /// Take over an existing Placement.
    Placement(placement::Options),
    /// Measure boots, lists and deletes on simulated hosts.
    Bench(Bench),
}

/// Options of `bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    /// Something else than boots.
    #[command(subcommand)]
    pub part: Option<bench::Part>,
    /// Simulated hosts.
    #[arg(long, default_value_t = 1000)]
    pub hosts: usize,
    /// Servers to boot.
    #[arg(long, default_value_t = 4000)]
    pub servers: usize,
    /// Clients at once.
    #[arg(long, default_value_t = 32)]
    pub clients: usize,
    /// An empty PostgreSQL database; SQLite otherwise.
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// Where to work, and leave what was made; a temporary directory otherwise.
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// How to print.
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
}

/// Options of `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Configuration in oslo's INI form.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where keys, images and, with SQLite, the database are.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Address and port; port 0 takes a free one.
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// sqlite:///FILE or postgresql://USER@HOST/DATABASE.
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// Topology of simulated hosts.
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
}

/// Options of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Configuration in oslo's INI form.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The state directory.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// The database, where it is not in the state directory.
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// How to print.
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
}

/// For people or for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns.
    Table,
    /// One JSON document.
    Json,
}

/// Runs the command.
///
/// # Errors
/// What ends it.
pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        Command::Serve(options) => serve::run(options),
        Command::Doctor(options) => doctor::run(options),
        Command::Discover(options) => discover::run(options),
        Command::Node(options) => node::run(options),
        Command::Placement(options) => placement::run(options),
        Command::Bench(options) => bench::run(options),
    }
}

/// Threads for what blocks: above the connections of a database with some for the rest. More of them
/// only spread the memory that each keeps for itself.
const BLOCKING_THREADS: usize = 32;

/// The runtime of a command.
///
/// # Errors
/// When the system gives no threads.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .map_err(|e| Failure::failed("cannot start the runtime", e))
}
