//! The traits by which providers of devices say where in their host the devices are.
//!
//! The device ledger writes them from the hosts' reports, with a number that counts from 0 on each host. Devices of one host
//! with the same trait are at the same place. Traits of different hosts have nothing to do with each other.

/// The NUMA node, with its number.
pub const NUMA_NODE: &str = "CUSTOM_NUMA_NODE_";
/// The PCIe switch.
pub const PCIE_SWITCH: &str = "CUSTOM_PCIE_SWITCH_";
/// The island: devices of which every two are connected by NVLink or xGMI.
pub const GPU_ISLAND: &str = "CUSTOM_GPU_ISLAND_";

/// True if a trait says where a device is, and nothing about what it is.
pub fn is_place(name: &str) -> bool {
    [NUMA_NODE, PCIE_SWITCH, GPU_ISLAND].iter().any(|prefix| {
        let number = name.strip_prefix(prefix);
        number.is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbered_traits_are_places() {
        assert!(is_place("CUSTOM_NUMA_NODE_0") && is_place("CUSTOM_GPU_ISLAND_12"));
        for name in ["CUSTOM_NUMA_NODE_", "CUSTOM_PCIE_SWITCH_FAST", "CUSTOM_GOLD", ""] {
            assert!(!is_place(name), "{name}");
        }
    }
}
