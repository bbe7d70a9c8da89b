//! `kilonova-bench accelerators`: the cost of the accelerator API and the device ledger on either
//! database, compared with a Cyborg by `--against`.
//!
//! The measure is CPU time of the server, and of the database where it is another process. Elapsed
//! time would depend on the clients, which share the machine.

mod arq_cycle;
mod cloud;
mod statements;
mod table;

use std::path::{Path, PathBuf};

use kilonova_ids::HostName;
use kilonova_program::Failure;
use kilonova_store::{DatabaseUrl, Store};

use self::arq_cycle::{ArqCycle, DeviceRef};
use self::cloud::Reports;
pub use self::table::Table;
use self::table::{Row, median};
use super::process::{self, Server};

/// The number of measurements of each figure; the median is printed.
const ROUNDS: usize = 5;
/// Numbers of other instances' requests in the database while statements are counted.
const OTHERS: [usize; 3] = [0, 1_000, 10_000];

/// The size of the benchmark.
pub struct Size<'a> {
    /// Hosts that report eight GPUs of sixteen vGPUs each.
    pub hosts: usize,
    /// Bound requests in the database during the measured calls.
    pub requests: usize,
    /// Instances that bind and release a device, in each round.
    pub cycles: usize,
    /// An empty PostgreSQL database and the process id of its server, to be measured after SQLite.
    pub postgres: Option<(&'a str, u32)>,
    /// A Cyborg to compare with.
    pub against: Option<Against>,
}

/// A running Cyborg.
pub struct Against {
    /// Its address and the path of its API: `127.0.0.1:6666/v2`.
    pub api: String,
    /// One of its hosts.
    pub host: HostName,
    /// Resource provider of a free device on that host.
    pub provider: String,
    /// Its processes; their children count too.
    pub processes: Vec<u32>,
    /// Those of its database and message queue.
    pub services: Vec<u32>,
    /// Prints how many statements its database has run.
    pub statements: String,
    /// Numbers of other instances' requests during its measurement.
    pub others: Vec<usize>,
}

/// A server that is measured.
pub struct Target {
    /// `127.0.0.1:1234`.
    pub address: String,
    /// The path of the API: `/accelerator/v2`.
    pub path: String,
    processes: Vec<u32>,
    services: Vec<u32>,
}

impl Target {
    /// CPU milliseconds of the server, and of its database and message queue.
    pub fn cpu_ms(&self) -> [f64; 2] {
        [&self.processes, &self.services].map(|ids| process::trees_cpu_ms(ids))
    }

    /// The CPU milliseconds that some work takes, and its result.
    async fn cpu_of<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<([f64; 2], T), Failure> {
        let before = self.cpu_ms();
        let answer = work.await?;
        let after = self.cpu_ms();
        Ok(([after[0] - before[0], after[1] - before[1]], answer))
    }
}

/// Runs the benchmark.
///
/// # Errors
/// When a measured server misbehaves.
pub async fn run(directory: &Path, size: &Size<'_>) -> Result<Vec<Table>, Failure> {
    let mut tables = vec![measure_kilonova(&directory.join("sqlite"), size, None).await?];
    if let Some(postgres) = size.postgres {
        tables.push(measure_kilonova(&directory.join("postgresql"), size, Some(postgres)).await?);
    }
    if let Some(against) = &size.against {
        let table = measure_cyborg(against, size).await?;
        tables.push(table);
    }
    Ok(tables)
}

fn report_progress(what: &str) {
    eprintln!("kilonova-bench accelerators: {what}");
}

/// A state directory, on which the server is started repeatedly.
struct MeasuredKilonova {
    directory: PathBuf,
    config: PathBuf,
    database: DatabaseUrl,
    services: Vec<u32>,
}

impl MeasuredKilonova {
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

    /// Opens the database; the server must be stopped.
    async fn open(&self) -> Result<Store, Failure> {
        let opened = Store::open(&self.database).await;
        opened.map_err(|e| Failure::failed("cannot open the measured database", e))
    }
}

async fn measure_kilonova(
    directory: &Path,
    size: &Size<'_>,
    postgres: Option<(&str, u32)>,
) -> Result<Table, Failure> {
    let name = if postgres.is_some() { "PostgreSQL" } else { "SQLite" };
    let measured = MeasuredKilonova::new(directory, postgres)?;
    let mut table = Table::new(format!("kilonova, {name}"));
    report_progress(&format!("{name}: {} hosts register their devices", size.hosts));
    let (server, target) = measured.start()?;
    let token = directory.join("state/node.token");
    let reports = Reports::new(&target, &token, size.hosts)?;
    table.extend(reports.measure(&target).await?);
    let device = DeviceRef::new(cloud::host(0), cloud::provider(0, 0));
    let arq_cycle = ArqCycle::start(&target, device.clone()).await?;
    report_progress(&format!("{name}: instances bind and release a device, one after the other"));
    let agent = reports.start_agent(0).await?;
    table.extend(arq_cycle.measure(&target, size.cycles, 0).await?);
    drop(agent);
    server.stop();

    report_progress(&format!("{name}: counting statements"));
    let store = measured.open().await?;
    for others in OTHERS {
        table.extend(statements::count(&store, &device, others).await?);
    }
    report_progress(&format!("{name}: {} requests are bound", size.requests));
    cloud::fill(&store, size.hosts, size.requests).await?;
    drop(store);

    let (server, target) = measured.start()?;
    let agent = Reports::new(&target, &token, size.hosts)?.start_agent(0).await?;
    let arq_cycle = ArqCycle::start(&target, device).await?;
    report_progress(&format!("{name}: the same calls with {} bound requests", size.requests));
    table.extend(arq_cycle.measure(&target, size.cycles, size.requests).await?);
    drop(agent);
    server.stop();
    Ok(table)
}

async fn measure_cyborg(against: &Against, size: &Size<'_>) -> Result<Table, Failure> {
    let (address, path) = against.api.split_once('/').unwrap_or((&against.api, "v2"));
    report_progress(&format!("measuring the Cyborg at {address}"));
    let target = Target {
        address: address.to_owned(),
        path: format!("/{path}"),
        processes: against.processes.clone(),
        services: against.services.clone(),
    };
    let device = DeviceRef::new(against.host.clone(), against.provider.clone());
    let arq_cycle = ArqCycle::start(&target, device).await?;
    let mut table = Table::new(format!("Cyborg at {address}"));
    for others in &against.others {
        arq_cycle.ensure_unbound(*others).await?;
        let counter = statements::Counter::new(&against.statements);
        table.extend(arq_cycle.statements(&counter, *others).await?);
        // A cycle of Cyborg takes a large part of a second, and more with every other request.
        let cycles = size.cycles.min(if *others == 0 { 20 } else { 2 });
        table.extend(arq_cycle.measure(&target, cycles, *others).await?);
    }
    arq_cycle.clean_up().await?;
    Ok(table)
}

/// The row of a figure from its costs in several rounds.
fn row(what: String, aim: Option<f64>, costs: &[[f64; 2]], each: f64) -> Row {
    let part = |at: usize| median(costs.iter().map(|cost| cost[at] / each).collect());
    Row { what, server: part(0), services: part(1), unit: "ms CPU", aim }
}
