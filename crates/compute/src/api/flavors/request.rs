//! Request bodies that create or change a flavor.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use kilonova_compute_app::microversions;
use kilonova_compute_app::schemas;
use kilonova_compute_db::flavors::Flavor;
use kilonova_wire::schema::Schema;
use kilonova_wire::{Microversion, Refusal};
use serde_json::{Value, json};

use crate::api::input::{self, body_schemas};

const MAX_RXTX: f64 = 3.40282e38;

fn create_schema(version: Microversion) -> Value {
    let mut properties = json!({
        "name": {"type": "string", "minLength": 1, "maxLength": 255},
        "id": {
            "type": ["string", "number", "null"], "minLength": 1, "maxLength": 255,
            "pattern": "^[a-zA-Z0-9. _-]+$",
        },
        "ram": schemas::integer(1),
        "vcpus": schemas::integer(1),
        "disk": schemas::integer(0),
        "OS-FLV-EXT-DATA:ephemeral": schemas::integer(0),
        "swap": schemas::integer(0),
        "os-flavor-access:is_public": schemas::boolean(),
    });
    if version >= microversions::FLAVOR_DESCRIPTION {
        properties["description"] = description_schema();
    }
    if version < microversions::STRICT_QUERIES {
        properties["rxtx_factor"] = json!({
            "type": ["number", "string"], "pattern": r"^[0-9]+(\.[0-9]+)?$",
            "exclusiveMinimum": 0, "maximum": MAX_RXTX,
        });
    }
    wrapped(properties, &["name", "ram", "vcpus", "disk"])
}

fn description_schema() -> Value {
    json!({"type": ["string", "null"], "maxLength": 65535, "pattern": r"^[^\p{C}]*$"})
}

fn wrapped(properties: Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": {"flavor": {
            "type": "object", "properties": properties, "required": required,
            "additionalProperties": false,
        }},
        "required": ["flavor"],
        "additionalProperties": false,
    })
}

body_schemas!(CREATE, create_schema, the_schemas_of_a_new_flavor_compile);
static UPDATE: LazyLock<Schema> = LazyLock::new(|| {
    Schema::new(&wrapped(json!({"description": description_schema()}), &["description"]))
});

/// Reads a new flavor.
///
/// # Errors
/// 400 naming the field.
pub(super) fn create(
    body: &Value,
    version: Microversion,
    now: Timestamp,
) -> Result<Flavor, Refusal> {
    CREATE.check(version, body)?;
    let fields = &body["flavor"];
    let count = |key: &str, min: i64| match fields.get(key) {
        Some(value) => input::integer(key, value, min),
        None => Ok(0),
    };
    let name = input::text_of(fields, "name").unwrap_or_default();
    input::check_name("name", &name)?;
    Ok(Flavor {
        number: 0,
        id: id(&fields["id"])?,
        name,
        memory_mb: count("ram", 1)?,
        vcpus: count("vcpus", 1)?,
        root_gb: count("disk", 0)?,
        ephemeral_gb: count("OS-FLV-EXT-DATA:ephemeral", 0)?,
        swap: count("swap", 0)?,
        rxtx_factor: rxtx_factor(&fields["rxtx_factor"])?,
        is_public: fields.get("os-flavor-access:is_public").is_none_or(input::boolean),
        description: description(fields)?,
        extra_specs: BTreeMap::new(),
        created_at: now,
        updated_at: None,
    })
}

fn id(value: &Value) -> Result<String, Refusal> {
    let id = match value {
        Value::Null => return Ok(uuid::Uuid::new_v4().to_string()),
        Value::String(text) => text.clone(),
        number => number.to_string(),
    };
    input::check_name("id", &id)?;
    Ok(id)
}

fn rxtx_factor(value: &Value) -> Result<f64, Refusal> {
    let factor = match value {
        Value::Null => Some(1.0),
        Value::String(text) => text.parse().ok(),
        number => number.as_f64(),
    };
    factor.filter(|factor| *factor > 0.0 && *factor <= MAX_RXTX).ok_or_else(|| {
        Refusal::bad_request(format!(
            "Invalid input received: 'rxtx_factor' argument must be a float between 0 and {MAX_RXTX:e}"
        ))
    })
}

fn description(fields: &Value) -> Result<Option<String>, Refusal> {
    let description = input::text_of(fields, "description");
    if description.iter().any(|text| text.chars().any(char::is_control)) {
        return Err(Refusal::bad_request(
            "Invalid input for field/attribute description. It contains control characters.",
        ));
    }
    Ok(description)
}

/// Reads a new description.
///
/// # Errors
/// 400 naming the field.
pub(super) fn update(body: &Value) -> Result<Option<String>, Refusal> {
    UPDATE.check(body)?;
    description(&body["flavor"])
}
