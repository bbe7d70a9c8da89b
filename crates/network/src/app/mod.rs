//! Operations on networks, subnets, ports, security groups, routers and floating addresses, with ownership and visibility.

pub(crate) mod addresses;
pub(crate) mod availability;
pub(crate) mod dhcp;
pub(crate) mod floating;
pub(crate) mod groups;
pub(crate) mod networks;
pub(crate) mod ports;
pub(crate) mod quotas;
pub(crate) mod routers;
pub(crate) mod rules;
pub(crate) mod subnets;
pub(crate) mod targets;
pub(crate) mod zones;

use kilonova_access::Caller;
use kilonova_ids::parse_uuid_like;
use kilonova_wire::Refusal;
use newtype_uuid::GenericUuid;

use crate::error::not_found;

/// The project whose resources are searched; `None` for administrators and services, which search all projects. Policy
/// rules then decide which of the found resources are visible.
pub(crate) fn viewer(caller: &Caller) -> Option<String> {
    let all = caller.is_admin() || caller.allows("service_api", &[]);
    (!all).then(|| caller.project_id.clone())
}

/// True if the search of [`viewer`] covers resources of the project.
pub(crate) fn reaches_project(caller: &Caller, project: &str) -> bool {
    viewer(caller).is_none_or(|viewer| !viewer.is_empty() && viewer == project)
}

/// Parses an id in a path; 404 if malformed.
pub(crate) fn id<T: GenericUuid>(kind: &'static str, text: &str) -> Result<T, Refusal> {
    parse_uuid_like(text).ok_or_else(|| not_found(kind, text.escape_debug()))
}
