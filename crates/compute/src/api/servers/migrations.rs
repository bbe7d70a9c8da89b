//! `/servers/{id}/migrations`: live migrations in progress; operators abort or force-complete them.

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use kilonova_access::Caller;
use kilonova_compute_app::{Compute, Error, flows, microversions};
use kilonova_compute_db::moves::{self, Kind, Move};
use kilonova_compute_db::servers::Server;
use kilonova_store::Tx;
use kilonova_wire::query::Query;
use kilonova_wire::{JsonBody, Microversion, Refusal, time};
use serde_json::{Value, json};

use crate::api::input;
use crate::api::migrations::view::{MigrationViews, is_in_progress, with_hosts};

/// Parses the number of a migration in a path.
fn number(text: &str, server: &str) -> Result<i64, Refusal> {
    text.parse().map_err(|_| {
        Refusal::not_found(format!(
            "In-progress live migration {} is not found for server {server}.",
            text.escape_debug()
        ))
    })
}

/// The live migration in progress with this number.
fn find(tx: &mut Tx<'_>, server: &Server, number: i64) -> Result<Move, Error> {
    let id = server.id;
    let found = moves::of_server(tx, id)?.into_iter().find(|one| one.number == number);
    let refuse = |message: String| Err(Refusal::not_found(message).into());
    match found {
        None => {
            refuse(format!("In-progress live migration {number} is not found for server {id}."))
        }
        Some(one) if one.kind != Kind::Live => {
            refuse(format!("Migration {number} for server {id} is not live-migration."))
        }
        Some(one) if !is_in_progress(&one) => {
            refuse(format!("Live migration {number} for server {id} is not in progress."))
        }
        Some(one) => Ok(one),
    }
}

pub(super) async fn list(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::since(microversions::MIGRATIONS_OF_SERVER))?;
    input::check_no_query(&query, version)?;
    let context = caller.clone();
    let (found, views) = compute
        .store
        .read(move |tx| {
            let server = super::find::find(tx, &context, &id)?;
            let mut found = moves::of_server(tx, server.id)?;
            found.retain(is_in_progress);
            let views = MigrationViews::read(tx, &found)?;
            Ok::<_, Error>((found, views))
        })
        .await?;
    let hosts = caller.allows_own("os_compute_api:servers:migrations:index:host");
    let progress = |one| with_hosts(views.progress(one, version), hosts);
    let shown: Vec<Value> = found.iter().map(progress).collect();
    Ok(Json(json!({"migrations": shown})))
}

pub(super) async fn show(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path((id, which)): Path<(String, String)>,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::since(microversions::MIGRATIONS_OF_SERVER))?;
    input::check_no_query(&query, version)?;
    let (found, views) = compute
        .store
        .read(move |tx| {
            let server = super::find::find(tx, &caller, &id)?;
            let found = find(tx, &server, number(&which, &id)?)?;
            let views = MigrationViews::read(tx, std::slice::from_ref(&found))?;
            Ok::<_, Error>((found, views))
        })
        .await?;
    Ok(Json(json!({"migration": views.progress(&found, version)})))
}

/// `DELETE`: aborts the live migration.
pub(super) async fn abort(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    Path((id, which)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    input::check_microversion(version, microversions::since(microversions::ABORT_LIVE_MIGRATION))?;
    let may_abort_queued = version >= microversions::ABORT_QUEUED;
    let compute_ = compute.clone();
    compute
        .store
        .write(move |tx| {
            let server = super::find::find(tx, &caller, &id)?;
            flows::abort(tx, &compute_, &caller, &server, &which, may_abort_queued, time::now())
        })
        .await?;
    Ok(StatusCode::ACCEPTED)
}

/// `POST …/action` with `force_complete`: completes the live migration.
pub(super) async fn force_complete(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    Path((id, which)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Result<StatusCode, Refusal> {
    input::check_microversion(version, microversions::since(microversions::FORCE_COMPLETE))?;
    if body != json!({"force_complete": null}) {
        return Err(Refusal::bad_request(
            "Invalid input for field/attribute force_complete. The body is {\"force_complete\": null}.",
        ));
    }
    let compute_ = compute.clone();
    compute
        .store
        .write(move |tx| {
            let server = super::find::find(tx, &caller, &id)?;
            flows::force_complete(tx, &compute_, &caller, &server, &which, time::now())
        })
        .await?;
    Ok(StatusCode::ACCEPTED)
}
