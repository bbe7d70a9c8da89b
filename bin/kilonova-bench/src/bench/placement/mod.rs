//! `kilonova-bench placement`: the cost of requests to Placement on a cloud of hosts with four pGPUs
//! each, and on hosts of eight GPUs with one request group for each GPU.
//!
//! CPU time includes the database, because SQLite runs in the server's process. With `--against` the
//! same requests go to another Placement that holds the same cloud.

mod cloud;
mod measure;
mod requests;

use std::path::Path;
use std::time::{Duration, Instant};

use kilonova_program::Failure;
use serde_json::{Value, json};

use self::measure::{Meter, Row, Target};
use super::process::Server;

/// The size of the benchmark.
pub struct Size<'a> {
    /// Hosts with four pGPUs.
    pub hosts: usize,
    /// Hosts with eight GPUs; an empty list skips this part.
    pub wide: Vec<usize>,
    /// Concurrent clients, in addition to a run with one client.
    pub clients: usize,
    /// Time for each request and each number of clients.
    pub duration: Duration,
    /// Another Placement, and the command that prints its `rss_kb cpu_s database_cpu_s`.
    pub against: Option<(&'a str, &'a str)>,
}

/// The figures of one server.
pub struct Table {
    /// The server and its cloud.
    pub title: String,
    /// One row for each kind of request.
    pub rows: Vec<Row>,
    /// Further figures: name, value, unit.
    pub facts: Vec<(&'static str, f64, &'static str)>,
}

impl Table {
    /// As one JSON value.
    pub fn json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(Row::json).collect();
        json!({"title": self.title, "rows": rows, "facts": self.facts})
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.title)?;
        if !self.rows.is_empty() {
            writeln!(f, "  {}", Row::HEAD)?;
        }
        self.rows.iter().try_for_each(|row| writeln!(f, "  {row}"))?;
        self.facts.iter().try_for_each(|(what, n, unit)| writeln!(f, "  {what:52} {n:9.2} {unit}"))
    }
}

/// Runs the benchmark.
///
/// # Errors
/// When a measured server misbehaves.
pub async fn run(directory: &Path, size: &Size<'_>) -> Result<Vec<Table>, Failure> {
    let mut tables = vec![narrow(directory, size).await?];
    for hosts in &size.wide {
        tables.push(wide(directory, *hosts, size).await?);
    }
    if let Some((url, stats)) = size.against {
        report_progress(&format!("measuring {url}"));
        let address = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let target = Target { address, meter: Meter::Command(stats.to_owned()) };
        let rows = requests::all(&target, size).await?;
        let facts = vec![("resident, at the end", target.meter.read()?.resident_mb, "MB")];
        tables.push(Table { title: format!("{url}: {} hosts", size.hosts), rows, facts });
    }
    Ok(tables)
}

fn report_progress(what: &str) {
    eprintln!("kilonova-bench placement: {what}");
}

async fn narrow(directory: &Path, size: &Size<'_>) -> Result<Table, Failure> {
    let state = directory.join("narrow");
    report_progress(&format!("loading {} hosts", size.hosts));
    let begun = Instant::now();
    start(&state)?.stop();
    cloud::fill(&state, size.hosts, cloud::with_pgpus).await?;
    let loaded = begun.elapsed().as_secs_f64();
    let server = start(&state)?;
    let ready: f64 = server.ready.trim_end_matches(" s").parse().unwrap_or(f64::NAN);
    let idle = server.resident_mb();
    report_progress("measuring");
    let target = Target { address: server.address.clone(), meter: Meter::Process(server.id()) };
    let rows = requests::all(&target, size).await?;
    let facts = vec![
        ("hosts written to the database", loaded, "s"),
        ("ready after a restart", ready, "s"),
        ("resident, loaded, before the first request", idle, "MB"),
        ("resident, at the end", server.resident_mb(), "MB"),
    ];
    server.stop();
    Ok(Table {
        title: format!("kilonova, SQLite: {} hosts of 5 providers", size.hosts),
        rows,
        facts,
    })
}

async fn wide(directory: &Path, hosts: usize, size: &Size<'_>) -> Result<Table, Failure> {
    let state = directory.join(format!("wide-{hosts}"));
    start(&state)?.stop();
    cloud::fill(&state, hosts, cloud::with_eight_gpus).await?;
    let server = start(&state)?;
    let target = Target { address: server.address.clone(), meter: Meter::Process(server.id()) };
    let rows = requests::wide(&target, size).await?;
    let facts = vec![("resident, at the end", server.resident_mb(), "MB")];
    server.stop();
    Ok(Table { title: format!("kilonova, SQLite: {hosts} hosts of 8 GPUs"), rows, facts })
}

fn start(state: &Path) -> Result<Server, Failure> {
    std::fs::create_dir_all(state)
        .map_err(|e| Failure::failed(&format!("cannot make {}", state.display()), e))?;
    let config = state.join("kilonova.conf");
    std::fs::write(&config, "[api]\nservices = placement\nauth_strategy = noauth2\n")
        .map_err(|e| Failure::failed("cannot write the configuration", e))?;
    Server::configured(state, &config)
}
