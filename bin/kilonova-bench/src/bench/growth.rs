//! What the same costs on clouds of several sizes: boots, lists, all operations mixed, deletes, a
//! second start. A column for each size.

use std::path::Path;
use std::sync::Arc;

use kilonova_program::Failure;

use super::cloud::{Cloud, Plan};
use super::load::{self, Door, quantile};
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
    rest: f64,
    boots: load::Measured,
    boot_cpu: f64,
    boot_statements: f64,
    look_statements: f64,
    list: f64,
    full: f64,
    mixed: Mixed,
    mixed_cpu: f64,
    deletes: f64,
    again: f64,
    again_cpu: f64,
    again_idle: f64,
}

/// Measures a cloud of `hosts` hosts.
///
/// # Errors
/// When the measured server misbehaves.
pub async fn measure(directory: &Path, size: &Size<'_>, hosts: usize) -> Result<Figures, Failure> {
    let plan = Plan { hosts, vgpus: 16, apart: false, database: size.database };
    let name = format!("{hosts}-hosts");
    let mut cloud = Cloud::start(directory, &name, &plan).await?;
    let mut of = Figures { hosts, ..Figures::default() };
    let begun = cloud.server.cpu_ms();
    of.register = cloud.registered().await?.as_secs_f64();
    of.register_cpu = (cloud.settled().await? - begun) / hosts as f64;
    of.idle = cloud.server.resident_mb();
    of.rest = cloud.at_rest(10).await;
    let known = cloud.known_hosts().await?;
    if known != hosts {
        return Err(Failure::Failed(format!("{known} of {hosts} hosts have registered")));
    }
    of.idle_listed = cloud.server.resident_mb();
    let wish = cloud.furnish().await?;

    let servers = capped(size.servers, hosts, 16);
    let (address, token) = (cloud.server.address.clone(), cloud.token.clone());
    let door = Door { address: &address, token: &token, clients: size.clients };
    let progress = Arc::new(Progress::begin(format!("{hosts} hosts: boots"), servers));
    let statements = cloud.statements().await?;
    let cpu = cloud.server.cpu_ms();
    let (boots, mut ids) = load::boot(door, servers, &wish.0, &progress).await?;
    of.boot_cpu = (cloud.server.cpu_ms() - cpu) / boots.ends.len() as f64;
    let statements = cloud.statements().await? - statements;
    of.look_statements = cloud.statements_of_look(&ids[0]).await?;
    let looks = of.look_statements * boots.looks as f64;
    of.boot_statements = (statements - looks) / boots.ends.len() as f64;
    of.boots = boots;
    of.full = cloud.server.resident_mb();
    of.list = quantile(&load::list(&mut cloud.admin).await?, 0.5);

    let progress = Arc::new(Progress::begin(format!("{hosts} hosts: mixed"), size.operations));
    let own = ids.split_off(ids.len() / 2);
    let cpu = cloud.server.cpu_ms();
    of.mixed = mixed::run(door, &wish, size.operations, own, &progress).await?;
    of.mixed_cpu = (cloud.server.cpu_ms() - cpu) / of.mixed.count().max(1) as f64;
    ids.append(&mut of.mixed.servers);

    let (cloud, again) = cloud.start_again().await?;
    of.again = again;
    of.again_cpu = cloud.settled().await? / hosts as f64;
    of.again_idle = cloud.server.resident_mb();

    let address = cloud.server.address.clone();
    let door = Door { address: &address, ..door };
    let progress = Arc::new(Progress::begin(format!("{hosts} hosts: deletes"), ids.len()));
    of.deletes = load::delete(door, ids, &progress).await?.per_second();
    drop(progress);
    cloud.end();
    Ok(of)
}

/// The tables of some sizes.
pub fn tables(store: &str, size: &Size<'_>, of: &[Figures]) -> Vec<Table> {
    let columns = || of.iter().map(|one| format!("{} hosts", one.hosts));
    let clients = size.clients;
    let title = format!(
        "{store}: boots to ACTIVE, {clients} clients, hosts of 8 GPUs in the process (above 1000 \
         hosts, boots may be half as good)"
    );
    let factors = of.iter().map(|one| if one.hosts > 1000 { 0.5 } else { 1.0 });
    let mut table = Table::new(title, columns()).with_factors(factors);
    let mut row = |what: &str, unit, aim, figure: &dyn Fn(&Figures) -> f64| {
        table.row(what, unit, aim, of.iter().map(|one| Some(figure(one))));
        if unit == "/s" || what.starts_with("POST") {
            table.scaled();
        }
    };
    let (most, least) = (|most| Some(Aim::Most(most)), |least| Some(Aim::Least(least)));
    row("servers booted", "", None, &|one| one.boots.ends.len() as f64);
    row("boots", "/s", least(500.0), &|one| one.boots.per_second());
    row("POST p50", "ms", None, &|one| quantile(&one.boots.posts, 0.5));
    row("POST p99", "ms", None, &|one| quantile(&one.boots.posts, 0.99));
    row("POST to ACTIVE p50", "ms", None, &|one| quantile(&one.boots.ends, 0.5));
    row("POST to ACTIVE p99", "ms", most(500.0), &|one| quantile(&one.boots.ends, 0.99));
    row("CPU per boot, nodes and looks included", "ms", most(4.0), &|one| one.boot_cpu);
    row("looks per boot", "", None, &|one| one.boots.looks as f64 / one.boots.ends.len() as f64);
    row("statements per boot, without looks", "", None, &|one| one.boot_statements);
    row("statements per look", "", None, &|one| one.look_statements);
    row("GET /servers/detail of 1000 servers p50", "ms", most(30.0), &|one| one.list);
    row("deletes", "/s", None, &|one| one.deletes);
    row("resident, hosts registered", "MB", None, &|one| one.idle);
    row("resident, hosts listed too", "MB", None, &|one| one.idle_listed);
    row("resident, all servers booted", "MB", None, &|one| one.full);
    row("resident, hosts registered, second start", "MB", None, &|one| one.again_idle);
    row("ready, second start", "s", None, &|one| one.again);
    row("all hosts registered, first start", "s", None, &|one| one.register);
    row("CPU per host, first start", "ms", None, &|one| one.register_cpu);
    row("CPU per host, second start", "ms", None, &|one| one.again_cpu);
    row("CPU per second at rest", "ms", None, &|one| one.rest);
    let shares: Vec<String> =
        SHARES.iter().map(|(_, name, share)| format!("{share} % {name}")).collect();
    let title = format!("{store}: mixed load, {clients} clients: {}", shares.join(", "));
    let mut mixed = Table::new(title, columns());
    let mut row = |what: String, unit, figure: &dyn Fn(&Figures) -> f64| {
        mixed.row(what, unit, None, of.iter().map(|one| Some(figure(one))));
    };
    row("operations".into(), "", &|one| one.mixed.count() as f64);
    row("operations that came to another end".into(), "", &|one| one.mixed.failed.len() as f64);
    row("operations".into(), "/s", &|one| one.mixed.per_second());
    row("CPU per operation, nodes and looks included".into(), "ms", &|one| one.mixed_cpu);
    for (place, (_, name, _)) in SHARES.iter().enumerate() {
        for (quantile_, of_quantile) in [("p50", 0.5), ("p99", 0.99)] {
            row(format!("{name} {quantile_}"), "ms", &|one| {
                quantile(&one.mixed.ends[place], of_quantile)
            });
        }
    }
    vec![table, mixed]
}
