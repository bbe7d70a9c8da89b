//! `migrate` and `evacuate`: cold migration and evacuation, for operators.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use kilonova_compute_app::Compute;
use kilonova_compute_app::flows::{self, ColdRequest, EvacuateRequest};
use kilonova_compute_app::microversions::{
    EVACUATED_STAY_STOPPED, MIGRATE_TO_HOST, NO_SHARED_STORAGE,
};
use kilonova_compute_db::servers::Server;
use kilonova_ids::HostName;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;
use serde_json::{Value, json};

use super::ActionRequest;
use crate::api::input;

pub(super) async fn migrate(request: ActionRequest) -> Result<Response, Refusal> {
    let may_name_host = request.version >= MIGRATE_TO_HOST;
    let host = if may_name_host { requested_host(&request.argument) } else { None };
    request
        .begin(move |tx, request, server, now| {
            check_host_exists(&request.compute, host.as_ref(), Kind::BadRequest)?;
            let why = "Cannot migrate to the host where the server exists.";
            check_other_host(server, host.as_ref(), why)?;
            let cold = ColdRequest::Migrate(host.clone());
            flows::migrate_cold(tx, &request.compute, &request.context, server, &cold, now)
        })
        .await
}

pub(super) async fn evacuate(request: ActionRequest) -> Result<Response, Refusal> {
    let (version, argument) = (request.version, &request.argument);
    let host = requested_host(argument);
    let given = argument["adminPass"].as_str().map(str::to_owned);
    let password = given.unwrap_or_else(super::super::create::generate_password);
    if input::boolean(&argument["onSharedStorage"]) {
        return Err(request.invalid_argument("Shared storage is not supported."));
    }
    let force = input::boolean(&argument["force"]);
    if force && host.is_none() {
        return Err(Refusal::bad_request(
            "Can't force to a non-provided destination. Name the host too.",
        ));
    }
    let evacuation =
        EvacuateRequest { host, force, ends_stopped: version >= EVACUATED_STAY_STOPPED };
    request
        .write(move |tx, request, server, now| {
            check_host_exists(&request.compute, evacuation.host.as_ref(), Kind::NotFound)?;
            let why = "The target host can't be the same one.";
            check_other_host(server, evacuation.host.as_ref(), why)?;
            flows::evacuate(tx, &request.compute, &request.context, server, &evacuation, now)
        })
        .await?;
    if version >= NO_SHARED_STORAGE {
        return Ok(StatusCode::OK.into_response());
    }
    Ok(Json(json!({"adminPass": password})).into_response())
}

/// The destination that the argument names; `None` if its `host` is null or missing.
pub(super) fn requested_host(argument: &Value) -> Option<HostName> {
    argument["host"].as_str().map(HostName::verbatim)
}

/// Refuses a host that does not exist.
///
/// # Errors
/// A refusal of the kind `missing`, 404 or 400, with Nova's message for each.
pub(super) fn check_host_exists(
    compute: &Compute,
    host: Option<&HostName>,
    missing: Kind,
) -> Result<(), Refusal> {
    let Some(host) = host.filter(|host| compute.fleet.by_name(host).is_none()) else {
        return Ok(());
    };
    let name = host.escape_debug();
    Err(if missing == Kind::NotFound {
        Refusal::not_found(format!("Compute host {name} not found."))
    } else {
        Refusal::bad_request(format!("Compute host {name} could not be found."))
    })
}

/// Refuses the server's current host as the destination.
fn check_other_host(server: &Server, host: Option<&HostName>, why: &str) -> Result<(), Refusal> {
    if host.is_some() && host == server.host.as_ref() {
        return Err(Refusal::bad_request(why));
    }
    Ok(())
}
