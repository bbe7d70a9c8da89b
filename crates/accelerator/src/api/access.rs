//! Who may do what: the persona roles of Cyborg's `enforce_new_defaults`, the only mode here.
//!
//! Every rule wants a project-scoped token. A role implies those below it (admin, manager, member,
//! reader), as Keystone's do.

use kilonova_wire::{Context, Fault};

use crate::app::arqs::Scope;
use crate::ledger::Actor;

fn allow(context: &Context, rule: &str, roles: &[&str]) -> Result<(), Fault> {
    if !context.project_id.is_empty() && roles.iter().any(|role| context.has_role(role)) {
        return Ok(());
    }
    Err(denied(rule))
}

pub(super) fn denied(rule: &str) -> Fault {
    Fault::forbidden(format!("Access was denied to the following resource: cyborg:{rule}"))
}

/// `project_reader_or_admin`.
pub(super) fn reader(context: &Context, rule: &str) -> Result<(), Fault> {
    allow(context, rule, &["reader", "member", "manager", "admin"])
}

/// `project_member_or_service`.
pub(super) fn member_or_service(context: &Context, rule: &str) -> Result<(), Fault> {
    allow(context, rule, &["member", "manager", "admin", "service"])
}

/// `project_manager_or_admin`.
pub(super) fn manager(context: &Context, rule: &str) -> Result<(), Fault> {
    allow(context, rule, &["manager", "admin"])
}

/// `admin_api`.
pub(super) fn admin(context: &Context, rule: &str) -> Result<(), Fault> {
    allow(context, rule, &["admin"])
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
