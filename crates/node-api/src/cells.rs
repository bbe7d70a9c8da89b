//! The NUMA cells of a host.

use serde::{Deserialize, Serialize};

/// A NUMA cell of a host. Lists of CPUs have the kernel's form: `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NumaCell {
    /// The kernel's number of the node.
    pub id: u32,
    /// The CPUs that guests share.
    pub shared: String,
    /// The CPUs that are each dedicated to one vCPU.
    pub dedicated: String,
    /// The cores, each as a list of its online threads, including those that guests may not use.
    pub cores: Vec<String>,
    /// The socket; `None` if the CPUs are in several or in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<u32>,
    /// The memory, MiB.
    pub memory_mb: u64,
    /// The memory pages, by size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<NumaPages>,
    /// The distances to each cell of the host, in their order; empty if the kernel reports none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distances: Vec<u32>,
}

/// The memory pages of one size in a NUMA cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NumaPages {
    /// Their size, KiB.
    pub size_kib: u64,
    /// Their number.
    pub total: u64,
    /// The number of pages that guests may not use.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub reserved: u64,
}
