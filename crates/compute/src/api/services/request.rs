//! Request bodies that change a service, from 2.53 on.

use std::sync::LazyLock;

use kilonova_compute_app::schemas;
use kilonova_compute_app::services::{Change, Status};
use kilonova_wire::Refusal;
use kilonova_wire::schema::Schema;
use serde_json::{Value, json};

use crate::api::input;

static UPDATE: LazyLock<Schema> = LazyLock::new(|| {
    Schema::new(&json!({
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": ["enabled", "disabled"]},
            "disabled_reason": {"type": "string", "minLength": 1, "maxLength": 255},
            "forced_down": schemas::boolean(),
        },
        "additionalProperties": false,
    }))
});

/// Reads the change.
///
/// # Errors
/// 400 for an invalid body and for a body without a change.
pub(super) fn read(body: &Value) -> Result<Change, Refusal> {
    UPDATE.check(body)?;
    let reason = input::text_of(body, "disabled_reason");
    let status = match body["status"].as_str() {
        Some("enabled") if reason.is_some() => {
            return Err(Refusal::bad_request(
                "Specifying 'disabled_reason' with status 'enabled' is invalid.",
            ));
        }
        Some("enabled") => Some(Status::Enabled),
        Some(_) => Some(Status::Disabled(reason)),
        None => None,
    };
    let forced_down = body.get("forced_down").map(input::boolean);
    if status.is_none() && forced_down.is_none() {
        return Err(Refusal::bad_request(
            "No updates were requested. Fields 'status' or 'forced_down' should be specified.",
        ));
    }
    Ok(Change { status, forced_down })
}
