//! What is done to networks, subnets, ports and security groups; whose they are and who sees them.

pub(crate) mod addresses;
pub(crate) mod availability;
pub(crate) mod dhcp;
pub(crate) mod groups;
pub(crate) mod networks;
pub(crate) mod ports;
pub(crate) mod quotas;
pub(crate) mod rules;
pub(crate) mod subnets;
pub(crate) mod targets;

use kilonova_access::Caller;
use kilonova_ids::parse_uuid_like;
use kilonova_wire::Fault;
use newtype_uuid::GenericUuid;

use crate::error::not_found;

/// The project whose things are looked through; `None` for an administrator and for a service, who look
/// through all. Which of them are shown is for the rules.
pub(crate) fn viewer(caller: &Caller) -> Option<String> {
    let all = caller.is_admin() || caller.allows("service_api", &[]);
    (!all).then(|| caller.project_id.clone())
}

/// Whether things of the project are among those that the caller looks through.
pub(crate) fn looks_through(caller: &Caller, project: &str) -> bool {
    viewer(caller).is_none_or(|viewer| !viewer.is_empty() && viewer == project)
}

/// An id in a path.
pub(crate) fn id<T: GenericUuid>(kind: &'static str, text: &str) -> Result<T, Fault> {
    parse_uuid_like(text).ok_or_else(|| not_found(kind, text.escape_debug()))
}
