//! `/os-aggregates`: host aggregates.
//!
//! Hosts do not cache images in advance, so the route `…/images` does not exist.

mod request;

use axum::Json;
use axum::extract::{Path, State};
use kilonova_access::{Caller, Guard, Routes, get, post, put};
use kilonova_compute_app::{Compute, Error, aggregates as app, microversions, schemas};
use kilonova_compute_db::aggregates::{self as db, Aggregate};
use kilonova_wire::query::Query;
use kilonova_wire::{JsonBody, Microversion, Refusal, time};
use request::AggregateAction;
use serde_json::{Value, json};

use super::input;

/// The actions that a body may name, and their rules.
const ACTIONS: Guard = Guard::Action(&[
    ("add_host", "os_compute_api:os-aggregates:add_host"),
    ("remove_host", "os_compute_api:os-aggregates:remove_host"),
    ("set_metadata", "os_compute_api:os-aggregates:set_metadata"),
]);

pub(super) fn routes() -> Routes<Compute> {
    Routes::new()
        .route(
            "/v2.1/os-aggregates",
            [
                get("os_compute_api:os-aggregates:index", list),
                post("os_compute_api:os-aggregates:create", create),
            ],
        )
        .route(
            "/v2.1/os-aggregates/{id}",
            [
                get("os_compute_api:os-aggregates:show", show),
                put("os_compute_api:os-aggregates:update", update),
                kilonova_access::delete("os_compute_api:os-aggregates:delete", delete),
            ],
        )
        .route("/v2.1/os-aggregates/{id}/action", [post(ACTIONS, action)])
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
    if version >= microversions::AGGREGATE_UUIDS {
        shown["uuid"] = json!(aggregate.uuid);
    }
    shown
}

fn number(id: &str) -> Result<i64, Refusal> {
    match id.parse::<i64>() {
        Ok(number) if number < 0 => {
            Err(Refusal::not_found(format!("Aggregate {number} could not be found.")))
        }
        Ok(number) if number <= schemas::MAX_INT => Ok(number),
        _ => Err(Refusal::bad_request("Invalid input received: id must be an integer")),
    }
}

async fn list(
    State(compute): State<Compute>,
    version: Microversion,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    input::check_no_query(&query, version)?;
    let all = compute.store.read(db::all).await?;
    let shown: Vec<Value> = all.iter().map(|aggregate| shown(aggregate, version)).collect();
    Ok(Json(json!({"aggregates": shown})))
}

async fn show(
    State(compute): State<Compute>,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    input::check_no_query(&query, version)?;
    let id = number(&id)?;
    let aggregate = compute.store.read(move |tx| app::get(tx, id)).await?;
    Ok(Json(json!({"aggregate": shown(&aggregate, version)})))
}

async fn create(
    State(compute): State<Compute>,
    version: Microversion,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    let (name, zone) = request::create(&body)?;
    let now = time::now();
    let aggregate =
        compute.store.write(move |tx| app::create(tx, &name, zone.as_deref(), now)).await?;
    let mut shown = shown(&aggregate, version);
    if let Some(shown) = shown.as_object_mut() {
        // Nova omits these two from this answer only.
        shown.remove("hosts");
        shown.remove("metadata");
    }
    Ok(Json(json!({"aggregate": shown})))
}

async fn update(
    State(compute): State<Compute>,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    let (id, change) = (number(&id)?, request::update(&body)?);
    let (now, compute_) = (time::now(), compute.clone());
    let aggregate =
        compute.store.write(move |tx| app::update(tx, &compute_, id, &change, now)).await?;
    Ok(Json(json!({"aggregate": shown(&aggregate, version)})))
}

async fn delete(State(compute): State<Compute>, Path(id): Path<String>) -> Result<(), Refusal> {
    let (id, now) = (number(&id)?, time::now());
    Ok(compute.store.write(move |tx| app::delete(tx, id, now)).await?)
}

async fn action(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    let named = body.as_object().and_then(|body| body.keys().next());
    if let Some(caller) = named.and_then(|name| caller.with_action(name)) {
        caller.may_route()?;
    }
    let action = request::action(&body)?;
    let id = number(&id)?;
    let (now, compute_) = (time::now(), compute.clone());
    let aggregate = compute
        .store
        .write(move |tx| match &action {
            AggregateAction::AddHost(host) => app::add_host(tx, &compute_, id, host, now),
            AggregateAction::RemoveHost(host) => app::remove_host(tx, &compute_, id, host, now),
            AggregateAction::SetMetadata(metadata) => {
                app::set_metadata(tx, &compute_, id, metadata, now)
            }
        })
        .await
        .map_err(|error: Error| Refusal::from(error))?;
    Ok(Json(json!({"aggregate": shown(&aggregate, version)})))
}
