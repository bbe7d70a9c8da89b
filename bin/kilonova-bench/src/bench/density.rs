//! What a boot costs on hosts that have many servers already.

use std::path::Path;
use std::sync::Arc;

use kilonova_program::Failure;

use super::Size;
use super::cloud::{Cloud, Plan};
use super::load::{self, Door, quantile};
use super::progress::Progress;
use super::table::Table;

const HOSTS: usize = 16;
/// Servers that each host has when boots are measured.
const SERVERS: [usize; 5] = [0, 8, 64, 128, 240];
/// Boots measured for each host; they are deleted again.
const MEASURED: usize = 16;

/// Measures it.
///
/// # Errors
/// When the measured server misbehaves.
pub async fn run(directory: &Path, size: &Size<'_>, store: &str) -> Result<Table, Failure> {
    let plan = Plan { hosts: HOSTS, vgpus: 36, apart: false, database: size.database };
    let mut cloud = Cloud::start(directory, "full-hosts", &plan).await?;
    cloud.registered().await?;
    let wish = cloud.furnish().await?;
    let (address, token) = (cloud.server.address.clone(), cloud.token.clone());
    let clients = size.clients.min(8);
    let door = Door { address: &address, token: &token, clients };
    // The first boots of a process prepare its statements.
    let progress = Arc::new(Progress::begin("full hosts: first boots", 1));
    let (_, ids) = load::boot(door, HOSTS, &wish.0, &progress).await?;
    load::delete(door, ids, &progress).await?;
    let steps: Vec<usize> =
        SERVERS.into_iter().filter(|servers| servers * HOSTS <= size.servers).collect();
    let mut there = 0;
    let mut figures = Vec::new();
    for servers in &steps {
        let missing = servers * HOSTS - there;
        let what = format!("hosts with {servers} servers");
        let progress = Arc::new(Progress::begin(what, missing + MEASURED * HOSTS));
        load::boot(door, missing, &wish.0, &progress).await?;
        there += missing;
        let before = cloud.statements().await?;
        let cpu = cloud.server.cpu_ms();
        let (boots, ids) = load::boot(door, MEASURED * HOSTS, &wish.0, &progress).await?;
        let cpu = cloud.server.cpu_ms() - cpu;
        let statements = cloud.statements().await? - before;
        let look = cloud.statements_of_look(&ids[0]).await?;
        let count = boots.ends.len() as f64;
        let statements = (statements - look * boots.looks as f64) / count;
        let (p50, p99) = (quantile(&boots.ends, 0.5), quantile(&boots.ends, 0.99));
        figures.push([cpu / count, statements, p50, p99]);
        load::delete(door, ids, &progress).await?;
    }
    cloud.end();
    let title = format!(
        "{store}: boots on hosts that have servers already, {HOSTS} hosts, {clients} clients \
         (upstream: n + 6 calls of Placement on a host with n)"
    );
    let mut table = Table::new(title, steps.iter().map(|servers| format!("{servers} servers")));
    let rows = [
        ("CPU per boot, nodes and looks included", "ms"),
        ("statements per boot, without looks", ""),
        ("POST to ACTIVE p50", "ms"),
        ("POST to ACTIVE p99", "ms"),
    ];
    for (at, (what, unit)) in rows.into_iter().enumerate() {
        table.row(what, unit, None, figures.iter().map(|of| Some(of[at])));
    }
    Ok(table)
}
