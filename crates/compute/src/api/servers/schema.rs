//! The body of `POST /servers`, by microversion. Unknown fields are refused; fields of later
//! microversions are unknown before.

use std::sync::LazyLock;

use kilonova_wire::schema::Schema;
use kilonova_wire::{Fault, Microversion};
use serde_json::{Map, Value, json};

use crate::api::input;

/// Minor versions at which the body changes.
const CHANGES: [u32; 13] = [1, 19, 32, 33, 37, 42, 52, 57, 63, 67, 74, 90, 94];

static SCHEMAS: LazyLock<Vec<(u32, Schema)>> =
    LazyLock::new(|| CHANGES.map(|minor| (minor, Schema::new(&create(minor)))).into());

/// Checks the body of `POST /servers`.
///
/// # Errors
/// 400 naming the field.
pub(super) fn check_create(body: &Value, version: Microversion) -> Result<(), Fault> {
    if let Some((_, schema)) = SCHEMAS.iter().rev().find(|(first, _)| *first <= version.1) {
        schema.check(body)?;
    }
    let server = &body["server"];
    for field in ["name", "key_name", "availability_zone"] {
        if let Some(name) = server[field].as_str() {
            input::name(field, name.trim())?;
        }
    }
    check_effect(server)
}

/// Checks that nothing is asked for that would have no effect, of a server that is made or made anew.
///
/// # Errors
/// 400 naming the field.
pub(super) fn check_effect(server: &Value) -> Result<(), Fault> {
    let unsupported = |field: &str, why: &str| {
        Err(Fault::bad_request(format!(
            "Invalid input for field/attribute {field}. {why} Leave it out."
        )))
    };
    if server["personality"].as_array().is_some_and(|files| !files.is_empty()) {
        return unsupported("personality", "Files are not injected into guests; use user_data.");
    }
    if server["trusted_image_certificates"].is_array() {
        return unsupported("trusted_image_certificates", "Signatures of images are not checked.");
    }
    Ok(())
}

fn text(max: u32) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": max})
}

fn short() -> Value {
    json!({"type": "string", "maxLength": 255})
}

fn uuid() -> Value {
    json!({"type": "string", "format": "uuid"})
}

fn count() -> Value {
    json!({"type": ["integer", "string"], "pattern": "^[0-9]*$", "minimum": 1, "minLength": 1})
}

pub(super) fn host_name(dots: bool) -> Value {
    let (least, most, pattern) = match dots {
        true => (1, 255, "^[a-zA-Z0-9-._]*$"),
        false => (2, 63, "^[a-zA-Z0-9]+[a-zA-Z0-9-]*[a-zA-Z0-9]+$"),
    };
    json!({"type": "string", "minLength": least, "maxLength": most, "pattern": pattern})
}

fn tag() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 60, "pattern": "^[^,/]*$"})
}

/// Fields that an object has from a minor version on, up to another.
fn fields(minor: u32, all: Vec<(u32, u32, &str, Value)>) -> Map<String, Value> {
    all.into_iter()
        .filter(|(first, last, ..)| (*first..=*last).contains(&minor))
        .map(|(.., name, schema)| (name.to_owned(), schema))
        .collect()
}

const EVER: u32 = 104;

fn device(minor: u32) -> Value {
    let size = json!({
        "type": ["integer", "string"], "pattern": "^[0-9]+$", "minimum": 1,
        "maximum": input::MAX_INT,
    });
    let path = json!({
        "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[a-zA-Z0-9._/-]*$",
    });
    let properties = fields(
        minor,
        vec![
            (
                1,
                EVER,
                "uuid",
                json!({
                    "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[a-zA-Z0-9._-]*$",
                }),
            ),
            (
                1,
                EVER,
                "boot_index",
                json!({
                    "type": ["integer", "string", "null"], "pattern": "^-?[0-9]+$",
                }),
            ),
            (1, EVER, "source_type", json!({"enum": ["volume", "image", "snapshot", "blank"]})),
            (1, EVER, "destination_type", json!({"enum": ["volume", "local"]})),
            (1, EVER, "delete_on_termination", input::boolean_schema()),
            (1, EVER, "volume_size", size),
            (1, EVER, "volume_id", uuid()),
            (1, EVER, "snapshot_id", uuid()),
            (1, EVER, "image_id", uuid()),
            (1, EVER, "device_name", path),
            (1, EVER, "disk_bus", short()),
            (1, EVER, "device_type", short()),
            (1, EVER, "guest_format", short()),
            (1, EVER, "virtual_name", short()),
            (1, EVER, "connection_info", json!({"type": "string", "maxLength": 16_777_215})),
            (1, EVER, "no_device", json!({})),
            (32, 32, "tag", tag()),
            (42, EVER, "tag", tag()),
            (67, EVER, "volume_type", json!({"type": ["string", "null"], "maxLength": 255})),
        ],
    );
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

/// The two words are taken before 2.37 too: there is nothing else that can be asked for here.
fn networks(minor: u32) -> Value {
    let properties = fields(
        minor,
        vec![
            (1, EVER, "uuid", uuid()),
            (1, EVER, "port", json!({"type": ["string", "null"], "format": "uuid"})),
            (
                1,
                EVER,
                "fixed_ip",
                json!({
                    "type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}],
                }),
            ),
            (32, 36, "tag", tag()),
            (42, EVER, "tag", tag()),
        ],
    );
    let network =
        json!({"type": "object", "properties": properties, "additionalProperties": false});
    let list = json!({"type": "array", "items": network});
    json!({"oneOf": [list, {"enum": ["none", "auto"]}]})
}

/// A file to put into a guest.
pub(super) fn file() -> Value {
    json!({
        "type": "object",
        "properties": {"path": {"type": "string"}, "contents": {"type": "string"}},
        "additionalProperties": false,
    })
}

fn hints() -> Value {
    let ids = json!({"anyOf": [uuid(), {"type": "array", "items": uuid()}]});
    let texts = json!({"type": ["string", "array"], "items": {"type": "string"}});
    json!({
        "type": "object",
        "properties": {
            "group": uuid(),
            "different_host": ids,
            "same_host": {"type": ["string", "array"], "items": uuid()},
            "query": {"type": ["string", "object"]},
            "target_cell": text(255),
            "different_cell": texts,
            "build_near_host_ip": {
                "type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}],
            },
            "cidr": {"type": "string", "pattern": r"^/[0-9a-f.:]+$"},
        },
    })
}

fn create(minor: u32) -> Value {
    let certificates = json!({
        "type": ["array", "null"], "minItems": 1, "maxItems": 50, "uniqueItems": true,
        "items": {"type": "string", "minLength": 1},
    });
    let group = json!({
        "type": "object", "properties": {"name": text(255)}, "additionalProperties": false,
    });
    let image = json!({"anyOf": [uuid(), {"type": "string", "maxLength": 0}]});
    let properties = fields(
        minor,
        vec![
            (1, EVER, "name", text(255)),
            (1, EVER, "flavorRef", json!({"type": ["string", "integer"], "minLength": 1})),
            (1, EVER, "imageRef", image),
            (1, EVER, "adminPass", json!({"type": "string"})),
            (1, EVER, "metadata", json!({"type": "object"})),
            (1, EVER, "networks", networks(minor)),
            (1, EVER, "OS-DCF:diskConfig", json!({"enum": ["AUTO", "MANUAL"]})),
            (1, EVER, "accessIPv4", json!({"type": "string", "format": "ipv4"})),
            (1, EVER, "accessIPv6", json!({"type": "string", "format": "ipv6"})),
            (1, 56, "personality", json!({"type": "array", "items": file()})),
            (1, EVER, "availability_zone", text(255)),
            (
                1,
                EVER,
                "block_device_mapping",
                json!({
                    "type": "array", "items": {"type": "object"},
                }),
            ),
            (
                1,
                EVER,
                "block_device_mapping_v2",
                json!({
                    "type": "array", "items": device(minor),
                }),
            ),
            (1, EVER, "config_drive", input::boolean_schema()),
            (1, EVER, "key_name", text(255)),
            (1, EVER, "min_count", count()),
            (1, EVER, "max_count", count()),
            (1, EVER, "return_reservation_id", input::boolean_schema()),
            (1, EVER, "security_groups", json!({"type": "array", "items": group})),
            (1, EVER, "user_data", json!({"type": "string", "maxLength": 65535})),
            (19, EVER, "description", input::description_schema()),
            (52, EVER, "tags", json!({"type": "array", "maxItems": 50, "items": tag()})),
            (63, EVER, "trusted_image_certificates", certificates),
            (74, EVER, "host", host_name(true)),
            (74, EVER, "hypervisor_hostname", host_name(true)),
            (90, 93, "hostname", host_name(false)),
            (94, EVER, "hostname", host_name(true)),
        ],
    );
    let mut required = vec!["name", "flavorRef"];
    if minor >= 37 {
        required.push("networks");
    }
    json!({
        "type": "object",
        "required": ["server"],
        "properties": {
            "server": {
                "type": "object", "required": required, "properties": properties,
                "additionalProperties": false,
            },
            "os:scheduler_hints": hints(),
            "OS-SCH-HNT:scheduler_hints": hints(),
        },
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minor: u32, field: &str, value: Value) -> Result<(), Fault> {
        let mut server = json!({"name": "a", "flavorRef": "1"});
        if minor >= 37 {
            server["networks"] = json!("none");
        }
        server[field] = value;
        check_create(&json!({"server": server}), Microversion(2, minor))
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (field, value) in [
            ("name", json!(7)),
            ("colour", json!("red")),
            ("accessIPv4", json!("::1")),
            ("config_drive", json!(null)),
            ("security_groups", json!(["x"])),
            ("networks", json!("some")),
            ("trusted_image_certificates", json!(["x"])),
        ] {
            let fault = at(100, field, value).unwrap_err();
            assert!(fault.message.contains(field), "{}", fault.message);
        }
    }

    #[test]
    fn fields_come_and_go_with_the_microversion() {
        for (field, value, first, last) in [
            ("hostname", json!("hh"), 90, 104),
            ("hostname", json!("h.x"), 94, 104),
            ("description", json!("d"), 19, 104),
            ("tags", json!(["t"]), 52, 104),
            ("personality", json!([]), 1, 56),
        ] {
            for minor in CHANGES {
                let known = (first..=last).contains(&minor);
                assert_eq!(at(minor, field, value.clone()).is_ok(), known, "{field} at {minor}");
            }
        }
    }
}
