//! Access checks beyond the policy: whose requests a caller may act on, and operations that require
//! a service token regardless of the policy.

use kilonova_wire::{Context, Refusal};

use crate::app::arqs::Scope;
use crate::ledger::Actor;

pub(super) fn denied(rule: &str) -> Refusal {
    Refusal::forbidden(format!("Access was denied to the following resource: {rule}"))
}

/// Requires a validated service token. No policy can replace it (CVE-2026-40214).
pub(super) fn service_token(context: &Context) -> Result<(), Refusal> {
    if context.is_service() {
        return Ok(());
    }
    Err(Refusal::forbidden(
        "This operation requires a service token. Use the Compute API to manage instance \
         accelerators.",
    ))
}

/// Administrators act on all instances, and so do services, regardless of the user token that they
/// forward. Other callers act on their own project.
pub(super) fn scope(context: &Context) -> Scope {
    if context.is_admin() || context.is_service() {
        Scope::All
    } else {
        Scope::Project(context.project_id.clone())
    }
}

/// The user and request to record with a change.
pub(super) fn actor(context: &Context) -> Actor {
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    Actor { user_id: given(context.user_id.clone()), request_id: given(context.request_id_text()) }
}
