//! `os-getVNCConsole` and similar actions, up to 2.5, which return a console's URL with a token.

use axum::Json;
use axum::response::{IntoResponse, Response};
use kilonova_compute_app::consoles::{self, Protocol};
use kilonova_wire::Refusal;
use serde_json::json;

use super::ActionRequest;

pub(super) async fn act(request: ActionRequest, protocol: Protocol) -> Result<Response, Refusal> {
    let console_type = request.argument["type"].as_str().unwrap_or_default().to_owned();
    let (compute, context) = (request.compute.clone(), request.context.clone());
    let base = request.base.clone();
    let server = request.read(|_, server| Ok(server.clone())).await?;
    let url = consoles::create(&compute, &context, &server, protocol, &console_type, base.cloud())
        .await?;
    Ok(Json(json!({"console": {"type": console_type, "url": url}})).into_response())
}
