//! What the policy leaves to the handlers: whose requests a caller acts on, and what takes a service
//! token whatever the policy says.

use kilonova_wire::{Context, Fault};

use crate::app::arqs::Scope;
use crate::ledger::Actor;

pub(super) fn denied(rule: &str) -> Fault {
    Fault::forbidden(format!("Access was denied to the following resource: {rule}"))
}

/// A validated service token came along: no policy can stand in for it (CVE-2026-40214).
pub(super) fn service_token(context: &Context) -> Result<(), Fault> {
    if context.is_service() {
        return Ok(());
    }
    Err(Fault::forbidden(
        "This operation requires a service token. Use the Compute API to manage instance \
         accelerators.",
    ))
}

/// A service acts on instances, whoever's token it forwards; others on their own project.
pub(super) fn scope(context: &Context) -> Scope {
    if context.is_admin() || context.is_service() {
        Scope::All
    } else {
        Scope::Project(context.project_id.clone())
    }
}

/// Who asks, for the record.
pub(super) fn actor(context: &Context) -> Actor {
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    Actor { user_id: given(context.user_id.clone()), request_id: given(context.request_id_text()) }
}
