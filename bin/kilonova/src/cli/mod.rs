//! The command line: one file per command.

mod completion;
mod discover;
mod doctor;
mod examples;
mod host;
mod node;
mod node_join;
mod placement;
mod serve;
mod server;
mod thrift;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use kilonova_program::logs::LogFormat;

use crate::failure::Failure;

/// Servers with accelerators, spoken to by the OpenStack clients.
#[derive(Debug, Parser)]
#[command(name = "kilonova", version, after_help = examples::ALL)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the services until SIGTERM or Ctrl-C.
    #[command(after_help = examples::SERVE)]
    Serve(Serve),
    /// Look at everything: configuration, files, database, nodes, clocks, operations, devices, ledger.
    /// Exit 0 when all is well, 1 when something is wrong, 2 when it could not look.
    #[command(after_help = examples::DOCTOR)]
    Doctor(Doctor),
    /// Have a server explained.
    Server(server::Options),
    /// Empty a host, or let it have servers again.
    Host(host::Options),
    /// Show which devices this machine could give to guests, and which of them the options offer.
    #[command(after_help = examples::DISCOVER)]
    Discover(discover::Options),
    /// Let hosts join, see which have, send one away; or run simulated hosts in another process.
    #[command(after_help = examples::NODE)]
    Node(node::Options),
    /// Take over an existing Placement.
    Placement(placement::Options),
    /// Print what a shell needs to complete command lines.
    #[command(after_help = examples::COMPLETION)]
    Completion(completion::Options),
}

/// Options of `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Configuration in oslo's INI form; the options here count more [default: none].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where keys, images and, with SQLite, the database are; for its owner alone [default:
    /// kilonova-state].
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Address and port for users; port 0 takes a free one [default: 127.0.0.1:8774].
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// sqlite:///FILE or postgresql://USER@HOST/DATABASE [default: SQLite in the state directory].
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// Topology of simulated hosts [default: none, and no simulated host].
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
    /// Address and port for hosts that join, over TLS [default: none, and no host can join].
    #[arg(long, value_name = "ADDR:PORT")]
    pub node_listen: Option<SocketAddr>,
    /// Names or addresses by which hosts call this machine, the one to tell them first [default:
    /// its own name, and the address of --node-listen].
    #[arg(long = "node-name", value_name = "NAME")]
    pub node_names: Vec<String>,
    /// Make what a first server needs, once: flavors, an image, a network, and a device profile for
    /// each kind of device that the hosts have.
    #[arg(long)]
    pub dev: bool,
    /// How log lines look: text or json [default: text on a terminal, json elsewhere].
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

/// Options of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Configuration in oslo's INI form [default: none].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The state directory of the server [default: kilonova-state].
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// The database [default: SQLite in the state directory].
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// For how long an operation may stand still.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    pub stuck_after: u32,
    /// Exit 1 for warnings too.
    #[arg(long)]
    pub strict: bool,
    /// First give rows that are newer than this machine's clock the present time: a clock was ahead
    /// when they were written, and is right now.
    #[arg(long)]
    pub redate: bool,
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
        Command::Server(options) => server::run(options),
        Command::Host(options) => host::run(options),
        Command::Discover(options) => discover::run(options),
        Command::Node(options) => node::run(options),
        Command::Placement(options) => placement::run(options),
        Command::Completion(options) => completion::run(options),
    }
}

/// Prints a text. Whoever reads it may have seen enough and be gone.
fn say(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Threads of the runtime's own blocking pool: names to resolve, and files that the program itself
/// reads. What users can cause has pools of its own (`kilonova_threads`). More threads only spread the
/// memory that each keeps for itself.
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
