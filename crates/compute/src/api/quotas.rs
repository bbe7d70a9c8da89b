//! `/os-quota-sets`: limits of a project, or of a user in it.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use kilonova_access::{Caller, Routes, get, put};
use kilonova_compute_app::{Compute, Error, microversions, quotas as app};
use kilonova_compute_db::quotas::Limits;
use kilonova_wire::query::Query;
use kilonova_wire::{JsonBody, Microversion, Refusal};
use serde_json::{Map, Value, json};

use super::{input, quota_limits};

pub(super) fn routes() -> Routes<Compute> {
    Routes::new()
        .route(
            "/v2.1/os-quota-sets/{project}",
            [
                get("os_compute_api:os-quota-sets:show", show),
                put("os_compute_api:os-quota-sets:update", update),
                kilonova_access::delete("os_compute_api:os-quota-sets:delete", delete),
            ],
        )
        .route(
            "/v2.1/os-quota-sets/{project}/detail",
            [get("os_compute_api:os-quota-sets:detail", detail)],
        )
        .route(
            "/v2.1/os-quota-sets/{project}/defaults",
            [get("os_compute_api:os-quota-sets:defaults", defaults)],
        )
}

fn user_of(query: &Query, version: Microversion) -> Result<Option<String>, Refusal> {
    if version >= microversions::STRICT_REQUESTS {
        input::check_query_keys(query, &["user_id"])?;
    }
    Ok(query.get("user_id").filter(|user| !user.is_empty()).map(str::to_owned))
}

fn shown(
    project: Option<&str>,
    version: Microversion,
    value: impl Fn(&str) -> Value,
) -> Json<Value> {
    let mut set = Map::new();
    if let Some(project) = project {
        set.insert("id".into(), json!(project));
    }
    for resource in quota_limits::visible(version, microversions::NETWORK_PROXIES_GONE) {
        set.insert(resource.to_owned(), value(resource));
    }
    Json(json!({"quota_set": set}))
}

fn limit_of(limits: &Limits) -> impl Fn(&str) -> Value {
    |resource| json!(limits.get(resource))
}

async fn show(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(project): Path<String>,
) -> Result<Json<Value>, Refusal> {
    caller.may_on(&[("project_id", &project)])?;
    let (user, id) = (user_of(&query, version)?, project.clone());
    let limits = compute.store.read(move |tx| app::limits(tx, &project, user.as_deref())).await?;
    Ok(shown(Some(&id), version, limit_of(&limits)))
}

async fn detail(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(project): Path<String>,
) -> Result<Json<Value>, Refusal> {
    caller.may_on(&[("project_id", &project)])?;
    let (user, id) = (user_of(&query, version)?, project.clone());
    let (limits, used) = compute
        .store
        .read(move |tx| {
            Ok::<_, Error>((
                app::limits(tx, &project, user.as_deref())?,
                app::used(tx, &project, user.as_deref())?,
            ))
        })
        .await?;
    Ok(shown(Some(&id), version, |resource| {
        let in_use = used.get(resource).copied().unwrap_or(0);
        json!({"limit": limits.get(resource), "in_use": in_use, "reserved": 0})
    }))
}

async fn defaults(
    State(compute): State<Compute>,
    version: Microversion,
    query: Query,
    Path(project): Path<String>,
) -> Result<Json<Value>, Refusal> {
    input::check_no_query(&query, version)?;
    let limits = compute.store.read(|tx| app::of_class(tx, app::DEFAULT_CLASS)).await?;
    Ok(shown(Some(&project), version, limit_of(&limits)))
}

async fn update(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(project): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    caller.may_on(&[("project_id", &project)])?;
    let user = user_of(&query, version)?;
    let (changes, force) = quota_limits::read_set(&body, version)?;
    let limits = compute
        .store
        .write(move |tx| app::update(tx, &project, user.as_deref(), &changes, force))
        .await?;
    Ok(shown(None, version, limit_of(&limits)))
}

async fn delete(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(project): Path<String>,
) -> Result<StatusCode, Refusal> {
    caller.may_on(&[("project_id", &project)])?;
    let user = user_of(&query, version)?;
    compute
        .store
        .write(move |tx| kilonova_compute_db::quotas::reset(tx, &project, user.as_deref()))
        .await?;
    Ok(StatusCode::ACCEPTED)
}
