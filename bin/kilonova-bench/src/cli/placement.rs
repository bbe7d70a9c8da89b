//! `kilonova-bench placement`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use kilonova_program::Failure;
use serde_json::Value;

use super::Format;
use crate::bench::placement::{self, Size};

/// Options of `bench placement`.
#[derive(Debug, Args)]
pub struct Placement {
    /// Hosts with four pGPUs each.
    #[arg(long, default_value_t = 1000)]
    hosts: usize,
    /// Hosts with eight GPUs; repeat for several clouds, 0 for none.
    #[arg(long, value_name = "HOSTS", default_values_t = [10, 1000])]
    wide: Vec<usize>,
    /// Concurrent clients, in addition to a run with one client.
    #[arg(long, default_value_t = 8)]
    clients: usize,
    /// Seconds for each request and each number of clients.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Base URL of another Placement that holds the same cloud.
    #[arg(long, value_name = "URL", requires = "against_stats")]
    against: Option<String>,
    /// Command that prints `rss_kb cpu_s database_cpu_s` of the other Placement.
    #[arg(long, value_name = "COMMAND")]
    against_stats: Option<String>,
    /// Working directory (kept). Default: a temporary directory.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub(super) fn run(options: Placement) -> Result<ExitCode, Failure> {
    let directory = options.directory.clone().unwrap_or_else(|| {
        std::env::temp_dir().join(format!("kilonova-bench-placement-{}", std::process::id()))
    });
    std::fs::create_dir_all(&directory)
        .map_err(|e| Failure::failed(&format!("cannot make {}", directory.display()), e))?;
    let size = Size {
        hosts: options.hosts,
        wide: options.wide.into_iter().filter(|hosts| *hosts > 0).collect(),
        clients: options.clients.max(1),
        duration: Duration::try_from_secs_f64(options.seconds)
            .map_err(|_| Failure::Refused("--seconds has to be zero or more".into()))?,
        against: options.against.as_deref().zip(options.against_stats.as_deref()),
    };
    let tables = super::runtime()?.block_on(placement::run(&directory, &size));
    if options.directory.is_none() && tables.is_ok() {
        std::fs::remove_dir_all(&directory)
            .map_err(|e| Failure::failed(&format!("cannot remove {}", directory.display()), e))?;
    }
    let tables = tables?;
    if options.format == Format::Json {
        println!("{}", tables.iter().map(placement::Table::json).collect::<Value>());
    } else {
        tables.iter().for_each(|table| println!("{table}"));
    }
    Ok(ExitCode::SUCCESS)
}
