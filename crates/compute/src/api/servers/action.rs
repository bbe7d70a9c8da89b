//! `POST /servers/{id}/action`: exactly one key names the action.

use axum::extract::{Path, State};
use http::StatusCode;
use kilonova_wire::time::now_micros;
use kilonova_wire::{Context, Fault, JsonBody};
use serde_json::Value;

use crate::flows::{Change, change_power};
use crate::{Compute, flows};

pub(super) async fn action(
    State(compute): State<Compute>,
    context: Context,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<StatusCode, Fault> {
    let change = parse(&body)?;
    let compute_ = compute.clone();
    compute
        .store
        .write(move |tx| {
            let server = super::find::find(tx, &context, &id)?;
            match change {
                Action::Power(change) => {
                    change_power(tx, &compute_, &context, &server, change, now_micros())
                }
                Action::Delete => flows::delete(tx, &compute_, &context, &server, now_micros()),
            }
        })
        .await?;
    Ok(StatusCode::ACCEPTED)
}

#[derive(Clone, Copy)]
enum Action {
    Power(Change),
    Delete,
}

fn parse(body: &Value) -> Result<Action, Fault> {
    let Some((name, argument)) =
        body.as_object().filter(|keys| keys.len() == 1).and_then(|keys| keys.iter().next())
    else {
        return Err(Fault::bad_request("Malformed request body: it must name exactly one action."));
    };
    let nothing = |change: Change| {
        if argument.is_null() || argument.as_object().is_some_and(serde_json::Map::is_empty) {
            Ok(Action::Power(change))
        } else {
            Err(Fault::bad_request(format!(
                "Invalid input for field/attribute {name}. Value: {argument}. The action takes no \
                 argument."
            )))
        }
    };
    match name.as_str() {
        "os-start" => nothing(Change::Start),
        "os-stop" => nothing(Change::Stop),
        "forceDelete" => Ok(Action::Delete),
        "reboot" => match argument.get("type").and_then(Value::as_str) {
            Some(kind) if kind.eq_ignore_ascii_case("SOFT") => {
                Ok(Action::Power(Change::RebootSoft))
            }
            Some(kind) if kind.eq_ignore_ascii_case("HARD") => {
                Ok(Action::Power(Change::RebootHard))
            }
            _ => Err(Fault::bad_request(format!(
                "Invalid input for field/attribute type. Value: {}. It must be SOFT or HARD.",
                argument.get("type").unwrap_or(&Value::Null)
            ))),
        },
        other => Err(Fault::bad_request(format!(
            "There is no such action: {other}. This version knows os-start, os-stop, reboot and \
             forceDelete."
        ))),
    }
}
