//! Boots, lists, a mixed load, deletes and a restart on clouds of several sizes; a column for each
//! size.

use std::path::Path;
use std::sync::Arc;

use kilonova_program::Failure;

use super::cloud::{Cloud, Plan};
use super::load::{self, Endpoint, quantile};
use super::mixed::{self, Mixed, SHARES};
use super::progress::Progress;
use super::table::{Aim, Table};
use super::{Size, capped};

/// The figures of one size.
#[derive(Debug, Default)]
pub struct Figures {
    hosts: usize,
    register: f64,
    register_cpu: f64,
    idle: f64,
    idle_listed: f64,
    idle_cpu: f64,
    boots: load::Measured,
    boot_cpu: f64,
    boot_database_cpu: Option<f64>,
    boot_statements: f64,
    get_statements: f64,
    list: f64,
    full: f64,
    mixed: Mixed,
    mixed_cpu: f64,
    mixed_database_cpu: Option<f64>,
    deletes: f64,
    restart_ready: f64,
    restart_cpu: f64,
    restart_idle: f64,
}

/// Measures a cloud of `hosts` hosts.
///
/// # Errors
/// When the measured server misbehaves.
pub async fn measure(directory: &Path, size: &Size<'_>, hosts: usize) -> Result<Figures, Failure> {
    let plan = Plan { hosts, vgpus: 16, apart: false, database: size.database };
    let name = format!("{hosts}-hosts");
    let mut cloud = Cloud::start(directory, &name, &plan).await?;
    let mut figures = Figures { hosts, ..Figures::default() };
    let begun = cloud.server.cpu_ms();
    figures.register = cloud.wait_for_hosts().await?.as_secs_f64();
    figures.register_cpu = (cloud.wait_until_settled().await? - begun) / hosts as f64;
    figures.idle = cloud.server.resident_mb();
    figures.idle_cpu = cloud.idle_cpu_ms(10).await;
    let known = cloud.known_hosts().await?;
    if known != hosts {
        return Err(Failure::Failed(format!("{known} of {hosts} hosts have registered")));
    }
    figures.idle_listed = cloud.server.resident_mb();
    let boot_request = cloud.seed().await?;

    let servers = capped(size.servers, hosts, 16);
    let (address, token) = (cloud.server.address.clone(), cloud.token.clone());
    let endpoint = Endpoint { address: &address, token: &token, clients: size.clients };
    let progress = Arc::new(Progress::begin(format!("{hosts} hosts: boots"), servers));
    let statements = cloud.statements().await?;
    let (cpu, database) = (cloud.server.cpu_ms(), size.database_cpu_ms());
    let (boots, mut ids) = load::boot(endpoint, servers, &boot_request.0, &progress).await?;
    figures.boot_cpu = (cloud.server.cpu_ms() - cpu) / boots.durations.len() as f64;
    figures.boot_database_cpu = since(size, database, boots.durations.len());
    let statements = cloud.statements().await? - statements;
    figures.get_statements = cloud.statements_per_get(&ids[0]).await?;
    let polls = figures.get_statements * boots.polls as f64;
    figures.boot_statements = (statements - polls) / boots.durations.len() as f64;
    figures.boots = boots;
    figures.full = cloud.server.resident_mb();
    figures.list = quantile(&load::list(&mut cloud.admin).await?, 0.5);

    let progress = Arc::new(Progress::begin(format!("{hosts} hosts: mixed"), size.operations));
    let own = ids.split_off(ids.len() / 2);
    let (cpu, database) = (cloud.server.cpu_ms(), size.database_cpu_ms());
    figures.mixed = mixed::run(endpoint, &boot_request, size.operations, own, &progress).await?;
    figures.mixed_cpu = (cloud.server.cpu_ms() - cpu) / figures.mixed.count().max(1) as f64;
    figures.mixed_database_cpu = since(size, database, figures.mixed.count());
    ids.append(&mut figures.mixed.servers);

    let (cloud, restart_ready) = cloud.restart().await?;
    figures.restart_ready = restart_ready;
    figures.restart_cpu = cloud.wait_until_settled().await? / hosts as f64;
    figures.restart_idle = cloud.server.resident_mb();

    let address = cloud.server.address.clone();
    let endpoint = Endpoint { address: &address, ..endpoint };
    let progress = Arc::new(Progress::begin(format!("{hosts} hosts: deletes"), ids.len()));
    figures.deletes = load::delete(endpoint, ids, &progress).await?.per_second();
    drop(progress);
    cloud.end();
    Ok(figures)
}

/// The CPU milliseconds that PostgreSQL has used beyond `before`, divided by `count`.
pub(super) fn since(size: &Size<'_>, before: Option<f64>, count: usize) -> Option<f64> {
    let (before, now) = before.zip(size.database_cpu_ms())?;
    Some((now - before) / count.max(1) as f64)
}

/// The tables, with a column for each size.
pub fn tables(store: &str, size: &Size<'_>, figures: &[Figures]) -> Vec<Table> {
    let columns = || figures.iter().map(|one| format!("{} hosts", one.hosts));
    let clients = size.clients;
    let title = format!(
        "{store}: boots to ACTIVE, {clients} clients, hosts of 8 GPUs in the process (above 1000 \
         hosts, boots may be half as good)"
    );
    let factors = figures.iter().map(|one| if one.hosts > 1000 { 0.5 } else { 1.0 });
    let mut table = Table::new(title, columns()).with_factors(factors);
    let mut row = |what: &str, unit, aim, figure: &dyn Fn(&Figures) -> f64| {
        table.row(what, unit, aim, figures.iter().map(|one| Some(figure(one))));
        if unit == "/s" || what.starts_with("POST") {
            table.scaled();
        }
    };
    let on_postgres = size.database.is_some();
    let (most, least) = (|most| Some(Aim::Most(most)), |least| Some(Aim::Least(least)));
    row("servers booted", "", None, &|one| one.boots.durations.len() as f64);
    row("boots", "/s", least(if on_postgres { 400.0 } else { 500.0 }), &|one| {
        one.boots.per_second()
    });
    row("POST p50", "ms", None, &|one| quantile(&one.boots.posts, 0.5));
    row("POST p99", "ms", None, &|one| quantile(&one.boots.posts, 0.99));
    row("POST to ACTIVE p50", "ms", None, &|one| quantile(&one.boots.durations, 0.5));
    let limit = if on_postgres { 300.0 } else { 500.0 };
    row("POST to ACTIVE p99", "ms", most(limit), &|one| quantile(&one.boots.durations, 0.99));
    let own = if on_postgres { None } else { most(4.0) };
    row("CPU per boot, agents and polls included", "ms", own, &|one| one.boot_cpu);
    if figures.iter().any(|one| one.boot_database_cpu.is_some()) {
        let database = |one: &Figures| one.boot_database_cpu.unwrap_or(f64::NAN);
        row("CPU per boot of PostgreSQL", "ms", None, &database);
        row("CPU per boot, together", "ms", most(5.0), &|one| one.boot_cpu + database(one));
    }
    row("polls per boot", "", None, &|one| {
        one.boots.polls as f64 / one.boots.durations.len() as f64
    });
    row("statements per boot, without polls", "", None, &|one| one.boot_statements);
    row("statements per poll", "", None, &|one| one.get_statements);
    row("GET /servers/detail of 1000 servers p50", "ms", most(30.0), &|one| one.list);
    row("deletes", "/s", None, &|one| one.deletes);
    row("resident, hosts registered", "MB", None, &|one| one.idle);
    row("resident, hosts listed too", "MB", None, &|one| one.idle_listed);
    row("resident, all servers booted", "MB", None, &|one| one.full);
    row("resident, hosts registered, after a restart", "MB", None, &|one| one.restart_idle);
    row("ready, after a restart", "s", None, &|one| one.restart_ready);
    row("all hosts registered, first start", "s", None, &|one| one.register);
    row("CPU per host, first start", "ms", None, &|one| one.register_cpu);
    row("CPU per host, restart", "ms", None, &|one| one.restart_cpu);
    row("CPU per second, idle", "ms", None, &|one| one.idle_cpu);
    let shares: Vec<String> =
        SHARES.iter().map(|(_, name, share)| format!("{share} % {name}")).collect();
    let title = format!("{store}: mixed load, {clients} clients: {}", shares.join(", "));
    let mut mixed = Table::new(title, columns());
    let mut row = |what: String, unit, figure: &dyn Fn(&Figures) -> f64| {
        mixed.row(what, unit, None, figures.iter().map(|one| Some(figure(one))));
    };
    row("operations".into(), "", &|one| one.mixed.count() as f64);
    row("failed operations".into(), "", &|one| one.mixed.failed.len() as f64);
    row("operations".into(), "/s", &|one| one.mixed.per_second());
    row("CPU per operation, agents and polls included".into(), "ms", &|one| one.mixed_cpu);
    if figures.iter().any(|one| one.mixed_database_cpu.is_some()) {
        row("CPU per operation of PostgreSQL".into(), "ms", &|one| {
            one.mixed_database_cpu.unwrap_or(f64::NAN)
        });
    }
    for (place, (_, name, _)) in SHARES.iter().enumerate() {
        for (label, fraction) in [("p50", 0.5), ("p99", 0.99)] {
            row(format!("{name} {label}"), "ms", &|one| {
                quantile(&one.mixed.durations[place], fraction)
            });
        }
    }
    vec![table, mixed]
}
