//! `kilonova bench`.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use super::{Bench, Format};
use crate::bench::{self, Size};
use crate::failure::Failure;

pub(super) fn run(options: Bench) -> Result<ExitCode, Failure> {
    if let Some(part) = options.part {
        return super::bench_placement::run(part);
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
