//! `migrate` and `evacuate`: what only operators do.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use kilonova_wire::Fault;
use serde_json::{Value, json};

use super::ActionRequest;
use crate::Compute;
use crate::api::input;
use crate::db::servers::Server;
use crate::flows::{self, ColdRequest, EvacuateRequest};
use crate::microversions::{EVACUATED_STAY_STOPPED, MIGRATE_TO_HOST, NO_SHARED_STORAGE};

pub(super) async fn migrate(request: ActionRequest) -> Result<Response, Fault> {
    let named = request.version >= MIGRATE_TO_HOST;
    let host = if named { host(&request.argument) } else { None };
    request
        .begin(move |tx, request, server, now| {
            known(&request.compute, host.as_deref(), 400)?;
            other(server, host.as_deref())?;
            let cold = ColdRequest::Migrate(host.clone());
            flows::migrate_cold(tx, &request.compute, &request.context, server, &cold, now)
        })
        .await
}

pub(super) async fn evacuate(request: ActionRequest) -> Result<Response, Fault> {
    let (version, argument) = (request.version, &request.argument);
    let host = host(argument);
    let given = argument["adminPass"].as_str().map(str::to_owned);
    let password = given.unwrap_or_else(super::super::create::password);
    if input::boolean(&argument["onSharedStorage"]) {
        return Err(request.wrong("No host shares its storage with another."));
    }
    let force = input::boolean(&argument["force"]);
    if force && host.is_none() {
        return Err(Fault::bad_request(
            "Can't force to a non-provided destination. Name the host too.",
        ));
    }
    let evacuation =
        EvacuateRequest { host, force, ends_stopped: version >= EVACUATED_STAY_STOPPED };
    request
        .write(move |tx, request, server, now| {
            known(&request.compute, evacuation.host.as_deref(), 404)?;
            other(server, evacuation.host.as_deref())?;
            flows::evacuate(tx, &request.compute, &request.context, server, &evacuation, now)
        })
        .await?;
    if version >= NO_SHARED_STORAGE {
        return Ok(StatusCode::OK.into_response());
    }
    Ok(Json(json!({"adminPass": password})).into_response())
}

/// `host`; null is none.
pub(super) fn host(argument: &Value) -> Option<String> {
    argument["host"].as_str().map(str::to_owned)
}

/// Refuses a host that is not there.
pub(super) fn known(compute: &Compute, host: Option<&str>, code: u16) -> Result<(), Fault> {
    let Some(host) = host.filter(|host| compute.fleet.by_name(host).is_none()) else {
        return Ok(());
    };
    let name = host.escape_debug();
    Err(if code == 404 {
        Fault::not_found(format!("Compute host {name} not found."))
    } else {
        Fault::bad_request(format!("Compute host {name} could not be found."))
    })
}

/// Refuses the host that the server is on.
fn other(server: &Server, host: Option<&str>) -> Result<(), Fault> {
    if host.is_some() && host == server.host.as_deref() {
        return Err(Fault::bad_request("The target host can't be the same one."));
    }
    Ok(())
}
