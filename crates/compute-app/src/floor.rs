//! The floor: hosts with their devices and the users of the devices, for operators.
//!
//! The number of statements for a page grows only slowly with the numbers of hosts, parts and handles that are not
//! free, because each statement reads a long list. The hosts, their states and the amounts of their providers are read
//! from memory, which may lag behind the database for a moment.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use kilonova_accelerator::ledger as devices;
pub use kilonova_accelerator::ledger::{Extent, FloorDevice, FloorHandle, FloorPart};
pub use kilonova_accelerator::{DeviceStatus, HandleState, HealthState};
use kilonova_compute_db::aggregates;
use kilonova_compute_db::fleet::Version;
use kilonova_compute_db::servers::on_hosts;
use kilonova_compute_scheduler::fleet::Host;
use kilonova_engine::{Inventory, NodeView, Snapshot};
use kilonova_ids::{HostName, ProviderId, ResourceClass, ServerId};
use kilonova_wire::time;
use serde::Serialize;

use crate::{Compute, Error};

/// Maximum number of hosts in one page.
pub const MOST: usize = 1000;

/// The selection of hosts to show.
#[derive(Debug, Clone)]
pub struct FloorQuery {
    /// Only these hosts, as far as they exist; all hosts if empty.
    pub hosts: Vec<HostName>,
    /// Only hosts whose names sort after this one.
    pub after: Option<HostName>,
    /// Maximum number of hosts.
    pub limit: usize,
    /// The values to read. The names of the servers are details.
    pub extent: Extent,
}

/// A page of hosts, in the order of their names.
#[derive(Debug)]
pub struct Floor {
    /// The hosts.
    pub hosts: Vec<FloorHost>,
    /// The names of the servers on them; a detail.
    pub names: HashMap<ServerId, String>,
    /// The provider snapshot with the amounts.
    pub world: Arc<Snapshot>,
    /// True if more hosts follow.
    pub more: bool,
    /// The time of the hosts' states.
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Amounts {
    /// Total.
    pub total: i64,
    /// Excluded from allocation.
    pub reserved: i64,
    /// Allocated.
    pub used: i64,
    /// Still available for allocation.
    pub free: i64,
}

impl From<Inventory> for Amounts {
    fn from(one: Inventory) -> Self {
        let free = one.capacity().saturating_sub(one.used).max(0);
        Self { total: one.total, reserved: one.reserved, used: one.used, free }
    }
}

impl Floor {
    /// The providers of a host with their amounts.
    pub fn providers(&self, host: &Host) -> Providers<'_> {
        let nodes = self.world.tree(host.root).into_iter().flat_map(|tree| tree.nodes());
        Providers(nodes.map(|node| (node.id(), node)).collect())
    }
}

/// The providers of a host.
#[derive(Debug)]
pub struct Providers<'a>(HashMap<ProviderId, NodeView<'a>>);

impl<'a> Providers<'a> {
    /// The amounts of a provider by resource class; empty if the host does not have the provider.
    pub fn of(
        &self,
        provider: ProviderId,
    ) -> impl Iterator<Item = (&'a ResourceClass, Amounts)> + use<'a> {
        let node = self.0.get(&provider).copied();
        let all = node.into_iter().flat_map(|node| node.inventories());
        all.map(|(class, one)| (class, Amounts::from(one)))
    }

    /// The amounts of a part of a device; zeros if its provider does not have its class.
    pub fn of_part(&self, part: &FloorPart) -> Amounts {
        let mut all = self.of(part.provider);
        all.find(|(class, _)| **class == part.resource_class)
            .map(|(_, one)| one)
            .unwrap_or_default()
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
    let extent = query.extent;
    let read = compute.store.read(move |tx| {
        if names.is_empty() {
            return Ok(Default::default());
        }
        let devices = devices::floor(tx, &names, extent)?;
        let counts = on_hosts::counts(tx, &names)?;
        let named = match extent {
            Extent::Details => on_hosts::names(tx, &names)?,
            Extent::Drawing => HashMap::new(),
        };
        Ok::<_, Error>((devices, counts, named, aggregates::all(tx)?))
    });
    let (mut devices, counts, names, aggregates) = read.await?;
    let mut groups: HashMap<HostName, Vec<String>> = HashMap::new();
    for aggregate in aggregates {
        for host in aggregate.hosts {
            groups.entry(host).or_default().push(aggregate.name.clone());
        }
    }
    let hosts = chosen.into_iter().map(|host| FloorHost {
        aggregates: groups.remove(&host.name).unwrap_or_default(),
        servers: counts.get(&host.name).copied().unwrap_or_default(),
        devices: devices.remove(&host.name).unwrap_or_default(),
        host,
    });
    Ok(Floor {
        hosts: hosts.collect(),
        names,
        world: compute.world.snapshot(),
        more,
        at: time::now(),
    })
}

/// The hosts of a page, and whether others follow.
fn choose(mut all: Vec<Arc<Host>>, query: &FloorQuery) -> (Vec<Arc<Host>>, bool) {
    let after = |host: &Host| query.after.as_ref().is_none_or(|after| host.name > *after);
    let wanted: HashSet<&HostName> = query.hosts.iter().collect();
    let named = |host: &Host| wanted.is_empty() || wanted.contains(&host.name);
    all.retain(|host| after(host) && named(host));
    all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let limit = query.limit.clamp(1, MOST);
    let more = all.len() > limit;
    all.truncate(limit);
    (all, more)
}

/// The state of the floor at one moment, for readers that show it and look for changes. Kept in memory only.
#[derive(Debug, Clone, Default)]
pub struct FloorMarks {
    world: Arc<Snapshot>,
    hosts: BTreeMap<HostName, (Version, ProviderId, bool)>,
}

impl FloorMarks {
    /// Number of hosts.
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// The hosts that differ from an earlier state, are new or are gone. Unchanged provider trees are not read, so
    /// they cost little.
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
