//! `/servers/{id}/migrations`: live migrations under way, and an operator's hand in them.

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use kilonova_access::Caller;
use kilonova_store::Tx;
use kilonova_wire::time::now_micros;
use kilonova_wire::{Fault, JsonBody, Microversion};
use serde_json::{Value, json};

use crate::api::input;
use crate::api::migrations::view::{Scene, is_under_way, with_hosts};
use crate::db::moves::{self, Kind, Move};
use crate::db::servers::Server;
use crate::{Compute, Error, flows, microversions};

/// The number in a path.
fn number(text: &str, server: &str) -> Result<i64, Fault> {
    text.parse().map_err(|_| {
        Fault::not_found(format!(
            "In-progress live migration {} is not found for server {server}.",
            text.escape_debug()
        ))
    })
}

/// The live migration with that number, which is under way.
fn find(tx: &mut Tx<'_>, server: &Server, number: i64) -> Result<Move, Error> {
    let id = server.id;
    let found = moves::of_server(tx, id)?.into_iter().find(|one| one.number == number);
    let refuse = |words: String| Err(Fault::not_found(words).into());
    match found {
        None => {
            refuse(format!("In-progress live migration {number} is not found for server {id}."))
        }
        Some(one) if one.kind != Kind::Live => {
            refuse(format!("Migration {number} for server {id} is not live-migration."))
        }
        Some(one) if !is_under_way(&one) => {
            refuse(format!("Live migration {number} for server {id} is not in progress."))
        }
        Some(one) => Ok(one),
    }
}

pub(super) async fn list(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    Path(id): Path<String>,
) -> Result<Json<Value>, Fault> {
    input::within(version, microversions::since(microversions::MIGRATIONS_OF_SERVER))?;
    let context = caller.clone();
    let (found, scene) = compute
        .store
        .read(move |tx| {
            let server = super::find::find(tx, &context, &id)?;
            let mut found = moves::of_server(tx, server.id)?;
            found.retain(is_under_way);
            let scene = Scene::read(tx, &found)?;
            Ok::<_, Error>((found, scene))
        })
        .await?;
    let hosts = caller.allows_own("os_compute_api:servers:migrations:index:host");
    let progress = |one| with_hosts(scene.progress(one, version), hosts);
    let shown: Vec<Value> = found.iter().map(progress).collect();
    Ok(Json(json!({"migrations": shown})))
}

pub(super) async fn show(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    Path((id, which)): Path<(String, String)>,
) -> Result<Json<Value>, Fault> {
    input::within(version, microversions::since(microversions::MIGRATIONS_OF_SERVER))?;
    let (found, scene) = compute
        .store
        .read(move |tx| {
            let server = super::find::find(tx, &caller, &id)?;
            let found = find(tx, &server, number(&which, &id)?)?;
            let scene = Scene::read(tx, std::slice::from_ref(&found))?;
            Ok::<_, Error>((found, scene))
        })
        .await?;
    Ok(Json(json!({"migration": scene.progress(&found, version)})))
}

/// `DELETE`: calls it off.
pub(super) async fn abort(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    Path((id, which)): Path<(String, String)>,
) -> Result<StatusCode, Fault> {
    input::within(version, microversions::since(microversions::ABORT_LIVE_MIGRATION))?;
    let early = version >= microversions::ABORT_QUEUED;
    let compute_ = compute.clone();
    compute
        .store
        .write(move |tx| {
            let server = super::find::find(tx, &caller, &id)?;
            let number = number(&which, &id)?;
            flows::abort(tx, &compute_, &caller, &server, number, early, now_micros())
        })
        .await?;
    Ok(StatusCode::ACCEPTED)
}

/// `POST …/action` with `force_complete`.
pub(super) async fn act(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    Path((id, which)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Result<StatusCode, Fault> {
    input::within(version, microversions::since(microversions::FORCE_COMPLETE))?;
    if body != json!({"force_complete": null}) {
        return Err(Fault::bad_request(
            "Invalid input for field/attribute force_complete. The body is {\"force_complete\": null}.",
        ));
    }
    let compute_ = compute.clone();
    compute
        .store
        .write(move |tx| {
            let server = super::find::find(tx, &caller, &id)?;
            let number = number(&which, &id)?;
            flows::force_complete(tx, &compute_, &caller, &server, number, now_micros())
        })
        .await?;
    Ok(StatusCode::ACCEPTED)
}
