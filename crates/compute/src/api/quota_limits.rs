//! Bodies that set limits, and which limits each microversion knows.

use std::sync::LazyLock;

use kilonova_wire::schema::Schema;
use kilonova_wire::{Fault, Microversion};
use serde_json::{Map, Value, json};

use super::input;
use crate::app::quotas::RESOURCES;

const NETWORK: &[&str] = &["fixed_ips", "floating_ips", "security_group_rules", "security_groups"];
const FILES: &[&str] =
    &["injected_files", "injected_file_content_bytes", "injected_file_path_bytes"];

/// The resources that a microversion shows. Those of the network went with `network_until`: 36
/// for projects, 50 for classes.
pub(super) fn visible(
    version: Microversion,
    network_until: u32,
) -> impl Iterator<Item = &'static str> {
    RESOURCES.iter().map(|(name, _)| *name).filter(move |name| {
        let gone = (NETWORK.contains(name) && version.1 >= network_until)
            || (FILES.contains(name) && version.1 >= 57);
        !gone
    })
}

fn schema(field: &str, version: Microversion, network_until: u32, extra: Value) -> Schema {
    let mut properties: Map<String, Value> = visible(version, network_until)
        .map(|name| (name.to_owned(), input::integer_schema(-1)))
        .collect();
    if let Value::Object(extra) = extra {
        properties.extend(extra);
    }
    Schema::new(&json!({
        "type": "object",
        "properties": {field: {
            "type": "object", "properties": properties, "additionalProperties": false,
        }},
        "required": [field],
        "additionalProperties": false,
    }))
}

fn set_schema(version: u32) -> Schema {
    let force = json!({"force": input::boolean_schema()});
    schema("quota_set", Microversion(2, version), 36, force)
}

fn class_schema(version: u32) -> Schema {
    schema("quota_class_set", Microversion(2, version), 50, Value::Null)
}

static SET_2_1: LazyLock<Schema> = LazyLock::new(|| set_schema(1));
static SET_2_36: LazyLock<Schema> = LazyLock::new(|| set_schema(36));
static SET_2_57: LazyLock<Schema> = LazyLock::new(|| set_schema(57));
static CLASS_2_1: LazyLock<Schema> = LazyLock::new(|| class_schema(1));
static CLASS_2_50: LazyLock<Schema> = LazyLock::new(|| class_schema(50));
static CLASS_2_57: LazyLock<Schema> = LazyLock::new(|| class_schema(57));

fn read(set: &Value) -> Result<Vec<(String, i64)>, Fault> {
    let none = Map::new();
    set.as_object()
        .unwrap_or(&none)
        .iter()
        .filter(|(name, _)| *name != "force")
        .map(|(name, value)| Ok((name.clone(), input::integer(name, value, -1)?)))
        .collect()
}

/// The limits in a `quota_set`, and whether they are to hold whatever is used.
///
/// # Errors
/// 400 naming the field.
pub(super) fn read_set(
    body: &Value,
    version: Microversion,
) -> Result<(Vec<(String, i64)>, bool), Fault> {
    match version.1 {
        ..36 => SET_2_1.check(body)?,
        36..57 => SET_2_36.check(body)?,
        57.. => SET_2_57.check(body)?,
    }
    let set = &body["quota_set"];
    Ok((read(set)?, set.get("force").is_some_and(input::boolean)))
}

/// The limits in a `quota_class_set`.
///
/// # Errors
/// 400 naming the field.
pub(super) fn read_class(body: &Value, version: Microversion) -> Result<Vec<(String, i64)>, Fault> {
    match version.1 {
        ..50 => CLASS_2_1.check(body)?,
        50..57 => CLASS_2_50.check(body)?,
        57.. => CLASS_2_57.check(body)?,
    }
    read(&body["quota_class_set"])
}
