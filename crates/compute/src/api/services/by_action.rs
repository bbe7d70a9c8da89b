//! Changes to a service before 2.53: the path names the action, the body names the host.

use std::sync::LazyLock;

use axum::Json;
use kilonova_compute_app::services::{self, Change, Status};
use kilonova_compute_app::{Compute, microversions, schemas};
use kilonova_ids::HostName;
use kilonova_wire::schema::Schema;
use kilonova_wire::{Microversion, Refusal, time};
use serde_json::{Value, json};

use super::not_compute;
use crate::api::input;

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

static WITHOUT_FORCED_DOWN: LazyLock<Schema> = LazyLock::new(|| schema(false));
static WITH_FORCED_DOWN: LazyLock<Schema> = LazyLock::new(|| schema(true));

/// Performs the action.
///
/// # Errors
/// 400 for an invalid body, 404 for an unknown action or host.
pub(super) async fn update(
    compute: &Compute,
    version: Microversion,
    action: &str,
    body: &Value,
) -> Result<Json<Value>, Refusal> {
    let has_force_down = version >= microversions::FORCED_DOWN;
    if has_force_down {
        WITH_FORCED_DOWN.check(body)?
    } else {
        WITHOUT_FORCED_DOWN.check(body)?
    }
    let missing = |field: &str| Refusal::bad_request(format!("Missing {field} field"));
    let reason = input::text_of(body, "disabled_reason");
    let host = HostName::verbatim(input::text_of(body, "host").unwrap_or_default());
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
        "force-down" if has_force_down => {
            let down = body.get("forced_down").ok_or_else(|| missing("forced_down"))?;
            Change { status: None, forced_down: Some(input::boolean(down)) }
        }
        _ => return Err(Refusal::not_found("Unknown action")),
    };
    match (&change.status, change.forced_down) {
        (Some(Status::Enabled), _) => shown["status"] = json!("enabled"),
        (Some(Status::Disabled(_)), _) => shown["status"] = json!("disabled"),
        (None, down) => shown["forced_down"] = json!(down),
    }
    if binary != "nova-compute" {
        return Err(not_compute(&binary));
    }
    let (now, fleet, name) = (time::now(), compute.fleet.clone(), host.clone());
    compute
        .store
        .write(move |tx| services::change(tx, &fleet, &name, &change, now))
        .await?
        .ok_or_else(|| {
            Refusal::not_found(format!("Could not find binary {binary} on host {host}."))
        })?;
    Ok(Json(json!({"service": shown})))
}
