//! The NUMA cells of a guest, each with its place on the host.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Attachment, is_default};

/// The trait of hosts whose agents realize [`GuestNuma`]. Agents of earlier builds ignore it.
pub const GUEST_NUMA: &str = "CUSTOM_GUEST_NUMA";

/// The trait of hosts whose agents realize [`GuestNuma::devices`]. Agents of earlier builds ignore it.
pub const GUEST_DEVICE_CELLS: &str = "CUSTOM_GUEST_DEVICE_CELLS";

/// The NUMA cells of a guest and the host CPUs of its threads. Lists of CPUs have the kernel's form:
/// `0-3,8`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GuestNuma {
    /// The cells; the index in the list is the cell's number in the guest.
    pub cells: Vec<GuestNumaCell>,
    /// The host CPUs of the emulator's threads.
    pub emulator: String,
    /// The vCPUs with a realtime scheduler.
    #[serde(default, skip_serializing_if = "is_default")]
    pub realtime: String,
    /// True if the guest's memory is locked in the host's memory.
    #[serde(default, skip_serializing_if = "is_default")]
    pub locked_memory: bool,
    /// The guest cell at which the guest sees a device, by [`Attachment::key`]. For devices that are not listed, the
    /// guest sees no cell. Effective only on machine type `q35`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub devices: BTreeMap<String, u32>,
}

impl GuestNuma {
    /// The cell at which the guest sees a device; `None` if the guest sees no cell for it.
    pub fn cell_of(&self, device: &Attachment) -> Option<u32> {
        if self.devices.is_empty() {
            return None;
        }
        let cell = self.devices.get(&device.key()).copied();
        cell.filter(|cell| usize::try_from(*cell).is_ok_and(|cell| cell < self.cells.len()))
    }

    /// True if both have the same cells on the same CPUs and memory. A running guest cannot change them; the cells of
    /// its devices change at its next start.
    pub fn same_cells(&self, other: &Self) -> bool {
        let Self { cells, emulator, realtime, locked_memory, devices: _ } = self;
        *cells == other.cells
            && *emulator == other.emulator
            && *realtime == other.realtime
            && *locked_memory == other.locked_memory
    }
}

/// A NUMA cell of a guest on a cell of the host.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GuestNumaCell {
    /// The kernel's number of the host's node.
    pub host: u32,
    /// Its vCPUs.
    pub vcpus: Vec<GuestVcpu>,
    /// Its memory, MiB.
    pub memory_mb: u64,
    /// The size of its memory pages, KiB; `None` for the host's smallest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_kib: Option<u64>,
}

/// A vCPU.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GuestVcpu {
    /// Its number in the guest.
    pub id: u32,
    /// The host CPUs that it may run on.
    pub cpus: String,
}
