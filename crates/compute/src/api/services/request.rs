//! Bodies that change a service, from 2.53 on.

use std::sync::LazyLock;

use kilonova_wire::Fault;
use kilonova_wire::schema::Schema;
use serde_json::{Value, json};

use crate::api::input;
use crate::app::services::{Change, Status};
use crate::schemas;

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

/// Reads what is to change.
///
/// # Errors
/// 400 for a wrong body, or one that changes nothing.
pub(super) fn read(body: &Value) -> Result<Change, Fault> {
    UPDATE.check(body)?;
    let reason = input::text_of(body, "disabled_reason");
    let status = match body["status"].as_str() {
        Some("enabled") if reason.is_some() => {
            return Err(Fault::bad_request(
                "Specifying 'disabled_reason' with status 'enabled' is invalid.",
            ));
        }
        Some("enabled") => Some(Status::Enabled),
        Some(_) => Some(Status::Disabled(reason)),
        None => None,
    };
    let forced_down = body.get("forced_down").map(input::boolean);
    if status.is_none() && forced_down.is_none() {
        return Err(Fault::bad_request(
            "No updates were requested. Fields 'status' or 'forced_down' should be specified.",
        ));
    }
    Ok(Change { status, forced_down })
}
