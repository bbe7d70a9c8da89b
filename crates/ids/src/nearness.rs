//! The traits that tell where on its host a provider's device is.
//!
//! The device ledger writes them from the hosts' reports, with a number that counts from 0 on each host. Devices of one
//! host with the same trait are at the same place. Equal traits on different hosts are unrelated.

/// The NUMA node, with its number.
pub const NUMA_NODE: &str = "CUSTOM_NUMA_NODE_";
/// The PCIe switch.
pub const PCIE_SWITCH: &str = "CUSTOM_PCIE_SWITCH_";
/// The island: devices that are all connected to each other by NVLink or xGMI.
pub const GPU_ISLAND: &str = "CUSTOM_GPU_ISLAND_";

/// True if a trait describes the place of a device. Every name with one of these prefixes counts, even if no number
/// follows.
pub fn is_place(name: &str) -> bool {
    [NUMA_NODE, PCIE_SWITCH, GPU_ISLAND].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_begins_like_a_place_is_one() {
        for name in ["CUSTOM_NUMA_NODE_0", "CUSTOM_GPU_ISLAND_12", "CUSTOM_PCIE_SWITCH_FAST"] {
            assert!(is_place(name), "{name}");
        }
        for name in ["CUSTOM_NUMA_NODE", "CUSTOM_PCIE", "CUSTOM_GOLD", ""] {
            assert!(!is_place(name), "{name}");
        }
    }
}
