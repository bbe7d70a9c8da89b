//! Changes of a service below 2.53: the path names the action, the body the host.

use std::sync::LazyLock;

use axum::Json;
use kilonova_wire::schema::Schema;
use kilonova_wire::{Fault, Microversion, time};
use serde_json::{Value, json};

use super::not_compute;
use crate::Compute;
use crate::api::input;
use crate::app::services::{self, Change, Status};
use crate::microversions;
use crate::schemas;

fn schema(forced_down: bool) -> Schema {
    let mut properties = json!({
        "host": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[a-zA-Z0-9-._]*$"},
        "binary": {"type": "string", "minLength": 1, "maxLength": 255},
        "disabled_reason": {"type": "string", "minLength": 1, "maxLength": 255},
    });
    if forced_down {
        properties["forced_down"] = schemas::boolean();
    }
    Schema::new(&json!({
        "type": "object", "properties": properties, "required": ["host", "binary"],
        "additionalProperties": false,
    }))
}

static UPDATE_2_1: LazyLock<Schema> = LazyLock::new(|| schema(false));
static UPDATE_2_11: LazyLock<Schema> = LazyLock::new(|| schema(true));

/// Carries the action out.
///
/// # Errors
/// 400 for a wrong body, 404 for an unknown action or host.
pub(super) async fn update(
    compute: &Compute,
    version: Microversion,
    action: &str,
    body: &Value,
) -> Result<Json<Value>, Fault> {
    let forcible = version >= microversions::FORCED_DOWN;
    if forcible {
        UPDATE_2_11.check(body)?
    } else {
        UPDATE_2_1.check(body)?
    }
    let missing = |field: &str| Fault::bad_request(format!("Missing {field} field"));
    let reason = input::text_of(body, "disabled_reason");
    let host = input::text_of(body, "host").unwrap_or_default();
    let binary = input::text_of(body, "binary").unwrap_or_default();
    let mut shown = json!({"host": host, "binary": binary});
    let change = match action {
        "enable" => Change { status: Some(Status::Enabled), forced_down: None },
        "disable" => Change { status: Some(Status::Disabled(None)), forced_down: None },
        "disable-log-reason" => {
            let reason = reason.ok_or_else(|| missing("disabled reason"))?;
            shown["disabled_reason"] = json!(reason);
            Change { status: Some(Status::Disabled(Some(reason))), forced_down: None }
        }
        "force-down" if forcible => {
            let down = body.get("forced_down").ok_or_else(|| missing("forced_down"))?;
            Change { status: None, forced_down: Some(input::boolean(down)) }
        }
        _ => return Err(Fault::not_found("Unknown action")),
    };
    match (&change.status, change.forced_down) {
        (Some(Status::Enabled), _) => shown["status"] = json!("enabled"),
        (Some(Status::Disabled(_)), _) => shown["status"] = json!("disabled"),
        (None, down) => shown["forced_down"] = json!(down),
    }
    if binary != "nova-compute" {
        return Err(not_compute(&binary));
    }
    let (now, fleet, name) = (time::now_micros(), compute.fleet.clone(), host.clone());
    compute
        .store
        .write(move |tx| services::change(tx, &fleet, &name, &change, now))
        .await?
        .ok_or_else(|| {
            Fault::not_found(format!("Could not find binary {binary} on host {host}."))
        })?;
    Ok(Json(json!({"service": shown})))
}
