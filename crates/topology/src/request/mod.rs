//! The request for a topology, from a flavor's extra specs and an image's properties.
//!
//! The precedence, the order of the checks and the messages are Nova's (`numa_get_constraints` of
//! `nova/virt/hardware.py`), because clients may depend on them.

mod cells;
mod memory;
mod policies;
mod refusal;

use std::collections::BTreeMap;

use crate::cpus::Named;
use crate::{CpuPolicy, EmulatorPolicy, GuestTopology, PciPolicy, ThreadPolicy};

pub use refusal::{Refusal, Source};

/// Maximum number of vCPUs of a guest with a topology.
pub const MOST_VCPUS: u32 = 4096;
/// Maximum number of cells of a guest (Nova's `NUMA_NODES_MAX`).
pub const MOST_CELLS: u32 = 128;

/// A flavor with an image.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The flavor's vCPUs.
    pub vcpus: i64,
    /// The flavor's memory, MiB.
    pub memory_mb: i64,
    /// The flavor's extra specs.
    pub extra_specs: &'a BTreeMap<String, String>,
    /// The image's properties.
    pub properties: &'a BTreeMap<String, String>,
}

/// The request of a flavor and an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// The topology; `None` if the guest needs none.
    pub topology: Option<GuestTopology>,
    /// The policy for the NUMA affinity of devices, if one is named.
    pub pci_policy: Option<PciPolicy>,
}

impl Request {
    /// Reads the request.
    ///
    /// # Errors
    /// The first refusal in Nova's order.
    pub fn parse(asked: &Asked<'_>) -> Result<Self, Refusal> {
        let named_policy = asked.cpu_policy()?;
        let thread_policy = asked.thread_policy()?;
        let realtime = asked.realtime()?;
        let dedicated = asked.dedicated()?;
        let emulator_policy = asked.emulator_policy()?;
        let cpu_policy = asked.policy_of_resources(named_policy, emulator_policy)?;
        let thread_policy = asked.policy_of_trait(thread_policy)?;
        agree(cpu_policy, thread_policy, emulator_policy, realtime.is_some(), dedicated.is_some())?;

        let nodes = asked.nodes()?;
        let page_size = asked.page_size()?;
        let locked_memory = asked.locked_memory()?;
        let pinned = matches!(cpu_policy, Some(CpuPolicy::Dedicated | CpuPolicy::Mixed));
        let persistent_memory = asked.spec("hw:pmem").is_some();
        let needed = nodes.is_some() || page_size.is_some() || persistent_memory || pinned;
        let topology = match needed {
            false => None,
            true => {
                let dedicated = match cpu_policy {
                    Some(CpuPolicy::Dedicated) => (0..asked.counted_vcpus()?).collect(),
                    Some(CpuPolicy::Mixed) => {
                        dedicated.or_else(|| realtime.clone()).unwrap_or_default()
                    }
                    Some(CpuPolicy::Shared) | None => Default::default(),
                };
                Some(GuestTopology {
                    cells: asked.cells(nodes.unwrap_or(1), &dedicated)?,
                    cpu_policy,
                    thread_policy,
                    emulator_policy,
                    page_size,
                    realtime: realtime.unwrap_or_default(),
                    locked_memory,
                })
            }
        };
        Ok(Self { topology, pci_policy: asked.pci_policy()? })
    }
}

/// Checks that the policies agree with each other.
fn agree(
    cpu: Option<CpuPolicy>,
    threads: Option<ThreadPolicy>,
    emulator: Option<EmulatorPolicy>,
    realtime: bool,
    dedicated: bool,
) -> Result<(), Refusal> {
    match cpu {
        Some(CpuPolicy::Dedicated) if dedicated => Err(Refusal::RequiredMixedInstancePolicy),
        Some(CpuPolicy::Dedicated) => Ok(()),
        Some(CpuPolicy::Mixed) if realtime == dedicated => {
            Err(Refusal::RequiredMixedOrRealtimeCpuMask)
        }
        Some(CpuPolicy::Mixed) => Ok(()),
        Some(CpuPolicy::Shared) | None => {
            if threads.is_some() {
                return Err(Refusal::CpuThreadPolicyConfigurationInvalid);
            }
            if emulator == Some(EmulatorPolicy::Isolate) {
                return Err(Refusal::BadRequirementEmulatorThreadsPolicy);
            }
            if dedicated {
                return Err(Refusal::RequiredMixedInstancePolicy);
            }
            if realtime { Err(Refusal::RealtimeConfigurationInvalid) } else { Ok(()) }
        }
    }
}

impl<'a> Asked<'a> {
    fn spec(&self, key: &str) -> Option<&'a str> {
        self.extra_specs.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn property(&self, key: &str) -> Option<&'a str> {
        self.properties.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The values of `hw:name` and `hw_name`.
    fn both(&self, name: &str) -> (Option<&'a str>, Option<&'a str>) {
        (self.spec(&format!("hw:{name}")), self.property(&format!("hw_{name}")))
    }

    /// The number of vCPUs. More than [`MOST_VCPUS`] are refused.
    fn counted_vcpus(&self) -> Result<u32, Refusal> {
        let vcpus = u32::try_from(self.vcpus.max(0)).unwrap_or(u32::MAX);
        if vcpus > MOST_VCPUS { Err(Refusal::TooManyVcpus) } else { Ok(vcpus) }
    }

    /// Reads a list of vCPUs.
    fn list(&self, text: &str) -> Result<Named, Refusal> {
        Ok(Named::parse(text, self.counted_vcpus()?)?)
    }

    /// Reads a mask of vCPUs. A mask that begins with `^` excludes vCPUs from all.
    fn mask(&self, mask: &str) -> Result<Named, Refusal> {
        if mask.trim().starts_with('^') {
            let last = i64::from(self.counted_vcpus()?) - 1;
            return self.list(&format!("0-{last},{mask}"));
        }
        self.list(mask)
    }
}

/// True for the texts that oslo.utils reads as true; any other text is false.
fn truth(text: &str) -> bool {
    let text = text.trim().to_lowercase();
    ["1", "t", "true", "on", "y", "yes"].contains(&text.as_str())
}
