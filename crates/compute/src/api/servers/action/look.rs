//! `os-getConsoleOutput`: what the guest has said.

use axum::Json;
use axum::response::{IntoResponse, Response};
use kilonova_node_api::{ReplyBody, Topic};
use kilonova_wire::Fault;
use serde_json::{Value, json};

use super::ActionRequest;
use crate::app::actions::ServerAction;
use crate::app::{ask, states};

pub(super) async fn act(request: ActionRequest) -> Result<Response, Fault> {
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
            // What cannot be shown in a terminal is left out, but for tabs and ends of lines.
            let kept = |c: &char| !c.is_control() || matches!(c, '\t' | '\n' | '\r');
            let output: String = text.chars().filter(kept).collect();
            Ok(Json(json!({"output": output})).into_response())
        }
        ReplyBody::Unknown { why } => {
            tracing::warn!(server = %server.id, why, "no console log");
            Err(states::not_ready(&server).into())
        }
        ReplyBody::Diagnostics(_) => Err(Fault::internal("a host answers what was not asked")),
    }
}

/// The number of lines; `None` for all of them.
fn lines(request: &ActionRequest) -> Result<Option<u32>, Fault> {
    let number = match &request.argument["length"] {
        Value::String(text) => text.parse::<i64>().ok(),
        Value::Null => return Ok(None),
        value => value.as_i64(),
    };
    match number {
        Some(-1) => Ok(None),
        number => match number.and_then(|number| u32::try_from(number).ok()) {
            Some(lines) => Ok(Some(lines)),
            None => Err(request.wrong("`length` is a number of lines, or -1 for all of them.")),
        },
    }
}
