//! `migrate` and `evacuate`: what only operators do.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use kilonova_wire::{Fault, Microversion};
use serde_json::{Map, Value, json};

use super::Asked;
use crate::Compute;
use crate::api::input;
use crate::db::servers::Server;
use crate::flows::{self, ColdRequest, EvacuateRequest};

pub(super) async fn act(asked: Asked) -> Result<Response, Fault> {
    if asked.name == "evacuate" { evacuate(asked).await } else { migrate(asked).await }
}

async fn migrate(mut asked: Asked) -> Result<Response, Fault> {
    // Before 2.56 whatever came with the action was not looked at.
    let named = asked.version >= Microversion(2, 56) && names_host(&asked.argument);
    if named {
        asked.caller = asked.caller.with_rule("os_compute_api:os-migrate-server:migrate:host");
    }
    asked.caller.may_route()?;
    let host = if asked.version < Microversion(2, 56) || asked.argument.is_null() {
        None
    } else {
        host(&asked, fields(&asked, &["host"])?)?
    };
    asked
        .begin(move |tx, asked, server, now| {
            known(&asked.compute, host.as_deref(), 400)?;
            other(server, host.as_deref())?;
            let request = ColdRequest::Migrate(host.clone());
            flows::migrate_cold(tx, &asked.compute, &asked.context, server, &request, now)
        })
        .await
}

/// Whether the argument names a host, which takes another rule.
pub(super) fn names_host(argument: &Value) -> bool {
    argument["host"].as_str().is_some_and(|host| !host.is_empty())
}

async fn evacuate(asked: Asked) -> Result<Response, Fault> {
    let version = asked.version;
    let at = |first: u32| version >= Microversion(2, first);
    let mut keys = vec!["host", "adminPass"];
    if !at(14) {
        keys.push("onSharedStorage");
    }
    if at(29) && !at(68) {
        keys.push("force");
    }
    let fields = fields(&asked, &keys)?;
    let host = host(&asked, fields)?;
    let password = match fields.get("adminPass") {
        None => super::super::create::password(),
        Some(Value::String(password)) => password.clone(),
        Some(_) => return Err(asked.wrong("adminPass is a text.")),
    };
    if !at(14) {
        if fields.get("onSharedStorage").is_none() {
            return Err(asked.wrong("It takes `onSharedStorage`, true or false."));
        }
        if flag(&asked, fields, "onSharedStorage")? {
            return Err(asked.wrong("No host shares its storage with another."));
        }
    }
    let force = flag(&asked, fields, "force")?;
    if force && host.is_none() {
        return Err(Fault::bad_request(
            "Can't force to a non-provided destination. Name the host too.",
        ));
    }
    let request = EvacuateRequest { host, force, ends_stopped: at(95) };
    asked
        .write(move |tx, asked, server, now| {
            known(&asked.compute, request.host.as_deref(), 404)?;
            other(server, request.host.as_deref())?;
            flows::evacuate(tx, &asked.compute, &asked.context, server, &request, now)
        })
        .await?;
    if at(14) {
        return Ok(StatusCode::OK.into_response());
    }
    Ok(Json(json!({"adminPass": password})).into_response())
}

pub(super) fn fields<'a>(
    asked: &'a Asked,
    known: &[&str],
) -> Result<&'a Map<String, Value>, Fault> {
    let fields = asked.argument.as_object();
    let fields = fields.ok_or_else(|| asked.wrong("It is an object."))?;
    match fields.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(fields),
        Some(key) => Err(Fault::bad_request(format!(
            "Invalid input for field/attribute {}. Value: {}. Additional properties are not allowed \
             ('{key}' was unexpected)",
            asked.name, asked.argument
        ))),
    }
}

/// A flag; one that is not there is off.
pub(super) fn flag(asked: &Asked, fields: &Map<String, Value>, key: &str) -> Result<bool, Fault> {
    let words = input::boolean_schema();
    let is_one = |value| words["enum"].as_array().is_some_and(|words| words.contains(value));
    match fields.get(key) {
        None => Ok(false),
        Some(value) if is_one(value) => Ok(input::boolean(value)),
        Some(_) => Err(asked.wrong(&format!("{key} is true or false."))),
    }
}

/// `host`, which may be null.
pub(super) fn host(asked: &Asked, fields: &Map<String, Value>) -> Result<Option<String>, Fault> {
    match fields.get("host") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(host)) if (1..=255).contains(&host.chars().count()) => {
            Ok(Some(host.clone()))
        }
        Some(_) => Err(asked.wrong("host is the name of a compute host.")),
    }
}

/// Refuses a host that is not there.
pub(super) fn known(compute: &Compute, host: Option<&str>, code: u16) -> Result<(), Fault> {
    let Some(host) = host.filter(|host| compute.fleet.by_name(host).is_none()) else {
        return Ok(());
    };
    let name = host.escape_debug();
    Err(if code == 404 {
        Fault::not_found(format!("Compute host {name} not found."))
    } else {
        Fault::bad_request(format!("Compute host {name} could not be found."))
    })
}

/// Refuses the host that the server is on.
fn other(server: &Server, host: Option<&str>) -> Result<(), Fault> {
    if host.is_some() && host == server.host.as_deref() {
        return Err(Fault::bad_request("The target host can't be the same one."));
    }
    Ok(())
}
