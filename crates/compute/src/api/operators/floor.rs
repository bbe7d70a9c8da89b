//! `/kilonova/floor`: the hosts with their devices, and the servers that use each part of a device.
//!
//! `limit` and `marker` (a host's name) select a page; `host`, which may be repeated, selects hosts.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use kilonova_accelerator::{AttachType, DeviceStatus, HandleState, HealthState};
use kilonova_compute_app::Compute;
use kilonova_compute_app::floor::{
    Amounts, Extent, Floor, FloorDevice, FloorHandle, FloorHost, FloorPart, FloorQuery, MOST, floor,
};
use kilonova_ids::{DeviceId, HostId, HostName, ResourceClass, ServerId};
use kilonova_node_api::DeviceKind;
use kilonova_wire::Refusal;
use kilonova_wire::query::Query;
use kilonova_wire::time::zulu;
use serde::Serialize;

pub(super) async fn show(
    State(compute): State<Compute>,
    query: Query,
) -> Result<Response, Refusal> {
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
    let query = FloorQuery { hosts, after, limit, extent: Extent::Details };
    let found = floor(&compute, query).await?;
    let hosts = found.hosts.iter().map(|host| host_view(&found, host)).collect();
    let next_marker = found.hosts.last().filter(|_| found.more).map(|last| &last.host.name);
    // Serialized directly, without an intermediate JSON value, because a page may have 8,000 devices.
    Ok(Json(&Body { floor: FloorView { hosts, next_marker } }).into_response())
}

#[derive(Serialize)]
struct Body<'a> {
    floor: FloorView<'a>,
}

#[derive(Serialize)]
struct FloorView<'a> {
    hosts: Vec<HostView<'a>>,
    next_marker: Option<&'a HostName>,
}

#[derive(Serialize)]
struct HostView<'a> {
    name: &'a HostName,
    service_id: HostId,
    state: &'static str,
    forced_down: bool,
    status: &'static str,
    zone: String,
    aggregates: &'a [String],
    servers: usize,
    inventories: BTreeMap<&'a ResourceClass, Amounts>,
    devices: Vec<DeviceView<'a>>,
}

#[derive(Serialize)]
struct DeviceView<'a> {
    uuid: Option<DeviceId>,
    address: &'a str,
    card: &'a str,
    #[serde(rename = "type")]
    kind: DeviceKind,
    vendor_id: &'a str,
    product_id: &'a str,
    model: &'a str,
    numa_node: Option<i64>,
    pcie_switch: Option<&'a str>,
    island: Option<&'a str>,
    status: DeviceStatus,
    present: bool,
    health: HealthState,
    health_reason: Option<&'a str>,
    health_since: Option<String>,
    programming: bool,
    parts: Vec<PartView<'a>>,
}

#[derive(Serialize)]
struct PartView<'a> {
    name: Option<&'a str>,
    resource_class: &'a ResourceClass,
    total: i64,
    reserved: i64,
    used: i64,
    free: i64,
    handles: Vec<HandleView<'a>>,
}

#[derive(Serialize)]
struct HandleView<'a> {
    state: HandleState,
    cleaning: bool,
    #[serde(rename = "type")]
    kind: Option<AttachType>,
    address: Option<&'a str>,
    mdev_type: Option<&'a str>,
    server: Option<ServerId>,
    server_name: Option<&'a str>,
    project_id: Option<&'a str>,
}

fn host_view<'a>(floor: &'a Floor, shown: &'a FloorHost) -> HostView<'a> {
    let host = &shown.host;
    let providers = floor.providers(host);
    let part = |part: &'a FloorPart| part_view(floor, part, providers.of_part(part));
    HostView {
        name: &host.name,
        service_id: host.id,
        state: if host.is_up(floor.at) { "up" } else { "down" },
        forced_down: host.is_forced_down(),
        status: if host.is_enabled() { "enabled" } else { "disabled" },
        zone: host.zone(),
        aggregates: &shown.aggregates,
        servers: shown.servers,
        inventories: providers.of(host.root).collect(),
        devices: shown.devices.iter().map(|one| device_view(one, part)).collect(),
    }
}

fn device_view<'a>(
    device: &'a FloorDevice,
    part: impl Fn(&'a FloorPart) -> PartView<'a>,
) -> DeviceView<'a> {
    DeviceView {
        uuid: device.device,
        address: &device.address,
        card: &device.card,
        kind: device.kind,
        vendor_id: &device.vendor_id,
        product_id: &device.product_id,
        model: &device.model,
        numa_node: device.numa_node,
        pcie_switch: device.switch.as_deref(),
        island: device.island.as_deref(),
        status: device.status,
        present: device.present,
        health: device.health,
        health_reason: device.reason.as_deref(),
        health_since: device.since.map(zulu),
        programming: device.programming,
        parts: device.parts.iter().map(part).collect(),
    }
}

fn part_view<'a>(floor: &'a Floor, part: &'a FloorPart, amounts: Amounts) -> PartView<'a> {
    let Amounts { total, reserved, used, free } = amounts;
    PartView {
        name: part.name.as_deref(),
        resource_class: &part.resource_class,
        total,
        reserved,
        used,
        free,
        handles: part.handles.iter().map(|one| handle_view(floor, one)).collect(),
    }
}

fn handle_view<'a>(floor: &'a Floor, handle: &'a FloorHandle) -> HandleView<'a> {
    let name = handle.server.and_then(|id| floor.names.get(&id));
    HandleView {
        state: handle.state,
        cleaning: handle.cleaning,
        kind: handle.attach_type,
        address: handle.address.as_deref(),
        mdev_type: handle.mdev_type.as_deref(),
        server: handle.server,
        server_name: name.map(String::as_str),
        project_id: handle.project.as_deref(),
    }
}
