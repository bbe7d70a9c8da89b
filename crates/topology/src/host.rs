//! The topology of a host.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::Cpus;

/// Memory pages of one size in a host cell.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pages {
    /// Their size, KiB.
    pub size_kib: u64,
    /// The number of pages.
    pub total: u64,
    /// The number of pages that are kept for the host (`[DEFAULT] reserved_huge_pages`).
    #[serde(default)]
    pub reserved: u64,
    /// The number of pages that guests with a topology use.
    #[serde(default)]
    pub used: u64,
}

impl Pages {
    /// The number of pages that a guest can have without overcommitment.
    pub fn free(&self) -> u64 {
        self.total.saturating_sub(self.reserved).saturating_sub(self.used)
    }
}

/// The amounts that are free in a cell with its own resource provider, according to the resource
/// ledger. The ledger also counts guests without a topology.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CellLimit {
    /// Units of `VCPU`.
    pub shared: u64,
    /// Units of `PCPU`.
    pub dedicated: u64,
    /// Memory, MiB.
    pub memory_mb: u64,
}

/// A NUMA cell of a host, and the part of it that guests with a topology use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostCell {
    /// The kernel's number of the node.
    pub id: u32,
    /// Its shared CPUs (`cpu_shared_set`).
    pub shared: Cpus,
    /// Its dedicated CPUs (`cpu_dedicated_set`).
    pub dedicated: Cpus,
    /// Its cores, each with the threads that guests may use.
    #[serde(default)]
    pub siblings: Vec<Cpus>,
    /// Its socket; `None` if its CPUs are in several sockets.
    #[serde(default)]
    pub socket: Option<u32>,
    /// Its memory, MiB.
    pub memory_mb: u64,
    /// Its memory pages, by size; empty if the host does not report them.
    #[serde(default)]
    pub pages: Vec<Pages>,
    /// The distance to each cell, as the kernel reports it.
    #[serde(default)]
    pub distances: BTreeMap<u32, u32>,
    /// The dedicated CPUs in use.
    #[serde(default)]
    pub pinned: Cpus,
    /// The shared vCPUs of guests with a topology.
    #[serde(default)]
    pub shared_used: u64,
    /// The memory of guests with a topology, MiB.
    #[serde(default)]
    pub memory_used_mb: u64,
    /// The amounts that are free according to the resource ledger; `None` if the ledger does not
    /// divide the host by cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<CellLimit>,
}

impl HostCell {
    /// The dedicated CPUs that are not in use.
    pub fn free_dedicated(&self) -> Cpus {
        self.dedicated.difference(&self.pinned).copied().collect()
    }

    /// Memory that no guest with a topology uses, MiB; negative if it is overcommitted.
    pub(crate) fn free_memory_mb(&self) -> i128 {
        i128::from(self.memory_mb) - i128::from(self.memory_used_mb)
    }

    /// The number of threads of its largest core.
    pub fn threads_per_core(&self) -> usize {
        self.siblings.iter().map(Cpus::len).max().unwrap_or(1).max(1)
    }

    /// The free dedicated threads of each core that has any, by lowest CPU. A CPU that belongs to
    /// no known core counts as a core.
    pub(crate) fn free_cores(&self) -> Vec<Vec<u32>> {
        let mut free = self.free_dedicated();
        let mut cores = Vec::new();
        for core in &self.siblings {
            let threads: Vec<u32> = core.iter().copied().filter(|cpu| free.remove(cpu)).collect();
            cores.push(threads);
        }
        cores.extend(free.into_iter().map(|cpu| vec![cpu]));
        cores.retain(|threads| !threads.is_empty());
        cores.sort();
        cores
    }

    /// The smallest page size of the cell, with its pages.
    pub(crate) fn smallest_pages(&self) -> Option<&Pages> {
        self.pages.iter().min_by_key(|pages| pages.size_kib)
    }
}

/// The cells of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostTopology {
    /// The cells, by number.
    pub cells: Vec<HostCell>,
}

/// A host's report that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHost {
    /// Two cells have the same number.
    #[error("NUMA cell {0} is reported twice")]
    Cell(u32),
    /// A CPU is in two cells, or is shared and dedicated.
    #[error("CPU {0} is reported twice")]
    Cpu(u32),
    /// A CPU is in two cores.
    #[error("CPU {0} is a thread of two cores")]
    Core(u32),
    /// A page size is reported twice, or is 0.
    #[error("the pages of {size_kib} KiB of NUMA cell {cell} are reported twice or have no size")]
    Pages {
        /// The cell.
        cell: u32,
        /// The page size.
        size_kib: u64,
    },
}

impl HostTopology {
    /// Checks that the report does not contradict itself, so that no CPU can be assigned twice.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), InvalidHost> {
        let (mut ids, mut cpus, mut threads) = (BTreeSet::new(), Cpus::new(), Cpus::new());
        for cell in &self.cells {
            if !ids.insert(cell.id) {
                return Err(InvalidHost::Cell(cell.id));
            }
            if let Some(cpu) = cell.shared.iter().chain(&cell.dedicated).find(|c| !cpus.insert(**c))
            {
                return Err(InvalidHost::Cpu(*cpu));
            }
            if let Some(cpu) = cell.siblings.iter().flatten().find(|cpu| !threads.insert(**cpu)) {
                return Err(InvalidHost::Core(*cpu));
            }
            let mut sizes = BTreeSet::from([0]);
            if let Some(pages) = cell.pages.iter().find(|pages| !sizes.insert(pages.size_kib)) {
                return Err(InvalidHost::Pages { cell: cell.id, size_kib: pages.size_kib });
            }
        }
        Ok(())
    }

    /// The cell with this number.
    pub fn cell(&self, id: u32) -> Option<&HostCell> {
        self.cells.iter().find(|cell| cell.id == id)
    }
}
