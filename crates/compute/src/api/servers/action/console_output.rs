//! `os-getConsoleOutput`: the console log of the guest.

use axum::Json;
use axum::response::{IntoResponse, Response};
use kilonova_compute_app::actions::ServerAction;
use kilonova_compute_app::{ask, states};
use kilonova_node_api::{ReplyBody, Topic};
use kilonova_wire::Refusal;
use serde_json::{Value, json};

use super::ActionRequest;

pub(super) async fn act(request: ActionRequest) -> Result<Response, Refusal> {
    let lines = lines(&request)?;
    let compute = request.compute.clone();
    let server = request
        .read(|request, server| {
            states::allow(&request.context, server, ServerAction::ConsoleOutput)?;
            Ok(server.clone())
        })
        .await?;
    match ask::ask(&compute, &server, Topic::Console { lines }).await? {
        ReplyBody::Console { text } => {
            // Control characters other than tabs and newlines are removed, as in Nova.
            let is_kept = |c: &char| !matches!(c, '\0'..='\u{8}' | '\u{b}'..='\u{1f}');
            let output: String = text.chars().filter(is_kept).collect();
            Ok(Json(json!({"output": output})).into_response())
        }
        ReplyBody::Unknown { why } => {
            tracing::warn!(server = %server.id, why, "the host has no console log of the guest");
            Err(states::not_ready(&server).into())
        }
        ReplyBody::Diagnostics(_) => {
            Err(Refusal::internal("the host's reply is not about the console log"))
        }
    }
}

/// The requested number of lines; `None` for all lines.
fn lines(request: &ActionRequest) -> Result<Option<u32>, Refusal> {
    let number = match &request.argument["length"] {
        Value::String(text) => text.parse::<i64>().ok(),
        Value::Null => return Ok(None),
        value => value.as_i64(),
    };
    match number {
        Some(-1) => Ok(None),
        number => {
            match number.and_then(|number| u32::try_from(number).ok()) {
                Some(lines) => Ok(Some(lines)),
                None => Err(request
                    .invalid_argument("`length` is a number of lines, or -1 for all of them.")),
            }
        }
    }
}
