//! The network connections of a server: addresses, interfaces, security groups.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use kilonova_access::Caller;
use kilonova_compute_app::actions::ServerAction;
use kilonova_compute_app::flows::operation::Action;
use kilonova_compute_app::ports::external::SeenNetworks;
use kilonova_compute_app::ports::{self, Added, Connections, PortRequest, ServerPort};
use kilonova_compute_app::{Compute, Error, flows, microversions, states};
use kilonova_compute_db::servers::Server;
use kilonova_ids::{PortId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::query::Query;
use kilonova_wire::{Context, JsonBody, Microversion, Refusal, time};
use serde_json::{Value, json};

use super::find::find;
use super::ports_view;
use crate::api::input;

type JsonAnswer = Result<Json<Value>, Refusal>;

/// The first microversion that shows the tag of an interface.
const TAGS_SHOWN: Microversion = microversions::INTERFACE_TAGS;

async fn connections(
    compute: &Compute,
    caller: Caller,
    id: String,
) -> Result<(Server, Connections), Refusal> {
    let networks = Arc::clone(&compute.networks);
    let found = compute.store.read(move |tx| {
        let server = find(tx, &caller, &id)?;
        let ports = ports::connections(tx, &*networks, [&server])?;
        Ok::<_, Error>((server, ports))
    });
    Ok(found.await?)
}

pub(super) async fn addresses(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> JsonAnswer {
    input::check_no_query(&query, version)?;
    let (server, ports) = connections(&compute, caller, id).await?;
    Ok(Json(json!({"addresses": ports_view::addresses(ports.of(server.id), false)})))
}

pub(super) async fn address(
    State(compute): State<Compute>,
    caller: Caller,
    Path((id, network)): Path<(String, String)>,
) -> JsonAnswer {
    let (server, ports) = connections(&compute, caller, id).await?;
    let mut all = ports_view::addresses(ports.of(server.id), false);
    match all.remove(&network) {
        Some(list) => Ok(Json(json!({network: list}))),
        None => {
            let network = network.escape_debug();
            let message = format!("Instance is not a member of specified network: {network}.");
            Err(Refusal::not_found(message))
        }
    }
}

pub(super) async fn security_groups(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> JsonAnswer {
    input::check_no_query(&query, version)?;
    let networks = Arc::clone(&compute.networks);
    let found = compute.store.read(move |tx| {
        let server = find(tx, &caller, &id)?;
        let ids = ports::connections(tx, &*networks, [&server])?.group_ids(server.id);
        networks.groups(tx, server.id, &ids)
    });
    let groups: Vec<Value> = found
        .await?
        .into_iter()
        .map(|group| {
            json!({"id": group.id, "name": group.name, "description": group.description,
                "tenant_id": group.project, "rules": []})
        })
        .collect();
    Ok(Json(json!({"security_groups": groups})))
}

pub(super) async fn list(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> JsonAnswer {
    input::check_no_query(&query, version)?;
    let (server, ports) = connections(&compute, caller, id).await?;
    let view = |port: &ServerPort| ports_view::interface(port, version >= TAGS_SHOWN);
    let list: Vec<Value> = ports.of(server.id).iter().map(view).collect();
    Ok(Json(json!({"interfaceAttachments": list})))
}

fn no_port(port: &str, server: &Server) -> Refusal {
    Refusal::not_found(format!(
        "Instance {} does not have a port with id {}",
        server.id,
        port.escape_debug()
    ))
}

pub(super) async fn show(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path((id, port)): Path<(String, String)>,
) -> JsonAnswer {
    input::check_no_query(&query, version)?;
    let (server, ports) = connections(&compute, caller, id).await?;
    view_of_port(&ports, &server, &port, version)
}

fn view_of_port(
    ports: &Connections,
    server: &Server,
    port: &str,
    version: Microversion,
) -> JsonAnswer {
    let id = parse_uuid_like::<PortId>(port);
    let found = ports.of(server.id).iter().find(|known| Some(known.id) == id);
    let found = found.ok_or_else(|| no_port(port, server))?;
    let view = ports_view::interface(found, version >= TAGS_SHOWN);
    Ok(Json(json!({"interfaceAttachment": view})))
}

fn invalid(field: &str, why: &str) -> Refusal {
    Refusal::bad_request(format!("Invalid input for field/attribute {field}. {why}"))
}

/// The requested interface.
fn read_interface(body: &Value, version: Microversion) -> Result<PortRequest, Refusal> {
    let attachment = match body.as_object() {
        Some(fields) if fields.is_empty() => return Ok(PortRequest::default()),
        Some(fields) if fields.len() == 1 => &body["interfaceAttachment"],
        _ => return Err(invalid("interfaceAttachment", "It must be the only key of the body.")),
    };
    let fields = attachment.as_object();
    let fields = fields.ok_or_else(|| invalid("interfaceAttachment", "It must be an object."))?;
    let mut line = PortRequest::default();
    for (name, value) in fields {
        let text = value.as_str();
        match name.as_str() {
            "net_id" => {
                let id = text.and_then(parse_uuid_like);
                line.network =
                    Some(id.ok_or_else(|| invalid(name, "It must be the id of a network."))?);
            }
            "port_id" => {
                let id = text.and_then(parse_uuid_like);
                line.port = Some(id.ok_or_else(|| invalid(name, "It must be the id of a port."))?);
            }
            "fixed_ips" => {
                let ip = value.as_array().filter(|ips| ips.len() == 1).and_then(|ips| {
                    ips[0].as_object().filter(|ip| ip.len() == 1)?;
                    ips[0]["ip_address"].as_str()?.parse().ok()
                });
                line.fixed_ip =
                    Some(ip.ok_or_else(|| invalid(name, "It must contain one ip_address."))?);
            }
            "tag" if version >= microversions::TAGGED_ATTACH => {
                let tag =
                    text.filter(|tag| (1..=60).contains(&tag.len()) && !tag.contains([',', '/']));
                let tag = tag.ok_or_else(|| {
                    invalid(name, "It must have 1 to 60 characters other than ',' and '/'.")
                })?;
                line.tag = Some(tag.to_owned());
            }
            other => return Err(invalid(other, "It is unknown.")),
        }
    }
    if line.network.is_some() && line.port.is_some() {
        return Err(Refusal::bad_request("Must not input both network_id and port_id"));
    }
    if line.fixed_ip.is_some() && line.network.is_none() {
        return Err(Refusal::bad_request("Must input network_id when request IP address"));
    }
    Ok(line)
}

/// If the network service is external, checks that the caller may change the server, and then looks up
/// the requested network or port.
async fn look_up(
    compute: &Compute,
    caller: &Caller,
    id: &str,
    line: &PortRequest,
) -> Result<SeenNetworks, Refusal> {
    if !compute.networks.is_external() {
        return Ok(SeenNetworks::InRows);
    }
    let (context, id) = (caller.clone(), id.to_owned());
    let check = compute.store.read(move |tx| {
        let server = find(tx, &context, &id)?;
        states::allow(&context, &server, ServerAction::AttachInterface)?;
        Ok::<_, Error>(server.project_id)
    });
    // The port belongs to the server's project, even if an administrator sends the request.
    let owner = Context { project_id: check.await?, ..(**caller).clone() };
    compute.look_up_network(&owner, line).await
}

pub(super) async fn attach(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> JsonAnswer {
    let line = read_interface(&body, version)?;
    let port = add_port(&compute, &caller, &id, &line).await;
    let port = port.map_err(|refusal| ports::for_interface(refusal, &line))?;
    let (server, ports) = connections(&compute, caller, id).await?;
    view_of_port(&ports, &server, &port.to_string(), version)
}

/// Attaches the requested interface and returns its port.
async fn add_port(
    compute: &Compute,
    caller: &Caller,
    id: &str,
    line: &PortRequest,
) -> Result<PortId, Refusal> {
    let seen = look_up(compute, caller, id, line).await?;
    let (service, context) = (compute.clone(), caller.clone());
    let (server_id, line) = (id.to_owned(), line.clone());
    let (server, added, recorded) = compute
        .store
        .write(move |tx| {
            let server = find(tx, &context, &server_id)?;
            let now = time::now();
            states::allow(&context, &server, ServerAction::AttachInterface)?;
            let added = ports::add(tx, &service, &context, &server, &line, &seen, now)?;
            let action = Action::AttachInterface;
            let recorded = flows::record_until_failed(tx, &context, &server, action, now)?;
            Ok::<_, Error>((server.id, added, recorded))
        })
        .await?;
    let place = match added {
        Added::Now(port) => return Ok(port),
        Added::Later(place) => place,
    };
    match compute.finish_attach(server, place).await.map_err(Refusal::from) {
        Ok(port) => Ok(port),
        Err(refusal) => {
            let why = refusal.message.clone();
            let fail = move |tx: &mut Tx<'_>| flows::fail_recorded(tx, recorded, &why, time::now());
            compute.store.write(fail).await?;
            Err(refusal)
        }
    }
}

pub(super) async fn detach(
    State(compute): State<Compute>,
    caller: Caller,
    Path((id, port)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    let service = compute.clone();
    compute
        .store
        .write(move |tx| {
            let server = find(tx, &caller, &id)?;
            let now = time::now();
            states::allow(&caller, &server, ServerAction::DetachInterface)?;
            let known = parse_uuid_like::<PortId>(&port);
            let known = known.ok_or_else(|| no_port(&port, &server))?;
            ports::remove(tx, &service, &server, known, now)?;
            flows::record_action(tx, &caller, &server, Action::DetachInterface, now)?;
            Ok::<_, Error>(())
        })
        .await?;
    Ok(StatusCode::ACCEPTED)
}
