//! The known extra specs. Each rule's key is a regular expression that must match the whole key.
//!
//! Names and values follow Nova's extra spec reference (`nova/api/validation/extra_specs`).

use std::sync::LazyLock;

use kilonova_placement::names;
use kilonova_wire::Refusal;
use regex::Regex;

use super::Rule;
use super::value::Kind;

const NAMESPACES: &[&str] = &[
    "accel",
    "aggregate_instance_extra_specs",
    "capabilities",
    "hw",
    "hw_rng",
    "hw_video",
    "os",
    "pci_passthrough",
    "quota",
    "vmware",
];
const CPU_LIST: &str = r"\^?\d+((-\d+)?(,\^?\d+(-\d+)?)?)*";
const PAGE_SIZE: &str = r"(large|small|any|\d+([kKMGT]i?)?(b|bit|B)?)";
const ALIAS: &str = r"[^:]+:\d+(?:\s*,\s*[^:]+:\d+)*";
const PMEM: &str = r"([a-zA-Z0-9_]+(,)?)+";
const PLAIN_CAPABILITIES: &str = "id|uuid|service_id|host|vcpus|memory_mb|local_gb|vcpus_used|\
    memory_mb_used|local_gb_used|hypervisor_type|hypervisor_version|hypervisor_hostname|\
    free_ram_mb|free_disk_gb|current_workload|running_vms|disk_available_least|host_ip|mapped|\
    cpu_allocation_ratio|ram_allocation_ratio|disk_allocation_ratio|total_usable_ram_mb|\
    total_usable_disk_gb|disk_mb_used|free_disk_mb|vcpus_total|num_instances|num_io_ops|\
    failed_builds|aggregates|cell_uuid|updated";
const NESTED_CAPABILITIES: &str = "cpu_info|metrics|stats|numa_topology|supported_hv_specs|\
    pci_device_pools|nodename|pci_stats|supported_instances|limits|instances";

/// Compiles an expression that must match the whole text.
pub(super) fn whole(pattern: &str) -> Result<Regex, regex::Error> {
    Regex::new(&format!("^(?:{pattern})$"))
}

fn table() -> Vec<(String, Kind)> {
    use Kind::{Boolean, Format, Integer, OneOf, Text};
    let positive = || Integer(Some(1));
    let natural = || Integer(Some(0));
    vec![
        ("accel:device_profile".to_owned(), Text),
        ("aggregate_instance_extra_specs:.+".into(), Text),
        (format!("capabilities:(?:{PLAIN_CAPABILITIES})"), Text),
        (format!(r"capabilities:(?:{NESTED_CAPABILITIES})(?::\w+)*"), Text),
        ("group_policy".into(), OneOf(&["isolate", "none"])),
        ("hide_hypervisor_id".into(), Boolean),
        ("hw:(?:cpu_realtime|hide_hypervisor_id|locked_memory|boot_menu|vif_multiqueue_enabled|mem_encryption|pmu|virtio_packed_ring)".into(), Boolean),
        ("hw:cpu_(?:realtime|dedicated)_mask".into(), Format(CPU_LIST)),
        (r"hw:numa_cpus\.\d+".into(), Format(CPU_LIST)),
        (r"hw:numa_mem\.\d+".into(), positive()),
        ("hw:numa_nodes|hw:cpu_(?:max_)?(?:sockets|cores|threads)".into(), positive()),
        ("hw:serial_port_count".into(), natural()),
        ("hw:cpu_policy".into(), OneOf(&["dedicated", "shared", "mixed"])),
        ("hw:cpu_thread_policy".into(), OneOf(&["prefer", "isolate", "require"])),
        ("hw:gpu_topology".into(), OneOf(&["any", "same-numa", "same-switch", "nvlink", "nvlink-full", "exclusive-island"])),
        ("hw:emulator_threads_policy".into(), OneOf(&["isolate", "share"])),
        ("hw:mem_page_size".into(), Format(PAGE_SIZE)),
        ("hw:mem_encryption_model".into(), OneOf(&["amd-sev", "amd-sev-es", "amd-sev-snp"])),
        ("hw:pci_numa_affinity_policy".into(), OneOf(&["required", "preferred", "legacy", "socket"])),
        ("hw:pmem".into(), Format(PMEM)),
        ("hw:tpm_model".into(), OneOf(&["tpm-tis", "tpm-crb"])),
        ("hw:tpm_version".into(), OneOf(&["1.2", "2.0"])),
        ("hw:tpm_secret_security".into(), OneOf(&["user", "host", "deployment"])),
        ("hw:watchdog_action".into(), OneOf(&["none", "pause", "poweroff", "reset", "disabled"])),
        ("hw:viommu_model".into(), OneOf(&["intel", "smmuv3", "virtio", "auto"])),
        ("hw:sound_model".into(), OneOf(&["sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio"])),
        ("hw:usb_model".into(), OneOf(&["none", "nec-xhci", "qemu-xhci"])),
        ("hw_rng:allowed".into(), Boolean),
        ("hw_rng:rate_(?:bytes|period)".into(), natural()),
        ("hw_video:ram_max_mb".into(), natural()),
        ("os:secure_boot".into(), OneOf(&["disabled", "required"])),
        ("pci_passthrough:alias".into(), Format(ALIAS)),
        ("quota:(?:cpu|memory|disk_io|vif)_(?:limit|shares_share)".into(), natural()),
        ("quota:(?:cpu|memory|disk_io|vif)_reservation|quota:cpu_quota".into(), Integer(None)),
        ("quota:(?:cpu|memory|disk_io|vif)_shares_level".into(), OneOf(&["custom", "high", "normal", "low"])),
        ("quota:cpu_(?:shares|period)".into(), natural()),
        ("quota:disk_(?:read|write|total)_(?:bytes|iops)_sec".into(), natural()),
        ("quota:vif_(?:inbound|outbound)_(?:average|peak|burst)".into(), natural()),
        ("vmware:(?:hw_version|storage_policy)".into(), Text),
    ]
}

/// The rules. A test checks that every expression compiles.
pub(super) static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    table()
        .into_iter()
        .filter_map(|(key, kind)| Some(Rule { key: whole(&key).ok()?, kind }))
        .collect()
});

const MAX_GROUP: usize = 64;

/// `resources` or `trait`, if the namespace is one of these with or without a group suffix.
fn grouped(namespace: &str) -> Option<&'static str> {
    ["resources", "trait"].into_iter().find(|what| {
        namespace.strip_prefix(what).is_some_and(|group| {
            group.len() <= MAX_GROUP
                && group.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
        })
    })
}

pub(super) fn is_known_namespace(namespace: &str) -> bool {
    NAMESPACES.contains(&namespace) || grouped(namespace).is_some()
}

/// Checks `resources<group>:CLASS` and `trait<group>:TRAIT`; `None` for other keys and unknown
/// names.
pub(super) fn of_placement(key: &str, value: &str) -> Option<Result<(), Refusal>> {
    let (namespace, name) = key.split_once(':')?;
    if grouped(namespace)? == "resources" {
        let known = names::is_standard_class(name) || names::is_custom(name);
        return known.then(|| Kind::Integer(None).check(value));
    }
    let known = names::is_standard_trait(name) || names::is_custom(name);
    known.then(|| Kind::OneOf(&["required", "forbidden"]).check(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expression_is_one() {
        assert_eq!(RULES.len(), table().len());
        for (key, kind) in table() {
            if let Kind::Format(pattern) = kind {
                assert!(whole(pattern).is_ok(), "{key}");
            }
        }
    }
}
