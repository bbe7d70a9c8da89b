//! `shelve`, `shelveOffload` and `unshelve`.

use axum::response::Response;
use kilonova_compute_app::flows::{self, UnshelveTarget};
use kilonova_compute_app::microversions::{UNSHELVE_TO_HOST, UNSHELVE_TO_ZONE};
use kilonova_ids::HostName;
use kilonova_wire::Refusal;

use super::ActionRequest;

pub(super) async fn shelve(request: ActionRequest) -> Result<Response, Refusal> {
    let prepared = request.prepare_image(flows::shelved_image).await?;
    let compute = request.compute.clone();
    let begun = request
        .begin(move |tx, request, server, now| {
            flows::shelve(tx, &request.compute, &request.context, server, prepared, now)
        })
        .await;
    if begun.is_err() {
        compute.images.withdraw(&compute.store, prepared).await;
    }
    begun
}

pub(super) async fn offload(request: ActionRequest) -> Result<Response, Refusal> {
    request
        .begin(|tx, request, server, now| {
            flows::offload(tx, &request.compute, &request.context, server, now)
        })
        .await
}

pub(super) async fn unshelve(request: ActionRequest) -> Result<Response, Refusal> {
    let to = destination(&request)?;
    if to.host.is_some() {
        // Another controller may have just registered the host or added it to the zone.
        request.compute.catch_up().await;
    }
    request
        .begin(move |tx, request, server, now| {
            if let Some(Some(zone)) = &to.zone
                && !request.compute.fleet.has_zone(zone)
            {
                let why = "The requested availability zone is not available";
                return Err(Refusal::bad_request(why).into());
            }
            if let Some(host) = &to.host
                && request.compute.fleet.by_name(host).is_none()
            {
                let host = host.escape_debug();
                let why = format!("Compute host {host} could not be found.");
                return Err(Refusal::bad_request(why).into());
            }
            flows::unshelve(tx, &request.compute, &request.context, server, &to, now)
        })
        .await
}

/// The requested destination. Ignores arguments that the request's microversion does not define.
fn destination(request: &ActionRequest) -> Result<UnshelveTarget, Refusal> {
    let mut to = UnshelveTarget::default();
    let version = request.version;
    if version >= UNSHELVE_TO_ZONE
        && let Some(zone) = request.argument.get("availability_zone")
    {
        to.zone = Some(zone.as_str().map(str::to_owned));
    }
    if version >= UNSHELVE_TO_HOST
        && let Some(host) = request.argument["host"].as_str()
    {
        request.caller.may_own("os_compute_api:os-shelve:unshelve_to_host")?;
        to.host = Some(HostName::verbatim(host));
    }
    Ok(to)
}
