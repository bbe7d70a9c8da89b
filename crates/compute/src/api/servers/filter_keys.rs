//! Which keys the query of a list of servers may hold, and whose they are.

use kilonova_wire::Fault;
use kilonova_wire::query::Query;

use crate::api::input;

/// Filters that anyone may use, with the minor version that brought each. Others' are for admins,
/// and are not looked at in anybody else's query.
pub(super) const EVERYBODYS: &[(&str, u32)] = &[
    ("image", 1),
    ("flavor", 1),
    ("ip", 1),
    ("ip6", 5),
    ("reservation_id", 1),
    ("availability_zone", 83),
    ("config_drive", 83),
    ("key_name", 83),
    ("created_at", 83),
    ("launched_at", 83),
    ("terminated_at", 83),
    ("power_state", 83),
    ("task_state", 83),
    ("vm_state", 83),
    ("progress", 83),
    ("user_id", 83),
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
