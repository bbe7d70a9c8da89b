//! `/servers/{id}/os-volume_attachments`: the volumes of a server.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kilonova_access::Caller;
use kilonova_compute_app::schemas::{self, fields};
use kilonova_compute_app::volumes::{self, AttachRequest, Change};
use kilonova_compute_app::{Compute, Error, microversions};
use kilonova_compute_db::servers::Server;
use kilonova_compute_db::volumes::{self as rows, AttachmentRow, BlockDevice, State as Reserved};
use kilonova_ids::{AttachmentId, BlockDeviceId, VolumeId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::paging::{MAX_LIMIT, Page};
use kilonova_wire::query::Query;
use kilonova_wire::{JsonBody, Microversion, Refusal};
use serde_json::{Map, Value, json};

use super::find::find;
use crate::api::input::{self, body_schemas};

const SWAP: &str = "os_compute_api:os-volumes-attachments:swap";
const UPDATE: &str = "os_compute_api:os-volumes-attachments:update";

body_schemas!(ATTACH, attach_schema, the_schemas_of_a_new_attachment_compile);
body_schemas!(CHANGE, change_schema, the_schemas_of_a_changed_attachment_compile);

fn uuid() -> Value {
    json!({"type": "string", "format": "uuid"})
}

fn device() -> Value {
    json!({"type": ["string", "null"], "pattern": "(^/dev/x{0,1}[a-z]{0,1}d{0,1})([a-z]+)[0-9]*$"})
}

fn tag() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 60, "pattern": "^[^,/]*$"})
}

fn body(properties: Map<String, Value>, required: Value) -> Value {
    json!({
        "type": "object",
        "properties": {"volumeAttachment": {
            "type": "object", "properties": properties, "required": required,
            "additionalProperties": false,
        }},
        "required": ["volumeAttachment"],
        "additionalProperties": false,
    })
}

fn attach_schema(version: Microversion) -> Value {
    let properties = fields(
        version,
        [
            (microversions::ALWAYS, "volumeId", uuid()),
            (microversions::ALWAYS, "device", device()),
            (microversions::since(microversions::TAGGED_ATTACH), "tag", tag()),
            (
                microversions::since(microversions::VOLUME_DELETION_SHOWN),
                "delete_on_termination",
                schemas::boolean(),
            ),
        ],
    );
    body(properties, json!(["volumeId"]))
}

fn change_schema(version: Microversion) -> Value {
    let since = microversions::since(microversions::CHANGE_VOLUME);
    let properties = fields(
        version,
        [
            (microversions::ALWAYS, "volumeId", uuid()),
            (since, "device", device()),
            (since, "tag", tag()),
            (since, "delete_on_termination", schemas::boolean()),
            (since, "serverId", uuid()),
            (since, "id", uuid()),
        ],
    );
    body(properties, json!(["volumeId"]))
}

/// The volumes of a server, each with its attachment.
fn read(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
) -> Result<Vec<(BlockDevice, Option<AttachmentId>)>, Error> {
    if compute.volumes.is_none() {
        return Ok(Vec::new());
    }
    let devices = volumes::shown(rows::of_server(tx, server.id)?);
    let attachments = current(&rows::attachments(tx, server.id)?, server);
    Ok(devices
        .into_iter()
        .map(|device| {
            let attachment = attachments.get(&device.id).copied();
            (device, attachment)
        })
        .collect())
}

/// The attachment of each device: the one on the server's host, if there are several.
fn current(rows: &[AttachmentRow], server: &Server) -> HashMap<BlockDeviceId, AttachmentId> {
    let mut found = HashMap::new();
    for row in rows.iter().filter(|row| row.state != Reserved::Ending) {
        let Some(id) = row.attachment else { continue };
        if row.host.is_some() && row.host == server.host {
            found.insert(row.device, id);
        } else {
            found.entry(row.device).or_insert(id);
        }
    }
    found
}

/// The view of a volume; `None` if it must contain the attachment's id and there is no attachment yet.
fn view(
    server: &Server,
    device: &BlockDevice,
    attachment: Option<AttachmentId>,
    version: Microversion,
) -> Option<Value> {
    let volume = device.volume?;
    let mut view = Map::new();
    if version < microversions::ATTACHMENT_IDS {
        view.insert("id".into(), json!(volume));
    }
    view.insert("volumeId".into(), json!(volume));
    view.insert("serverId".into(), json!(server.id));
    view.insert("device".into(), json!(path(device)));
    if version >= microversions::INTERFACE_TAGS {
        view.insert("tag".into(), json!(device.tag));
    }
    if version >= microversions::VOLUME_DELETION_SHOWN {
        view.insert("delete_on_termination".into(), json!(device.delete_on_termination));
    }
    if version >= microversions::ATTACHMENT_IDS {
        view.insert("attachment_id".into(), json!(attachment?));
        view.insert("bdm_uuid".into(), json!(device.id));
    }
    Some(Value::Object(view))
}

fn path(device: &BlockDevice) -> String {
    format!("/dev/{}", device.device)
}

pub(super) async fn list(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    if version >= microversions::STRICT_REQUESTS {
        input::check_query_keys(&query, &["limit", "offset"])?;
    }
    // Upstream's `common.limited` treats 0 as no limit.
    let limit = match Page::read(&query)?.limit {
        0 => MAX_LIMIT,
        limit => limit,
    };
    let offset = match query.get("offset") {
        None | Some("") => 0,
        Some(text) => text.parse::<usize>().map_err(|_| {
            input::invalid_query("offset", text, "offset must be a non-negative integer.")
        })?,
    };
    let service = compute.clone();
    let found = compute.store.read(move |tx| {
        let server = find(tx, &caller, &id)?;
        let list = read(tx, &service, &server)?;
        Ok::<_, Error>((server, list))
    });
    let (server, list) = found.await?;
    let views = list.iter().filter_map(|(device, id)| view(&server, device, *id, version));
    let views: Vec<Value> = views.skip(offset).take(limit).collect();
    Ok(Json(json!({"volumeAttachments": views})))
}

pub(super) async fn show(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    Path((id, volume)): Path<(String, String)>,
) -> Result<Json<Value>, Refusal> {
    let service = compute.clone();
    let found = compute.store.read(move |tx| {
        let server = find(tx, &caller, &id)?;
        let list = read(tx, &service, &server)?;
        Ok::<_, Error>((server, list))
    });
    let (server, list) = found.await?;
    let wanted = parse_uuid_like::<VolumeId>(&volume);
    let found = list.iter().find(|(device, _)| device.volume.is_some() && device.volume == wanted);
    let shown = found.and_then(|(device, id)| view(&server, device, *id, version));
    let shown = shown.ok_or_else(|| not_attached(&compute, &server, &volume))?;
    Ok(Json(json!({"volumeAttachment": shown})))
}

/// 404 for a volume that is not attached to the server.
fn not_attached(compute: &Compute, server: &Server, volume: &str) -> Refusal {
    let volume = volume.escape_debug();
    if compute.volumes.is_none() {
        let why = "this cloud has no volumes.";
        return Refusal::not_found(format!("Volume {volume} could not be found: {why}"));
    }
    Refusal::not_found(format!("Instance {} is not attached to volume {volume}", server.id))
}

/// Finds the server that a request changes, and checks the route's rule.
async fn target(compute: &Compute, caller: &Caller, id: String) -> Result<Server, Refusal> {
    let caller = caller.clone();
    Ok(compute.store.read(move |tx| find(tx, &caller, &id)).await?)
}

pub(super) async fn attach(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Response, Refusal> {
    ATTACH.check(version, &body)?;
    let server = target(&compute, &caller, id).await?;
    let wanted = &body["volumeAttachment"];
    let volume = wanted["volumeId"].as_str().unwrap_or_default();
    let request = AttachRequest {
        volume: parse_uuid_like(volume)
            .ok_or_else(|| Refusal::not_found(format!("Volume {volume} could not be found.")))?,
        device: wanted["device"].as_str().map(str::to_owned),
        tag: wanted["tag"].as_str().map(str::to_owned),
        delete_on_termination: input::boolean(&wanted["delete_on_termination"]),
        knows_multiattach: version >= microversions::MULTIATTACH,
        knows_shelved: version >= microversions::SHELVED_VOLUMES,
    };
    let device = volumes::attach(&compute, &caller, &server, &request).await?;
    if version >= microversions::ATTACH_WITHOUT_BODY {
        return Ok(StatusCode::ACCEPTED.into_response());
    }
    let mut shown = json!({
        "id": device.volume, "volumeId": device.volume, "serverId": server.id,
        "device": path(&device),
    });
    if version >= microversions::INTERFACE_TAGS {
        shown["tag"] = json!(device.tag);
    }
    if version >= microversions::VOLUME_DELETION_SHOWN {
        shown["delete_on_termination"] = json!(device.delete_on_termination);
    }
    Ok(Json(json!({"volumeAttachment": shown})).into_response())
}

pub(super) async fn update(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    Path((id, volume)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Result<StatusCode, Refusal> {
    CHANGE.check(version, &body)?;
    let server = target(&compute, &caller, id).await?;
    let wanted = body["volumeAttachment"].clone();
    let is_swap = wanted["volumeId"].as_str().and_then(parse_uuid_like::<VolumeId>)
        != parse_uuid_like(&volume);
    let owner = super::find::target(&server);
    if version < microversions::CHANGE_VOLUME || is_swap {
        caller.may(SWAP, &owner)?;
    } else {
        caller.may(UPDATE, &owner)?;
    }
    let service = compute.clone();
    let found = server.clone();
    let list = compute.store.read(move |tx| read(tx, &service, &found)).await?;
    let parsed = parse_uuid_like::<VolumeId>(&volume);
    let device = list.into_iter().find(|(one, _)| one.volume.is_some() && one.volume == parsed);
    let Some((device, _)) = device else { return Err(not_attached(&compute, &server, &volume)) };
    if is_swap || version < microversions::CHANGE_VOLUME {
        return Err(Refusal::conflict(format!(
            "volume {volume} is not migrating; this API should only be called by Cinder"
        )));
    }
    let is_same = |key: &str, now: Value| wanted.get(key).is_none_or(|sent| *sent == now);
    for (key, now) in [
        ("id", json!(device.volume)),
        ("serverId", json!(server.id)),
        ("device", json!(path(&device))),
        ("tag", json!(device.tag)),
    ] {
        if !is_same(key, now) {
            return Err(Refusal::bad_request(format!("The {key} property is not mutable")));
        }
    }
    let deletes = wanted.get("delete_on_termination").map(input::boolean);
    let change = Change { delete_on_termination: deletes };
    let volume = parsed.ok_or_else(|| not_attached(&compute, &server, &volume))?;
    compute.store.write(move |tx| volumes::change(tx, &server, volume, change)).await?;
    Ok(StatusCode::ACCEPTED)
}

pub(super) async fn detach(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    Path((id, volume)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    let server = target(&compute, &caller, id).await?;
    let Some(parsed) = parse_uuid_like::<VolumeId>(&volume) else {
        return Err(not_attached(&compute, &server, &volume));
    };
    let knows_shelved = version >= microversions::SHELVED_VOLUMES;
    volumes::detach(&compute, &caller, &server, parsed, knows_shelved).await?;
    Ok(StatusCode::ACCEPTED)
}
