//! The catalog endpoint.

use axum::extract::State;
use kilonova_access::{Caller, Routes, get};
use kilonova_wire::{Base, Refusal};
use serde_json::json;

use super::{Answer, ok};
use crate::Identity;
use crate::catalog::{root, view};

pub(super) fn routes() -> Routes<Identity> {
    Routes::new().route("/v3/auth/catalog", [get("identity:get_auth_catalog", catalog)])
}

async fn catalog(State(identity): State<Identity>, caller: Caller, base: Base) -> Answer {
    if caller.project_id.is_empty() {
        let why = "A project-scoped token is required to produce a service catalog.";
        return Err(Refusal::forbidden(why).into());
    }
    let registered = identity.registered().await?;
    let (project, user) = (Some(caller.project_id.as_str()), caller.user_id.as_str());
    ok(json!({
        "catalog": view(&identity.catalog(), &registered, root(&base.0), project, user),
        "links": {"self": format!("{}/v3/auth/catalog", base.0), "next": null, "previous": null},
    }))
}
