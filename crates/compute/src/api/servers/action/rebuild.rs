//! `rebuild`: the same server on new disks, with the devices that it has.

use std::collections::BTreeMap;

use axum::Json;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderValue, StatusCode, header};
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::Fault;
use serde_json::{Value, json};

use super::super::schema::check_effect;
use super::super::show::without_extensions;
use super::super::view::{Detail, Scene, Sight};
use super::super::{create, metadata};
use super::ActionRequest;
use crate::Error;
use crate::api::input;
use crate::app::actions::ServerAction;
use crate::app::{boot, nics, resolve, states, unsupported};
use crate::db::server_groups;
use crate::db::servers::{self, Server};
use crate::flows::{self, Rebuild, ServerCommand};
use crate::microversions::{FILES_GONE, REBUILD_KEY, STRICT_REQUESTS};

/// What is to be new, checked as far as that goes without the database.
struct NewServerParts {
    fields: Value,
    image: Option<ImageId>,
    metadata: Option<BTreeMap<String, String>>,
}

pub(super) async fn act(request: ActionRequest) -> Result<Response, Fault> {
    let parts = read(&request)?;
    let given = parts.fields["adminPass"].as_str().map(str::to_owned);
    let password = given.unwrap_or_else(create::password);
    let scene =
        (request.compute.clone(), request.caller.clone(), request.base.clone(), request.version);
    let (server, group, nics) = request
        .write(move |tx, request, server, now| {
            states::allow(&request.context, server, ServerAction::Rebuild)?;
            let server = renew(tx, request, server, &parts, now)?;
            let host = server.host.as_deref().unwrap_or_default();
            let command = ServerCommand::Rebuild(Box::new(Rebuild {
                name: server.name.clone(),
                image: parts.image,
                machine: boot::machine::of(&server.spec, &server.spec.flavor),
                guest: boot::guest_metadata(&request.compute, &server, host),
            }));
            flows::command(tx, &request.compute, &request.context, &server, &command, now)?;
            let group = server_groups::of_server(tx, server.id)?;
            let begun = servers::find(tx, server.id)?.unwrap_or(server);
            let nics = nics::look(tx, [&begun])?;
            Ok((begun, group, nics))
        })
        .await?;
    let (compute, caller, base, version) = scene;
    let scene = Scene {
        base: &base,
        version,
        sight: Sight::of(&caller),
        compute: &compute,
        group: Some(group),
        nics: &nics,
    };
    let mut shown = shown(&server, &scene)?;
    shown["adminPass"] = password.into();
    let mut response = (StatusCode::ACCEPTED, Json(json!({"server": shown}))).into_response();
    let place = format!("{}/v2.1/servers/{}", base.0, server.id);
    if let Ok(value) = HeaderValue::from_str(&place) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    Ok(response)
}

fn read(request: &ActionRequest) -> Result<NewServerParts, Fault> {
    let fields = request.argument.clone();
    let named = fields["imageRef"].as_str().unwrap_or_default();
    let image = parse_uuid_like(named).ok_or_else(|| {
        Fault::bad_request(format!(
            "Invalid imageRef provided: {} is not a uuid.",
            named.escape_debug()
        ))
    })?;
    if let Some(name) = fields["name"].as_str() {
        input::name("name", name.trim())?;
    }
    let user_data = fields["user_data"].as_str();
    if user_data.is_some_and(|data| BASE64_STANDARD.decode(data).is_err()) {
        return Err(Fault::bad_request(
            "Invalid input for field/attribute user_data. It is not base64.",
        ));
    }
    if input::boolean(&fields["preserve_ephemeral"]) {
        return Err(Fault::bad_request(
            "The current driver does not support preserving ephemeral partitions.",
        ));
    }
    if fields["trusted_image_certificates"].is_array() {
        request.caller.may_own("os_compute_api:servers:rebuild:trusted_certs")?;
    }
    check_effect(&fields)?;
    let metadata = fields.get("metadata").map(metadata::parse).transpose()?;
    metadata.as_ref().map_or(Ok(()), metadata::check_count)?;
    Ok(NewServerParts { fields, image: Some(image), metadata })
}

/// Writes down what is new of the server.
fn renew(
    tx: &mut Tx<'_>,
    request: &ActionRequest,
    server: &Server,
    parts: &NewServerParts,
    now: i64,
) -> Result<Server, Error> {
    let mut server = server.clone();
    let fields = &parts.fields;
    let text = |key: &str| fields[key].as_str().map(str::to_owned);
    if let Some(image) = parts.image {
        let flavor = server.spec.flavor.clone();
        server.spec.image_properties =
            resolve::image(tx, &request.compute, &request.context, image, &flavor)?;
        unsupported::image(image, &server.spec.image_properties)?;
        server.spec.image = Some(image);
        server.spec.config_drive |=
            boot::machine::needs_config_drive(&server.spec.image_properties);
    }
    if let Some(name) = text("name") {
        name.trim().clone_into(&mut server.name);
    }
    if fields.get("description").is_some() {
        server.description = text("description");
    }
    if fields.get("key_name").is_some() {
        server.spec.key_name = text("key_name");
        server.spec.key = match &server.spec.key_name {
            Some(name) => Some(resolve::key_pair(tx, &server.user_id, name)?),
            None => None,
        };
    }
    if fields.get("user_data").is_some() {
        server.spec.user_data = text("user_data");
    }
    if let Some(hostname) = text("hostname") {
        server.spec.hostname = hostname;
    }
    if let Some(kind) = text("OS-DCF:diskConfig") {
        server.spec.disk_config = kind;
    }
    for (index, key) in ["accessIPv4", "accessIPv6"].into_iter().enumerate() {
        if let Some(address) = text(key) {
            server.spec.access[index] = input::address(address);
        }
    }
    servers::set_text(
        tx,
        server.id,
        &server.name,
        server.description.as_deref(),
        &server.spec,
        now,
    )?;
    if let Some(metadata) = &parts.metadata {
        servers::set_metadata(tx, server.id, metadata, now)?;
        server.metadata.clone_from(metadata);
    }
    Ok(server)
}

/// The server as `rebuild` shows it: before 2.75 without what came from extensions of `GET`.
fn shown(server: &Server, scene: &Scene<'_>) -> Result<Value, Fault> {
    let mut shown = serde_json::to_value(Detail::of(server, scene)).map_err(Fault::internal)?;
    let Some(keys) = shown.as_object_mut() else { return Ok(shown) };
    if scene.version < STRICT_REQUESTS {
        without_extensions(keys);
        if scene.version < REBUILD_KEY {
            keys.remove("key_name");
        }
    }
    keys.remove("OS-EXT-SRV-ATTR:user_data");
    if scene.version >= FILES_GONE {
        keys.insert("user_data".to_owned(), json!(server.spec.user_data));
    }
    Ok(shown)
}
