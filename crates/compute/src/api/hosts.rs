//! `/os-hosts`, before 2.43: the hosts of all services, and the usage of a compute host by project.
//!
//! Its successors are `/os-services` and `/os-hypervisors`; the answers here must agree with
//! theirs. Maintenance mode and power actions are not supported; as in upstream with libvirt, the
//! answer is 501.

use std::sync::LazyLock;

use axum::Json;
use axum::extract::{Path, State};
use kilonova_access::{Routes, get, put};
use kilonova_compute_app::services::{self, Change, INTERNAL_ZONE, Service, Status};
use kilonova_compute_app::{Compute, Error, microversions};
use kilonova_compute_db::hosts;
use kilonova_compute_db::usage::{self, ProjectOnHost};
use kilonova_ids::HostName;
use kilonova_wire::query::Query;
use kilonova_wire::refusal::Kind;
use kilonova_wire::schema::Schema;
use kilonova_wire::{JsonBody, Microversion, Refusal, time};
use serde_json::{Value, json};

use super::input;

pub(super) fn routes() -> Routes<Compute> {
    Routes::new()
        .route("/v2.1/os-hosts", [get("os_compute_api:os-hosts:list", list)])
        .route(
            "/v2.1/os-hosts/{host}",
            [
                get("os_compute_api:os-hosts:show", show),
                put("os_compute_api:os-hosts:update", update),
            ],
        )
        .route(
            "/v2.1/os-hosts/{host}/reboot",
            [get("os_compute_api:os-hosts:reboot", switch_power)],
        )
        .route(
            "/v2.1/os-hosts/{host}/shutdown",
            [get("os_compute_api:os-hosts:shutdown", switch_power)],
        )
        .route(
            "/v2.1/os-hosts/{host}/startup",
            [get("os_compute_api:os-hosts:start", switch_power)],
        )
}

static UPDATE: LazyLock<Schema> = LazyLock::new(|| {
    let word = json!({
        "type": "string",
        "enum": ["enable", "disable", "Enable", "Disable", "ENABLE", "DISABLE"],
    });
    Schema::new(&json!({
        "type": "object",
        "properties": {"status": word, "maintenance_mode": word},
        "anyOf": [{"required": ["status"]}, {"required": ["maintenance_mode"]}],
        "additionalProperties": false,
    }))
});

fn check_exists(version: Microversion) -> Result<(), Refusal> {
    input::check_microversion(version, microversions::before(microversions::HOSTS_GONE))
}

/// 404 with the message of upstream, which looks up the cell to which the host is mapped.
fn unknown(host: &HostName) -> Refusal {
    Refusal::not_found(format!("Host '{host}' is not mapped to any cell"))
}

/// 501 for an existing host, 404 for an unknown one.
async fn not_supported(compute: &Compute, host: HostName) -> Refusal {
    let name = host.clone();
    match compute.store.read(move |tx| hosts::by_name(tx, &name)).await {
        Ok(Some(_)) => {
            Refusal::new(Kind::NotImplemented, "The requested functionality is not supported.")
        }
        Ok(None) => unknown(&host),
        Err(error) => error.into(),
    }
}

/// The hosts of enabled services. Compute hosts come first: upstream promises no order, and tools that
/// expect a single host assume that the first one is a compute host.
async fn list(
    State(compute): State<Compute>,
    version: Microversion,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    check_exists(version)?;
    let zone = query.get("zone").filter(|zone| !zone.is_empty());
    let (now, fleet) = (time::now(), compute.fleet.clone());
    let mut services = compute.store.read(move |tx| services::all(tx, &fleet, now)).await?;
    services.sort_by_key(|service| service.zone == INTERNAL_ZONE);
    let shown: Vec<Value> = services
        .iter()
        .filter(|service| service.enabled && zone.is_none_or(|zone| zone == service.zone))
        .map(listed)
        .collect();
    Ok(Json(json!({"hosts": shown})))
}

fn listed(service: &Service) -> Value {
    let topic = service.binary.strip_prefix("nova-").unwrap_or(service.binary);
    json!({"host_name": service.host, "service": topic, "zone": service.zone})
}

async fn show(
    State(compute): State<Compute>,
    version: Microversion,
    Path(name): Path<HostName>,
) -> Result<Json<Value>, Refusal> {
    check_exists(version)?;
    let wanted = name.clone();
    let found = compute
        .store
        .read(move |tx| -> Result<_, Error> {
            let Some(host) = hosts::by_name(tx, &wanted)? else { return Ok(None) };
            let used = usage::of_hosts(tx, std::slice::from_ref(&wanted))?.remove(&wanted);
            Ok(Some((host, used.unwrap_or_default(), usage::of_host(tx, &wanted)?)))
        })
        .await?;
    let (host, used, projects) = found.ok_or_else(|| unknown(&name))?;
    let shown = |project: &str, cpu: i64, memory_mb: i64, disk_gb: i64| {
        json!({"resource": {
            "host": name, "project": project, "cpu": cpu, "memory_mb": memory_mb,
            "disk_gb": disk_gb,
        }})
    };
    let sum = |of: fn(&ProjectOnHost) -> i64| projects.iter().map(of).sum::<i64>();
    let (cpu, memory_mb, disk_gb) =
        (sum(|one| one.vcpus), sum(|one| one.memory_mb), sum(|one| one.disk_gb));
    let mut resources = vec![
        shown("(total)", host.vcpus, host.memory_mb, host.disk_gb),
        shown("(used_now)", used.vcpus, used.memory_mb, used.disk_gb),
        shown("(used_max)", cpu, memory_mb, disk_gb),
    ];
    resources.extend(
        projects.iter().map(|one| shown(&one.project_id, one.vcpus, one.memory_mb, one.disk_gb)),
    );
    Ok(Json(json!({"host": resources})))
}

/// Enables or disables the compute service of a host. A request for maintenance changes nothing.
async fn update(
    State(compute): State<Compute>,
    version: Microversion,
    Path(name): Path<HostName>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    check_exists(version)?;
    UPDATE.check(&body)?;
    let Some(word) = input::text_of(&body, "status").filter(|_| body.get(MAINTENANCE).is_none())
    else {
        return Err(not_supported(&compute, name).await);
    };
    let status = match word.eq_ignore_ascii_case("enable") {
        true => Status::Enabled,
        false => Status::Disabled(None),
    };
    let change = Change { status: Some(status), forced_down: None };
    let (now, fleet, wanted) = (time::now(), compute.fleet.clone(), name.clone());
    let service = compute
        .store
        .write(move |tx| services::change(tx, &fleet, &wanted, &change, now))
        .await?
        .ok_or_else(|| unknown(&name))?;
    let status = if service.enabled { "enabled" } else { "disabled" };
    Ok(Json(json!({"host": name, "status": status})))
}

const MAINTENANCE: &str = "maintenance_mode";

/// `reboot`, `shutdown` and `startup`.
async fn switch_power(
    State(compute): State<Compute>,
    version: Microversion,
    Path(name): Path<HostName>,
) -> Result<Json<Value>, Refusal> {
    check_exists(version)?;
    Err(not_supported(&compute, name).await)
}
