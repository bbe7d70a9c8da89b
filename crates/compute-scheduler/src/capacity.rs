//! Counts the servers of a request that fit now, and the used and free devices.
//!
//! Performs no I/O and does not read the clock. Counting servers is slow on a large cloud with many distinct states:
//! never do it in a transaction. Only one host of each group of equal hosts is searched.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kilonova_engine::{Query, Snapshot};
use kilonova_ids::{ProviderId, ResourceClass};
use uuid::Uuid;

use crate::constraints::Constraints;
use crate::packer::{is_device, kind_traits};
use crate::place::confined;
use crate::reason::{NoHost, is_without_device, obstacle_of_host, reason};

/// Maximum number of servers that are counted on one host.
const MAX_SERVERS_ON_HOST: u64 = 4096;

/// A provider without its identity: the position of its parent, and its own traits, aggregates and inventories.
type State = (Option<usize>, Vec<Arc<str>>, Vec<Uuid>, Vec<(ResourceClass, [i64; 6], u64)>);

/// The hosts, grouped by equal provider trees.
#[derive(Debug, Clone, Default)]
pub struct EqualHosts(Vec<Vec<ProviderId>>);

impl EqualHosts {
    /// Groups the trees of a snapshot.
    pub fn of(world: &Snapshot) -> Self {
        let mut groups: HashMap<Vec<State>, Vec<ProviderId>> = HashMap::new();
        for root in world.roots() {
            let Some(tree) = world.tree(root) else { continue };
            let positions: HashMap<ProviderId, usize> =
                tree.outline().enumerate().map(|(at, (id, ..))| (id, at)).collect();
            let state = tree.providers().map(|provider| {
                let inventories = provider.inventories.into_iter().map(|(class, one)| {
                    let amounts = [
                        one.total,
                        one.reserved,
                        one.min_unit,
                        one.max_unit,
                        one.step_size,
                        one.used,
                    ];
                    (class, amounts, one.allocation_ratio.to_bits())
                });
                let parent = provider.parent.and_then(|id| positions.get(&id).copied());
                (parent, provider.traits, provider.aggregates, inventories.collect())
            });
            groups.entry(state.collect()).or_default().push(root);
        }
        Self(groups.into_values().collect())
    }
}

/// The number of servers of a request that fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// The number of servers that fit now, placed one by one: a lower bound, because other places for the first
    /// servers may leave room for more.
    pub servers: u64,
    /// Number of hosts on which at least one server fits.
    pub hosts: u64,
    /// The reason why no server fits.
    pub reason: Option<NoHost>,
}

/// The number of searches that are left; see [`capacity`].
#[derive(Debug, Clone, Copy)]
pub struct Searches(pub u64);

/// The number of servers of a request that fit. `None` if the count takes more searches than are left.
///
/// # Errors
/// [`NoHost`] for an invalid query.
pub fn capacity(
    world: &Snapshot,
    hosts: &EqualHosts,
    constraints: &Constraints<'_>,
    query: &Query,
    left: &mut Searches,
) -> Result<Option<Capacity>, NoHost> {
    let mut found = Capacity { servers: 0, hosts: 0, reason: None };
    for equal in &hosts.0 {
        let usable = equal.iter().filter(|root| {
            let host = constraints.host(**root);
            host.is_some_and(|host| obstacle_of_host(constraints, &host).is_none())
        });
        let Some((first, usable)) = equal.first().zip(u64::try_from(usable.count()).ok()) else {
            continue;
        };
        if usable == 0 {
            continue;
        }
        let Some(on_one) = fitting(world, query, *first, left)? else { return Ok(None) };
        found.servers += on_one * usable;
        found.hosts += if on_one > 0 { usable } else { 0 };
    }
    if found.servers == 0 {
        found.reason = Some(reason(world, constraints, query));
    }
    Ok(Some(found))
}

/// The number of servers that fit on one host. `None` if the count takes more searches than are left.
pub(crate) fn fitting(
    world: &Snapshot,
    query: &Query,
    root: ProviderId,
    left: &mut Searches,
) -> Result<Option<u64>, NoHost> {
    let (mut scratch, here) = (world.clone(), confined(query, root));
    for count in 0..MAX_SERVERS_ON_HOST {
        if left.0 == 0 {
            return Ok(None);
        }
        left.0 -= 1;
        let mut search = scratch.search(&here).map_err(|error| NoHost::new(format!("{error}.")))?;
        let next = search.find(|one| one.root == root && !is_without_device(one));
        drop(search);
        let Some(candidate) = next else { return Ok(Some(count)) };
        scratch.add_usage(&candidate);
    }
    Ok(Some(MAX_SERVERS_ON_HOST))
}

/// The devices of one kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceKind {
    /// The resource class.
    pub class: ResourceClass,
    /// The traits of their providers; sorted.
    pub traits: Vec<Arc<str>>,
    /// Number of units of one device.
    pub units: i64,
}

/// The use of the devices of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// Number of devices.
    pub devices: u64,
    /// Number of unused devices.
    pub free: u64,
    /// Number of devices that are used in part.
    pub partly_used: u64,
    /// Units that can be allocated now.
    pub free_units: i64,
    /// Free units on devices that are used in part: the fragmentation of the free units.
    pub divided_units: i64,
    /// Units that are reserved in Placement because they are withheld.
    pub reserved_units: i64,
}

/// The use of all devices, by kind.
pub fn devices(world: &Snapshot) -> BTreeMap<DeviceKind, DeviceUse> {
    let mut kinds: BTreeMap<DeviceKind, DeviceUse> = BTreeMap::new();
    for tree in world.roots().filter_map(|root| world.tree(root)) {
        for node in tree.nodes().filter(|node| node.parent().is_some()) {
            for (class, inventory) in node.inventories().filter(|(class, _)| is_device(class)) {
                let traits = kind_traits(&node);
                let kind = DeviceKind { class: class.clone(), traits, units: inventory.total };
                let known = kinds.entry(kind).or_default();
                let free = inventory.capacity().saturating_sub(inventory.used).max(0);
                known.devices += 1;
                known.free_units += free;
                known.reserved_units += inventory.reserved;
                if inventory.used > 0 && free > 0 {
                    known.partly_used += 1;
                    known.divided_units += free;
                } else if free > 0 {
                    known.free += 1;
                }
            }
        }
    }
    kinds
}
