//! `/servers/{id}/remote-consoles`: the URL of a console, with a token.

use axum::Json;
use axum::extract::{Path, State};
use kilonova_access::Caller;
use kilonova_compute_app::consoles::{self, Protocol};
use kilonova_compute_app::{Compute, microversions};
use kilonova_wire::{JsonBody, Microversion, Refusal};
use serde_json::{Value, json};

use super::find::find;
use crate::api::input::{self, body_schemas};
use crate::api::links::Base;

body_schemas!(SCHEMAS, schema, the_schemas_of_a_console_compile);

/// Nova's schema. It does not check that the protocol and the type match.
fn schema(version: Microversion) -> Value {
    let mut protocols = vec!["vnc", "spice", "rdp", "serial"];
    let mut types = vec!["novnc", "xvpvnc", "spice-html5", "rdp-html5", "serial"];
    if version >= microversions::MKS_CONSOLES {
        protocols.push("mks");
        types.push("webmks");
    }
    if version >= microversions::SPICE_DIRECT {
        types.push("spice-direct");
    }
    json!({
        "type": "object",
        "properties": {
            "remote_console": {
                "type": "object",
                "properties": {"protocol": {"enum": protocols}, "type": {"enum": types}},
                "required": ["protocol", "type"],
                "additionalProperties": false,
            },
        },
        "required": ["remote_console"],
        "additionalProperties": false,
    })
}

pub(super) async fn create(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    base: Base,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::since(microversions::REMOTE_CONSOLES))?;
    SCHEMAS.check(version, &body)?;
    let wanted = &body["remote_console"];
    let [protocol, console_type] =
        ["protocol", "type"].map(|key| wanted[key].as_str().unwrap_or_default());
    let known = Protocol::parse(protocol)
        .ok_or_else(|| Refusal::bad_request(format!("Unknown protocol {protocol}.")))?;
    let context = caller.context.clone();
    let server = compute.store.read(move |tx| find(tx, &caller, &id)).await?;
    let url =
        consoles::create(&compute, &context, &server, known, console_type, base.cloud()).await?;
    let answer = json!({"protocol": protocol, "type": console_type, "url": url});
    Ok(Json(json!({"remote_console": answer})))
}
