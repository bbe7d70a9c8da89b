//! `/flavors`, with their extra specs and their access lists.

mod access;
mod extra_specs;
mod list;
mod request;
mod view;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Context, Fault, JsonBody, Microversion, time};
use serde_json::{Value, json};

use super::input;
use crate::app::flavors as app;
use crate::{Compute, Error, db};

const MANAGE: &str = "os_compute_api:os-flavor-manage";

pub(super) fn routes() -> Router<Compute> {
    Router::new()
        .route("/v2.1/flavors", get(list::brief).post(create))
        .route("/v2.1/flavors/detail", get(list::detail))
        .route("/v2.1/flavors/{id}", get(show).put(update).delete(delete))
        .route("/v2.1/flavors/{id}/action", post(access::action))
        .route("/v2.1/flavors/{id}/os-flavor-access", get(access::list))
        .route(
            "/v2.1/flavors/{id}/os-extra_specs",
            get(extra_specs::list).post(extra_specs::create),
        )
        .route(
            "/v2.1/flavors/{id}/os-extra_specs/{key}",
            get(extra_specs::show).put(extra_specs::update).delete(extra_specs::delete),
        )
}

async fn create(
    State(compute): State<Compute>,
    caller: Context,
    version: Microversion,
    base: Base,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Fault> {
    caller.require_admin(&format!("{MANAGE}:create"))?;
    let flavor = request::create(&body, version, time::now_micros())?;
    let shown = json!({"flavor": view::detail(&flavor, version, &base)});
    compute.store.write(move |tx| app::create(tx, &flavor)).await?;
    Ok(Json(shown))
}

async fn show(
    State(compute): State<Compute>,
    caller: Context,
    version: Microversion,
    base: Base,
    query: Query,
    Path(id): Path<String>,
) -> Result<Json<Value>, Fault> {
    if version >= Microversion(2, 102) {
        input::only(&query, &[])?;
    }
    let flavor = compute.store.read(move |tx| app::visible(tx, &caller, &id)).await?;
    Ok(Json(json!({"flavor": view::detail(&flavor, version, &base)})))
}

async fn update(
    State(compute): State<Compute>,
    caller: Context,
    version: Microversion,
    base: Base,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Fault> {
    input::within(version, 55, 104)?;
    caller.require_admin(&format!("{MANAGE}:update"))?;
    let description = request::update(&body)?;
    let now = time::now_micros();
    let flavor = compute
        .store
        .write(move |tx| {
            app::change(tx, &id, now, |flavor| {
                flavor.description.clone_from(&description);
                Ok(())
            })
        })
        .await?;
    Ok(Json(json!({"flavor": view::detail(&flavor, version, &base)})))
}

async fn delete(
    State(compute): State<Compute>,
    caller: Context,
    Path(id): Path<String>,
) -> Result<StatusCode, Fault> {
    caller.require_admin(&format!("{MANAGE}:delete"))?;
    compute
        .store
        .write(move |tx| match db::flavors::delete(tx, &id)? {
            true => Ok(()),
            false => Err(app::not_found(&id)),
        })
        .await
        .map_err(|error: Error| Fault::from(error))?;
    Ok(StatusCode::ACCEPTED)
}
