//! `pause`, `suspend`, `rescue` and what takes them back; `trigger_crash_dump`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::Fault;
use kilonova_wire::schema::Schema;
use serde_json::json;
use std::sync::LazyLock;

use super::Asked;
use crate::Error;
use crate::api::input;
use crate::db::servers::Server;
use crate::flows::{self, ServerCommand};

static RESCUE: LazyLock<Schema> = LazyLock::new(|| {
    Schema::new(&json!({
        "type": ["object", "null"],
        "properties": {
            "adminPass": {"type": "string"},
            "rescue_image_ref": {"type": "string", "minLength": 1},
        },
        "additionalProperties": false,
    }))
});

pub(super) async fn act(asked: Asked) -> Result<Response, Fault> {
    let command = match asked.name.as_str() {
        "rescue" => return rescue(asked).await,
        "pause" => ServerCommand::Pause,
        "unpause" => ServerCommand::Unpause,
        "suspend" => ServerCommand::Suspend,
        "resume" => ServerCommand::Resume,
        "unrescue" => ServerCommand::Unrescue,
        _ => {
            input::within(asked.version, 17, 104)?;
            ServerCommand::CrashDump
        }
    };
    if command == ServerCommand::CrashDump && !asked.argument.is_null() {
        return Err(asked.wrong("The action takes null."));
    }
    asked
        .begin(move |tx, asked, server, now| {
            flows::command(tx, &asked.compute, &asked.context, server, &command, now)
        })
        .await
}

async fn rescue(asked: Asked) -> Result<Response, Fault> {
    RESCUE.check(&asked.argument)?;
    let text = |key: &str| asked.argument[key].as_str().map(str::to_owned);
    let named = text("rescue_image_ref");
    let password = text("adminPass").unwrap_or_else(super::super::create::password);
    asked
        .write(move |tx, asked, server, now| {
            crate::app::states::check(&asked.context, server, "rescue")?;
            let image = image(tx, asked, server, named.as_deref())?;
            let command = ServerCommand::Rescue(image);
            flows::command(tx, &asked.compute, &asked.context, server, &command, now)
        })
        .await?;
    Ok(Json(json!({"adminPass": password})).into_response())
}

/// The image that was named, or the server's own.
fn image(
    tx: &mut Tx<'_>,
    asked: &Asked,
    server: &Server,
    named: Option<&str>,
) -> Result<Option<ImageId>, Error> {
    let Some(named) = named else { return Ok(server.spec.image) };
    let id = parse_uuid_like::<ImageId>(named);
    let policy = &asked.compute.image_policy;
    let found = id.map(|id| kilonova_image::visible(tx, policy, &asked.context, id));
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
