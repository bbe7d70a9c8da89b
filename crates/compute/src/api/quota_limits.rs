//! Request bodies that set limits, and the limits that each microversion shows.

use kilonova_compute_app::microversions::{FILES_GONE, NETWORK_PROXIES_GONE, QUOTA_CLASS_GROUPS};
use kilonova_compute_app::quotas::RESOURCES;
use kilonova_compute_app::schemas;
use kilonova_wire::{Microversion, Refusal};
use serde_json::{Map, Value, json};

use super::input::{self, body_schemas};

const NETWORK: &[&str] = &["fixed_ips", "floating_ips", "security_group_rules", "security_groups"];
const FILES: &[&str] =
    &["injected_files", "injected_file_content_bytes", "injected_file_path_bytes"];

/// The resources that a microversion shows. Network resources are hidden from `network_gone` on.
pub(super) fn visible(
    version: Microversion,
    network_gone: Microversion,
) -> impl Iterator<Item = &'static str> {
    RESOURCES.iter().map(|(name, _)| *name).filter(move |name| {
        let gone = (NETWORK.contains(name) && version >= network_gone)
            || (FILES.contains(name) && version >= FILES_GONE);
        !gone
    })
}

fn schema(field: &str, version: Microversion, network_gone: Microversion, extra: &Value) -> Value {
    let mut properties: Map<String, Value> = visible(version, network_gone)
        .map(|name| (name.to_owned(), schemas::integer(-1)))
        .collect();
    if let Value::Object(extra) = extra {
        properties.extend(extra.clone());
    }
    json!({
        "type": "object",
        "properties": {field: {
            "type": "object", "properties": properties, "additionalProperties": false,
        }},
        "required": [field],
        "additionalProperties": false,
    })
}

fn set(version: Microversion) -> Value {
    schema("quota_set", version, NETWORK_PROXIES_GONE, &json!({"force": schemas::boolean()}))
}

fn class(version: Microversion) -> Value {
    schema("quota_class_set", version, QUOTA_CLASS_GROUPS, &Value::Null)
}

body_schemas!(SET, set, the_schemas_of_a_quota_set_compile);
body_schemas!(CLASS, class, the_schemas_of_a_quota_class_set_compile);

fn read(set: &Value) -> Result<Vec<(String, i64)>, Refusal> {
    let none = Map::new();
    set.as_object()
        .unwrap_or(&none)
        .iter()
        .filter(|(name, _)| *name != "force")
        .map(|(name, value)| Ok((name.clone(), input::integer(name, value, -1)?)))
        .collect()
}

/// The limits in a `quota_set`, and the value of `force`, which permits limits below the usage.
///
/// # Errors
/// 400 naming the field.
pub(super) fn read_set(
    body: &Value,
    version: Microversion,
) -> Result<(Vec<(String, i64)>, bool), Refusal> {
    SET.check(version, body)?;
    let set = &body["quota_set"];
    Ok((read(set)?, set.get("force").is_some_and(input::boolean)))
}

/// The limits in a `quota_class_set`.
///
/// # Errors
/// 400 naming the field.
pub(super) fn read_class(
    body: &Value,
    version: Microversion,
) -> Result<Vec<(String, i64)>, Refusal> {
    CLASS.check(version, body)?;
    read(&body["quota_class_set"])
}
