//! `/kilonova/hosts/{host}/drain`: begins and stops the drain of a host. `/kilonova/hosts/{host}` shows its progress.

use std::sync::LazyLock;

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use kilonova_access::Caller;
use kilonova_compute_app::Compute;
use kilonova_compute_app::drain::{self, DrainRequest, MAX_PARALLEL};
use kilonova_ids::HostName;
use kilonova_wire::schema::Schema;
use kilonova_wire::{JsonBody, Refusal};
use serde_json::{Value, json};

use super::host;
use crate::api::input;

/// The default number of servers that move at the same time.
const PARALLEL: i64 = 4;

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    Schema::new(&json!({
        "type": "object",
        "properties": {"drain": {
            "type": "object",
            "properties": {
                "cold": {"type": "boolean"},
                "parallel": {"type": "integer", "minimum": 1, "maximum": MAX_PARALLEL},
                "reason": {"type": "string", "minLength": 1, "maxLength": 255},
            },
            "additionalProperties": false,
        }},
        "required": ["drain"],
        "additionalProperties": false,
    }))
});

pub(super) async fn begin(
    State(compute): State<Compute>,
    caller: Caller,
    Path(name): Path<HostName>,
    JsonBody(body): JsonBody,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    SCHEMA.check(&body)?;
    let wanted = &body["drain"];
    let request = DrainRequest {
        cold: wanted["cold"].as_bool().unwrap_or_default(),
        parallel: wanted["parallel"].as_i64().unwrap_or(PARALLEL),
        reason: input::text_of(wanted, "reason"),
    };
    drain::begin(&compute, &caller.context, &name, &request).await?;
    Ok((StatusCode::ACCEPTED, host::shown(&compute, &name).await?))
}

pub(super) async fn stop(
    State(compute): State<Compute>,
    Path(name): Path<HostName>,
) -> Result<StatusCode, Refusal> {
    drain::stop(&compute, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
