//! `/os-quota-class-sets`: the limits of a quota class. Class `default` sets the defaults of all projects.

use axum::Json;
use axum::extract::{Path, State};
use kilonova_access::{Routes, get, put};
use kilonova_compute_app::{Compute, microversions, quotas as app};
use kilonova_compute_db::quotas::Limits;
use kilonova_wire::query::Query;
use kilonova_wire::{JsonBody, Microversion, Refusal};
use serde_json::{Map, Value, json};

use super::{input, quota_limits};

pub(super) fn routes() -> Routes<Compute> {
    Routes::new().route(
        "/v2.1/os-quota-class-sets/{class}",
        [
            get("os_compute_api:os-quota-class-sets:show", show),
            put("os_compute_api:os-quota-class-sets:update", update),
        ],
    )
}

fn shown(class: Option<&str>, limits: &Limits, version: Microversion) -> Json<Value> {
    let mut set = Map::new();
    if let Some(class) = class {
        set.insert("id".into(), json!(class));
    }
    let groups = version >= microversions::QUOTA_CLASS_GROUPS;
    for resource in quota_limits::visible(version, microversions::QUOTA_CLASS_GROUPS)
        .filter(|resource| groups || !resource.starts_with("server_group"))
    {
        set.insert(resource.to_owned(), json!(limits.get(resource)));
    }
    Json(json!({"quota_class_set": set}))
}

async fn show(
    State(compute): State<Compute>,
    version: Microversion,
    query: Query,
    Path(class): Path<String>,
) -> Result<Json<Value>, Refusal> {
    input::check_no_query(&query, version)?;
    let name = class.clone();
    let limits = compute.store.read(move |tx| app::of_class(tx, &class)).await?;
    Ok(shown(Some(&name), &limits, version))
}

async fn update(
    State(compute): State<Compute>,
    version: Microversion,
    Path(class): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    if class.chars().count() > 255 {
        return Err(Refusal::bad_request(
            "Invalid input received: quota_class_name has more than 255 characters.",
        ));
    }
    let changes = quota_limits::read_class(&body, version)?;
    let limits = compute
        .store
        .write(move |tx| {
            for (resource, limit) in &changes {
                kilonova_compute_db::quotas::put_class(tx, &class, resource, *limit)?;
            }
            app::of_class(tx, &class)
        })
        .await?;
    Ok(shown(None, &limits, version))
}
