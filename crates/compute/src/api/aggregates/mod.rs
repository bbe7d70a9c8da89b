//! `/os-aggregates`.
//!
//! Images are not cached on hosts ahead of time, so `…/images` is not there.

mod request;

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use kilonova_wire::query::Query;
use kilonova_wire::{Context, Fault, JsonBody, Microversion, time};
use serde_json::{Value, json};

use super::input;
use crate::app::aggregates as app;
use crate::db::aggregates::{self as db, Aggregate};
use crate::{Compute, Error};
use request::Action;

const POLICY: &str = "os_compute_api:os-aggregates";

pub(super) fn routes() -> Router<Compute> {
    Router::new()
        .route("/v2.1/os-aggregates", get(list).post(create))
        .route("/v2.1/os-aggregates/{id}", get(show).put(update).delete(delete))
        .route("/v2.1/os-aggregates/{id}/action", post(action))
}

fn shown(aggregate: &Aggregate, version: Microversion) -> Value {
    let mut shown = json!({
        "id": aggregate.id,
        "name": aggregate.name,
        "availability_zone": aggregate.zone(),
        "metadata": aggregate.metadata,
        "hosts": aggregate.hosts,
        "created_at": time::naive(aggregate.created_at),
        "updated_at": aggregate.updated_at.map(time::naive),
        "deleted": false,
        "deleted_at": null,
    });
    if version >= Microversion(2, 41) {
        shown["uuid"] = json!(aggregate.uuid);
    }
    shown
}

fn admit(
    caller: &Context,
    action: &str,
    version: Microversion,
    query: &Query,
) -> Result<(), Fault> {
    caller.require_admin(&format!("{POLICY}:{action}"))?;
    if version >= Microversion(2, 102) { input::only(query, &[]) } else { Ok(()) }
}

fn number(id: &str) -> Result<i64, Fault> {
    id.parse::<i64>()
        .ok()
        .filter(|id| (0..=input::MAX_INT).contains(id))
        .ok_or_else(|| Fault::bad_request("Invalid input received: id must be an integer"))
}

async fn list(
    State(compute): State<Compute>,
    caller: Context,
    version: Microversion,
    query: Query,
) -> Result<Json<Value>, Fault> {
    admit(&caller, "index", version, &query)?;
    let all = compute.store.read(db::all).await?;
    let shown: Vec<Value> = all.iter().map(|aggregate| shown(aggregate, version)).collect();
    Ok(Json(json!({"aggregates": shown})))
}

async fn show(
    State(compute): State<Compute>,
    caller: Context,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Json<Value>, Fault> {
    admit(&caller, "show", version, &query)?;
    let id = number(&id)?;
    let aggregate = compute.store.read(move |tx| app::get(tx, id)).await?;
    Ok(Json(json!({"aggregate": shown(&aggregate, version)})))
}

async fn create(
    State(compute): State<Compute>,
    caller: Context,
    version: Microversion,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Fault> {
    caller.require_admin(&format!("{POLICY}:create"))?;
    let (name, zone) = request::create(&body)?;
    let now = time::now_micros();
    let aggregate =
        compute.store.write(move |tx| app::create(tx, &name, zone.as_deref(), now)).await?;
    let mut shown = shown(&aggregate, version);
    if let Some(shown) = shown.as_object_mut() {
        // Nova leaves these two out of this one answer.
        shown.remove("hosts");
        shown.remove("metadata");
    }
    Ok(Json(json!({"aggregate": shown})))
}

async fn update(
    State(compute): State<Compute>,
    caller: Context,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Fault> {
    caller.require_admin(&format!("{POLICY}:update"))?;
    let (id, change) = (number(&id)?, request::update(&body)?);
    let (now, own) = (time::now_micros(), compute.clone());
    let aggregate = compute.store.write(move |tx| app::update(tx, &own, id, &change, now)).await?;
    Ok(Json(json!({"aggregate": shown(&aggregate, version)})))
}

async fn delete(
    State(compute): State<Compute>,
    caller: Context,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<(), Fault> {
    admit(&caller, "delete", version, &query)?;
    let (id, now) = (number(&id)?, time::now_micros());
    Ok(compute.store.write(move |tx| app::delete(tx, id, now)).await?)
}

async fn action(
    State(compute): State<Compute>,
    caller: Context,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Fault> {
    let action = request::action(&body)?;
    caller.require_admin(&format!("{POLICY}:{}", action.name()))?;
    let id = number(&id)?;
    let (now, own) = (time::now_micros(), compute.clone());
    let aggregate = compute
        .store
        .write(move |tx| match &action {
            Action::AddHost(host) => app::add_host(tx, &own, id, host, now),
            Action::RemoveHost(host) => app::remove_host(tx, &own, id, host, now),
            Action::SetMetadata(metadata) => app::set_metadata(tx, &own, id, metadata, now),
        })
        .await
        .map_err(|error: Error| Fault::from(error))?;
    Ok(Json(json!({"aggregate": shown(&aggregate, version)})))
}
