//! `os-getConsoleOutput`: what the guest has said.

use axum::Json;
use axum::response::{IntoResponse, Response};
use kilonova_node_api::{ReplyBody, Topic};
use kilonova_wire::Fault;
use serde_json::{Value, json};

use super::Asked;
use crate::app::{ask, states};

pub(super) async fn act(asked: Asked) -> Result<Response, Fault> {
    let lines = lines(&asked)?;
    let compute = asked.compute.clone();
    let server = asked
        .read(|asked, server| {
            states::check(&asked.context, server, "get_console_output")?;
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

/// `{"length": …}`: a number, also as text; -1 or null for all.
fn lines(asked: &Asked) -> Result<Option<u32>, Fault> {
    let wrong = || asked.wrong("It takes `length`, a number of lines, or -1 for all of them.");
    let fields = asked.argument.as_object().ok_or_else(wrong)?;
    if fields.keys().any(|key| key != "length") {
        return Err(wrong());
    }
    let number = match fields.get("length") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.parse::<i64>().ok(),
        Some(value) => value.as_i64(),
    };
    match number {
        Some(-1) => Ok(None),
        Some(number) => u32::try_from(number).map(Some).map_err(|_| wrong()),
        None => Err(wrong()),
    }
}
