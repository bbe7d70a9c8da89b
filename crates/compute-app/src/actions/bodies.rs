//! The JSON schemas of the arguments of server actions, and their check.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::LazyLock;

use kilonova_wire::schema::MASK;
use kilonova_wire::{Microversion, Refusal};
use serde_json::{Map, Value, json};

use super::{Body, ServerAction};
use crate::microversions::{
    ALWAYS, BLOCK_MIGRATION_AUTO, DESCRIPTION, EVACUATE_FORCE, FILES_GONE, FORCE_GONE,
    FQDN_HOSTNAME, HOSTNAME, LIVE_MIGRATE_FORCE, LOCK_REASON, MIGRATE_TO_HOST, NO_SHARED_STORAGE,
    REBUILD_KEY, TRUSTED_CERTIFICATES, UNSHELVE_TO_HOST, UNSHELVE_TO_ZONE, before, between, since,
};
use crate::schemas::{self, Schemas, fields, file, text};

/// The schemas, each for the whole body, including the action's key.
static SCHEMAS: LazyLock<HashMap<ServerAction, Schemas>> = LazyLock::new(|| {
    let bodies = ServerAction::ALL.iter().filter_map(|action| {
        let (row, key) = (action.row(), action.row().key()?);
        let Body::Schema(of) = row.body else { return None };
        Some((*action, Schemas::of_property(key, of)))
    });
    bodies.collect()
});

/// Checks the argument of an action.
///
/// # Errors
/// 400 naming the field.
pub fn check_body(
    action: ServerAction,
    version: Microversion,
    argument: &Value,
) -> Result<(), Refusal> {
    let row = action.row();
    let name = row.key().unwrap_or(row.refused_as);
    // The argument may contain a password.
    let wrong = |why: &str| {
        let text = |value: &dyn Display| {
            format!("Invalid input for field/attribute {name}. Value: {value}. {why}")
        };
        Err(Refusal::bad_request(text(argument)).with_logged(text(&MASK)))
    };
    let of = match row.body {
        Body::Ignored => return Ok(()),
        Body::Nothing if is_empty(argument) => return Ok(()),
        Body::Nothing => return wrong("The action takes no argument."),
        Body::Schema(of) => of,
    };
    let schema = of(version);
    if let Some(given) = argument.as_object() {
        let required = schema["required"].as_array().into_iter().flatten();
        let missing = required.filter_map(Value::as_str).find(|key| !given.contains_key(*key));
        if let Some(key) = missing {
            return wrong(&format!("'{key}' is a required property"));
        }
        let known = schema["properties"].as_object();
        let names =
            || known.into_iter().flat_map(Map::keys).cloned().collect::<Vec<_>>().join(", ");
        if schema["additionalProperties"] == false
            && let Some(key) =
                given.keys().find(|key| known.is_some_and(|all| !all.contains_key(*key)))
        {
            return wrong(&format!(
                "Additional properties are not allowed ('{}' was unexpected). The properties are: {}.",
                key.escape_debug(),
                names()
            ));
        }
        if given.is_empty() && schema["minProperties"] == 1 {
            return wrong(&format!("It takes at least one of: {}.", names()));
        }
    }
    let schemas = SCHEMAS.get(&action);
    schemas.map_or(Ok(()), |schemas| schemas.check(version, &json!({name: argument})))
}

fn is_empty(argument: &Value) -> bool {
    argument.is_null() || argument.as_object().is_some_and(Map::is_empty)
}

fn host() -> Value {
    json!({"type": ["string", "null"], "minLength": 1, "maxLength": 255})
}

/// `trigger_crash_dump`.
pub(super) fn null(_: Microversion) -> Value {
    json!({"type": "null"})
}

/// `reboot`.
pub(super) fn reboot(_: Microversion) -> Value {
    json!({
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["HARD", "Hard", "hard", "SOFT", "Soft", "soft"]},
        },
        "required": ["type"],
        "additionalProperties": false,
    })
}

/// `lock`. Upstream ignores the argument before the microversion that gives it a meaning.
pub(super) fn lock(version: Microversion) -> Value {
    if version < LOCK_REASON {
        return json!({});
    }
    json!({
        "type": ["object", "null"],
        "properties": {"locked_reason": text(255)},
        "additionalProperties": false,
    })
}

/// `rescue`.
pub(super) fn rescue(_: Microversion) -> Value {
    json!({
        "type": ["object", "null"],
        "properties": {
            "adminPass": {"type": "string"},
            "rescue_image_ref": {"type": "string", "minLength": 1},
        },
        "additionalProperties": false,
    })
}

/// `createImage`.
pub(super) fn create_image(_: Microversion) -> Value {
    json!({
        "type": "object",
        "properties": {"name": text(255), "metadata": {"type": "object"}},
        "required": ["name"],
        "additionalProperties": false,
    })
}

/// `createBackup`.
pub(super) fn create_backup(_: Microversion) -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": text(255),
            "metadata": {"type": "object"},
            "backup_type": {"type": "string"},
            "rotation": schemas::integer(0),
        },
        "required": ["name", "backup_type", "rotation"],
        "additionalProperties": false,
    })
}

/// `rebuild`.
pub(super) fn rebuild(version: Microversion) -> Value {
    let dots = version >= FQDN_HOSTNAME;
    let hostname = json!({
        "type": "string", "minLength": 1, "maxLength": if dots { 255 } else { 63 },
        "pattern": if dots { "^[a-zA-Z0-9-._]*$" } else { "^[a-zA-Z0-9-_]*$" },
    });
    let key = json!({"type": ["string", "null"], "minLength": 1, "maxLength": 255});
    let user_data = json!({"type": ["string", "null"], "maxLength": 65535});
    let certificates = json!({
        "type": ["array", "null"], "minItems": 1, "maxItems": 50, "uniqueItems": true,
        "items": text(255),
    });
    let properties = fields(
        version,
        [
            (ALWAYS, "imageRef", json!({"type": "string"})),
            (ALWAYS, "name", text(255)),
            (ALWAYS, "adminPass", json!({"type": "string"})),
            (ALWAYS, "metadata", json!({"type": "object"})),
            (ALWAYS, "preserve_ephemeral", schemas::boolean()),
            (ALWAYS, "OS-DCF:diskConfig", json!({"type": "string", "enum": ["AUTO", "MANUAL"]})),
            (ALWAYS, "accessIPv4", json!({"type": "string", "format": "ipv4"})),
            (ALWAYS, "accessIPv6", json!({"type": "string", "format": "ipv6"})),
            (before(FILES_GONE), "personality", json!({"type": "array", "items": file()})),
            (since(DESCRIPTION), "description", schemas::description()),
            (since(REBUILD_KEY), "key_name", key),
            (since(FILES_GONE), "user_data", user_data),
            (since(TRUSTED_CERTIFICATES), "trusted_image_certificates", certificates),
            (since(HOSTNAME), "hostname", hostname),
        ],
    );
    json!({
        "type": "object",
        "properties": properties,
        "required": ["imageRef"],
        "additionalProperties": false,
    })
}

/// `unshelve`. Upstream ignores the argument before the microversion that gives it a meaning.
pub(super) fn unshelve(version: Microversion) -> Value {
    if version < UNSHELVE_TO_ZONE {
        return json!({});
    }
    let latest = version >= UNSHELVE_TO_HOST;
    let zone = if latest { host() } else { text(255) };
    let properties = fields(
        version,
        [
            (since(UNSHELVE_TO_ZONE), "availability_zone", zone),
            (since(UNSHELVE_TO_HOST), "host", text(255)),
        ],
    );
    json!({
        "type": ["object", "null"],
        "properties": properties,
        "minProperties": 1,
        "additionalProperties": false,
    })
}

/// `os-resetState`.
pub(super) fn reset_state(_: Microversion) -> Value {
    json!({
        "type": "object",
        "properties": {"state": {"enum": ["active", "error"]}},
        "required": ["state"],
        "additionalProperties": false,
    })
}

/// `os-getConsoleOutput`: a number of lines, as an integer or a string; -1 or null for all lines.
pub(super) fn console_output(_: Microversion) -> Value {
    let length = json!({
        "type": ["integer", "string", "null"], "pattern": "^[+-]?[0-9]+$",
        "minimum": -1, "maximum": u32::MAX,
    });
    json!({"type": "object", "properties": {"length": length}, "additionalProperties": false})
}

/// `changePassword`.
pub(super) fn change_password(_: Microversion) -> Value {
    json!({
        "type": "object",
        "properties": {"adminPass": {"type": "string"}},
        "required": ["adminPass"],
        "additionalProperties": false,
    })
}

/// `addSecurityGroup`, `removeSecurityGroup`.
pub(super) fn security_group(_: Microversion) -> Value {
    json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]})
}

/// `addFixedIp`.
pub(super) fn add_fixed_ip(_: Microversion) -> Value {
    json!({
        "type": "object",
        "properties": {
            "networkId": {"type": ["string", "number"], "minLength": 1, "maxLength": 36},
        },
        "required": ["networkId"],
        "additionalProperties": false,
    })
}

/// `removeFixedIp`.
pub(super) fn remove_fixed_ip(_: Microversion) -> Value {
    json!({
        "type": "object",
        "properties": {
            "address": {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
        },
        "required": ["address"],
        "additionalProperties": false,
    })
}

/// The actions that open a console.
pub(super) fn console(_: Microversion) -> Value {
    json!({"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]})
}

/// `resize`.
pub(super) fn resize(_: Microversion) -> Value {
    json!({
        "type": "object",
        "properties": {
            "flavorRef": {"type": ["string", "integer"], "minLength": 1, "minimum": 0},
            "OS-DCF:diskConfig": {"enum": ["AUTO", "MANUAL"]},
        },
        "required": ["flavorRef"],
        "additionalProperties": false,
    })
}

/// `migrate`. Upstream ignores the argument before the microversion that gives it a meaning.
pub(super) fn migrate(version: Microversion) -> Value {
    if version < MIGRATE_TO_HOST {
        return json!({});
    }
    json!({
        "type": ["object", "null"],
        "properties": {"host": host()},
        "additionalProperties": false,
    })
}

/// `os-migrateLive`.
pub(super) fn live_migrate(version: Microversion) -> Value {
    let mut block = schemas::boolean();
    if version >= BLOCK_MIGRATION_AUTO
        && let Some(words) = block["enum"].as_array_mut()
    {
        words.push(json!("auto"));
    }
    let properties = fields(
        version,
        [
            (ALWAYS, "host", host()),
            (ALWAYS, "block_migration", block),
            (before(BLOCK_MIGRATION_AUTO), "disk_over_commit", schemas::boolean()),
            (between(LIVE_MIGRATE_FORCE, FORCE_GONE), "force", schemas::boolean()),
        ],
    );
    let mut required = vec!["host", "block_migration"];
    if version < BLOCK_MIGRATION_AUTO {
        required.push("disk_over_commit");
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// `evacuate`.
pub(super) fn evacuate(version: Microversion) -> Value {
    let properties = fields(
        version,
        [
            (ALWAYS, "host", host()),
            (ALWAYS, "adminPass", json!({"type": "string"})),
            (before(NO_SHARED_STORAGE), "onSharedStorage", schemas::boolean()),
            (between(EVACUATE_FORCE, FORCE_GONE), "force", schemas::boolean()),
        ],
    );
    let required: &[&str] = if version < NO_SHARED_STORAGE { &["onSharedStorage"] } else { &[] };
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use kilonova_wire::refusal::Kind;

    use super::*;
    use crate::microversions::{MAX, MIN};

    #[test]
    fn the_schemas_of_all_actions_compile() {
        SCHEMAS.values().for_each(Schemas::compile);
    }

    fn takes(action: ServerAction, version: Microversion, argument: Value) -> bool {
        check_body(action, version, &argument).is_ok()
    }

    #[test]
    fn a_reboot_names_its_type_and_nothing_else() {
        for kind in ["HARD", "Hard", "soft", "SOFT"] {
            assert!(takes(ServerAction::Reboot, MIN, json!({"type": kind})), "{kind}");
        }
        for wrong in [
            json!(null),
            json!({}),
            json!({"type": "warm"}),
            json!({"type": "hArD"}),
            json!({"type": "SOFT", "wait": true}),
        ] {
            let fault = check_body(ServerAction::Reboot, MAX, &wrong).unwrap_err();
            assert_eq!(fault.kind, Kind::BadRequest, "{wrong}");
        }
    }

    #[test]
    fn arguments_mean_something_from_their_microversion_on() {
        let reason = json!({"locked_reason": 7});
        assert!(
            takes(ServerAction::Lock, MIN, reason.clone())
                && !takes(ServerAction::Lock, LOCK_REASON, reason)
        );
        let host = json!({"host": "a"});
        for (action, first) in
            [(ServerAction::Migrate, MIGRATE_TO_HOST), (ServerAction::Unshelve, UNSHELVE_TO_HOST)]
        {
            assert!(takes(action, first, host.clone()) && takes(action, MAX, json!(null)));
            assert!(takes(action, MIN, json!("anything")) && !takes(action, first, json!("a")));
        }
        assert!(!takes(ServerAction::Unshelve, UNSHELVE_TO_ZONE, host));
        let zone = json!({"availability_zone": null});
        assert!(!takes(ServerAction::Unshelve, UNSHELVE_TO_ZONE, zone.clone()));
        assert!(takes(ServerAction::Unshelve, UNSHELVE_TO_HOST, zone));
    }

    #[test]
    fn a_live_migration_names_what_its_microversion_requires() {
        let auto = json!({"host": null, "block_migration": "auto"});
        assert!(takes(ServerAction::LiveMigrate, BLOCK_MIGRATION_AUTO, auto.clone()));
        let fault = check_body(ServerAction::LiveMigrate, MIN, &auto).unwrap_err();
        assert!(fault.message.contains("'disk_over_commit' is a required property"), "{fault:?}");
        let forced = json!({"host": "a", "block_migration": true, "force": true});
        assert!(takes(ServerAction::LiveMigrate, LIVE_MIGRATE_FORCE, forced.clone()));
        assert!(!takes(ServerAction::LiveMigrate, FORCE_GONE, forced));
        assert!(
            takes(ServerAction::Stop, MIN, json!({}))
                && !takes(ServerAction::Stop, MIN, json!({"a": 1}))
        );
    }
}
