//! The topology that a guest requests.

use serde::{Deserialize, Serialize};

use crate::Cpus;

macro_rules! policies {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// All names, in Nova's order.
            pub const NAMES: &[&str] = &[$($text,)*];

            /// The policy of this name.
            pub fn parse(name: &str) -> Option<Self> {
                match name {
                    $($text => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Its name in extra specs and image properties.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

policies! {
    /// Where the vCPUs of a guest run (`hw:cpu_policy`).
    CpuPolicy {
        /// Each on a host CPU of its own.
        Dedicated = "dedicated",
        /// On the host's shared CPUs.
        Shared = "shared",
        /// Some on host CPUs of their own, the others on shared ones.
        Mixed = "mixed",
    }
}

policies! {
    /// How dedicated vCPUs use the threads of host cores (`hw:cpu_thread_policy`).
    ThreadPolicy {
        /// Threads of the same core where possible.
        Prefer = "prefer",
        /// Only on hosts whose cores have one thread.
        Isolate = "isolate",
        /// Only threads of the same core.
        Require = "require",
    }
}

policies! {
    /// Where the emulator's threads of a guest run (`hw:emulator_threads_policy`).
    EmulatorPolicy {
        /// On the guest's CPUs, or on the host's shared ones.
        Share = "share",
        /// On a dedicated host CPU in addition to those of the vCPUs.
        Isolate = "isolate",
    }
}

policies! {
    /// How near a device must be to the guest's memory and CPUs (`hw:pci_numa_affinity_policy`).
    PciPolicy {
        /// At a host cell of the guest.
        Required = "required",
        /// At a host cell of the guest, or at an unknown node.
        Legacy = "legacy",
        /// Anywhere on the host, near ones first.
        Preferred = "preferred",
        /// In the same socket as a host cell of the guest.
        Socket = "socket",
    }
}

impl PciPolicy {
    /// The one of two policies that allows fewer devices.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        let rank = |policy: Self| match policy {
            Self::Required => 0,
            Self::Socket => 1,
            Self::Legacy => 2,
            Self::Preferred => 3,
        };
        if rank(other) < rank(self) { other } else { self }
    }
}

/// The size of the host pages that back a guest's memory (`hw:mem_page_size`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PageSize {
    /// The host's smallest.
    Small,
    /// Any but the smallest, the largest first.
    Large,
    /// Any, the largest first.
    Any,
    /// This size, in bytes.
    Bytes(u64),
}

/// A NUMA cell of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GuestCell {
    /// Its vCPUs on shared host CPUs.
    pub shared: Cpus,
    /// Its vCPUs on host CPUs of their own.
    pub dedicated: Cpus,
    /// Its memory, MiB.
    pub memory_mb: u64,
}

/// The topology that a guest requests. Policies and page size apply to all cells.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GuestTopology {
    /// The cells; the index in the list is the guest's number of the cell.
    pub cells: Vec<GuestCell>,
    /// `None` means shared.
    pub cpu_policy: Option<CpuPolicy>,
    /// Its thread policy; `None` means prefer.
    pub thread_policy: Option<ThreadPolicy>,
    /// Its policy for the emulator's threads.
    pub emulator_policy: Option<EmulatorPolicy>,
    /// Its page size; `None` means the host's smallest, which may be overcommitted.
    pub page_size: Option<PageSize>,
    /// The vCPUs with a realtime scheduler.
    pub realtime: Cpus,
    /// True if its memory is locked in host memory.
    pub locked_memory: bool,
}

impl GuestTopology {
    /// True if it has dedicated vCPUs.
    pub fn is_pinned(&self) -> bool {
        match self.cpu_policy {
            Some(CpuPolicy::Dedicated | CpuPolicy::Mixed) => true,
            Some(CpuPolicy::Shared) | None => false,
        }
    }

    /// Number of dedicated host CPUs in addition to those of the vCPUs; they are at the host cell
    /// of guest cell 0.
    pub fn emulator_cpus(&self) -> usize {
        match self.emulator_policy {
            Some(EmulatorPolicy::Isolate) => 1,
            Some(EmulatorPolicy::Share) | None => 0,
        }
    }

    /// The request to Placement.
    pub fn needs(&self) -> Needs {
        let count = |part: fn(&GuestCell) -> &Cpus| {
            self.cells.iter().map(|cell| part(cell).len()).sum::<usize>()
        };
        let isolate = self.thread_policy == Some(ThreadPolicy::Isolate);
        let require = self.thread_policy == Some(ThreadPolicy::Require);
        Needs {
            shared: count(|cell| &cell.shared),
            dedicated: count(|cell| &cell.dedicated) + self.emulator_cpus(),
            hyperthreading: (isolate || require).then_some(require),
        }
    }
}

/// The request of a topology to Placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Units of `VCPU`.
    pub shared: usize,
    /// Units of `PCPU`.
    pub dedicated: usize,
    /// True if the trait `HW_CPU_HYPERTHREADING` is required, false if it is forbidden.
    pub hyperthreading: Option<bool>,
}
