//! `/flavors`: flavors, their extra specs and their access lists.

mod access;
mod extra_specs;
mod list;
mod request;
mod view;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use kilonova_access::{Caller, Guard, Routes, get, post, put};
use kilonova_compute_app::{Compute, Error, flavors as app, microversions};
use kilonova_compute_db::flavors::Flavor;
use kilonova_wire::query::Query;
use kilonova_wire::{JsonBody, Microversion, Refusal, time};
use serde_json::{Value, json};

use super::input;
use crate::api::links::Base;

pub(super) fn routes() -> Routes<Compute> {
    Routes::new()
        .route(
            "/v2.1/flavors",
            [
                get(Guard::Anyone, list::brief),
                post("os_compute_api:os-flavor-manage:create", create),
            ],
        )
        .route("/v2.1/flavors/detail", [get(Guard::Anyone, list::detail)])
        .route(
            "/v2.1/flavors/{id}",
            [
                get(Guard::Anyone, show),
                put("os_compute_api:os-flavor-manage:update", update),
                kilonova_access::delete("os_compute_api:os-flavor-manage:delete", delete),
            ],
        )
        .route("/v2.1/flavors/{id}/action", [post(access::ACTIONS, access::action)])
        .route(
            "/v2.1/flavors/{id}/os-flavor-access",
            [get("os_compute_api:os-flavor-access", access::list)],
        )
        .route(
            "/v2.1/flavors/{id}/os-extra_specs",
            [
                get("os_compute_api:os-flavor-extra-specs:index", extra_specs::list),
                post("os_compute_api:os-flavor-extra-specs:create", extra_specs::create),
            ],
        )
        .route(
            "/v2.1/flavors/{id}/os-extra_specs/{key}",
            [
                get("os_compute_api:os-flavor-extra-specs:show", extra_specs::show),
                put("os_compute_api:os-flavor-extra-specs:update", extra_specs::update),
                kilonova_access::delete(
                    "os_compute_api:os-flavor-extra-specs:delete",
                    extra_specs::delete,
                ),
            ],
        )
}

/// The full form. It contains extra specs if the caller may see them.
fn detail(caller: &Caller, flavor: &Flavor, version: Microversion, base: &Base) -> Value {
    match caller.allows_own(list::EXTRA_SPECS) {
        true => view::detail(flavor, version, base),
        false => view::without_extra_specs(flavor, version, base),
    }
}

async fn create(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    base: Base,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    let flavor = request::create(&body, version, time::now())?;
    let shown = json!({"flavor": detail(&caller, &flavor, version, &base)});
    compute.store.write(move |tx| app::create(tx, &flavor)).await?;
    Ok(Json(shown))
}

async fn show(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    base: Base,
    query: Query,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    input::check_no_query(&query, version)?;
    let context = caller.context.clone();
    let flavor = compute.store.read(move |tx| app::visible(tx, &context, &id)).await?;
    Ok(Json(json!({"flavor": detail(&caller, &flavor, version, &base)})))
}

async fn update(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    base: Base,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::since(microversions::FLAVOR_DESCRIPTION))?;
    let description = request::update(&body)?;
    let now = time::now();
    let flavor = compute
        .store
        .write(move |tx| {
            app::change(tx, &id, now, |flavor| {
                flavor.description.clone_from(&description);
                Ok(())
            })
        })
        .await?;
    Ok(Json(json!({"flavor": detail(&caller, &flavor, version, &base)})))
}

async fn delete(
    State(compute): State<Compute>,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    compute
        .store
        .write(move |tx| match kilonova_compute_db::flavors::delete(tx, &id)? {
            true => Ok(()),
            false => Err(app::not_found(&id)),
        })
        .await
        .map_err(|error: Error| Refusal::from(error))?;
    Ok(StatusCode::ACCEPTED)
}
