//! The cost of the controller alone: the simulated hosts run in another process and use HTTP, as
//! real agents do.

use std::path::Path;
use std::sync::Arc;

use kilonova_program::Failure;

use super::cloud::{Cloud, Plan};
use super::growth::since;
use super::load::{self, Endpoint, quantile};
use super::progress::Progress;
use super::table::{Aim, Table};
use super::{Size, capped};

/// Measures a cloud of `hosts` hosts and `servers` servers.
///
/// # Errors
/// When the measured server misbehaves.
pub async fn run(
    directory: &Path,
    size: &Size<'_>,
    store: &str,
    hosts: usize,
    servers: usize,
) -> Result<Table, Failure> {
    let servers = capped(servers, hosts, 16);
    let plan = Plan { hosts, vgpus: 16, apart: true, database: size.database };
    let mut cloud = Cloud::start(directory, "hosts-apart", &plan).await?;
    let boot_request = cloud.seed().await?;
    let empty = cloud.server.resident_mb();
    let begun = (cloud.server.cpu_ms(), size.database_cpu_ms());
    cloud.start_hosts()?;
    let register = cloud.wait_for_hosts().await?.as_secs_f64();
    let register_cpu = (cloud.wait_until_settled().await? - begun.0) / hosts as f64;
    let register_database_cpu = since(size, begun.1, hosts);
    let idle = cloud.server.resident_mb();
    let idle_cpu = cloud.idle_cpu_ms(10).await;
    let (address, token) = (cloud.server.address.clone(), cloud.token.clone());
    let endpoint = Endpoint { address: &address, token: &token, clients: size.clients };
    let what = format!("{hosts} hosts in a process of their own: boots");
    let progress = Arc::new(Progress::begin(what, servers));
    let hosts_cpu = |cloud: &Cloud| cloud.apart.as_ref().map_or(0.0, |hosts| hosts.cpu_ms());
    let (cpu, cpu_of_hosts) = (cloud.server.cpu_ms(), hosts_cpu(&cloud));
    let database = size.database_cpu_ms();
    let (boots, ids) = load::boot(endpoint, servers, &boot_request.0, &progress).await?;
    let count = boots.durations.len() as f64;
    let cpu = (cloud.server.cpu_ms() - cpu) / count;
    let cpu_of_hosts = (hosts_cpu(&cloud) - cpu_of_hosts) / count;
    let database = since(size, database, boots.durations.len());
    let full = cloud.server.resident_mb();
    let list = quantile(&load::list(&mut cloud.admin).await?, 0.5);
    let registered = cloud.known_hosts().await?;
    let listed = cloud.server.resident_mb();
    let of_hosts = cloud.apart.as_ref().map_or(0.0, |hosts| hosts.resident_mb());
    drop(ids);
    cloud.end();
    if registered != hosts {
        return Err(Failure::Failed(format!("{registered} of {hosts} hosts have registered")));
    }
    let title = format!(
        "{store}: the controller alone, {hosts} hosts of 8 GPUs in a process of their own, \
         {servers} servers"
    );
    let mut table = Table::new(title, ["".to_owned()]);
    let mut row = |what, unit, aim, figure| table.row(what, unit, aim, [Some(figure)]);
    row("all hosts registered, first start", "s", None, register);
    row("CPU per host, first start, controller", "ms", None, register_cpu);
    if let Some(cpu) = register_database_cpu {
        row("CPU per host, first start, PostgreSQL", "ms", None, cpu);
    }
    row("resident, no host", "MB", None, empty);
    row("resident, all hosts registered", "MB", None, idle);
    row("resident, all servers booted", "MB", Some(Aim::Most(400.0)), full);
    row(
        "resident, after lists of 1000 servers and all hosts",
        "MB",
        Some(Aim::Most(400.0)),
        listed,
    );
    row("resident, the hosts", "MB", None, of_hosts);
    row("CPU per second, idle", "ms", None, idle_cpu);
    row("boots", "/s", None, boots.per_second());
    row("POST to ACTIVE p50", "ms", None, quantile(&boots.durations, 0.5));
    row("POST to ACTIVE p99", "ms", None, quantile(&boots.durations, 0.99));
    row("CPU per boot, controller, polls included", "ms", None, cpu);
    row("CPU per boot, hosts", "ms", None, cpu_of_hosts);
    if let Some(cpu) = database {
        row("CPU per boot, PostgreSQL", "ms", None, cpu);
    }
    row("GET /servers/detail of 1000 servers p50", "ms", Some(Aim::Most(30.0)), list);
    Ok(table)
}
