//! The query keys of a list of servers, and the callers that may use them.

use kilonova_compute_app::microversions;
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal};

use crate::api::input;

/// The filters of all callers, each with its first microversion. Administrators may use them at every
/// microversion.
pub(super) const PUBLIC_FILTERS: &[(&str, Microversion)] = &[
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
    ("hostname", microversions::HOSTNAME),
];
/// The filters of administrators. They are ignored for other callers.
pub(super) const ADMIN_FILTERS: &[&str] = &[
    "host",
    "node",
    "uuid",
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
/// Other keys that a strict query may contain.
const OTHER_KEYS: &[&str] = &[
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

/// Refuses unknown keys.
///
/// # Errors
/// 400 naming the first unknown key.
pub(super) fn check_keys(query: &Query) -> Result<(), Refusal> {
    let known: Vec<&str> = PUBLIC_FILTERS
        .iter()
        .map(|(field, _)| *field)
        .chain(ADMIN_FILTERS.iter().copied())
        .chain(OTHER_KEYS.iter().copied())
        .collect();
    input::check_query_keys(query, &known)
}
