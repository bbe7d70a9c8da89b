//! Operations on networks, subnets, ports, security groups, routers and floating IPs, with ownership and visibility.

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

/// The projects whose resources a caller searches: its own, or all for administrators, services, and those to whom the
/// operator grants it (`model_query_scope_is_project` of `neutron_lib/db/utils.py`). Policy rules then decide which of the
/// found resources are visible.
///
/// It evaluates rules, so a list computes it once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach<'a>(Option<&'a str>);

impl<'a> Reach<'a> {
    pub fn of(caller: &'a Caller) -> Self {
        let all =
            caller.is_admin() || serves(caller) || caller.allows_own("context_with_global_access");
        Self((!all).then_some(&*caller.project_id))
    }

    /// The only project; `None` for all.
    pub fn viewer(self) -> Option<&'a str> {
        self.0
    }

    /// True if the search covers resources of the project.
    pub fn covers(self, project: &str) -> bool {
        self.0.is_none_or(|viewer| !viewer.is_empty() && viewer == project)
    }
}

/// True if the caller may create resources in other projects (`can_set_project_id` of `neutron_lib/context.py`).
pub(crate) fn sets_project(caller: &Caller) -> bool {
    caller.is_admin() || serves(caller) || caller.allows_own("context_can_set_project_id")
}

/// True for a service, by the present or the older role (`is_service_role` of `neutron_lib/context.py`).
fn serves(caller: &Caller) -> bool {
    caller.allows_own("service_api") || caller.allows_own("context_is_advsvc")
}

/// Parses an id in a path; 404 if malformed.
pub(crate) fn id<T: GenericUuid>(kind: &'static str, text: &str) -> Result<T, Refusal> {
    parse_uuid_like(text).ok_or_else(|| not_found(kind, text.escape_debug()))
}
