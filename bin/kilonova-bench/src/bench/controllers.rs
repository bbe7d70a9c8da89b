//! One controller, and two side by side on the same PostgreSQL, which boot servers in the same cloud in turn.
//!
//! Half of the hosts run in a process of their own. With two controllers, this process and half of the clients use the
//! second one, so that each controller boots servers on all hosts. Some boots precede each measurement, because a
//! controller that has just started first opens its connections and prepares its statements.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kilonova_program::Failure;

use super::cloud::{self, BootRequest, Cloud, Plan, topology};
use super::growth::since;
use super::load::{self, Endpoint, Measured, quantile};
use super::process::{Nodes, Server};
use super::progress::Progress;
use super::table::Table;
use super::{Size, capped};

/// How often each number of controllers is measured. Later rounds have more servers in the database.
const ROUNDS: usize = 3;
/// The time limit for the registration of all hosts.
const REGISTER: Duration = Duration::from_secs(240);

/// Boots before each measurement.
const WARM_UP: usize = 64;
/// The counters of `/metrics` in the table, and the titles of their rows.
const COUNTED: [(&str, &str); 9] = [
    ("kilonova_statements_total{whose=\"requests\"}", "statements of requests, polls included"),
    ("kilonova_round_trips_total{whose=\"requests\"}", "round trips of requests, polls included"),
    ("kilonova_boot_plans_total", "plans"),
    ("kilonova_claims_refused_total", "candidates that the ledger refused"),
    ("kilonova_transaction_conflicts_total", "transactions that ran again"),
    ("kilonova_transaction_groups_total", "commits that boots shared"),
    ("kilonova_transaction_turns_total", "turns"),
    ("kilonova_change_log_polls_total", "polls of the change log"),
    ("kilonova_provider_trees_reread_total", "trees read again"),
];

/// The figures of one round.
struct Round {
    controllers: usize,
    boots: Measured,
    cpu: f64,
    database_cpu: Option<f64>,
    /// The counters of all controllers, in the order of [`COUNTED`].
    counts: [f64; COUNTED.len()],
}

/// The cloud, and the directory of the second controller.
struct Pair<'a> {
    size: &'a Size<'a>,
    cloud: Cloud,
    second_dir: PathBuf,
    /// The second half of the hosts.
    nodes: PathBuf,
    hosts: usize,
}

/// Measures a cloud of `hosts` hosts; each round boots `size.servers`.
///
/// # Errors
/// When a measured server misbehaves.
pub async fn run(directory: &Path, size: &Size<'_>, hosts: usize) -> Result<Table, Failure> {
    let hosts = hosts.max(2);
    let half = Plan { hosts: hosts / 2, vgpus: 16, apart: true, database: size.database };
    let mut cloud = Cloud::start(directory, "controllers", &half).await?;
    let boot_request = cloud.seed().await?;
    let nodes = directory.join("controllers/others.toml");
    let others =
        topology(&Plan { hosts: hosts - half.hosts, ..half }).replace("bench{n}", "other{n}");
    std::fs::write(&nodes, others).map_err(|e| Failure::failed("cannot write a topology", e))?;
    let second = directory.join("controllers/second");
    share(&directory.join("controllers/state"), &second.join("state"))?;
    cloud.start_hosts()?;
    let mut pair = Pair { size, cloud, second_dir: second, nodes, hosts };
    let each = capped(size.servers, hosts, 16 / (2 * ROUNDS));
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(pair.round(None, each, &boot_request).await?);
        let other = Server::start(&pair.second_dir, None, size.database)?;
        rounds.push(pair.round(Some(&other), each, &boot_request).await?);
        other.stop();
    }
    pair.cloud.end();
    Ok(table(&rounds, size.clients, hosts, each))
}

/// Gives the second controller what controllers share outside the database: sealing key, node token and images.
fn share(first: &Path, second: &Path) -> Result<(), Failure> {
    let copy = |name: &str| std::fs::copy(first.join(name), second.join(name)).map(drop);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(second)
        .and_then(|()| copy("seal.key"))
        .and_then(|()| copy("node.token"))
        .and_then(|()| std::os::unix::fs::symlink(first.join("images"), second.join("images")))
        .map_err(|e| Failure::failed("cannot prepare the second controller", e))
}

impl Pair<'_> {
    async fn round(
        &mut self,
        other: Option<&Server>,
        count: usize,
        body: &BootRequest,
    ) -> Result<Round, Failure> {
        let first = self.cloud.server.address.clone();
        let second = other.map_or_else(|| first.clone(), |other| other.address.clone());
        let hosts = Nodes::start(&self.second_dir, &second, &self.nodes)?;
        self.wait_for_hosts().await?;
        self.cloud.wait_until_settled().await?;
        let controllers = 1 + usize::from(other.is_some());
        let warm_up = Arc::new(Progress::begin("warming up", WARM_UP));
        for address in [&first, &second] {
            let clients = (self.size.clients / 2).max(1);
            let endpoint = Endpoint { address, token: &self.cloud.token, clients };
            load::boot(endpoint, WARM_UP / 2, &body.0, &warm_up).await?;
        }
        drop(warm_up);
        let counted = self.counts(other).await?;
        let what = format!("{} hosts, {controllers} controllers: boots", self.hosts);
        let progress = Arc::new(Progress::begin(what, count));
        let endpoint = |address, clients| Endpoint { address, token: &self.cloud.token, clients };
        let cpu = || self.cloud.server.cpu_ms() + other.map_or(0.0, Server::cpu_ms);
        let (before, database) = (cpu(), self.size.database_cpu_ms());
        let clients = self.size.clients.max(2);
        // Both halves of the clients run in every round.
        let (one, two) = tokio::try_join!(
            load::boot(endpoint(&first, clients / 2), count / 2, &body.0, &progress),
            load::boot(
                endpoint(&second, clients - clients / 2),
                count - count / 2,
                &body.0,
                &progress
            ),
        )?;
        let boots = one.0.merge(two.0);
        let cpu = (cpu() - before) / boots.durations.len() as f64;
        let database_cpu = since(self.size, database, boots.durations.len());
        let mut counts = self.counts(other).await?;
        for (count, before) in counts.iter_mut().zip(counted) {
            *count = (*count - before) / boots.durations.len() as f64;
        }
        drop(hosts);
        Ok(Round { controllers, boots, cpu, database_cpu, counts })
    }

    /// The counters of all controllers.
    async fn counts(&self, other: Option<&Server>) -> Result<[f64; COUNTED.len()], Failure> {
        let mut counts = [0.0; COUNTED.len()];
        for server in std::iter::once(&self.cloud.server).chain(other) {
            let text = self.cloud.metrics_of(server).await?;
            for (count, (name, _)) in counts.iter_mut().zip(COUNTED) {
                *count += cloud::metric(&text, name)?;
            }
        }
        Ok(counts)
    }

    /// Waits until all hosts are up, because those of the second process reconnect to another controller.
    async fn wait_for_hosts(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            let path = "/compute/v2.1/os-services?binary=nova-compute";
            let reply = self.cloud.admin.get(path).await?.json();
            let services = reply["services"].as_array().map_or(&[][..], Vec::as_slice);
            if services.iter().filter(|one| one["state"] == "up").count() == self.hosts {
                return Ok(());
            }
            if begun.elapsed() > REGISTER {
                return Err(Failure::Failed("not all hosts have registered".into()));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

fn table(rounds: &[Round], clients: usize, hosts: usize, servers: usize) -> Table {
    let title = format!(
        "PostgreSQL: one controller, and two side by side; {hosts} hosts of 8 GPUs in processes of their own, {clients} clients, \
         {servers} servers in each round"
    );
    let mut table = Table::new(title, rounds.iter().map(|one| one.controllers.to_string()));
    let mut row = |what: &str, unit, figure: &dyn Fn(&Round) -> f64| {
        table.row(what, unit, None, rounds.iter().map(|one| Some(figure(one))));
    };
    row("boots", "/s", &|one| one.boots.per_second());
    row("POST to ACTIVE p50", "ms", &|one| quantile(&one.boots.durations, 0.5));
    row("POST to ACTIVE p99", "ms", &|one| quantile(&one.boots.durations, 0.99));
    row("CPU per boot, controllers, polls included", "ms", &|one| one.cpu);
    for (index, (_, what)) in COUNTED.iter().enumerate() {
        row(&format!("for each boot: {what}"), "", &|one| {
            one.counts.get(index).copied().unwrap_or_default()
        });
    }
    if rounds.iter().all(|one| one.database_cpu.is_some()) {
        row("CPU per boot, PostgreSQL", "ms", &|one| one.database_cpu.unwrap_or_default());
    }
    table
}
