//! `/v2.0/quotas`.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use kilonova_access::{Caller, Guard, Routes, delete, get, put};
use kilonova_wire::{JsonBody, Refusal};
use serde_json::{Value, json};

use super::{Answer, ok};
use crate::app::{quotas, targets};
use crate::db::quotas as rows;
use crate::error::{invalid_value, malformed};
use crate::{Error, Networks};

pub(super) fn routes() -> Routes<Networks> {
    const READ: Guard = Guard::Object(&["get_quota"]);
    Routes::new()
        .route("/v2.0/quotas", [get(READ, list)])
        .route(
            "/v2.0/quotas/{project}",
            [
                get(READ, limits),
                put(Guard::Object(&["update_quota"]), set),
                delete(Guard::Object(&["delete_quota"]), reset),
            ],
        )
        // Upstream has no policy rule for these routes: any token suffices.
        .route("/v2.0/quotas/project", [get(Guard::Anyone, own_project)])
        .route("/v2.0/quotas/tenant", [get(Guard::Anyone, own_tenant)])
        .route("/v2.0/quotas/{project}/default", [get(READ, default)])
        .route("/v2.0/quotas/{project}/details", [get(READ, details)])
        .route("/v2.0/quotas/{project}/details.json", [get(READ, details)])
}

/// Every caller may read the quotas of its own project, regardless of roles (`show` of
/// `neutron/extensions/quotasv2.py`).
fn visible(caller: &Caller, project: &str) -> Result<(), Refusal> {
    if !project.is_empty() && project == caller.project_id {
        return Ok(());
    }
    targets::of_project(project).may(caller, "get_quota")
}

async fn own_project(caller: Caller) -> Answer {
    own(&caller, "project")
}

async fn own_tenant(caller: Caller) -> Answer {
    own(&caller, "tenant")
}

/// The caller's project, as in `_project` of `neutron/extensions/quotasv2.py`.
fn own(caller: &Caller, key: &str) -> Answer {
    if caller.project_id.is_empty() {
        let refusal = malformed("Tenant-id was missing from quota request.");
        return Err(refusal.with_code("QuotaMissingTenant"));
    }
    let id = format!("{key}_id");
    ok(json!({key: {id: caller.project_id}}))
}

/// The limits of every project that has limits of its own.
async fn list(State(networks): State<Networks>, caller: Caller) -> Answer {
    // The list contains all projects, so the policy target has no project.
    visible(&caller, "")?;
    let all = networks.store.read(|tx| Ok::<_, Error>(rows::all(tx)?)).await?;
    let quotas: Vec<Value> = all
        .into_iter()
        .map(|(project, own)| {
            let mut limits = quotas::defaults();
            limits.extend(own);
            let mut view = json!(limits);
            view["project_id"] = json!(project);
            view["tenant_id"] = json!(project);
            view
        })
        .collect();
    ok(json!({"quotas": quotas}))
}

async fn read(networks: &Networks, project: String) -> Result<BTreeMap<String, i64>, Refusal> {
    Ok(networks.store.read(move |tx| quotas::limits(tx, &project)).await?)
}

async fn limits(
    State(networks): State<Networks>,
    caller: Caller,
    Path(project): Path<String>,
) -> Answer {
    visible(&caller, &project)?;
    ok(json!({"quota": read(&networks, project).await?}))
}

async fn default(caller: Caller, Path(project): Path<String>) -> Answer {
    visible(&caller, &project)?;
    ok(json!({"quota": quotas::defaults()}))
}

async fn details(
    State(networks): State<Networks>,
    caller: Caller,
    Path(project): Path<String>,
) -> Answer {
    visible(&caller, &project)?;
    let limits = read(&networks, project.clone()).await?;
    let used = networks.store.read(move |tx| quotas::used(tx, &project)).await?;
    let detail = |(name, limit): (&String, &i64)| {
        let used = used.get(name).copied().unwrap_or(0);
        (name.clone(), json!({"limit": limit, "used": used, "reserved": 0}))
    };
    let details: serde_json::Map<String, Value> = limits.iter().map(detail).collect();
    ok(json!({"quota": details}))
}

async fn set(
    State(networks): State<Networks>,
    caller: Caller,
    Path(project): Path<String>,
    JsonBody(body): JsonBody,
) -> Answer {
    targets::of_project(&project).may(&caller, "update_quota")?;
    let Some(sent) = body["quota"].as_object() else {
        return Err(malformed("Unable to find 'quota' in request body"));
    };
    let mut limits = Vec::new();
    for (name, value) in sent {
        if ["project_id", "tenant_id", "force", "check_limit"].contains(&name.as_str()) {
            continue;
        }
        if !quotas::RESOURCES.iter().any(|(known, _)| known == name) {
            return Err(malformed(format!("Unrecognized attribute(s) '{}'", name.escape_debug())));
        }
        let limit = match value {
            Value::String(text) => text.parse().ok(),
            other => other.as_i64(),
        };
        let limit = limit.filter(|limit| (-1..=i64::from(i32::MAX)).contains(limit));
        let limit = limit.ok_or_else(|| {
            invalid_value(name, format!("'{value}' is not a limit; -1 means unlimited"))
        })?;
        limits.push((name.clone(), limit));
    }
    // Like upstream, this accepts only a JSON boolean, not a string or a number.
    let is_forced = sent.get("force") == Some(&Value::Bool(true));
    let of = project.clone();
    networks
        .store
        .write(move |tx| {
            if !is_forced {
                quotas::check_limits(tx, &of, &limits)?;
            }
            for (name, limit) in &limits {
                rows::put(tx, &of, name, *limit)?;
            }
            Ok::<_, Error>(())
        })
        .await?;
    ok(json!({"quota": read(&networks, project).await?}))
}

async fn reset(
    State(networks): State<Networks>,
    caller: Caller,
    Path(project): Path<String>,
) -> Answer {
    targets::of_project(&project).may(&caller, "delete_quota")?;
    networks
        .store
        .write(move |tx| {
            if rows::delete(tx, &project)? {
                return Ok(());
            }
            let project = project.escape_debug();
            let message = format!("Quota for project {project} could not be found.");
            Err(Error::from(Refusal::not_found(message).with_code("TenantQuotaNotFound")))
        })
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
