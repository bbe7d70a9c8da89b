//! `/os-availability-zone`: a zone is available if it has an enabled host.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use kilonova_access::{Routes, get};
use kilonova_compute_app::Compute;
use kilonova_compute_app::services::{self, INTERNAL_ZONE, Service};
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal, time};
use serde_json::{Map, Value, json};

use super::input;

pub(super) fn routes() -> Routes<Compute> {
    Routes::new()
        .route(
            "/v2.1/os-availability-zone",
            [get("os_compute_api:os-availability-zone:list", brief)],
        )
        .route(
            "/v2.1/os-availability-zone/detail",
            [get("os_compute_api:os-availability-zone:detail", detail)],
        )
}

type Zones = BTreeMap<String, Vec<Service>>;

async fn zones(compute: &Compute) -> Result<Zones, Refusal> {
    let now = time::now();
    let (mut zones, fleet) = (Zones::new(), compute.fleet.clone());
    for service in compute.store.read(move |tx| services::all(tx, &fleet, now)).await? {
        zones.entry(service.zone.clone()).or_default().push(service);
    }
    Ok(zones)
}

fn is_available(services: &[Service]) -> bool {
    services.iter().any(|service| service.enabled)
}

fn in_order(zones: Zones) -> impl Iterator<Item = (String, Vec<Service>)> {
    let (open, closed): (Zones, Zones) =
        zones.into_iter().partition(|(_, services)| is_available(services));
    open.into_iter().chain(closed)
}

async fn brief(
    State(compute): State<Compute>,
    version: Microversion,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    input::check_no_query(&query, version)?;
    let shown: Vec<Value> = in_order(zones(&compute).await?)
        .filter(|(zone, _)| zone != INTERNAL_ZONE)
        .map(|(zone, services)| shown(&zone, is_available(&services), Value::Null))
        .collect();
    Ok(Json(json!({"availabilityZoneInfo": shown})))
}

async fn detail(
    State(compute): State<Compute>,
    version: Microversion,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    input::check_no_query(&query, version)?;
    let shown: Vec<Value> = in_order(zones(&compute).await?)
        .map(|(zone, services)| match is_available(&services) {
            true => shown(&zone, true, hosts(&services)),
            false => shown(&zone, false, Value::Null),
        })
        .collect();
    Ok(Json(json!({"availabilityZoneInfo": shown})))
}

fn shown(zone: &str, available: bool, hosts: Value) -> Value {
    json!({"zoneName": zone, "zoneState": {"available": available}, "hosts": hosts})
}

fn hosts(services: &[Service]) -> Value {
    let mut hosts = Map::new();
    for service in services.iter().filter(|service| service.enabled) {
        hosts.entry(&service.host).or_insert_with(|| json!({}))[service.binary] = json!({
            "available": service.up,
            "active": service.enabled,
            "updated_at": time::naive(service.updated_at),
        });
    }
    Value::Object(hosts)
}
