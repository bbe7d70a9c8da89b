//! The order in which host cells are tried.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::devices::Devices;
use crate::{GuestTopology, HostCell, HostTopology};

/// The order in which a guest uses host cells
/// (`[compute] packing_host_numa_cells_allocation_strategy`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// The emptiest first.
    #[default]
    Spread,
    /// The fullest first.
    Pack,
}

/// The host cells in the order of preference: by free devices, then by CPUs in use, then by free
/// memory. They keep their order if the guest needs all of them.
pub(super) fn order<'a>(
    host: &'a HostTopology,
    guest: &GuestTopology,
    strategy: Strategy,
    devices: &Devices,
) -> Vec<&'a HostCell> {
    let mut cells: Vec<&HostCell> = host.cells.iter().collect();
    if cells.len() <= guest.cells.len() {
        return cells;
    }
    let pinned = guest.is_pinned();
    let free_cpus = |cell: &HostCell| cell.free_dedicated().len();
    match strategy {
        Strategy::Spread => {
            cells.sort_by_key(|cell| Reverse(cell.free_memory_mb()));
            match pinned {
                true => cells.sort_by_key(|cell| Reverse(free_cpus(cell))),
                false => cells.sort_by_key(|cell| cell.shared_used),
            }
        }
        Strategy::Pack => {
            cells.sort_by_key(|cell| cell.free_memory_mb());
            match pinned {
                true => cells.sort_by_key(|cell| free_cpus(cell)),
                false => cells.sort_by_key(|cell| Reverse(cell.shared_used)),
            }
        }
    }
    let mut near: BTreeMap<u32, u64> = BTreeMap::new();
    for pool in &devices.pools {
        if let Some(node) = pool.node {
            *near.entry(node).or_default() += u64::from(pool.free);
        }
    }
    let near = |cell: &&HostCell| near.get(&cell.id).copied().unwrap_or(0);
    match devices.requests.is_empty() {
        true => cells.sort_by_key(near),
        false => cells.sort_by_key(|cell| Reverse(near(cell))),
    }
    cells
}
