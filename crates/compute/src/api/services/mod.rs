//! `/os-services`: the services of the cloud. Operators enable, disable and force down compute hosts here.

mod by_action;
mod request;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use kilonova_access::{Routes, get, put};
use kilonova_compute_app::services::{self, Service};
use kilonova_compute_app::{Compute, Error, microversions, retire};
use kilonova_compute_db::hosts;
use kilonova_ids::{HostId, HostName, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::query::Query;
use kilonova_wire::{JsonBody, Microversion, Refusal, time};
use serde_json::{Value, json};

use super::input;

pub(super) fn routes() -> Routes<Compute> {
    Routes::new().route("/v2.1/os-services", [get("os_compute_api:os-services:list", list)]).route(
        "/v2.1/os-services/{id}",
        [
            put("os_compute_api:os-services:update", update),
            kilonova_access::delete("os_compute_api:os-services:delete", delete),
        ],
    )
}

fn shown(service: &Service, version: Microversion) -> Value {
    let mut shown = json!({
        "binary": service.binary,
        "host": service.host,
        "id": service.id,
        "zone": service.zone,
        "status": if service.enabled { "enabled" } else { "disabled" },
        "state": if service.up { "up" } else { "down" },
        "updated_at": time::naive(service.updated_at),
        "disabled_reason": service.disabled_reason,
    });
    if version < microversions::SERVICE_UUIDS {
        shown["id"] = json!(service.number);
    }
    if version >= microversions::FORCED_DOWN {
        shown["forced_down"] = json!(service.forced_down);
    }
    shown
}

async fn list(
    State(compute): State<Compute>,
    version: Microversion,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    if version >= microversions::STRICT_REQUESTS {
        input::check_query_keys(&query, &["host", "binary"])?;
    }
    let given = |key: &str| query.get(key).filter(|value| !value.is_empty());
    let (now, fleet) = (time::now(), compute.fleet.clone());
    let host = given("host").map(HostName::verbatim);
    let listed = move |tx: &mut Tx<'_>| match &host {
        Some(host) => services::on(tx, &fleet, host, now),
        None => services::all(tx, &fleet, now),
    };
    let services = compute.store.read(listed).await?;
    let binary = given("binary");
    let shown: Vec<Value> = services
        .iter()
        .filter(|service| binary.is_none_or(|binary| binary == service.binary))
        .map(|service| shown(service, version))
        .collect();
    Ok(Json(json!({"services": shown})))
}

async fn update(
    State(compute): State<Compute>,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    if version < microversions::SERVICE_UUIDS {
        return by_action::update(&compute, version, &id, &body).await;
    }
    let uuid = parse_uuid_like::<HostId>(&id)
        .ok_or_else(|| Refusal::bad_request(format!("Invalid uuid {id}")))?;
    let change = request::read(&body)?;
    let (now, fleet) = (time::now(), compute.fleet.clone());
    let service = compute
        .store
        .write(move |tx| {
            let name = host_of(tx, uuid, now)?;
            services::change(tx, &fleet, &name, &change, now)
        })
        .await?
        .ok_or_else(|| Refusal::not_found(format!("Service {id} could not be found.")))?;
    Ok(Json(json!({"service": shown(&service, version)})))
}

async fn delete(
    State(compute): State<Compute>,
    version: Microversion,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    let by_uuid = version >= microversions::SERVICE_UUIDS;
    let uuid = parse_uuid_like::<HostId>(&id);
    let number = id.parse::<i64>().ok();
    if (by_uuid && uuid.is_none()) || (!by_uuid && number.is_none()) {
        return Err(Refusal::bad_request(format!("Invalid id {}", id.escape_debug())));
    }
    let compute_ = compute.clone();
    compute
        .store
        .write(move |tx| {
            let host = match (by_uuid, uuid, number) {
                (true, Some(uuid), _) => hosts::by_id(tx, uuid)?,
                (false, _, Some(number)) => services::by_number(tx, number)?,
                (true, None, _) | (false, _, None) => None,
            };
            if let Some(host) = host {
                return retire::retire(tx, &compute_, &host);
            }
            let own = services::own(time::now());
            match own.iter().find(|own| own.id == id || number == Some(own.number)) {
                Some(own) => Err(Refusal::bad_request(format!(
                    "The {} service is part of this process and cannot be deleted.",
                    own.binary
                ))
                .into()),
                None => Err(Error::from(Refusal::not_found(format!(
                    "Service {} not found.",
                    id.escape_debug()
                )))),
            }
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The name of the host with this service id.
fn host_of(tx: &mut Tx<'_>, id: HostId, now: Timestamp) -> Result<HostName, Error> {
    if let Some(host) = hosts::by_id(tx, id)? {
        return Ok(host.host);
    }
    match services::own(now).iter().find(|service| service.id == id.to_string()) {
        Some(service) => Err(not_compute(service.binary).into()),
        None => Err(Refusal::not_found(format!("Service {id} could not be found.")).into()),
    }
}

/// 400 for a request to change a service other than `nova-compute`.
fn not_compute(binary: &str) -> Refusal {
    Refusal::bad_request(format!(
        "Updating a {binary} service is not supported. Only nova-compute services can be updated."
    ))
}
