//! `rebuild`: the same server on new disks, with its present devices.

use std::collections::BTreeMap;

use axum::Json;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderValue, StatusCode, header};
use kilonova_compute_app::actions::ServerAction;
use kilonova_compute_app::flows::{self, Rebuild, ServerCommand};
use kilonova_compute_app::microversions::{FILES_GONE, REBUILD_KEY, STRICT_REQUESTS};
use kilonova_compute_app::{Error, boot, nics, resolve, states, unsupported};
use kilonova_compute_db::server_groups;
use kilonova_compute_db::servers::{self, Server};
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::Refusal;
use serde_json::{Value, json};

use super::super::schema::check_effect;
use super::super::show::without_extensions;
use super::super::view::{Detail, ViewContext, Visibility};
use super::super::{create, metadata};
use super::ActionRequest;
use crate::api::input;

/// The body of the action, with all checks done that need no database.
struct RebuildRequest {
    fields: Value,
    image: ImageId,
    metadata: Option<BTreeMap<String, String>>,
}

pub(super) async fn act(request: ActionRequest) -> Result<Response, Refusal> {
    let rebuild = read(&request)?;
    let given = rebuild.fields["adminPass"].as_str().map(str::to_owned);
    let password = given.unwrap_or_else(create::generate_password);
    let view_data =
        (request.compute.clone(), request.caller.clone(), request.base.clone(), request.version);
    let (server, group, nics) = request
        .write(move |tx, request, server, now| {
            states::allow(&request.context, server, ServerAction::Rebuild)?;
            let server = apply(tx, request, server, &rebuild, now)?;
            let host = server.host.as_deref().unwrap_or_default();
            let command = ServerCommand::Rebuild(Box::new(Rebuild {
                name: server.name.clone(),
                image: Some(rebuild.image),
                machine: boot::machine::of(&server.spec, &server.spec.flavor),
                guest: boot::guest_metadata(&request.compute, &server, host),
            }));
            flows::command(tx, &request.compute, &request.context, &server, &command, now)?;
            let group = server_groups::of_server(tx, server.id)?;
            let current = servers::find(tx, server.id)?.unwrap_or(server);
            let nics = nics::look(tx, [&current])?;
            Ok((current, group, nics))
        })
        .await?;
    let (compute, caller, base, version) = view_data;
    let view_context = ViewContext {
        base: &base,
        version,
        visibility: Visibility::of(&caller),
        compute: &compute,
        group: Some(group),
        nics: &nics,
    };
    let mut shown = shown(&server, &view_context)?;
    shown["adminPass"] = password.into();
    let mut response = (StatusCode::ACCEPTED, Json(json!({"server": shown}))).into_response();
    let location = format!("{}/v2.1/servers/{}", base.0, server.id);
    if let Ok(value) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    Ok(response)
}

fn read(request: &ActionRequest) -> Result<RebuildRequest, Refusal> {
    let fields = request.argument.clone();
    let named = fields["imageRef"].as_str().unwrap_or_default();
    let image = parse_uuid_like(named).ok_or_else(|| {
        Refusal::bad_request(format!(
            "Invalid imageRef provided: {} is not a uuid.",
            named.escape_debug()
        ))
    })?;
    if let Some(name) = fields["name"].as_str() {
        input::check_name("name", name.trim())?;
    }
    let user_data = fields["user_data"].as_str();
    if user_data.is_some_and(|data| BASE64_STANDARD.decode(data).is_err()) {
        return Err(Refusal::bad_request(
            "Invalid input for field/attribute user_data. It is not base64.",
        ));
    }
    if input::boolean(&fields["preserve_ephemeral"]) {
        return Err(Refusal::bad_request(
            "The current driver does not support preserving ephemeral partitions.",
        ));
    }
    if fields["trusted_image_certificates"].is_array() {
        request.caller.may_own("os_compute_api:servers:rebuild:trusted_certs")?;
    }
    check_effect(&fields)?;
    let metadata = fields.get("metadata").map(metadata::parse).transpose()?;
    metadata.as_ref().map_or(Ok(()), metadata::check_count)?;
    Ok(RebuildRequest { fields, image, metadata })
}

/// Writes the new values to the server's row.
fn apply(
    tx: &mut Tx<'_>,
    request: &ActionRequest,
    server: &Server,
    rebuild: &RebuildRequest,
    now: i64,
) -> Result<Server, Error> {
    let mut server = server.clone();
    let fields = &rebuild.fields;
    let text = |key: &str| fields[key].as_str().map(str::to_owned);
    let flavor = server.spec.flavor.clone();
    server.spec.image_properties =
        resolve::image(tx, &request.compute, &request.context, rebuild.image, &flavor)?;
    unsupported::image(rebuild.image, &server.spec.image_properties)?;
    server.spec.image = Some(rebuild.image);
    server.spec.config_drive |= boot::machine::needs_config_drive(&server.spec.image_properties);
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
            server.spec.access[index] = input::canonical_address(address);
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
    if let Some(metadata) = &rebuild.metadata {
        servers::set_metadata(tx, server.id, metadata, now)?;
        server.metadata.clone_from(metadata);
    }
    Ok(server)
}

/// The view of the rebuilt server. Before 2.75 it lacks the keys that only `GET` shows.
fn shown(server: &Server, view_context: &ViewContext<'_>) -> Result<Value, Refusal> {
    let mut shown =
        serde_json::to_value(Detail::of(server, view_context)).map_err(Refusal::internal)?;
    let Some(keys) = shown.as_object_mut() else { return Ok(shown) };
    if view_context.version < STRICT_REQUESTS {
        without_extensions(keys);
        if view_context.version < REBUILD_KEY {
            keys.remove("key_name");
        }
    }
    keys.remove("OS-EXT-SRV-ATTR:user_data");
    if view_context.version >= FILES_GONE {
        keys.insert("user_data".to_owned(), json!(server.spec.user_data));
    }
    Ok(shown)
}
