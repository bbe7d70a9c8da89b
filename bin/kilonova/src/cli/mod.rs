//! The command line: one file per command.

mod admin;
mod ca;
mod capacity;
mod completion;
mod config;
mod database;
mod discover;
mod doctor;
mod examples;
mod host;
mod keys;
mod malloc;
mod node;
mod node_join;
mod placement;
mod rebalance;
mod serve;
mod server;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use kilonova_program::logs::LogFormat;
use kilonova_program::{say, say_done};

use crate::failure::Failure;

/// OpenStack-compatible cloud for servers with accelerators.
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
    /// Check configuration, files, database, hosts, clocks, operations, devices and the ledger: the records of
    /// servers, allocations and devices.
    /// Exits 0 without errors, 1 for errors, 2 if a check could not run.
    #[command(after_help = examples::DOCTOR)]
    Doctor(Doctor),
    /// Inspect servers.
    Server(server::ServerArgs),
    /// Drain a host, or enable it again.
    Host(host::HostArgs),
    /// Show how many more servers of each flavor fit now, and how the free devices are fragmented.
    #[command(after_help = examples::CAPACITY)]
    Capacity(capacity::CapacityArgs),
    /// Plan or perform live migrations that make room for a flavor, or that leave the free devices less fragmented.
    #[command(after_help = examples::REBALANCE)]
    Rebalance(rebalance::RebalanceArgs),
    /// List this machine's devices and whether the configuration offers them.
    #[command(after_help = examples::DISCOVER)]
    Discover(discover::DiscoverArgs),
    /// Enroll, list and revoke hosts; or run simulated hosts in this process.
    #[command(after_help = examples::NODE)]
    Node(node::NodeArgs),
    /// List and rotate the keys of tokens and the keys that seal the secrets in the database.
    #[command(after_help = examples::KEYS)]
    Keys(keys::KeysArgs),
    /// Set a new password for the administrator of a cloud whose credentials are lost.
    #[command(after_help = examples::ADMIN)]
    Admin(admin::AdminArgs),
    /// List and rotate the cloud's certificate authority.
    #[command(after_help = examples::CA)]
    Ca(ca::CaArgs),
    /// Copy the database of a stopped cloud, between SQLite and PostgreSQL.
    #[command(after_help = examples::DATABASE)]
    Database(database::DatabaseArgs),
    /// Import the data of another Placement.
    Placement(placement::PlacementArgs),
    /// Check the configuration files of a Nova, a Placement and a Cyborg.
    #[command(after_help = examples::CONFIG_CHECK)]
    Config(config::ConfigArgs),
    /// Print a shell completion script.
    #[command(after_help = examples::COMPLETION)]
    Completion(completion::CompletionArgs),
}

/// Options of `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Configuration file in oslo's INI form; command-line options take precedence [default: none].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory for keys, images and the SQLite database; only its owner may access it [default:
    /// kilonova-state].
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Address and port of the API; port 0 chooses a free one [default: 127.0.0.1:8774].
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// sqlite:///FILE or postgresql://USER@HOST/DATABASE [default: SQLite in the state directory].
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// Topology file of simulated hosts [default: none].
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
    /// Address and port for enrolled hosts, over TLS [default: none; hosts cannot join].
    #[arg(long, value_name = "ADDR:PORT")]
    pub node_listen: Option<SocketAddr>,
    /// Names or addresses at which hosts reach this machine, the preferred one first [default: the host
    /// name, and the address of --node-listen].
    #[arg(long = "node-name", value_name = "NAME")]
    pub node_names: Vec<String>,
    /// Create what a first server needs, once: flavors, an image, a network, and a device profile for
    /// each kind of device of the hosts.
    #[arg(long)]
    pub dev: bool,
    /// Log format: text or json [default: text on a terminal, json elsewhere].
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

/// Options of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Configuration file in oslo's INI form [default: none].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// State directory of the controller [default: kilonova-state].
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Database URL [default: SQLite in the state directory].
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// Seconds without progress after which an operation counts as stuck.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    pub stuck_after: u32,
    /// Exit 1 also for warnings.
    #[arg(long)]
    pub strict: bool,
    /// Before the checks, set times in the future to the current time. Use this after a clock was ahead and
    /// has been corrected.
    #[arg(long)]
    pub redate: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns.
    Table,
    /// JSON.
    Json,
}

/// Runs the command.
///
/// # Errors
/// The failure of the command.
pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        Command::Serve(options) => serve::run(options),
        Command::Doctor(options) => doctor::run(options),
        Command::Server(options) => server::run(options),
        Command::Host(options) => host::run(options),
        Command::Capacity(options) => capacity::run(options),
        Command::Rebalance(options) => rebalance::run(options),
        Command::Discover(options) => discover::run(options),
        Command::Node(options) => node::run(options),
        Command::Keys(options) => keys::run(options),
        Command::Admin(options) => admin::run(options),
        Command::Ca(options) => ca::run(options),
        Command::Database(options) => database::run(options),
        Command::Placement(options) => placement::run(options),
        Command::Config(options) => config::run(options),
        Command::Completion(options) => completion::run(options),
    }
}

/// Threads of the runtime's own blocking pool, for name resolution and the program's own files. Work
/// for user requests has its own pools (`kilonova_threads`). Each thread costs memory.
const BLOCKING_THREADS: usize = 32;

/// The runtime of a command.
///
/// # Errors
/// If the system refuses threads.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .map_err(|e| Failure::failed("cannot start the runtime", e))
}
