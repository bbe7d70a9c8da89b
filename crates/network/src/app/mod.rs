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

use kilonova_ids::parse_uuid_like;
use kilonova_wire::{Context, Fault};
use newtype_uuid::GenericUuid;

use crate::error::{not_allowed, not_found};

/// The project whose things are seen; `None` for an administrator, who sees all.
pub(crate) fn viewer(context: &Context) -> Option<String> {
    (!context.is_admin()).then(|| context.project_id.clone())
}

/// Refuses callers who have roles, none of which lets them change things.
pub(crate) fn may_write(context: &Context, rule: &str) -> Result<(), Fault> {
    let writes = ["admin", "manager", "member"];
    if context.roles.is_empty() || writes.iter().any(|role| context.has_role(role)) {
        return Ok(());
    }
    Err(not_allowed(rule))
}

/// An id in a path.
pub(crate) fn id<T: GenericUuid>(kind: &'static str, text: &str) -> Result<T, Fault> {
    parse_uuid_like(text).ok_or_else(|| not_found(kind, text.escape_debug()))
}
