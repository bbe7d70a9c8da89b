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
        .route("/v2.0/quotas/{project}/default", [get(READ, default)])
        .route("/v2.0/quotas/{project}/details", [get(READ, details)])
        .route("/v2.0/quotas/{project}/details.json", [get(READ, details)])
}

fn visible(caller: &Caller, project: &str) -> Result<(), Refusal> {
    caller.may("get_quota", &targets::of_project(project))
}

/// Projects with their own limits.
async fn list(State(networks): State<Networks>, caller: Caller) -> Answer {
    // The list contains all projects, so the target of the policy has no project.
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
    caller.may("update_quota", &targets::of_project(&project))?;
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
    let of = project.clone();
    networks
        .store
        .write(move |tx| {
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
    caller.may("delete_quota", &targets::of_project(&project))?;
    networks.store.write(move |tx| Ok::<_, Error>(rows::delete(tx, &project)?)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
