//! `kilonova-bench placement`: what a request to Placement costs on a cloud of so many hosts, each a
//! root with four pGPUs, and on hosts of eight GPUs that are asked for one by one.
//!
//! CPU time is the server's and, with SQLite, the database's: they are one process. With `--against`
//! the same requests go to another Placement that holds the same cloud.

mod cloud;
mod measure;
mod requests;

use std::path::Path;
use std::time::{Duration, Instant};

use kilonova_program::Failure;
use serde_json::{Value, json};

use self::measure::{Meter, Row, Target};
use super::process::Server;

/// How much of it.
pub struct Size<'a> {
    /// Hosts with four pGPUs.
    pub hosts: usize,
    /// Hosts with eight GPUs; none leaves that part out.
    pub wide: Vec<usize>,
    /// Clients at once, beside one alone.
    pub clients: usize,
    /// For each request and each number of clients.
    pub duration: Duration,
    /// Another Placement, and the command that prints its `rss_kb cpu_s database_cpu_s`.
    pub against: Option<(&'a str, &'a str)>,
}

/// What was measured of one server.
pub struct Table {
    /// Of whom, with which cloud.
    pub title: String,
    /// The requests.
    pub rows: Vec<Row>,
    /// What, how much, unit.
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

/// Runs it.
///
/// # Errors
/// When a measured server misbehaves.
pub async fn run(directory: &Path, size: &Size<'_>) -> Result<Vec<Table>, Failure> {
    let mut tables = vec![narrow(directory, size).await?];
    for hosts in &size.wide {
        tables.push(wide(directory, *hosts, size).await?);
    }
    if let Some((url, stats)) = size.against {
        say(&format!("asking {url}"));
        let address = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let target = Target { address, meter: Meter::Command(stats.to_owned()) };
        let rows = requests::all(&target, size).await?;
        let facts = vec![("resident, at the end", target.meter.read()?.resident_mb, "MB")];
        tables.push(Table { title: format!("{url}: {} hosts", size.hosts), rows, facts });
    }
    Ok(tables)
}

fn say(what: &str) {
    eprintln!("kilonova-bench placement: {what}");
}

async fn narrow(directory: &Path, size: &Size<'_>) -> Result<Table, Failure> {
    let state = directory.join("narrow");
    say(&format!("loading {} hosts", size.hosts));
    let begun = Instant::now();
    start(&state)?.stop();
    cloud::fill(&state, size.hosts, cloud::with_pgpus).await?;
    let loaded = begun.elapsed().as_secs_f64();
    let server = start(&state)?;
    let ready: f64 = server.ready.trim_end_matches(" s").parse().unwrap_or(f64::NAN);
    let idle = server.resident_mb();
    say("asking it");
    let target = Target { address: server.address.clone(), meter: Meter::Process(server.id()) };
    let rows = requests::all(&target, size).await?;
    let facts = vec![
        ("hosts written to the database", loaded, "s"),
        ("ready on what is there", ready, "s"),
        ("resident, loaded and not asked yet", idle, "MB"),
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
