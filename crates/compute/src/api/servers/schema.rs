//! The schema of the body of `POST /servers`, by microversion. Fields that the microversion does not
//! define are refused.

use kilonova_compute_app::microversions::{
    ALWAYS, DESCRIPTION, DEVICE_TAGS, DEVICE_TAGS_AGAIN, FILES_GONE, FQDN_HOSTNAME, HOST_AT_BOOT,
    HOSTNAME, HYPERVISOR_PAGES, NETWORKS_REQUIRED, TAGS_AT_BOOT, TRUSTED_CERTIFICATES, VOLUME_TYPE,
    before, between, since,
};
use kilonova_compute_app::schemas::{self, fields, file, text};
use kilonova_wire::{Microversion, Refusal};
use serde_json::{Value, json};

use crate::api::input::{self, body_schemas};

/// Maximum number of networks, and of security groups, of a request. Each may cost a call to Neutron, and no guest
/// has that many interfaces.
const MOST_NETWORKS: usize = 255;
/// Maximum number of bytes of the scheduler hints: each server's row has them.
const LARGEST_HINTS: usize = 64 * 1024;
/// Maximum number of servers in `same_host` and in `different_host`: each claim looks up the host of each.
const MOST_HINTED: usize = 255;

body_schemas!(SCHEMAS, create, the_schemas_of_a_new_server_compile);

/// Checks the body of `POST /servers`.
///
/// # Errors
/// 400 naming the field.
pub(super) fn check_create(body: &Value, version: Microversion) -> Result<(), Refusal> {
    SCHEMAS.check(version, body)?;
    let server = &body["server"];
    for field in ["networks", "security_groups"] {
        if server[field].as_array().is_some_and(|list| list.len() > MOST_NETWORKS) {
            return Err(Refusal::bad_request(format!(
                "Invalid input for field/attribute {field}. A request may have at most {MOST_NETWORKS}."
            )));
        }
    }
    for field in ["os:scheduler_hints", "OS-SCH-HNT:scheduler_hints"] {
        check_hints(field, &body[field])?;
    }
    for field in ["name", "key_name", "availability_zone"] {
        if let Some(name) = server[field].as_str() {
            input::check_name(field, name.trim())?;
        }
    }
    check_effect(server)
}

/// Bounds the scheduler hints.
fn check_hints(field: &str, hints: &Value) -> Result<(), Refusal> {
    for name in ["same_host", "different_host"] {
        if hints[name].as_array().is_some_and(|ids| ids.len() > MOST_HINTED) {
            return Err(Refusal::bad_request(format!(
                "Invalid input for field/attribute {name}. It may name at most {MOST_HINTED} servers."
            )));
        }
    }
    if hints.is_object() && hints.to_string().len() > LARGEST_HINTS {
        return Err(Refusal::bad_request(format!(
            "Invalid input for field/attribute {field}. The hints may have at most {LARGEST_HINTS} bytes."
        )));
    }
    Ok(())
}

/// Refuses fields of a create or rebuild request that would have no effect here.
///
/// # Errors
/// 400 naming the field.
pub(super) fn check_effect(server: &Value) -> Result<(), Refusal> {
    if server["trusted_image_certificates"].is_array() {
        return Err(Refusal::bad_request(
            "Invalid input for field/attribute trusted_image_certificates. Signatures of images are not checked. Leave it \
             out.",
        ));
    }
    Ok(())
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
    let (min, max, pattern) = match dots {
        true => (1, 255, "^[a-zA-Z0-9-._]*$"),
        false => (2, 63, "^[a-zA-Z0-9]+[a-zA-Z0-9-]*[a-zA-Z0-9]+$"),
    };
    json!({"type": "string", "minLength": min, "maxLength": max, "pattern": pattern})
}

fn tag() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 60, "pattern": "^[^,/]*$"})
}

fn device(version: Microversion) -> Value {
    let size = json!({
        "type": ["integer", "string"], "pattern": "^[0-9]+$", "minimum": 1,
        "maximum": schemas::MAX_INT,
    });
    let path = json!({
        "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[a-zA-Z0-9._/-]*$",
    });
    let properties = fields(
        version,
        [
            (
                ALWAYS,
                "uuid",
                json!({
                    "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[a-zA-Z0-9._-]*$",
                }),
            ),
            (
                ALWAYS,
                "boot_index",
                json!({
                    "type": ["integer", "string", "null"], "pattern": "^-?[0-9]+$",
                }),
            ),
            (ALWAYS, "source_type", json!({"enum": ["volume", "image", "snapshot", "blank"]})),
            (ALWAYS, "destination_type", json!({"enum": ["volume", "local"]})),
            (ALWAYS, "delete_on_termination", schemas::boolean()),
            (ALWAYS, "volume_size", size),
            (ALWAYS, "volume_id", uuid()),
            (ALWAYS, "snapshot_id", uuid()),
            (ALWAYS, "image_id", uuid()),
            (ALWAYS, "device_name", path),
            (ALWAYS, "disk_bus", short()),
            (ALWAYS, "device_type", short()),
            (ALWAYS, "guest_format", short()),
            (ALWAYS, "virtual_name", short()),
            (ALWAYS, "connection_info", json!({"type": "string", "maxLength": 16_777_215})),
            (ALWAYS, "no_device", json!({})),
            (between(DEVICE_TAGS, HYPERVISOR_PAGES), "tag", tag()),
            (since(DEVICE_TAGS_AGAIN), "tag", tag()),
            (
                since(VOLUME_TYPE),
                "volume_type",
                json!({"type": ["string", "null"], "maxLength": 255}),
            ),
        ],
    );
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

/// Unlike upstream, `none` and `auto` are accepted before 2.37 too.
fn networks(version: Microversion) -> Value {
    let properties = fields(
        version,
        [
            (ALWAYS, "uuid", uuid()),
            (ALWAYS, "port", json!({"type": ["string", "null"], "format": "uuid"})),
            (
                ALWAYS,
                "fixed_ip",
                json!({
                    "type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}],
                }),
            ),
            (between(DEVICE_TAGS, NETWORKS_REQUIRED), "tag", tag()),
            (since(DEVICE_TAGS_AGAIN), "tag", tag()),
        ],
    );
    let network =
        json!({"type": "object", "properties": properties, "additionalProperties": false});
    let list = json!({"type": "array", "items": network});
    json!({"oneOf": [list, {"enum": ["none", "auto"]}]})
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

fn create(version: Microversion) -> Value {
    let certificates = json!({
        "type": ["array", "null"], "minItems": 1, "maxItems": 50, "uniqueItems": true,
        "items": {"type": "string", "minLength": 1},
    });
    let group = json!({
        "type": "object", "properties": {"name": text(255)}, "additionalProperties": false,
    });
    let image = json!({"anyOf": [uuid(), {"type": "string", "maxLength": 0}]});
    let properties = fields(
        version,
        [
            (ALWAYS, "name", text(255)),
            (ALWAYS, "flavorRef", json!({"type": ["string", "integer"], "minLength": 1})),
            (ALWAYS, "imageRef", image),
            (ALWAYS, "adminPass", json!({"type": "string"})),
            (ALWAYS, "metadata", json!({"type": "object"})),
            (ALWAYS, "networks", networks(version)),
            (ALWAYS, "OS-DCF:diskConfig", json!({"enum": ["AUTO", "MANUAL"]})),
            (ALWAYS, "accessIPv4", json!({"type": "string", "format": "ipv4"})),
            (ALWAYS, "accessIPv6", json!({"type": "string", "format": "ipv6"})),
            (before(FILES_GONE), "personality", json!({"type": "array", "items": file()})),
            (ALWAYS, "availability_zone", text(255)),
            (
                ALWAYS,
                "block_device_mapping",
                json!({
                    "type": "array", "items": {"type": "object"},
                }),
            ),
            (
                ALWAYS,
                "block_device_mapping_v2",
                json!({
                    "type": "array", "items": device(version),
                }),
            ),
            (ALWAYS, "config_drive", schemas::boolean()),
            (ALWAYS, "key_name", text(255)),
            (ALWAYS, "min_count", count()),
            (ALWAYS, "max_count", count()),
            (ALWAYS, "return_reservation_id", schemas::boolean()),
            (ALWAYS, "security_groups", json!({"type": "array", "items": group})),
            (ALWAYS, "user_data", json!({"type": "string", "maxLength": 65535})),
            (since(DESCRIPTION), "description", schemas::description()),
            (since(TAGS_AT_BOOT), "tags", json!({"type": "array", "maxItems": 50, "items": tag()})),
            (since(TRUSTED_CERTIFICATES), "trusted_image_certificates", certificates),
            (since(HOST_AT_BOOT), "host", host_name(true)),
            (since(HOST_AT_BOOT), "hypervisor_hostname", host_name(true)),
            (between(HOSTNAME, FQDN_HOSTNAME), "hostname", host_name(false)),
            (since(FQDN_HOSTNAME), "hostname", host_name(true)),
        ],
    );
    let mut required = vec!["name", "flavorRef"];
    if version >= NETWORKS_REQUIRED {
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
    use kilonova_compute_app::microversions::{self, ALL, Span};

    fn at(version: Microversion, field: &str, value: Value) -> Result<(), Refusal> {
        let mut server = json!({"name": "a", "flavorRef": "1"});
        if version >= NETWORKS_REQUIRED {
            server["networks"] = json!("none");
        }
        server[field] = value;
        check_create(&json!({"server": server}), version)
    }

    #[test]
    fn lists_and_hints_are_bounded() {
        let uuid = "11111111-1111-4111-8111-111111111111";
        let version = microversions::MAX;
        for (field, entry) in
            [("networks", json!({"uuid": uuid})), ("security_groups", json!({"name": "a"}))]
        {
            let entries = |count: usize| json!(vec![entry.clone(); count]);
            assert!(at(version, field, entries(255)).is_ok(), "{field}");
            let refusal = at(version, field, entries(256)).expect_err("there are too many");
            let words = format!("field/attribute {field}. A request may have at most 255.");
            assert!(refusal.message.contains(&words), "{}", refusal.message);
        }
        let with = |key: &str, hints: Value| {
            let server = json!({"name": "a", "flavorRef": "1", "networks": "none"});
            check_create(&json!({"server": server, key: hints}), version)
        };
        for key in ["os:scheduler_hints", "OS-SCH-HNT:scheduler_hints"] {
            for name in ["same_host", "different_host"] {
                assert!(with(key, json!({name: vec![uuid; 255]})).is_ok(), "{name}");
                let refusal = with(key, json!({name: vec![uuid; 256]})).expect_err("too many");
                assert!(refusal.message.contains(name), "{}", refusal.message);
            }
            assert!(with(key, json!({"x": "y".repeat(65_000)})).is_ok(), "{key}");
            let refusal = with(key, json!({"x": "y".repeat(66_000)})).expect_err("too large");
            assert!(refusal.message.contains("at most 65536 bytes"), "{}", refusal.message);
        }
    }

    #[test]
    fn refusals_name_the_invalid_field() {
        for (field, value) in [
            ("name", json!(7)),
            ("colour", json!("red")),
            ("accessIPv4", json!("::1")),
            ("config_drive", json!(null)),
            ("security_groups", json!(["x"])),
            ("networks", json!("some")),
            ("trusted_image_certificates", json!(["x"])),
        ] {
            let refusal = at(microversions::MAX, field, value).unwrap_err();
            assert!(refusal.message.contains(field), "{}", refusal.message);
        }
    }

    #[test]
    fn each_field_is_known_only_in_its_microversions() {
        for (field, value, span) in [
            ("hostname", json!("hh"), since(HOSTNAME)),
            ("hostname", json!("h.x"), since(FQDN_HOSTNAME)),
            ("description", json!("d"), since(DESCRIPTION)),
            ("tags", json!(["t"]), since(TAGS_AT_BOOT)),
            ("personality", json!([]), before(FILES_GONE)),
        ] {
            for version in ALL {
                let known = Span::has(span, *version);
                assert_eq!(
                    at(*version, field, value.clone()).is_ok(),
                    known,
                    "{field} at {version}"
                );
            }
        }
    }
}
