//! The cost of a boot on hosts that have many servers already.

use std::path::Path;
use std::sync::Arc;

use kilonova_program::Failure;

use super::Size;
use super::cloud::{Cloud, Plan};
use super::load::{self, Endpoint, quantile};
use super::progress::Progress;
use super::table::Table;

const HOSTS: usize = 16;
/// Servers on each host while boots are measured.
const SERVERS: [usize; 5] = [0, 8, 64, 128, 240];
/// Measured boots for each host; the servers are deleted afterwards.
const MEASURED: usize = 16;

/// Runs this part.
///
/// # Errors
/// When the measured server misbehaves.
pub async fn run(directory: &Path, size: &Size<'_>, store: &str) -> Result<Table, Failure> {
    let plan = Plan { hosts: HOSTS, vgpus: 36, apart: false, database: size.database };
    let mut cloud = Cloud::start(directory, "full-hosts", &plan).await?;
    cloud.wait_for_hosts().await?;
    let boot_request = cloud.seed().await?;
    let (address, token) = (cloud.server.address.clone(), cloud.token.clone());
    let clients = size.clients.min(8);
    let endpoint = Endpoint { address: &address, token: &token, clients };
    // The first boots of a process prepare its SQL statements.
    let progress = Arc::new(Progress::begin("full hosts: first boots", 1));
    let (_, ids) = load::boot(endpoint, HOSTS, &boot_request.0, &progress).await?;
    load::delete(endpoint, ids, &progress).await?;
    let steps: Vec<usize> =
        SERVERS.into_iter().filter(|servers| servers * HOSTS <= size.servers).collect();
    let mut booted = 0;
    let mut figures = Vec::new();
    for servers in &steps {
        let missing = servers * HOSTS - booted;
        let what = format!("hosts with {servers} servers");
        let progress = Arc::new(Progress::begin(what, missing + MEASURED * HOSTS));
        load::boot(endpoint, missing, &boot_request.0, &progress).await?;
        booted += missing;
        let before = cloud.statements().await?;
        let cpu = cloud.server.cpu_ms();
        let (boots, ids) =
            load::boot(endpoint, MEASURED * HOSTS, &boot_request.0, &progress).await?;
        let cpu = cloud.server.cpu_ms() - cpu;
        let statements = cloud.statements().await? - before;
        let get = cloud.statements_per_get(&ids[0]).await?;
        let count = boots.durations.len() as f64;
        let statements = (statements - get * boots.polls as f64) / count;
        let (p50, p99) = (quantile(&boots.durations, 0.5), quantile(&boots.durations, 0.99));
        figures.push([cpu / count, statements, p50, p99]);
        load::delete(endpoint, ids, &progress).await?;
    }
    cloud.end();
    let title = format!(
        "{store}: boots on hosts that have servers already, {HOSTS} hosts, {clients} clients \
         (upstream: n + 6 calls of Placement on a host with n)"
    );
    let mut table = Table::new(title, steps.iter().map(|servers| format!("{servers} servers")));
    let rows = [
        ("CPU per boot, agents and polls included", "ms"),
        ("statements per boot, without polls", ""),
        ("POST to ACTIVE p50", "ms"),
        ("POST to ACTIVE p99", "ms"),
    ];
    for (at, (what, unit)) in rows.into_iter().enumerate() {
        table.row(what, unit, None, figures.iter().map(|of| Some(of[at])));
    }
    Ok(table)
}
