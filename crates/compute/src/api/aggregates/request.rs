//! Request bodies of `/os-aggregates`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use kilonova_compute_app::aggregates::Change;
use kilonova_ids::HostName;
use kilonova_wire::Refusal;
use kilonova_wire::schema::Schema;
use serde_json::{Value, json};

use crate::api::input;

/// An action on an aggregate.
pub(super) enum AggregateAction {
    AddHost(HostName),
    RemoveHost(HostName),
    SetMetadata(BTreeMap<String, Option<String>>),
}

fn name() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 255})
}

fn zone() -> Value {
    json!({"type": ["string", "null"], "minLength": 1, "maxLength": 255})
}

fn object(key: &str, properties: &Value, more: &Value) -> Schema {
    let mut inner =
        json!({"type": "object", "properties": properties, "additionalProperties": false});
    if let (Some(inner), Some(more)) = (inner.as_object_mut(), more.as_object()) {
        inner.extend(more.clone());
    }
    Schema::new(&json!({
        "type": "object", "properties": {key: inner}, "required": [key],
        "additionalProperties": false,
    }))
}

static CREATE: LazyLock<Schema> = LazyLock::new(|| {
    let properties = json!({"name": name(), "availability_zone": zone()});
    object("aggregate", &properties, &json!({"required": ["name"]}))
});
static UPDATE: LazyLock<Schema> = LazyLock::new(|| {
    let properties = json!({"name": name(), "availability_zone": zone()});
    object("aggregate", &properties, &json!({"minProperties": 1}))
});
static ADD_HOST: LazyLock<Schema> = LazyLock::new(|| of_host("add_host"));
static REMOVE_HOST: LazyLock<Schema> = LazyLock::new(|| of_host("remove_host"));
static SET_METADATA: LazyLock<Schema> = LazyLock::new(|| {
    let metadata = json!({
        "type": "object",
        "patternProperties": {"^[a-zA-Z0-9-_:. ]{1,255}$": {
            "type": ["string", "null"], "maxLength": 255,
        }},
        "additionalProperties": false,
    });
    object("set_metadata", &json!({"metadata": metadata}), &json!({"required": ["metadata"]}))
});

fn of_host(action: &str) -> Schema {
    let host = json!({
        "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[a-zA-Z0-9-._]*$",
    });
    object(action, &json!({"host": host}), &json!({"required": ["host"]}))
}

/// Reads the name and the zone of a new aggregate.
///
/// # Errors
/// 400 naming the field.
pub(super) fn create(body: &Value) -> Result<(String, Option<String>), Refusal> {
    CREATE.check(body)?;
    let fields = &body["aggregate"];
    let name = input::text_of(fields, "name").unwrap_or_default();
    input::check_name("name", &name)?;
    let zone = input::text_of(fields, "availability_zone");
    if let Some(zone) = &zone {
        check_zone(zone)?;
    }
    Ok((name, zone))
}

/// Refuses zone names that Nova's `az_name` format refuses: a request that creates a server names a
/// zone and a host as `ZONE:HOST`, so no zone name may contain a colon.
fn check_zone(zone: &str) -> Result<(), Refusal> {
    input::check_name("availability_zone", zone)?;
    if zone.contains(':') {
        return Err(Refusal::bad_request(format!(
            "Invalid input for field/attribute availability_zone. Value: {zone}. It can not contain ':'."
        )));
    }
    Ok(())
}

/// Reads the change of name and zone. As in upstream
/// (`nova/api/openstack/compute/schemas/aggregates.py`), leading and trailing spaces of the name are
/// removed here, but refused for a new aggregate.
///
/// # Errors
/// 400 naming the field.
pub(super) fn update(body: &Value) -> Result<Change, Refusal> {
    UPDATE.check(body)?;
    let fields = &body["aggregate"];
    let name = input::text_of(fields, "name");
    let name = name.map(|name| input::trimmed_name("name", &name)).transpose()?;
    let zone = fields.get("availability_zone").map(|zone| zone.as_str().map(str::to_owned));
    if let Some(Some(zone)) = &zone {
        check_zone(zone)?;
    }
    Ok(Change { name, zone })
}

/// Reads the action from a body.
///
/// # Errors
/// 400 naming the field or the unknown action.
pub(super) fn action(body: &Value) -> Result<AggregateAction, Refusal> {
    let host = |action: &str| {
        HostName::verbatim(input::text_of(&body[action], "host").unwrap_or_default())
    };
    match body.as_object().and_then(|body| body.keys().next()).map(String::as_str) {
        Some("add_host") => {
            ADD_HOST.check(body)?;
            Ok(AggregateAction::AddHost(host("add_host")))
        }
        Some("remove_host") => {
            REMOVE_HOST.check(body)?;
            Ok(AggregateAction::RemoveHost(host("remove_host")))
        }
        Some("set_metadata") => {
            SET_METADATA.check(body)?;
            let metadata = body["set_metadata"]["metadata"].as_object();
            let value = |value: &Value| value.as_str().map(str::to_owned);
            let pairs = metadata.into_iter().flatten().map(|(key, v)| (key.clone(), value(v)));
            Ok(AggregateAction::SetMetadata(pairs.collect()))
        }
        Some(other) => Err(Refusal::bad_request(format!("There is no such action: {other}"))),
        None => Err(Refusal::bad_request("Malformed request body")),
    }
}
