//! The NUMA cells of a guest, each with its place on the host.

use serde::{Deserialize, Serialize};

use crate::is_default;

/// The trait of hosts whose agents realize [`GuestNuma`]. Agents of earlier builds ignore it.
pub const GUEST_NUMA: &str = "CUSTOM_GUEST_NUMA";

/// The NUMA cells of a guest and the host CPUs of its threads. Lists of CPUs have the kernel's form:
/// `0-3,8`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GuestNuma {
    /// The cells; the place in the list is the guest's number of the cell.
    pub cells: Vec<GuestNumaCell>,
    /// The host CPUs of the emulator's threads.
    pub emulator: String,
    /// The vCPUs with a realtime scheduler.
    #[serde(default, skip_serializing_if = "is_default")]
    pub realtime: String,
    /// True if the guest's memory is locked in the host's.
    #[serde(default, skip_serializing_if = "is_default")]
    pub locked_memory: bool,
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
