//! Which keys the query of a list of servers may hold, and whose they are.

use kilonova_wire::query::Query;
use kilonova_wire::{Fault, Microversion};

use crate::api::input;
use crate::microversions;

/// Filters that anyone may use, with the microversion that brings each. Others' are for admins,
/// and are not looked at in anybody else's query.
pub(super) const EVERYBODYS: &[(&str, Microversion)] = &[
    ("image", microversions::MIN),
    ("flavor", microversions::MIN),
    ("ip", microversions::MIN),
    ("ip6", microversions::IPV6_FILTER),
    ("reservation_id", microversions::MIN),
    ("availability_zone", microversions::MORE_FILTERS),
    ("config_drive", microversions::MORE_FILTERS),
    ("key_name", microversions::MORE_FILTERS),
    ("created_at", microversions::MORE_FILTERS),
    ("launched_at", microversions::MORE_FILTERS),
    ("terminated_at", microversions::MORE_FILTERS),
    ("power_state", microversions::MORE_FILTERS),
    ("task_state", microversions::MORE_FILTERS),
    ("vm_state", microversions::MORE_FILTERS),
    ("progress", microversions::MORE_FILTERS),
    ("user_id", microversions::MORE_FILTERS),
];
/// Filters that are looked at in the queries of admins alone.
pub(super) const ADMINS: &[&str] = &[
    "host",
    "node",
    "uuid",
    "hostname",
    "description",
    "display_description",
    "display_name",
    "launch_index",
    "locked_by",
    "access_ip_v4",
    "access_ip_v6",
    "auto_disk_config",
    "kernel_id",
    "ramdisk_id",
    "root_device_name",
];
/// Keys that a strict query may hold besides.
const OTHERS: &[&str] = &[
    "all_tenants",
    "block_device_mapping",
    "changes-before",
    "changes-since",
    "deleted",
    "image_ref",
    "info_cache",
    "limit",
    "locked",
    "marker",
    "metadata",
    "name",
    "not-tags",
    "not-tags-any",
    "pci_devices",
    "project_id",
    "security_groups",
    "services",
    "soft_deleted",
    "sort_dir",
    "sort_key",
    "status",
    "system_metadata",
    "tags",
    "tags-any",
    "tenant_id",
];

/// Refuses keys that no list of servers knows.
///
/// # Errors
/// 400 naming the first.
pub(super) fn check_keys(query: &Query) -> Result<(), Fault> {
    let known: Vec<&str> = EVERYBODYS
        .iter()
        .map(|(field, _)| *field)
        .chain(ADMINS.iter().copied())
        .chain(OTHERS.iter().copied())
        .collect();
    input::only(query, &known)
}
