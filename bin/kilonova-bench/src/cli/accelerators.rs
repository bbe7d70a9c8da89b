//! `kilonova-bench accelerators`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use kilonova_ids::HostName;
use kilonova_program::Failure;
use serde_json::Value;

use super::Format;
use crate::bench::accelerators::{self, Against, Size, Table};

/// Options of `bench accelerators`.
#[derive(Debug, Args)]
pub struct Accelerators {
    /// Hosts of eight GPUs with sixteen vGPUs each.
    #[arg(long, default_value_t = 1000)]
    hosts: usize,
    /// Bound requests in the database during the measured calls.
    #[arg(long, default_value_t = 100_000)]
    requests: usize,
    /// Instances that bind and release a device, in each of six rounds.
    #[arg(long, default_value_t = 200)]
    cycles: usize,
    /// An empty PostgreSQL database, measured after SQLite.
    #[arg(long, value_name = "URL", requires = "database_process")]
    database: Option<String>,
    /// Process id of that PostgreSQL.
    #[arg(long, value_name = "PID")]
    database_process: Option<u32>,
    /// URL, with the version, of a Cyborg that trusts identity headers.
    #[arg(long, value_name = "URL", requires_all = ["against_host", "against_provider", "against_statements"])]
    against: Option<String>,
    /// A host of that Cyborg.
    #[arg(long, value_name = "NAME")]
    against_host: Option<String>,
    /// Resource provider of a free device on that host.
    #[arg(long, value_name = "UUID")]
    against_provider: Option<String>,
    /// Its processes; their children count too.
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    against_processes: Vec<u32>,
    /// Those of its database and message queue.
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    against_services: Vec<u32>,
    /// Command that prints how many statements its database has run.
    #[arg(long, value_name = "COMMAND")]
    against_statements: Option<String>,
    /// Numbers of other instances' requests during the measurement.
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_values_t = [0, 1000])]
    against_others: Vec<usize>,
    /// Working directory (kept). Default: a temporary directory.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub(super) fn run(options: Accelerators) -> Result<ExitCode, Failure> {
    let directory = options.directory.clone().unwrap_or_else(|| {
        std::env::temp_dir().join(format!("kilonova-bench-accelerators-{}", std::process::id()))
    });
    std::fs::create_dir_all(&directory)
        .map_err(|e| Failure::failed(&format!("cannot make {}", directory.display()), e))?;
    let size = Size {
        hosts: options.hosts.max(1),
        requests: options.requests,
        cycles: options.cycles.max(1),
        postgres: options.database.as_deref().zip(options.database_process),
        against: against(&options),
    };
    let tables = super::runtime()?.block_on(accelerators::run(&directory, &size));
    if options.directory.is_none() && tables.is_ok() {
        std::fs::remove_dir_all(&directory)
            .map_err(|e| Failure::failed(&format!("cannot remove {}", directory.display()), e))?;
    }
    let tables = tables?;
    if options.format == Format::Json {
        println!("{}", tables.iter().map(Table::json).collect::<Value>());
    } else {
        let other = size.against.as_ref().and(tables.last());
        tables.iter().for_each(|table| println!("{}", table.lines(other)));
    }
    Ok(ExitCode::SUCCESS)
}

fn against(options: &Accelerators) -> Option<Against> {
    let url = options.against.as_deref()?;
    Some(Against {
        api: url.trim_start_matches("http://").trim_end_matches('/').to_owned(),
        host: HostName::verbatim(options.against_host.clone()?),
        provider: options.against_provider.clone()?,
        processes: options.against_processes.clone(),
        services: options.against_services.clone(),
        statements: options.against_statements.clone()?,
        others: options.against_others.clone(),
    })
}
