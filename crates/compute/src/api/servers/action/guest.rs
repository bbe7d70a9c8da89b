//! Changes to a guest in place: `pause`, `suspend`, `rescue`, their opposites, and the verbs that the host carries
//! out.

use axum::Json;
use axum::response::{IntoResponse, Response};
use kilonova_compute_app::actions::ServerAction;
use kilonova_compute_app::flows::{self, RescueImage, ServerCommand};
use kilonova_compute_app::images::SeenImages;
use kilonova_compute_app::microversions::RESCUE_OF_VOLUMES;
use kilonova_compute_app::{Error, states, volumes};
use kilonova_compute_db::servers::Server;
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;
use serde_json::json;

use super::ActionRequest;

pub(super) async fn act(
    request: ActionRequest,
    command: ServerCommand,
) -> Result<Response, Refusal> {
    request
        .begin(move |tx, request, server, now| {
            flows::command(tx, &request.compute, &request.context, server, &command, now)
        })
        .await
}

pub(super) async fn rescue(request: ActionRequest) -> Result<Response, Refusal> {
    let text = |key: &str| request.argument[key].as_str().map(str::to_owned);
    let named = text("rescue_image_ref");
    let password = text("adminPass").unwrap_or_else(super::super::create::generate_password);
    let image = named.as_deref().and_then(parse_uuid_like::<ImageId>);
    let seen = request.compute.images.look_up(&request.context, image).await?;
    request
        .write(move |tx, request, server, now| {
            states::allow(&request.context, server, ServerAction::Rescue)?;
            let image = match &named {
                Some(named) => Some(rescue_image(tx, request, &seen, named)?),
                None => None,
            };
            volumes::check_in_use(tx, &request.compute, server, Kind::Conflict)?;
            check_root_volume(request, server, image.as_ref())?;
            let command = ServerCommand::Rescue(image);
            flows::command(tx, &request.compute, &request.context, server, &command, now)
        })
        .await?;
    Ok(Json(json!({"adminPass": password})).into_response())
}

/// Refuses to rescue a volume-backed server, except from 2.87 on with an image whose properties define how the rescue
/// disk is attached in addition to the server's own disks.
fn check_root_volume(
    request: &ActionRequest,
    server: &Server,
    image: Option<&RescueImage>,
) -> Result<(), Error> {
    let is_beside = |image: &RescueImage| {
        ["hw_rescue_bus", "hw_rescue_device"].iter().all(|key| image.properties.contains_key(*key))
    };
    let knows = request.compute.volumes.is_some() && request.version >= RESCUE_OF_VOLUMES;
    if server.spec.image.is_some() || (knows && image.is_some_and(is_beside)) {
        return Ok(());
    }
    let (id, why) = (server.id, "Cannot rescue a volume-backed instance");
    Err(Refusal::bad_request(format!("Instance {id} cannot be rescued: {why}")).into())
}

/// The requested rescue image.
fn rescue_image(
    tx: &mut Tx<'_>,
    request: &ActionRequest,
    seen: &SeenImages,
    named: &str,
) -> Result<RescueImage, Error> {
    let id = parse_uuid_like::<ImageId>(named);
    let found = id.map(|id| seen.visible(tx, &request.compute, &request.context, id));
    let found = found.transpose()?.flatten();
    match found.filter(|image| image.status == kilonova_image::Status::Active) {
        Some(image) => Ok(RescueImage { id: image.id, properties: image.properties }),
        None => Err(Refusal::bad_request(format!(
            "Requested rescue image '{}' is not supported",
            named.escape_debug()
        ))
        .into()),
    }
}
