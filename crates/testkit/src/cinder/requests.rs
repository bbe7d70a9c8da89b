//! The requests of the API, with the checks and the messages of the real Cinder.

mod snapshots;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::Identity;
use super::state::{Backend, FakeAttachment, FakeVolume, State, new_id};

type Answer = (StatusCode, Value);

/// A request.
pub(crate) struct Request<'a> {
    pub method: &'a Method,
    pub path: &'a str,
    pub query: &'a str,
    pub body: &'a Value,
}

fn refuse(status: u16, kind: &str, message: impl Into<String>) -> Answer {
    let code = StatusCode::from_u16(status).expect("a status");
    (code, json!({kind: {"code": status, "message": message.into()}}))
}

fn bad(message: impl Into<String>) -> Answer {
    refuse(400, "badRequest", message)
}

fn not_found(what: &str, id: &str) -> Answer {
    refuse(404, "itemNotFound", format!("{what} {id} could not be found."))
}

fn ok(body: Value) -> Answer {
    (StatusCode::OK, body)
}

/// The decoded value of a key of a query.
fn parameter(query: &str, key: &str) -> Option<String> {
    let pair = query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))?;
    let mut bytes = Vec::new();
    let mut rest = pair.bytes();
    while let Some(byte) = rest.next() {
        let hex: Vec<u8> = if byte == b'%' { rest.by_ref().take(2).collect() } else { vec![] };
        let hex = std::str::from_utf8(&hex).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(hex.unwrap_or(byte));
    }
    String::from_utf8(bytes).ok()
}

/// Refuses a body without the object, and fields that Cinder's schemas do not allow.
fn check(body: &Value, key: &str, allowed: &[&str]) -> Result<(), Answer> {
    let object = body[key].as_object();
    let Some(object) = object else {
        return Err(bad(format!("'{key}' is a required property")));
    };
    match object.keys().find(|field| !allowed.contains(&field.as_str())) {
        Some(field) => {
            Err(bad(format!("Additional properties are not allowed ('{field}' was unexpected)")))
        }
        None => Ok(()),
    }
}

/// Answers one request.
pub(crate) fn answer(state: &mut State, by: &Identity, request: &Request<'_>) -> Answer {
    let path = request.path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let body = request.body;
    match (request.method.as_str(), parts.as_slice()) {
        ("GET", ["types"]) => {
            let types = state.types.iter().map(|(id, name)| json!({"id": id, "name": name}));
            ok(json!({"volume_types": types.collect::<Vec<_>>()}))
        }
        ("GET", ["limits"]) => {
            let used = state.snapshots.len();
            let most = state.snapshot_limit.unwrap_or(-1);
            let absolute = json!({"totalSnapshotsUsed": used, "maxTotalSnapshots": most});
            ok(json!({"limits": {"rate": [], "absolute": absolute}}))
        }
        ("GET", ["volumes"]) => ok(json!({"volumes": []})),
        ("GET", ["volumes", "detail"]) => list_volumes(state, by, request.query),
        ("POST", ["volumes"]) => create_volume(state, by, body),
        (_, ["volumes", id, ..]) if !sees(state, by, id) => not_found("Volume", id),
        ("GET", ["volumes", id]) => {
            create_on(state, id);
            ok(json!({"volume": volume_view(state, by, id)}))
        }
        ("DELETE", ["volumes", id]) => delete_volume(state, id),
        ("POST", ["volumes", id, "action"]) => act(state, by, id, body),
        ("GET", ["snapshots", "detail"]) => snapshots::list(state, by, request.query),
        ("POST", ["snapshots"]) => snapshots::create(state, by, body),
        (_, ["snapshots", id]) if !snapshots::sees(state, by, id) => not_found("Snapshot", id),
        ("GET", ["snapshots", id]) => ok(json!({"snapshot": snapshots::show(state, id)})),
        ("DELETE", ["snapshots", id]) => snapshots::delete(state, id),
        (_, ["attachments", ..]) if by.version < 27 => {
            refuse(404, "itemNotFound", "The resource could not be found.")
        }
        ("GET", ["attachments", "detail"]) => list_attachments(state, by, request.query),
        ("POST", ["attachments"]) => create_attachment(state, by, body),
        (_, ["attachments", id, ..]) if !state.attachments.contains_key(*id) => {
            not_found("Volume attachment could not be found with filter: attachment_id =", id)
        }
        ("GET", ["attachments", id]) => ok(json!({"attachment": attachment_view(state, id)})),
        ("PUT", ["attachments", id]) => update_attachment(state, id, body),
        ("POST", ["attachments", id, "action"]) => complete(state, by, id, body),
        ("DELETE", ["attachments", id]) => delete_attachment(state, by, id),
        _ => refuse(404, "itemNotFound", "The resource could not be found."),
    }
}

fn sees(state: &State, by: &Identity, id: &str) -> bool {
    state.volumes.get(id).is_some_and(|volume| by.admin || volume.project == by.project)
}

/// Advances the creation of a volume, or the replacement of its data, with each request that reads it.
fn create_on(state: &mut State, id: &str) {
    let fails = state.creation_fails;
    let Some(volume) = state.volumes.get_mut(id) else { return };
    let is_new = volume.status == "creating";
    let image = volume.reimaged.clone().filter(|_| volume.status == "downloading");
    if !is_new && image.is_none() {
        return;
    }
    if volume.creating > 0 {
        volume.creating -= 1;
        return;
    }
    let Some((image, before)) = image else {
        volume.status = if fails { "error" } else { "available" }.to_owned();
        return;
    };
    volume.reimaged = None;
    volume.status = if fails { "error".to_owned() } else { before };
    if !fails {
        volume.more.insert("volume_image_metadata".into(), json!({"image_id": image}));
        volume.more.insert("bootable".into(), json!("true"));
    }
}

fn volume_view(state: &State, by: &Identity, id: &str) -> Value {
    let volume = &state.volumes[id];
    let attachments = state.attachments_of(id);
    let attachments = attachments.iter().filter(|(_, one)| one.status != "reserved");
    let attachments: Vec<Value> = attachments
        .map(|(attachment, one)| {
            json!({
                "id": id, "volume_id": id, "server_id": one.server, "attachment_id": attachment,
                "host_name": one.connector["host"], "device": one.connector["mountpoint"],
                "attached_at": "2026-11-24T02:34:48.000000",
            })
        })
        .collect();
    let mut view = json!({
        "id": id, "name": "", "description": null, "status": volume.status, "size": volume.size,
        "availability_zone": "nova", "volume_type": "ceph", "multiattach": false,
        "bootable": "false", "encrypted": false, "metadata": {}, "snapshot_id": null,
        "source_volid": null, "migration_status": null, "attachments": attachments,
        "created_at": "2026-11-24T02:34:48.000000", "updated_at": null, "links": [],
    });
    if let Some(fields) = view.as_object_mut() {
        fields.extend(volume.more.clone());
        if by.version >= 48 {
            fields.insert("shared_targets".into(), json!(volume.backend == Backend::Iscsi));
            fields.insert("service_uuid".into(), json!("0fd22d51-2a3a-4b16-8ef0-4d2f3a5a4c11"));
        }
        if by.admin {
            fields.insert("os-vol-tenant-attr:tenant_id".into(), json!(volume.project));
        }
    }
    view
}

/// True if metadata have the pair that a filter names.
fn has_metadata(metadata: Option<&Value>, filter: Option<&str>) -> bool {
    filter.is_none_or(|filter| {
        metadata.and_then(Value::as_object).into_iter().flatten().any(|(key, value)| {
            *filter == format!("{{'{key}': '{}'}}", value.as_str().unwrap_or_default())
        })
    })
}

fn list_volumes(state: &State, by: &Identity, query: &str) -> Answer {
    let filter = parameter(query, "metadata");
    let everywhere = by.admin && parameter(query, "all_tenants").is_some();
    let own = state.volumes.iter().filter(|(_, volume)| {
        let fits = has_metadata(volume.more.get("metadata"), filter.as_deref());
        fits && (everywhere || volume.project == by.project)
    });
    let views: Vec<Value> = own.map(|(id, _)| volume_view(state, by, id)).collect();
    ok(json!({"volumes": views}))
}

fn create_volume(state: &mut State, by: &Identity, body: &Value) -> Answer {
    let allowed = [
        "size",
        "name",
        "description",
        "volume_type",
        "availability_zone",
        "metadata",
        "imageRef",
        "snapshot_id",
    ];
    if let Err(refusal) = check(body, "volume", &allowed) {
        return refusal;
    }
    let asked = &body["volume"];
    if let Some(name) = asked["volume_type"].as_str()
        && !state.types.iter().any(|(id, known)| id == name || known == name)
    {
        return refuse(
            404,
            "itemNotFound",
            format!("Volume type with name {name} could not be found."),
        );
    }
    let mut size = asked["size"].as_i64();
    let mut bootable = asked["imageRef"].is_string();
    if let Some(snapshot) = asked["snapshot_id"].as_str() {
        if !snapshots::sees(state, by, snapshot) {
            return not_found("Snapshot", snapshot);
        }
        let found = &state.snapshots[snapshot];
        if found["status"] != "available" {
            return bad(
                "Invalid snapshot: Originating snapshot status must be one of available values",
            );
        }
        let least = found["size"].as_i64().unwrap_or_default();
        if size.is_some_and(|size| size < least) {
            let size = size.unwrap_or_default();
            return bad(format!(
                "Invalid input received: Volume size '{size}'GB cannot be smaller than the snapshot \
                 size {least}GB. They must be >= original snapshot size."
            ));
        }
        size = size.or(Some(least));
        let of = found["volume_id"].as_str().unwrap_or_default();
        bootable |= state.volumes.get(of).is_some_and(|volume| volume.flag("bootable"));
    }
    let Some(size) = size.filter(|size| *size > 0) else {
        return bad("Invalid input received: Volume size must be an integer and greater than 0");
    };
    let id = new_id();
    let mut volume = FakeVolume {
        project: by.project.clone(),
        status: "creating".into(),
        size,
        creating: state.creating,
        ..FakeVolume::default()
    };
    for key in
        ["name", "description", "metadata", "snapshot_id", "volume_type", "availability_zone"]
    {
        if !asked[key].is_null() {
            volume.more.insert(key.into(), asked[key].clone());
        }
    }
    if bootable {
        volume.more.insert("bootable".into(), json!("true"));
    }
    state.volumes.insert(id.clone(), volume);
    (StatusCode::ACCEPTED, json!({"volume": volume_view(state, by, &id)}))
}

fn delete_volume(state: &mut State, id: &str) -> Answer {
    let has_snapshots = state.snapshots.values().any(|one| one["volume_id"] == id);
    let is_attached = state.attachments.values().any(|one| one.volume == id);
    let status = state.status(id);
    if !["available", "error"].contains(&status.as_str()) || has_snapshots || is_attached {
        return bad(
            "Invalid volume: Volume status must be available or error or error_restoring or \
             error_extending or error_managing and must not be migrating, attached, belong to a group, \
             have snapshots, awaiting a transfer, or be disassociated from snapshots after volume \
             transfer.",
        );
    }
    state.volumes.remove(id);
    (StatusCode::ACCEPTED, Value::Null)
}

/// `reimage` of the API.
fn reimage(state: &mut State, by: &Identity, id: &str, body: &Value) -> Answer {
    if let Err(refusal) = check(body, "os-reimage", &["image_id", "reimage_reserved"]) {
        return refusal;
    }
    let asked = &body["os-reimage"];
    let mut states = vec!["available", "error"];
    if asked["reimage_reserved"] == true {
        states.push("reserved");
    }
    if by.version < 68 {
        return bad("There is no such action: os-reimage");
    }
    let creating = state.creating;
    let volume = state.volume_mut(id);
    if !states.contains(&volume.status.as_str()) {
        let status = &volume.status;
        let states = states.join(", ");
        return bad(format!(
            "Invalid volume: Volume {id} status must be {states} to reimage, but the current status is {status}."
        ));
    }
    let image = asked["image_id"].as_str().unwrap_or_default().to_owned();
    volume.reimaged = Some((image, std::mem::replace(&mut volume.status, "downloading".into())));
    volume.creating = creating;
    (StatusCode::ACCEPTED, Value::Null)
}

fn act(state: &mut State, by: &Identity, id: &str, body: &Value) -> Answer {
    let action = body.as_object().and_then(|body| body.keys().next()).cloned().unwrap_or_default();
    let status = state.status(id);
    match action.as_str() {
        "os-begin_detaching" => {
            if status != "in-use" {
                return bad(
                    "Invalid volume: Unable to detach volume. Volume status must be 'in-use' and \
                     attach_status must be 'attached' to detach.",
                );
            }
            state.volume_mut(id).status = "detaching".into();
            (StatusCode::ACCEPTED, Value::Null)
        }
        "os-roll_detaching" => {
            if status == "detaching" {
                state.volume_mut(id).status = "in-use".into();
            }
            (StatusCode::ACCEPTED, Value::Null)
        }
        "os-reimage" => reimage(state, by, id, body),
        other => bad(format!("There is no such action: {other}")),
    }
}

fn attachment_view(state: &State, id: &str) -> Value {
    let one = &state.attachments[id];
    json!({
        "id": id, "volume_id": one.volume, "instance": one.server, "status": one.status,
        "attach_mode": "rw", "attached_at": "", "detached_at": "",
        "connection_info": connection(state, id),
    })
}

/// The connection of an attachment, flat as Cinder shows it.
fn connection(state: &State, id: &str) -> Value {
    let one = &state.attachments[id];
    if one.connector.is_null() {
        return json!({});
    }
    let Some(volume) = state.volumes.get(&one.volume) else { return json!({}) };
    let mut info = match volume.backend {
        Backend::Rbd => json!({
            "driver_volume_type": "rbd", "name": format!("volumes/volume-{}", one.volume),
            "hosts": ["127.0.0.1"], "ports": ["6789"], "cluster_name": "ceph", "auth_enabled": true,
            "auth_username": "cinder", "secret_type": "ceph",
            "secret_uuid": "457eb676-33da-42ec-9a8c-9293d545c337", "discard": true,
        }),
        Backend::Iscsi => json!({
            "driver_volume_type": "iscsi", "target_portal": "127.0.0.1:3260",
            "target_iqn": format!("iqn.2010-10.org.openstack:volume-{}", one.volume), "target_lun": 1,
            "target_discovered": false, "auth_method": "CHAP", "auth_username": "user",
            "auth_password": format!("chap-secret-of-{id}"),
        }),
    };
    if let Some(fields) = info.as_object_mut() {
        fields.insert("volume_id".into(), json!(one.volume));
        fields.insert("attachment_id".into(), json!(id));
        fields.insert("access_mode".into(), json!("rw"));
        fields.insert("encrypted".into(), json!(volume.flag("encrypted")));
        fields.insert("qos_specs".into(), Value::Null);
        fields.insert("cacheable".into(), json!(false));
    }
    info
}

fn list_attachments(state: &State, by: &Identity, query: &str) -> Answer {
    let everywhere = by.admin && parameter(query, "all_tenants").is_some();
    let server = parameter(query, "instance_id");
    let own = state.attachments.iter().filter(|(_, one)| {
        let project = state.volumes.get(&one.volume).map(|volume| &volume.project);
        server.as_ref().is_none_or(|server| one.server == *server)
            && (everywhere || project == Some(&by.project))
    });
    let views: Vec<Value> = own.map(|(id, _)| attachment_view(state, id)).collect();
    ok(json!({"attachments": views}))
}

/// `_attachment_reserve`.
fn create_attachment(state: &mut State, by: &Identity, body: &Value) -> Answer {
    let allowed = ["volume_uuid", "instance_uuid", "connector"];
    if let Err(refusal) = check(body, "attachment", &allowed) {
        return refusal;
    }
    let asked = &body["attachment"];
    let text = |key: &str| asked[key].as_str().unwrap_or_default().to_owned();
    let (id, server) = (text("volume_uuid"), text("instance_uuid"));
    if !sees(state, by, &id) {
        return not_found("Volume", &id);
    }
    create_on(state, &id);
    let volume = &state.volumes[&id];
    if volume.status == "error" {
        return bad(format!(
            "Invalid volume: Volume attachments can not be created if the volume is in an error state. The Volume {id} \
             currently has a status of: error "
        ));
    }
    let (status, multiattach) = (volume.status.clone(), volume.flag("multiattach"));
    let mut free = vec!["available", "downloading"];
    if multiattach {
        free.insert(1, "in-use");
    }
    if free.contains(&status.as_str()) {
        state.volume_mut(&id).status = "reserved".into();
    } else if !state.attachments.values().any(|one| one.volume == id && one.server == server) {
        return bad(format!(
            "Invalid volume: Volume {id} status must be {} to reserve, but the current status is \
             {status}.",
            free.join(" or ")
        ));
    }
    state.number += 1;
    let (attachment, number) = (new_id(), state.number);
    let one = FakeAttachment {
        volume: id,
        server,
        status: "reserved".into(),
        connector: Value::Null,
        number,
    };
    state.attachments.insert(attachment.clone(), one);
    if asked["connector"].is_object() {
        let connected =
            connect(state, &attachment, &json!({"attachment": {"connector": asked["connector"]}}));
        if !connected.0.is_success() {
            state.attachments.remove(&attachment);
            return connected;
        }
    }
    ok(json!({"attachment": attachment_view(state, &attachment)}))
}

/// `attachment_update` of the API: it refuses to connect a host while another one is connected, unless the volume is
/// shared. A second host needs [`create_attachment`].
fn update_attachment(state: &mut State, id: &str, body: &Value) -> Answer {
    let volume = state.attachments[id].volume.clone();
    if state.status(&volume) == "error" {
        return refuse(
            409,
            "conflictingRequest",
            format!(
                "ResourceConflict: Volume attachments can not be updated if the volume is in an error state. The Volume \
                 {volume} currently has a status of: error "
            ),
        );
    }
    let all = state.attachments_of(&volume);
    let is_shared = state.volumes.get(&volume).is_some_and(|volume| volume.flag("multiattach"));
    let is_connected = all.iter().any(|(_, one)| !one.connector.is_null());
    if all.len() > 1 && is_connected && !is_shared {
        return refuse(
            409,
            "conflictingRequest",
            format!("ResourceConflict: duplicate connectors detected on volume {volume}"),
        );
    }
    connect(state, id, body)
}

/// `attachment_update` of the backend.
fn connect(state: &mut State, id: &str, body: &Value) -> Answer {
    if let Err(refusal) = check(body, "attachment", &["connector", "mode"]) {
        return refusal;
    }
    let connector = &body["attachment"]["connector"];
    if !connector.is_object() || connector["host"].as_str().unwrap_or_default().is_empty() {
        return bad("Invalid input received: Connector is not valid: it has no host");
    }
    let one = state.attachments[id].clone();
    if state.volumes.get(&one.volume).is_some_and(|volume| volume.backend == Backend::Iscsi)
        && connector["initiator"].as_str().unwrap_or_default().is_empty()
    {
        return bad(
            "Invalid input received: Connector doesn't have required information: initiator",
        );
    }
    let same_host = state.attachments_of(&one.volume).into_iter().any(|(other, attachment)| {
        other != id
            && attachment.server == one.server
            && !attachment.connector.is_null()
            && attachment.connector["host"] == connector["host"]
    });
    if same_host {
        return bad(format!(
            "Invalid input received: Volume {} is already attached to the host of this server",
            one.volume
        ));
    }
    if let Some(attachment) = state.attachments.get_mut(id) {
        attachment.connector = connector.clone();
        if attachment.status == "reserved" {
            attachment.status = "attaching".into();
        }
    }
    let status = state.status(&one.volume);
    if status == "reserved" {
        state.volume_mut(&one.volume).status = "attaching".into();
    }
    let mut view = attachment_view(state, id);
    // The answer still shows the previous status.
    view["status"] = json!(one.status);
    ok(json!({"attachment": view}))
}

fn complete(state: &mut State, by: &Identity, id: &str, body: &Value) -> Answer {
    if by.version < 44 || body.get("os-complete").is_none() {
        return bad("There is no such action");
    }
    let one = state.attachments.get_mut(id).expect("the caller found it");
    one.status = "attached".into();
    let volume = one.volume.clone();
    state.volume_mut(&volume).status = "in-use".into();
    (StatusCode::NO_CONTENT, Value::Null)
}

/// Bug 2004555: a user must not end the attachment of a server that uses it.
fn delete_attachment(state: &mut State, by: &Identity, id: &str) -> Answer {
    let one = state.attachments[id].clone();
    if !one.connector.is_null() && !one.server.is_empty() && !by.service {
        match &state.listed_by_nova {
            None => return refuse(500, "computeFault", "The server has failed."),
            Some(listed) if listed.iter().any(|known| known == id) => {
                return refuse(
                    409,
                    "conflictingRequest",
                    "Detected user call to delete in-use attachment. Call must come from the nova \
                     service and nova must be configured to send the service token. Bug #2004555",
                );
            }
            Some(_) => {}
        }
    }
    state.attachments.remove(id);
    state.settle(&one.volume);
    let left = state.attachments_of(&one.volume);
    let left: Vec<Value> = left.iter().map(|(id, _)| attachment_view(state, id)).collect();
    ok(json!({"attachments": left}))
}
