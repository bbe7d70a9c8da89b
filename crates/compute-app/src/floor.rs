//! The floor: hosts with their devices and everybody who uses them, for operators.
//!
//! The number of statements for a page depends on the numbers of hosts and of their parts alone. Which hosts there are,
//! their states and the amounts of their providers are read from memory, which may lag behind the database for a moment.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use kilonova_accelerator::ledger as devices;
pub use kilonova_accelerator::ledger::{FloorDevice, FloorHandle, FloorPart};
use kilonova_compute_db::aggregates;
use kilonova_compute_db::fleet::Version;
use kilonova_compute_db::servers::on_hosts::{self, Placed};
use kilonova_compute_scheduler::fleet::Host;
use kilonova_engine::{Inventory, Snapshot};
use kilonova_ids::{HostName, ProviderId, ResourceClass, ServerId};
use kilonova_wire::time;
use serde::Serialize;

use crate::{Compute, Error};

/// Maximum number of hosts in one page.
pub const MOST: usize = 1000;

/// Which hosts are shown.
#[derive(Debug, Clone, Default)]
pub struct FloorQuery {
    /// These, as far as they exist; all without any.
    pub hosts: Vec<HostName>,
    /// Those whose names follow this one.
    pub after: Option<HostName>,
    /// At most so many.
    pub limit: usize,
}

/// A page of hosts, in the order of their names.
#[derive(Debug)]
pub struct Floor {
    /// The hosts.
    pub hosts: Vec<FloorHost>,
    /// The servers on them, and their names.
    pub servers: HashMap<ServerId, Placed>,
    /// The provider snapshot of the amounts.
    pub world: Arc<Snapshot>,
    /// True if there are hosts after them.
    pub more: bool,
    /// The time of the states.
    pub at: Timestamp,
}

/// A host with its devices.
#[derive(Debug)]
pub struct FloorHost {
    /// The host.
    pub host: Arc<Host>,
    /// The names of its aggregates.
    pub aggregates: Vec<String>,
    /// Number of servers on it.
    pub servers: usize,
    /// Its devices.
    pub devices: Vec<FloorDevice>,
}

/// The amounts of one resource class at one provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Amounts {
    /// Total.
    pub total: i64,
    /// Excluded from allocation.
    pub reserved: i64,
    /// Allocated.
    pub used: i64,
    /// Left for allocation.
    pub free: i64,
}

impl From<Inventory> for Amounts {
    fn from(one: Inventory) -> Self {
        let free = one.capacity().saturating_sub(one.used).max(0);
        Self { total: one.total, reserved: one.reserved, used: one.used, free }
    }
}

impl Floor {
    /// The amounts of each provider of a host.
    pub fn amounts(&self, host: &Host) -> HashMap<ProviderId, Vec<(ResourceClass, Amounts)>> {
        let nodes = self.world.tree(host.root).into_iter().flat_map(|tree| tree.nodes());
        let of = nodes.map(|node| {
            let all = node.inventories().map(|(class, one)| (class.clone(), Amounts::from(one)));
            (node.id(), all.collect())
        });
        of.collect()
    }
}

/// Reads a page.
///
/// # Errors
/// Store errors only.
pub async fn floor(compute: &Compute, query: FloorQuery) -> Result<Floor, Error> {
    compute.catch_up().await;
    let (chosen, more) = choose(compute.fleet.all(), &query);
    let names: Vec<HostName> = chosen.iter().map(|host| host.name.clone()).collect();
    let read = compute.store.read(move |tx| {
        let devices = devices::floor(tx, &names)?;
        let servers = on_hosts::on_hosts(tx, &names)?;
        Ok::<_, Error>((devices, servers, aggregates::all(tx)?))
    });
    let (mut devices, servers, aggregates) = read.await?;
    let mut groups: HashMap<HostName, Vec<String>> = HashMap::new();
    for aggregate in aggregates {
        for host in aggregate.hosts {
            groups.entry(host).or_default().push(aggregate.name.clone());
        }
    }
    let mut counts: HashMap<HostName, usize> = HashMap::new();
    for server in &servers {
        *counts.entry(server.host.clone()).or_default() += 1;
    }
    let hosts = chosen.into_iter().map(|host| FloorHost {
        aggregates: groups.remove(&host.name).unwrap_or_default(),
        servers: counts.get(&host.name).copied().unwrap_or_default(),
        devices: devices.remove(&host.name).unwrap_or_default(),
        host,
    });
    Ok(Floor {
        hosts: hosts.collect(),
        servers: servers.into_iter().map(|server| (server.id, server)).collect(),
        world: compute.world.snapshot(),
        more,
        at: time::now(),
    })
}

/// The hosts of a page, and whether others follow.
fn choose(mut all: Vec<Arc<Host>>, query: &FloorQuery) -> (Vec<Arc<Host>>, bool) {
    let after = |host: &Host| query.after.as_ref().is_none_or(|after| host.name > *after);
    let named = |host: &Host| query.hosts.is_empty() || query.hosts.contains(&host.name);
    all.retain(|host| after(host) && named(host));
    all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let limit = query.limit.clamp(1, MOST);
    let more = all.len() > limit;
    all.truncate(limit);
    (all, more)
}

/// The state of the floor at one moment, for readers that show it meanwhile. It is in memory alone.
#[derive(Debug, Clone, Default)]
pub struct FloorMarks {
    world: Arc<Snapshot>,
    hosts: BTreeMap<HostName, (Version, ProviderId, bool)>,
}

impl FloorMarks {
    /// The hosts that differ from an earlier state, are new or are gone. The cost of what has not changed is
    /// small: unchanged provider trees are not read.
    pub fn changed_since(&self, before: &Self) -> Vec<HostName> {
        let trees: HashSet<ProviderId> = self.world.changed_since(&before.world).collect();
        let here = self.hosts.iter().filter(|(name, mark)| {
            before.hosts.get(*name) != Some(*mark) || trees.contains(&mark.1)
        });
        let gone = before.hosts.keys().filter(|name| !self.hosts.contains_key(*name));
        here.map(|(name, _)| name).chain(gone).cloned().collect()
    }
}

impl Compute {
    /// The state of the floor now.
    pub fn floor_marks(&self) -> FloorMarks {
        let now = time::now();
        let mark =
            |host: &Arc<Host>| (host.name.clone(), (host.version(), host.root, host.is_up(now)));
        let hosts = self.fleet.all().iter().map(mark).collect();
        FloorMarks { world: self.world.snapshot(), hosts }
    }
}
