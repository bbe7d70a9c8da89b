//! Actions that change what the guest does on its host: `pause`, `suspend`, `rescue`, their opposites, and
//! `trigger_crash_dump`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::Fault;
use serde_json::json;

use super::ActionRequest;
use crate::Error;
use crate::app::actions::ServerAction;
use crate::db::servers::Server;
use crate::flows::{self, ServerCommand};

pub(super) async fn act(request: ActionRequest, command: ServerCommand) -> Result<Response, Fault> {
    request
        .begin(move |tx, request, server, now| {
            flows::command(tx, &request.compute, &request.context, server, &command, now)
        })
        .await
}

pub(super) async fn rescue(request: ActionRequest) -> Result<Response, Fault> {
    let text = |key: &str| request.argument[key].as_str().map(str::to_owned);
    let named = text("rescue_image_ref");
    let password = text("adminPass").unwrap_or_else(super::super::create::password);
    request
        .write(move |tx, request, server, now| {
            crate::app::states::allow(&request.context, server, ServerAction::Rescue)?;
            let image = image(tx, request, server, named.as_deref())?;
            let command = ServerCommand::Rescue(image);
            flows::command(tx, &request.compute, &request.context, server, &command, now)
        })
        .await?;
    Ok(Json(json!({"adminPass": password})).into_response())
}

/// The image that was named, or the server's own.
fn image(
    tx: &mut Tx<'_>,
    request: &ActionRequest,
    server: &Server,
    named: Option<&str>,
) -> Result<Option<ImageId>, Error> {
    let Some(named) = named else { return Ok(server.spec.image) };
    let id = parse_uuid_like::<ImageId>(named);
    let policy = &request.compute.image_policy;
    let found = id.map(|id| kilonova_image::visible(tx, policy, &request.context, id));
    let found = found.transpose()?.flatten();
    match found.filter(|image| image.status == "active") {
        Some(image) => Ok(Some(image.id)),
        None => Err(Fault::bad_request(format!(
            "Requested rescue image '{}' is not supported",
            named.escape_debug()
        ))
        .into()),
    }
}
