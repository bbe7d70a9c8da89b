//! The query keys of a list of servers, and the callers that may use them.

use kilonova_compute_app::microversions;
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal};

use crate::api::input;

/// The filters that every caller may use, each with its first microversion. Administrators may use
/// them at every microversion.
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
/// The filters that only administrators may use. They are ignored for other callers.
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
    "image_ref",
    "kernel_id",
    "ramdisk_id",
    "root_device_name",
];
/// Other keys that a strict query may contain.
const OTHER_KEYS: &[&str] = &[
    "all_tenants",
    "changes-before",
    "changes-since",
    "deleted",
    "limit",
    "locked",
    "marker",
    "name",
    "not-tags",
    "not-tags-any",
    "project_id",
    "soft_deleted",
    "sort_dir",
    "sort_key",
    "status",
    "tags",
    "tags-any",
    "tenant_id",
];

/// The tables that Nova joins to servers but does not filter by (`JOINED_TABLE_QUERY_PARAMS_SERVERS` in
/// `api/openstack/compute/schemas/servers.py`).
const JOINED: &[&str] = &[
    "block_device_mapping",
    "info_cache",
    "metadata",
    "pci_devices",
    "security_groups",
    "services",
    "system_metadata",
];

/// True for the name of an attribute that is internal to Nova.
fn is_internal(key: &str) -> bool {
    key.starts_with('_')
}

/// Refuses the filters that no caller may use. Called only for callers that may use all other filters; for the rest, a
/// forbidden filter is ignored.
///
/// # Errors
/// 400 naming the first such filter.
pub(super) fn check_fields(query: &Query) -> Result<(), Refusal> {
    match query.keys().find(|key| JOINED.contains(key) || is_internal(key)) {
        None => Ok(()),
        Some(key) => Err(Refusal::bad_request(format!("Invalid filter field: {key}."))),
    }
}

/// Refuses unknown keys, except names of internal attributes.
///
/// # Errors
/// 400 naming the first unknown key.
pub(super) fn check_keys(query: &Query) -> Result<(), Refusal> {
    let known: Vec<&str> = PUBLIC_FILTERS
        .iter()
        .map(|(field, _)| *field)
        .chain(ADMIN_FILTERS.iter().copied())
        .chain(OTHER_KEYS.iter().copied())
        .chain(JOINED.iter().copied())
        .chain(query.keys().filter(|key| is_internal(key)))
        .collect();
    input::check_query_keys(query, &known)
}
