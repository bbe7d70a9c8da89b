//! The body of `POST /servers`. Unknown fields are refused; fields of later microversions are known
//! only from there on.

use std::sync::LazyLock;

use kilonova_wire::schema::Schema;
use kilonova_wire::{Fault, Microversion};
use serde_json::{Value, json};

static CREATE: LazyLock<Schema> = LazyLock::new(|| Schema::new(&create()));

/// Fields by the minor version of 2.x that brought them.
const LATER: &[(&str, u32)] = &[
    ("description", 19),
    ("tags", 52),
    ("host", 74),
    ("hypervisor_hostname", 74),
    ("hostname", 90),
];

/// Checks the body of `POST /servers`.
///
/// # Errors
/// 400 naming the field.
pub(super) fn check_create(body: &Value, version: Microversion) -> Result<(), Fault> {
    CREATE.check(body)?;
    for (field, minor) in LATER {
        if version < Microversion(2, *minor) && body["server"].get(field).is_some() {
            return Err(Fault::bad_request(format!(
                "Invalid input for field/attribute server. Additional properties are not allowed \
                 ('{field}' was unexpected): it needs microversion 2.{minor}."
            )));
        }
    }
    Ok(())
}

fn count() -> Value {
    json!({"type": ["integer", "string"], "pattern": "^[0-9]+$", "minimum": 1})
}

fn flag() -> Value {
    json!({"type": ["boolean", "string", "null"],
        "enum": [true, false, "true", "false", "True", "False", "1", "0", "", null]})
}

fn create() -> Value {
    let text = |max: u32| json!({"type": "string", "minLength": 1, "maxLength": max});
    let device = json!({
        "type": "object",
        "properties": {
            "uuid": {"type": "string"},
            "boot_index": {"type": ["integer", "string", "null"]},
            "source_type": {"enum": ["volume", "image", "snapshot", "blank"]},
            "destination_type": {"enum": ["volume", "local"]},
            "delete_on_termination": flag(),
            "volume_size": {"type": ["integer", "string"]},
            "device_name": {"type": ["string", "null"]},
            "disk_bus": {"type": ["string", "null"]},
            "device_type": {"type": ["string", "null"]},
            "guest_format": {"type": ["string", "null"]},
            "volume_type": {"type": ["string", "null"]},
            "tag": {"type": ["string", "null"]},
        },
        "additionalProperties": false,
    });
    let network = json!({
        "type": "object",
        "properties": {
            "uuid": {"type": "string"}, "port": {"type": ["string", "null"]},
            "fixed_ip": {"type": "string"}, "tag": {"type": "string"},
        },
        "additionalProperties": false,
    });
    let server = json!({
        "type": "object",
        "required": ["name", "flavorRef"],
        "properties": {
            "name": text(255),
            "flavorRef": {"type": ["string", "integer"], "minLength": 1},
            "imageRef": {"type": "string"},
            "adminPass": {"type": "string"},
            "metadata": {"type": "object"},
            "networks": {"oneOf": [
                {"type": "array", "items": network}, {"enum": ["none", "auto"]},
            ]},
            "OS-DCF:diskConfig": {"enum": ["AUTO", "MANUAL"]},
            "accessIPv4": {"type": "string"},
            "accessIPv6": {"type": "string"},
            "personality": {"type": "array"},
            "availability_zone": text(255),
            "block_device_mapping": {"type": "array"},
            "block_device_mapping_v2": {"type": "array", "items": device},
            "config_drive": flag(),
            "key_name": {"type": ["string", "null"], "maxLength": 255},
            "min_count": count(),
            "max_count": count(),
            "return_reservation_id": flag(),
            "security_groups": {"type": "array"},
            "user_data": {"type": ["string", "null"], "maxLength": 65535},
            "description": {"type": ["string", "null"], "maxLength": 255},
            "tags": {"type": "array"},
            "trusted_image_certificates": {"type": ["array", "null"]},
            "host": text(255),
            "hypervisor_hostname": text(255),
            "hostname": {"type": "string", "minLength": 1, "maxLength": 255},
        },
        "additionalProperties": false,
    });
    json!({
        "type": "object",
        "required": ["server"],
        "properties": {
            "server": server,
            "os:scheduler_hints": {"type": "object"},
            "OS-SCH-HNT:scheduler_hints": {"type": "object"},
        },
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_compiles_and_names_what_is_wrong() {
        let version = Microversion(2, 100);
        let good = json!({"server": {"name": "a", "flavorRef": "1", "networks": "none"}});
        assert!(check_create(&good, version).is_ok());
        let wrong = json!({"server": {"name": 7, "flavorRef": "1"}});
        let fault = check_create(&wrong, version).unwrap_err();
        assert!(fault.message.contains("name"), "{}", fault.message);
        let unknown = json!({"server": {"name": "a", "flavorRef": "1", "colour": "red"}});
        let fault = check_create(&unknown, version).unwrap_err();
        assert!(fault.message.contains("colour"), "{}", fault.message);
        let later = json!({"server": {"name": "a", "flavorRef": "1", "hostname": "h"}});
        assert!(check_create(&later, Microversion(2, 89)).is_err());
    }
}
