//! `resize`, `confirmResize` and `revertResize`.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use kilonova_compute_app::flows::{self, ColdRequest};
use kilonova_compute_app::ports::external::SeenRequests;
use kilonova_compute_app::{Error, resolve};
use kilonova_compute_db::{flavors, servers};
use kilonova_store::Tx;
use kilonova_wire::Refusal;
use serde_json::Value;

use super::super::find::find;
use super::ActionRequest;

pub(super) async fn confirm(request: ActionRequest) -> Result<Response, Refusal> {
    request
        .write_with(flows::expect_confirm, |tx, request, server, now| {
            flows::confirm(tx, &request.compute, &request.context, server, now)
        })
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn revert(request: ActionRequest) -> Result<Response, Refusal> {
    // Checked first, so that a refused action sends no request to Neutron.
    let own = request.clone();
    let check = move |tx: &mut Tx<'_>| {
        let server = find(tx, &own.caller, &own.id)?;
        flows::allow_end(tx, &own.context, &server, own.action)?;
        Ok::<_, Error>(server.spec.networked.then_some(server.id))
    };
    let networked = match request.compute.neutron.is_some() {
        true => request.compute.store.read(check).await?,
        false => None,
    };
    let requests = match networked {
        Some(id) => request.compute.look_up_requests(id).await?,
        None => SeenRequests::default(),
    };
    request
        .begin(move |tx, request, server, now| {
            flows::revert(tx, &request.compute, &request.context, server, &requests, now)
        })
        .await
}

/// `OS-DCF:diskConfig` is only stored and shown, because disks are never partitioned here.
pub(super) async fn resize(request: ActionRequest) -> Result<Response, Refusal> {
    let flavor_id = match &request.argument["flavorRef"] {
        Value::String(id) => id.clone(),
        number => number.to_string(),
    };
    let disk_config = request.argument["OS-DCF:diskConfig"].as_str().map(str::to_owned);
    let expected = flavor_id.clone();
    let announce = move |tx: &mut Tx<'_>, server| {
        flavors::expect(tx, &expected)?;
        flows::expect_change(tx, server)
    };
    let seen = request.look_up_own().await?;
    request
        .write_with(announce, move |tx, request, server, now| {
            let mut server = server.clone();
            let flavor = resolve::flavor(tx, &request.context, &flavor_id)?;
            if flavor.is_same_flavor(&server.spec.flavor) {
                let message = "When resizing, instances must change flavor!";
                return Err(Refusal::bad_request(message).into());
            }
            if let Some(kind) = &disk_config {
                server.spec.disk_config.clone_from(kind);
                let (name, description) = (&server.name, server.description.as_deref());
                servers::set_text(tx, server.id, name, description, &server.spec, now)?;
            }
            let cold = ColdRequest::Resize(Box::new(flavor), seen.clone());
            flows::migrate_cold(tx, &request.compute, &request.context, &server, &cold, now)
        })
        .await?;
    Ok(StatusCode::ACCEPTED.into_response())
}
