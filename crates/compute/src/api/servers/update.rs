//! `PUT /servers/{id}`: changes the name, description, hostname, access addresses, disk configuration
//! or pinned zone.

use axum::extract::{Path, State};
use axum::response::Response;
use kilonova_access::Caller;
use kilonova_compute_app::microversions::{
    ALWAYS, CHANGE_PINNED_ZONE, DESCRIPTION, FQDN_HOSTNAME, HOSTNAME, since,
};
use kilonova_compute_app::schemas::{self, fields};
use kilonova_compute_app::{Compute, Error, ports};
use kilonova_compute_db::servers::{self, Server};
use kilonova_compute_scheduler::fleet::Fleet;
use kilonova_wire::{JsonBody, Microversion, Refusal, time};
use serde_json::{Value, json};

use crate::api::input::{self, body_schemas};
use crate::api::links::Base;

body_schemas!(SCHEMAS, schema, the_schemas_of_a_changed_server_compile);

fn schema(version: Microversion) -> Value {
    let zone = json!({"type": ["string", "null"], "minLength": 1, "maxLength": 255});
    let hostname = super::schema::host_name(version >= FQDN_HOSTNAME);
    let properties = fields(
        version,
        [
            (ALWAYS, "name", schemas::text(255)),
            (ALWAYS, "accessIPv4", json!({"type": "string", "format": "ipv4"})),
            (ALWAYS, "accessIPv6", json!({"type": "string", "format": "ipv6"})),
            (ALWAYS, "OS-DCF:diskConfig", json!({"type": "string", "enum": ["AUTO", "MANUAL"]})),
            (since(DESCRIPTION), "description", schemas::description()),
            (since(HOSTNAME), "hostname", hostname),
            (since(CHANGE_PINNED_ZONE), "pinned_availability_zone", zone),
        ],
    );
    json!({
        "type": "object",
        "properties": {"server": {
            "type": "object", "properties": properties, "additionalProperties": false,
        }},
        "required": ["server"],
        "additionalProperties": false,
    })
}

pub(super) async fn update(
    State(compute): State<Compute>,
    context: Caller,
    base: Base,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Response, Refusal> {
    SCHEMAS.check(version, &body)?;
    let changes = body["server"].clone();
    if let Some(name) = changes["name"].as_str() {
        input::check_name("name", name.trim())?;
    }
    let (own, caller) = (compute.clone(), context.clone());
    let (server, related) = compute
        .store
        .write(move |tx| {
            let mut server = super::find::find(tx, &caller, &id)?;
            let (name, hostname) = (server.name.clone(), server.spec.hostname.clone());
            apply(&mut server, &changes, &own.fleet)?;
            server.updated_at = time::now();
            servers::set_text(
                tx,
                server.id,
                &server.name,
                server.description.as_deref(),
                &server.spec,
                server.updated_at,
            )?;
            if (name, hostname) != (server.name.clone(), server.spec.hostname.clone()) {
                ports::record_guest_change(tx, &own, &server)?;
            }
            let related = super::show::RelatedData::of(tx, &own, &server)?;
            Ok::<_, Error>((server, related))
        })
        .await?;
    super::show::answer_to_change(&compute, &context, &base, version, &server, related)
}

fn apply(server: &mut Server, changes: &Value, fleet: &Fleet) -> Result<(), Refusal> {
    let string = |key: &str| changes[key].as_str().map(str::to_owned);
    if let Some(name) = string("name") {
        name.trim().clone_into(&mut server.name);
    }
    if changes.get("description").is_some() {
        server.description = string("description");
    }
    if let Some(hostname) = string("hostname") {
        server.spec.hostname = hostname;
    }
    if let Some(kind) = string("OS-DCF:diskConfig") {
        server.spec.disk_config = kind;
    }
    for (index, key) in ["accessIPv4", "accessIPv6"].into_iter().enumerate() {
        if let Some(address) = string(key) {
            server.spec.access[index] = input::canonical_address(address);
        }
    }
    if changes.get("pinned_availability_zone").is_some() {
        pin(server, string("pinned_availability_zone"), fleet)?;
    }
    Ok(())
}

/// Pins a server to a zone, or unpins it. If the server has a host, the host must be in the zone.
fn pin(server: &mut Server, zone: Option<String>, fleet: &Fleet) -> Result<(), Refusal> {
    if let Some(zone) = &zone {
        let shown = zone.escape_debug();
        if !fleet.has_zone(zone) {
            return Err(Refusal::bad_request(format!(
                "Invalid input for field/attribute pinned_availability_zone. Value: {shown}. There \
                 is no such availability zone."
            )));
        }
        let host = server.host.as_ref().and_then(|host| fleet.by_name(host));
        if host.is_some_and(|host| !host.is_in(zone)) {
            return Err(Refusal::conflict(format!(
                "Cannot pin instance {} to availability zone {shown}: it runs in another one. Move \
                 it first.",
                server.id
            )));
        }
    }
    server.spec.availability_zone = zone;
    Ok(())
}
