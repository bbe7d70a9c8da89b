//! `/os-server-groups`: groups of servers that the scheduler places together or apart.

mod request;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use kilonova_access::{Caller, Routes, get, post};
use kilonova_compute_app::{Compute, Error, microversions, server_groups as app};
use kilonova_compute_db::server_groups::{self as rows, Group};
use kilonova_ids::{ServerGroupId, ServerId};
use kilonova_wire::query::Query;
use kilonova_wire::{JsonBody, Microversion, Refusal};
use serde_json::{Value, json};

use super::input;

pub(super) fn routes() -> Routes<Compute> {
    Routes::new()
        .route(
            "/v2.1/os-server-groups",
            [
                get("os_compute_api:os-server-groups:index", list),
                post("os_compute_api:os-server-groups:create", create),
            ],
        )
        .route(
            "/v2.1/os-server-groups/{id}",
            [
                get("os_compute_api:os-server-groups:show", show),
                kilonova_access::delete("os_compute_api:os-server-groups:delete", delete),
            ],
        )
}

fn shown(group: &Group, members: &[ServerId], version: Microversion) -> Value {
    let mut shown = json!({"id": group.id, "name": group.name, "members": members});
    if version >= microversions::GROUP_OWNERS {
        shown["project_id"] = json!(group.project_id);
        shown["user_id"] = json!(group.user_id);
    }
    if version >= microversions::GROUP_POLICY {
        shown["policy"] = json!(group.policy.as_str());
        shown["rules"] = match group.max_per_host {
            Some(limit) => json!({"max_server_per_host": limit}),
            None => json!({}),
        };
    } else {
        shown["policies"] = json!([group.policy.as_str()]);
        shown["metadata"] = json!({});
    }
    shown
}

async fn create(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    let new = request::read(&body, version)?;
    if caller.project_id.is_empty() {
        return Err(Refusal::forbidden(
            "A server group needs a project: use a project-scoped token.",
        ));
    }
    let group = Group {
        id: ServerGroupId::new_v4(),
        project_id: caller.context.project_id,
        user_id: caller.context.user_id,
        name: new.name,
        policy: new.policy,
        max_per_host: new.max_per_host,
    };
    let row = group.clone();
    compute.store.write(move |tx| app::create(tx, &row)).await?;
    Ok(Json(json!({"server_group": shown(&group, &[], version)})))
}

async fn list(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    if version >= microversions::STRICT_REQUESTS {
        input::check_query_keys(&query, &["all_projects", "limit", "offset"])?;
    }
    let (offset, limit) = input::limited(&query)?;
    let mut project = Some(caller.project_id.clone());
    if query.get("all_projects").is_some() && caller.is_admin() {
        caller.may_own("os_compute_api:os-server-groups:index:all_projects")?;
        project = None;
    }
    let (limit, offset) = (as_count(limit), as_count(offset));
    let (groups, mut members) = compute
        .store
        .read(move |tx| {
            let groups = rows::page(tx, project.as_deref(), limit, offset)?;
            Ok::<_, Error>((groups, rows::members_of_all(tx, project.as_deref())?))
        })
        .await?;
    let shown: Vec<Value> = groups
        .iter()
        .map(|group| {
            let members = members.remove(&group.id.to_string()).unwrap_or_default();
            shown(group, &members, version)
        })
        .collect();
    Ok(Json(json!({"server_groups": shown})))
}

fn as_count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

async fn show(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    input::check_no_query(&query, version)?;
    let (group, members) = compute
        .store
        .read(move |tx| {
            let group = app::find(tx, &caller, &id)?;
            caller.may_on(&[("project_id", &group.project_id), ("user_id", &group.user_id)])?;
            let members = rows::members(tx, group.id)?;
            Ok::<_, Error>((group, members))
        })
        .await?;
    let members: Vec<ServerId> = members
        .into_iter()
        .filter(|member| !member.soft_deleted)
        .map(|member| member.server)
        .collect();
    Ok(Json(json!({"server_group": shown(&group, &members, version)})))
}

async fn delete(
    State(compute): State<Compute>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    compute
        .store
        .write(move |tx| {
            let group = app::find(tx, &caller, &id)?;
            caller.may_on(&[("project_id", &group.project_id), ("user_id", &group.user_id)])?;
            rows::delete(tx, group.id).map_err(Error::from)
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
