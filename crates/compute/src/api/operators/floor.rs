//! `/kilonova/floor`: the hosts with their devices, and who uses each part of them.
//!
//! `limit` and `marker` (a host's name) page; `host`, which may be repeated, names some hosts.

use axum::Json;
use axum::extract::State;
use kilonova_compute_app::Compute;
use kilonova_compute_app::floor::{
    Amounts, Floor, FloorDevice, FloorHandle, FloorHost, FloorPart, FloorQuery, MOST, floor,
};
use kilonova_ids::HostName;
use kilonova_wire::Refusal;
use kilonova_wire::query::Query;
use kilonova_wire::time::zulu;
use serde_json::{Value, json};

pub(super) async fn show(
    State(compute): State<Compute>,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    let limit = match query.get("limit") {
        None => MOST,
        Some(text) => match text.parse() {
            Ok(limit) if (1..=MOST).contains(&limit) => limit,
            _ => {
                let why = format!("limit must be a number from 1 to {MOST}.");
                return Err(Refusal::bad_request(why));
            }
        },
    };
    let hosts: Vec<HostName> = query.all("host").map(HostName::verbatim).collect();
    if hosts.len() > MOST {
        return Err(Refusal::bad_request(format!("The query may name at most {MOST} hosts.")));
    }
    let after = query.get("marker").map(HostName::verbatim);
    let found = floor(&compute, FloorQuery { hosts, after, limit }).await?;
    let hosts: Vec<Value> = found.hosts.iter().map(|host| host_view(&found, host)).collect();
    let next = found.hosts.last().filter(|_| found.more).map(|last| last.host.name.clone());
    Ok(Json(json!({"floor": {"hosts": hosts, "next_marker": next}})))
}

fn host_view(floor: &Floor, shown: &FloorHost) -> Value {
    let host = &shown.host;
    let providers = floor.amounts(host);
    let own = providers.get(&host.root).map(Vec::as_slice).unwrap_or_default();
    let amounts: serde_json::Map<String, Value> =
        own.iter().map(|(class, one)| (class.to_string(), view(*one))).collect();
    let part = |part: &FloorPart| {
        let all = providers.get(&part.provider).map(Vec::as_slice).unwrap_or_default();
        let found = all.iter().find(|(class, _)| *class == part.resource_class);
        part_view(floor, part, found.map(|(_, one)| *one).unwrap_or_default())
    };
    json!({
        "name": host.name,
        "service_id": host.id,
        "state": if host.is_up(floor.at) { "up" } else { "down" },
        "forced_down": host.is_declared_dead(),
        "status": if host.is_enabled() { "enabled" } else { "disabled" },
        "zone": host.zone(),
        "aggregates": shown.aggregates,
        "servers": shown.servers,
        "inventories": amounts,
        "devices": shown.devices.iter().map(|one| device_view(one, part)).collect::<Vec<_>>(),
    })
}

fn view(one: Amounts) -> Value {
    json!({"total": one.total, "reserved": one.reserved, "used": one.used, "free": one.free})
}

fn device_view(device: &FloorDevice, part: impl Fn(&FloorPart) -> Value) -> Value {
    json!({
        "uuid": device.device,
        "address": device.address,
        "card": device.card,
        "type": device.kind,
        "vendor_id": device.vendor_id,
        "product_id": device.product_id,
        "model": device.model,
        "numa_node": device.numa_node,
        "status": device.status,
        "present": device.present,
        "health": device.health,
        "health_reason": device.reason,
        "health_since": device.since.map(zulu),
        "programming": device.programming,
        "parts": device.parts.iter().map(part).collect::<Vec<_>>(),
    })
}

fn part_view(floor: &Floor, part: &FloorPart, amounts: Amounts) -> Value {
    let mut shown = view(amounts);
    shown["name"] = part.name.as_str().into();
    shown["resource_class"] = part.resource_class.to_string().into();
    shown["handles"] = part.handles.iter().map(|one| handle_view(floor, one)).collect();
    shown
}

fn handle_view(floor: &Floor, handle: &FloorHandle) -> Value {
    let server = handle.server.and_then(|id| floor.servers.get(&id));
    json!({
        "state": handle.state,
        "cleaning": handle.cleaning,
        "type": handle.attach_type,
        "address": handle.address,
        "mdev_type": Some(&handle.mdev_type).filter(|text| !text.is_empty()),
        "server": handle.server,
        "server_name": server.map(|server| server.name.as_str()),
        "project_id": handle.project,
    })
}
