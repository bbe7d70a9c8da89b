//! `rebuild`: the same server on new disks, with its current devices.

use std::collections::BTreeMap;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use kilonova_access::Caller;
use kilonova_compute_app::actions::ServerAction;
use kilonova_compute_app::flows::{self, Rebuild, ServerCommand};
use kilonova_compute_app::images::SeenImages;
use kilonova_compute_app::microversions::{
    FILES_GONE, REBUILD_KEY, STRICT_REQUESTS, VOLUME_REIMAGED_EVENT,
};
use kilonova_compute_app::volumes::RootVolume;
use kilonova_compute_app::volumes::resolve::{RootImage, root_properties};
use kilonova_compute_app::{
    Error, boot, image_numbers, ports, quotas, resolve, states, unsupported, user_data, volumes,
};
use kilonova_compute_db::server_groups;
use kilonova_compute_db::servers::{self, Server};
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_node_api::InjectedFile;
use kilonova_store::Tx;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;
use serde_json::{Value, json};

use super::super::schema::check_effect;
use super::super::show::without_extensions;
use super::super::view::{Detail, Progresses, ViewContext, Visibility};
use super::super::{create, metadata, personality};
use super::ActionRequest;
use crate::api::input;

/// A request to rebuild a server. An outer `None` leaves the field unchanged; an inner `None` clears
/// it.
struct RebuildServer {
    image: ImageId,
    name: Option<String>,
    description: Option<Option<String>>,
    key_name: Option<Option<String>>,
    metadata: Option<BTreeMap<String, String>>,
    /// Base64, as sent.
    user_data: Option<Option<String>>,
    /// The files for the config drive, as sent. They replace earlier ones in any case, as upstream.
    files: Vec<InjectedFile>,
    /// The host name inside the guest.
    hostname: Option<String>,
    /// `accessIPv4` and `accessIPv6` in canonical form.
    access: [Option<String>; 2],
    /// `AUTO` or `MANUAL`.
    disk_config: Option<String>,
    /// The requested password, or a generated one.
    admin_password: String,
}

pub(super) async fn act(request: ActionRequest) -> Result<Response, Refusal> {
    let rebuild = RebuildServer::read(&request.argument, &request.caller)?;
    let password = rebuild.admin_password.clone();
    let view_data =
        (request.compute.clone(), request.caller.clone(), request.base.clone(), request.version);
    let seen = request.compute.images.look_up(&request.context, [rebuild.image]).await?;
    let root = match request.volume_backed(None).await? {
        Some(server) => {
            let knows = request.version >= VOLUME_REIMAGED_EVENT;
            let (compute, context) = (&request.compute, &request.context);
            Some(volumes::root_to_rebuild(compute, context, &server, rebuild.image, knows).await?)
        }
        None => None,
    };
    let (server, group, ports, volumes) = request
        .write_with(flows::expect_change, move |tx, request, server, now| {
            states::allow(&request.context, server, ServerAction::Rebuild)?;
            if root.is_none() {
                let why = "Unable to rebuild with a different image for a volume-backed server.";
                states::refuse_volume_root(server, why)?;
            }
            let server = apply(tx, request, server, (&seen, root), &rebuild, now)?;
            let reimages = root.is_some_and(|root| root.is_replaced);
            if let Some(root) = root.filter(|root| root.is_replaced) {
                volumes::begin_reimage(tx, root, rebuild.image)?;
            }
            let guest = boot::guest_metadata(tx, &request.compute, &server, server.host.as_ref())?;
            let command = ServerCommand::Rebuild(Box::new(Rebuild {
                name: server.name.clone(),
                image: server.spec.image,
                reimages,
                machine: boot::machine::of(&server.spec, &server.spec.flavor),
                guest,
            }));
            flows::command(tx, &request.compute, &request.context, &server, &command, now)?;
            let group = server_groups::of_server(tx, server.id)?;
            let current = servers::find(tx, server.id)?.unwrap_or(server);
            let ports = ports::connections(tx, &*request.compute.networks, [&current])?;
            let volumes = volumes::of_servers(tx, &request.compute, &[current.id])?;
            Ok((current, group, ports, volumes))
        })
        .await?;
    let (compute, caller, base, version) = view_data;
    let view_context = ViewContext {
        base: &base,
        version,
        visibility: Visibility::of(&caller),
        compute: &compute,
        group: Some(group),
        ports: &ports,
        volumes: &volumes,
        // A rebuilt server is not being migrated.
        progress: &Progresses::new(),
    };
    let mut shown = shown(&server, &view_context)?;
    shown["adminPass"] = password.into();
    let mut response = (StatusCode::ACCEPTED, Json(json!({"server": shown}))).into_response();
    let location = format!("{}/servers/{}", base.versioned(), server.id);
    if let Ok(value) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    Ok(response)
}

impl RebuildServer {
    /// Reads the argument and performs all checks that need no database. The order of the checks is
    /// visible to clients and must not change.
    ///
    /// # Errors
    /// 400 naming the field; 403 for fields that the policy does not let the caller set.
    fn read(argument: &Value, caller: &Caller) -> Result<Self, Refusal> {
        let string = |key: &str| argument[key].as_str().map(str::to_owned);
        let nullable = |key: &str| argument.get(key).map(|value| value.as_str().map(str::to_owned));
        let named = argument["imageRef"].as_str().unwrap_or_default();
        let image = parse_uuid_like(named).ok_or_else(|| {
            Refusal::bad_request(format!(
                "Invalid imageRef provided: {} is not a uuid.",
                named.escape_debug()
            ))
        })?;
        let name = string("name").map(|name| name.trim().to_owned());
        if let Some(name) = &name {
            input::check_name("name", name)?;
        }
        let encoded = nullable("user_data");
        if encoded.iter().flatten().any(|data| user_data::decode(data).is_err()) {
            return Err(Refusal::bad_request(
                "Invalid input for field/attribute user_data. It is not base64.",
            ));
        }
        if input::boolean(&argument["preserve_ephemeral"]) {
            return Err(Refusal::bad_request(
                "The current driver does not support preserving ephemeral partitions.",
            ));
        }
        if argument["trusted_image_certificates"].is_array() {
            caller.may_own("os_compute_api:servers:rebuild:trusted_certs")?;
        }
        check_effect(argument)?;
        let files = personality::read(argument)?;
        let metadata = argument.get("metadata").map(metadata::parse).transpose()?;
        Ok(Self {
            image,
            name,
            description: nullable("description"),
            key_name: nullable("key_name"),
            metadata,
            user_data: encoded,
            files,
            hostname: string("hostname"),
            access: ["accessIPv4", "accessIPv6"]
                .map(|key| string(key).map(input::canonical_address)),
            disk_config: string("OS-DCF:diskConfig"),
            admin_password: string("adminPass").unwrap_or_else(create::generate_password),
        })
    }
}

/// Writes the new values to the server's row.
fn apply(
    tx: &mut Tx<'_>,
    request: &ActionRequest,
    server: &Server,
    (seen, root): (&SeenImages, Option<RootVolume>),
    rebuild: &RebuildServer,
    now: Timestamp,
) -> Result<Server, Error> {
    let RebuildServer {
        image,
        name,
        description,
        key_name,
        metadata,
        user_data,
        files,
        hostname,
        access,
        disk_config,
        admin_password: _,
    } = rebuild;
    let mut server = server.clone();
    let flavor = server.spec.flavor.clone();
    let (compute, context) = (&request.compute, &request.context);
    if metadata.is_some() || !files.is_empty() {
        let items = metadata.as_ref().map_or(0, BTreeMap::len);
        quotas::ask_request_limits(tx, context)?.check(tx, items, files)?;
    }
    let before = server.spec.image_properties.clone();
    let is_other_image = match root {
        Some(root) => root.is_replaced,
        None => server.spec.image != Some(*image),
    };
    server.spec.image_properties = match root {
        Some(root) => {
            let root = RootImage::of(*image, root.size_gb);
            root_properties(tx, compute, context, seen, &root, &flavor)?
        }
        None => {
            let properties = resolve::image(tx, compute, context, seen, *image, &flavor)?;
            server.spec.image = Some(*image);
            properties
        }
    };
    unsupported::rebuild(*image, &flavor, &before, &server.spec.image_properties)?;
    volumes::check_in_use(tx, compute, &server, Kind::BadRequest)?;
    if is_other_image {
        let properties = &server.spec.image_properties;
        boot::machine::check_new(properties, &flavor, server.spec.config_drive)?;
        boot::check_image_traits(tx, compute, &server)?;
    }
    server.spec.image_numbers = image_numbers::of_changed(tx, &server.spec)?;
    server.spec.dynamic_vendordata = request.compute.vendordata.is_some();
    server.spec.config_drive |= boot::machine::needs_config_drive(&server.spec.image_properties);
    if let Some(name) = name {
        server.name.clone_from(name);
    }
    if let Some(description) = description {
        server.description.clone_from(description);
    }
    if let Some(key_name) = key_name {
        server.spec.key = match key_name {
            // The caller's key pair: key pairs belong to users, and the caller may rebuild a server
            // that another user of the project created (upstream's `rebuild` in
            // `nova/compute/api.py`).
            Some(name) => Some(resolve::key_pair(tx, &context.user_id, name)?),
            None => None,
        };
        server.spec.key_name.clone_from(key_name);
    }
    if let Some(user_data) = user_data {
        server.spec.user_data.clone_from(user_data);
    }
    server.spec.files.clone_from(files);
    if let Some(hostname) = hostname {
        server.spec.hostname.clone_from(hostname);
    }
    if let Some(disk_config) = disk_config {
        server.spec.disk_config.clone_from(disk_config);
    }
    for (own, requested) in server.spec.access.iter_mut().zip(access) {
        if let Some(address) = requested {
            own.clone_from(address);
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
    if let Some(metadata) = metadata {
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
