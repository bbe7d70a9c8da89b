//! `kilonova-bench accelerators`: what the accelerator API and the device ledger cost, on either
//! database, and beside a Cyborg with `--against`.
//!
//! The measured figure is CPU time, of the server and of the database where it is another process:
//! the clients share the machine, and elapsed time would mostly tell who else was running.

mod cloud;
mod dance;
mod statements;
mod table;

use std::path::{Path, PathBuf};

use kilonova_program::Failure;
use kilonova_store::{DatabaseUrl, Store};

use self::cloud::Reports;
use self::dance::{Dance, Place};
pub use self::table::Table;
use self::table::{Row, median};
use super::process::{self, Server};

/// How often each figure is taken; what is printed is the median.
const ROUNDS: usize = 5;
/// Requests of other instances that statements are counted beside.
const OTHERS: [usize; 3] = [0, 1_000, 10_000];

/// How much of it.
pub struct Size<'a> {
    /// Hosts that report eight GPUs of sixteen vGPUs each.
    pub hosts: usize,
    /// Requests that are there while one instance's are looked up.
    pub requests: usize,
    /// Instances that get and give back a device, in each round.
    pub cycles: usize,
    /// An empty PostgreSQL database and the process id of its server, to be measured after SQLite.
    pub postgres: Option<(&'a str, u32)>,
    /// A Cyborg.
    pub against: Option<Against>,
}

/// A Cyborg that runs.
pub struct Against {
    /// Its address and the path of its API: `127.0.0.1:6666/v2`.
    pub api: String,
    /// A host of it.
    pub host: String,
    /// Resource provider of a device there that is free.
    pub provider: String,
    /// Its processes; their children count too.
    pub processes: Vec<u32>,
    /// Those of its database and message queue.
    pub services: Vec<u32>,
    /// Prints how many statements its database has run.
    pub statements: String,
    /// Requests of other instances beside which it is measured.
    pub others: Vec<usize>,
}

/// A server that is measured.
pub struct Target {
    /// `127.0.0.1:1234`.
    pub address: String,
    /// Where the API is, `/accelerator/v2`.
    pub path: String,
    processes: Vec<u32>,
    services: Vec<u32>,
}

impl Target {
    /// CPU milliseconds of the server, and of what it needs beside it.
    pub fn cpu_ms(&self) -> [f64; 2] {
        [&self.processes, &self.services].map(|ids| process::trees_cpu_ms(ids))
    }

    /// What a piece of work cost.
    async fn cost<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<([f64; 2], T), Failure> {
        let before = self.cpu_ms();
        let answer = work.await?;
        let after = self.cpu_ms();
        Ok(([after[0] - before[0], after[1] - before[1]], answer))
    }
}

/// Runs it.
///
/// # Errors
/// When a measured server misbehaves.
pub async fn run(directory: &Path, size: &Size<'_>) -> Result<Vec<Table>, Failure> {
    let mut tables = vec![ours(&directory.join("sqlite"), size, None).await?];
    if let Some(postgres) = size.postgres {
        tables.push(ours(&directory.join("postgresql"), size, Some(postgres)).await?);
    }
    if let Some(against) = &size.against {
        let theirs = theirs(against, size).await?;
        tables.push(theirs);
    }
    Ok(tables)
}

fn say(what: &str) {
    eprintln!("kilonova-bench accelerators: {what}");
}

/// A state directory, and the server that is started on it again and again.
struct Ours {
    directory: PathBuf,
    config: PathBuf,
    database: DatabaseUrl,
    services: Vec<u32>,
}

impl Ours {
    fn new(directory: &Path, postgres: Option<(&str, u32)>) -> Result<Self, Failure> {
        std::fs::create_dir_all(directory)
            .map_err(|e| Failure::failed(&format!("cannot make {}", directory.display()), e))?;
        let config = directory.join("kilonova.conf");
        let mut text = "[api]\nservices = compute, placement, accelerator\n\
                        auth_strategy = noauth2\n"
            .to_owned();
        let database = match postgres {
            None => DatabaseUrl::Sqlite(directory.join("state/kilonova.db")),
            Some((url, _)) => {
                text.push_str(&format!("[database]\nconnection = {url}\n"));
                url.parse().map_err(|e| Failure::failed("--database", e))?
            }
        };
        std::fs::write(&config, text)
            .map_err(|e| Failure::failed("cannot write the configuration", e))?;
        let services = postgres.map(|(_, process)| process).into_iter().collect();
        Ok(Self { directory: directory.to_owned(), config, database, services })
    }

    fn start(&self) -> Result<(Server, Target), Failure> {
        let server = Server::configured(&self.directory, &self.config)?;
        let target = Target {
            address: server.address.clone(),
            path: "/accelerator/v2".into(),
            processes: vec![server.id()],
            services: self.services.clone(),
        };
        Ok((server, target))
    }

    /// The database of a server that does not run.
    async fn open(&self) -> Result<Store, Failure> {
        let opened = Store::open(&self.database).await;
        opened.map_err(|e| Failure::failed("cannot open the measured database", e))
    }
}

async fn ours(
    directory: &Path,
    size: &Size<'_>,
    postgres: Option<(&str, u32)>,
) -> Result<Table, Failure> {
    let name = if postgres.is_some() { "PostgreSQL" } else { "SQLite" };
    let ours = Ours::new(directory, postgres)?;
    let mut table = Table::new(format!("kilonova, {name}"));
    say(&format!("{name}: {} hosts report their devices", size.hosts));
    let (server, target) = ours.start()?;
    let word = directory.join("state/node.token");
    let reports = Reports::new(&target, &word, size.hosts)?;
    table.extend(reports.measure(&target).await?);
    let place = Place::new(cloud::host(0), cloud::provider(0, 0));
    let dance = Dance::start(&target, place.clone()).await?;
    say(&format!("{name}: an instance after the other gets a device and gives it back"));
    let attended = reports.attend(0).await?;
    table.extend(dance.measure(&target, size.cycles, 0).await?);
    drop(attended);
    server.stop();

    say(&format!("{name}: counting statements"));
    let store = ours.open().await?;
    for others in OTHERS {
        table.extend(statements::count(&store, &place, others).await?);
    }
    say(&format!("{name}: {} requests are bound", size.requests));
    cloud::fill(&store, size.hosts, size.requests).await?;
    drop(store);

    let (server, target) = ours.start()?;
    let attended = Reports::new(&target, &word, size.hosts)?.attend(0).await?;
    let dance = Dance::start(&target, place).await?;
    say(&format!("{name}: the same beside them"));
    table.extend(dance.measure(&target, size.cycles, size.requests).await?);
    drop(attended);
    server.stop();
    Ok(table)
}

async fn theirs(against: &Against, size: &Size<'_>) -> Result<Table, Failure> {
    let (address, path) = against.api.split_once('/').unwrap_or((&against.api, "v2"));
    say(&format!("asking the Cyborg at {address}"));
    let target = Target {
        address: address.to_owned(),
        path: format!("/{path}"),
        processes: against.processes.clone(),
        services: against.services.clone(),
    };
    let place = Place::new(against.host.clone(), against.provider.clone());
    let dance = Dance::start(&target, place).await?;
    let mut table = Table::new(format!("Cyborg at {address}"));
    for others in &against.others {
        dance.have(*others).await?;
        let counter = statements::Counter::new(&against.statements);
        table.extend(dance.statements(&counter, *others).await?);
        // A cycle takes a good part of a second there, and more with every other request.
        let cycles = size.cycles.min(if *others == 0 { 20 } else { 2 });
        table.extend(dance.measure(&target, cycles, *others).await?);
    }
    dance.clean().await?;
    Ok(table)
}

/// A row of what something cost in each of some rounds.
fn row(what: String, aim: Option<f64>, costs: &[[f64; 2]], each: f64) -> Row {
    let part = |at: usize| median(costs.iter().map(|cost| cost[at] / each).collect());
    Row { what, server: part(0), services: part(1), unit: "ms CPU", aim }
}
