//! `os-start`, `os-stop`, `reboot`.

use axum::response::Response;
use kilonova_wire::Fault;
use serde_json::Value;

use super::Asked;
use crate::flows::{Change, change_power};

pub(super) async fn act(asked: Asked) -> Result<Response, Fault> {
    let change = match asked.name.as_str() {
        "reboot" => reboot(&asked.argument)?,
        other => {
            asked.nothing()?;
            if other == "os-start" { Change::Start } else { Change::Stop }
        }
    };
    asked
        .begin(move |tx, asked, server, now| {
            change_power(tx, &asked.compute, &asked.context, server, change, now)
        })
        .await
}

fn reboot(argument: &Value) -> Result<Change, Fault> {
    match argument.get("type").and_then(Value::as_str) {
        Some(kind) if kind.eq_ignore_ascii_case("SOFT") => Ok(Change::RebootSoft),
        Some(kind) if kind.eq_ignore_ascii_case("HARD") => Ok(Change::RebootHard),
        _ => Err(Fault::bad_request(format!(
            "Invalid input for field/attribute type. Value: {}. It must be SOFT or HARD.",
            argument.get("type").unwrap_or(&Value::Null)
        ))),
    }
}
