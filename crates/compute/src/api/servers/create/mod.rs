//! `POST /servers`: reads the body, resolves its names, and boots.

mod networks;
mod request;
mod resolve;

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use kilonova_access::Caller;
use kilonova_compute_app::boot::BootRequest;
use kilonova_compute_app::images::SeenImages;
use kilonova_compute_app::ports::external::SeenNetworks;
use kilonova_compute_app::volumes::resolve::BootVolumes;
use kilonova_compute_app::{Compute, boot, microversions, volumes};
use kilonova_ids::{ImageId, ServerId, ascending};
use kilonova_store::Tx;
use kilonova_wire::{Context, JsonBody, Microversion, Refusal};
use serde_json::{Value, json};

use super::schema;
use crate::api::links::Base;
use request::CreateServer;
use resolve::Resolved;

pub(super) async fn create(
    State(compute): State<Compute>,
    caller: Caller,
    base: Base,
    version: Microversion,
    JsonBody(body): JsonBody,
) -> Result<Response, Refusal> {
    schema::check_create(&body, version)?;
    if caller.project_id.is_empty() {
        return Err(Refusal::forbidden("A server needs a project: use a project-scoped token."));
    }
    check_permissions(&body["server"], &caller)?;
    let mut new = CreateServer::read(&body, &caller, version)?;
    new.destination.check(&compute)?;
    let asked = asked(&caller, version, &new);
    let disks = volumes::resolve::look_up(&compute, asked, &new.disks).await?;
    if new.destination.zone.is_none() {
        new.destination.zone.clone_from(&disks.zone);
    }
    let images = images_of(&new, &disks);
    let seen = compute.images.look_up(&caller, images.iter().copied()).await?;
    let (count, groups) = ((new.min_count, new.max_count), &new.security_groups);
    let networks = compute.look_up_networks(&caller, &new.networks, groups, count).await?;
    if version < microversions::PORT_RESOURCES && !networks.resources().is_empty() {
        return Err(Refusal::bad_request(
            "Creating servers with ports having resource requests, like a port with a QoS minimum bandwidth \
             policy, is not supported until microversion 2.72.",
        ));
    }
    let mut known = (compute.clone(), caller.context.clone(), seen, networks);
    let resolved = resolve(known.clone(), new.clone(), disks, false).await?;
    let mut request = match resolved {
        Resolved::Boot(request) => *request,
        Resolved::OfVolumes(properties) => {
            let disks = of_image(&compute, &caller, version, &mut new, &properties).await?;
            let more = images_of(&new, &disks);
            if more != images {
                known.2 = compute.images.look_up(&caller, more).await?;
            }
            match resolve(known, new.clone(), disks, true).await? {
                Resolved::Boot(request) => *request,
                Resolved::OfVolumes(_) => {
                    return Err(Refusal::internal("the volumes of an image were not merged"));
                }
            }
        }
    };
    request.spec.image_numbers = compute.image_numbers(&request.spec).await?;
    let reservation_id = request.spec.reservation_id.clone();
    let ids = boot_with_volumes(&compute, &caller, request).await?;
    if new.return_reservation_id {
        return Ok(answer(json!({"reservation_id": reservation_id}), None));
    }
    let Some(id) = ids.first() else {
        return Err(Refusal::internal("a boot returned no server"));
    };
    let location = format!("{}/servers/{id}", base.versioned());
    let body = json!({"server": {
        "id": id,
        "links": super::view::links(&base, id),
        "OS-DCF:diskConfig": new.disk_config,
        "security_groups": security_groups(&new),
        "adminPass": new.admin_password,
    }});
    Ok(answer(body, Some(&location)))
}

/// The service, the caller, and the images and networks that the request names.
type Known = (Compute, Context, SeenImages, SeenNetworks);

/// Resolves a request in one read transaction.
async fn resolve(
    (compute, context, seen, networks): Known,
    new: CreateServer,
    disks: BootVolumes,
    is_merged: bool,
) -> Result<Resolved, Refusal> {
    let inner = compute.clone();
    let read = move |tx: &mut Tx<'_>| {
        resolve::resolve(tx, &inner, &context, (&seen, &networks), &new, (&disks, is_merged))
    };
    Ok(compute.store.read(read).await?)
}

/// Merges an image's volumes into those of the request, and looks up all of them in Cinder.
async fn of_image(
    compute: &Compute,
    caller: &Caller,
    version: Microversion,
    new: &mut CreateServer,
    properties: &BTreeMap<String, String>,
) -> Result<BootVolumes, Refusal> {
    let image = new.disks.image;
    new.disks = volumes::request::with_image(&new.disks, properties)?;
    let mut disks =
        volumes::resolve::look_up(compute, asked(caller, version, new), &new.disks).await?;
    if new.destination.zone.is_none() {
        new.destination.zone.clone_from(&disks.zone);
    }
    // The guest gets the properties of the requested image, not those of the root volume.
    if let Some(root) = &mut disks.root {
        root.image = image;
    }
    Ok(disks)
}

/// The images that the disks of a request name, each once.
fn images_of(new: &CreateServer, disks: &BootVolumes) -> Vec<ImageId> {
    let root = disks.root.as_ref().and_then(|root| root.image);
    let mut images = Vec::new();
    for image in new.disks.image.into_iter().chain(root).chain(new.disks.of_images()) {
        if !images.contains(&image) {
            images.push(image);
        }
    }
    images
}

/// The parts of a request that determine its disks.
fn asked<'a>(
    caller: &'a Caller,
    version: Microversion,
    new: &'a CreateServer,
) -> volumes::resolve::Asked<'a> {
    volumes::resolve::Asked {
        context: caller,
        max_count: new.max_count,
        zone: new.destination.zone.as_deref(),
        knows_multiattach: version >= microversions::MULTIATTACH,
    }
}

/// Keeps the user's token for the worker, reserves the existing volumes, and boots.
async fn boot_with_volumes(
    compute: &Compute,
    caller: &Caller,
    mut request: BootRequest,
) -> Result<Vec<ServerId>, Refusal> {
    if request.volumes.devices.is_empty() {
        return Ok(boot::boot(compute, request).await?);
    }
    request.ids = (0..request.max_count).map(|_| ascending()).collect();
    let Some(first) = request.ids.first().copied() else { return Ok(Vec::new()) };
    let (found, spec) = (&request.volumes, &request.spec);
    let properties = &spec.image_properties;
    volumes::resolve::keep_token(compute, caller, &request.ids);
    let taken =
        volumes::resolve::reserve(compute, caller, first, found, properties, &spec.flavor).await?;
    let booted = boot::boot(compute, request).await;
    if let Some(taken) = taken {
        volumes::resolve::release(compute, taken).await?;
    }
    Ok(booted?)
}

/// Checks the rules for optional fields of the body.
fn check_permissions(server: &Value, caller: &Caller) -> Result<(), Refusal> {
    let has_items = |key: &str| server[key].as_array().is_some_and(|list| !list.is_empty());
    for (rule, applies) in [
        (
            "os_compute_api:servers:create:attach_volume",
            has_items("block_device_mapping") || has_items("block_device_mapping_v2"),
        ),
        ("os_compute_api:servers:create:attach_network", has_items("networks")),
        ("os_compute_api:servers:create:trusted_certs", has_items("trusted_image_certificates")),
    ] {
        if applies {
            caller.may_own(rule)?;
        }
    }
    Ok(())
}

/// The requested security groups; `default` if there are none.
fn security_groups(new: &CreateServer) -> Value {
    if new.security_groups.is_empty() {
        return json!([{"name": "default"}]);
    }
    new.security_groups.iter().map(|name| json!({"name": name})).collect()
}

fn answer(body: Value, location: Option<&str>) -> Response {
    let mut response = (StatusCode::ACCEPTED, axum::Json(body)).into_response();
    if let Some(value) = location.and_then(|location| HeaderValue::from_str(location).ok()) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    response
}

/// A random administrator password.
pub(super) fn generate_password() -> String {
    const LETTERS: &[u8] = b"abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
    random_text(LETTERS, 12)
}

/// A string of random characters.
fn random_text(characters: &[u8], length: usize) -> String {
    (0..length).map(|_| char::from(characters[rand::random_range(0..characters.len())])).collect()
}
