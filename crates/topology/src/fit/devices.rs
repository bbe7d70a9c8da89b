//! Devices near a guest's host cells.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Cpus, HostTopology, PciPolicy};

/// Free devices of one kind at one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DevicePool {
    /// The NUMA node; `None` if the kernel reports none.
    pub node: Option<u32>,
    /// The number of free devices.
    pub free: u32,
}

/// A request for devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceRequest {
    /// The required affinity; the default is legacy.
    pub policy: PciPolicy,
    /// How many.
    pub count: u32,
    /// The pools that can serve it, by index in the list.
    pub pools: Vec<usize>,
}

/// The requests of a guest, and the host's free devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Devices {
    /// Free devices.
    pub pools: Vec<DevicePool>,
    /// Requests.
    pub requests: Vec<DeviceRequest>,
    /// For each guest cell the host cells at which it sees the right devices; `None`, or a missing entry, if it may be
    /// anywhere. A running guest keeps the cells at which it sees its devices.
    pub seen_at: Vec<Option<Cpus>>,
}

impl Devices {
    /// True if the guest cell of this number sees the right devices at the host cell.
    pub(super) fn are_seen(&self, guest: usize, host: u32) -> bool {
        let cells = self.seen_at.get(guest).and_then(Option::as_ref);
        cells.is_none_or(|cells| cells.contains(&host))
    }
}

/// Devices of a pool for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicePick {
    /// The request, by index in the list.
    pub request: usize,
    /// The pool, by index in the list.
    pub pool: usize,
    /// How many.
    pub count: u32,
}

/// Chooses the devices of a guest on these host cells: near ones, unless another request would fail.
pub(super) fn choose(
    host: &HostTopology,
    devices: &Devices,
    cells: &BTreeSet<u32>,
) -> Option<Vec<DevicePick>> {
    let candidates = devices.requests.iter().map(|request| {
        let ranked = request.pools.iter().filter_map(|pool| {
            let node = devices.pools.get(*pool)?.node;
            Some((rank(host, cells, request.policy, node)?, *pool))
        });
        ranked.collect::<BTreeSet<(u32, usize)>>().into_iter().map(|(_, pool)| pool).collect()
    });
    let mut flow = Flow {
        candidates: candidates.collect(),
        free: devices.pools.iter().map(|pool| pool.free).collect(),
        taken: vec![vec![0; devices.pools.len()]; devices.requests.len()],
    };
    for (request, wanted) in devices.requests.iter().enumerate() {
        let reachable =
            flow.candidates[request].iter().map(|pool| u64::from(devices.pools[*pool].free));
        if reachable.sum::<u64>() < u64::from(wanted.count) {
            return None;
        }
        for _ in 0..wanted.count {
            if !flow.augment(request, &mut vec![false; devices.pools.len()]) {
                return None;
            }
        }
    }
    let picks = flow.taken.iter().enumerate().flat_map(|(request, pools)| {
        let pools = pools.iter().enumerate().filter(|(_, count)| **count > 0);
        pools.map(move |(pool, count)| DevicePick { request, pool, count: *count })
    });
    Some(picks.collect())
}

/// The distance of a node from the guest's host cells, as a sort key: 0 for near. `None` if the policy forbids the
/// node.
fn rank(
    host: &HostTopology,
    cells: &BTreeSet<u32>,
    policy: PciPolicy,
    node: Option<u32>,
) -> Option<u32> {
    if node.is_some_and(|node| cells.contains(&node)) {
        return Some(0);
    }
    let distance = || {
        let near = host.cells.iter().filter(|cell| cells.contains(&cell.id));
        let far = near.filter_map(|cell| cell.distances.get(&node?).copied()).min();
        far.map_or(u32::MAX, |far| far.saturating_add(2))
    };
    match policy {
        PciPolicy::Required => None,
        PciPolicy::Legacy => node.is_none().then_some(1),
        PciPolicy::Preferred if node.is_none() => Some(1),
        PciPolicy::Preferred => Some(distance()),
        PciPolicy::Socket => in_socket(host, cells, node?).then(distance),
    }
}

/// True if a node is in the socket of one of the cells. Sockets count only if each cell has one.
fn in_socket(host: &HostTopology, cells: &BTreeSet<u32>, node: u32) -> bool {
    let sockets: Option<Vec<(u32, u32)>> =
        host.cells.iter().map(|cell| Some((cell.id, cell.socket?))).collect();
    let sockets = sockets.unwrap_or_default();
    let of_node = sockets.iter().find(|(id, _)| *id == node).map(|(_, socket)| *socket);
    of_node.is_some_and(|of_node| {
        sockets.iter().any(|(id, socket)| cells.contains(id) && *socket == of_node)
    })
}

/// Assigns devices of pools to requests. A request gives a device up to another request if it finds a replacement.
struct Flow {
    /// For each request the pools that may serve it, nearest first.
    candidates: Vec<Vec<usize>>,
    free: Vec<u32>,
    taken: Vec<Vec<u32>>,
}

impl Flow {
    /// Gives a request one more device.
    fn augment(&mut self, request: usize, seen: &mut [bool]) -> bool {
        for place in 0..self.candidates[request].len() {
            let pool = self.candidates[request][place];
            if seen[pool] {
                continue;
            }
            seen[pool] = true;
            if self.free[pool] > 0 {
                self.free[pool] -= 1;
                self.taken[request][pool] += 1;
                return true;
            }
            for other in 0..self.taken.len() {
                if other != request && self.taken[other][pool] > 0 && self.augment(other, seen) {
                    self.taken[other][pool] -= 1;
                    self.taken[request][pool] += 1;
                    return true;
                }
            }
        }
        false
    }
}
