//! Bodies that add a key pair.

use std::sync::LazyLock;

use kilonova_wire::schema::Schema;
use kilonova_wire::{Fault, Microversion};
use serde_json::{Value, json};

use crate::api::input;
use crate::app::keypairs::fingerprint;
use crate::db::keypairs::Keypair;

/// Longest public key that is taken; the longest real ones have a few thousand characters.
const MAX_KEY: usize = 65535;

fn schema(version: Microversion) -> Schema {
    let names = if version >= Microversion(2, 92) {
        r"^[_\-@. a-zA-Z0-9]+$"
    } else {
        r"^[_\- a-zA-Z0-9]+$"
    };
    let mut properties = json!({
        "name": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": names},
        "public_key": {"type": "string", "maxLength": MAX_KEY},
    });
    if version >= Microversion(2, 2) {
        properties["type"] = json!({"type": "string", "enum": ["ssh", "x509"]});
    }
    if version >= Microversion(2, 10) {
        properties["user_id"] = json!({"type": "string", "minLength": 1, "maxLength": 255});
    }
    let required: &[&str] =
        if version >= Microversion(2, 92) { &["name", "public_key"] } else { &["name"] };
    Schema::new(&json!({
        "type": "object",
        "properties": {"keypair": {
            "type": "object", "properties": properties, "required": required,
            "additionalProperties": false,
        }},
        "required": ["keypair"],
        "additionalProperties": false,
    }))
}

static CREATE_2_1: LazyLock<Schema> = LazyLock::new(|| schema(Microversion(2, 1)));
static CREATE_2_2: LazyLock<Schema> = LazyLock::new(|| schema(Microversion(2, 2)));
static CREATE_2_10: LazyLock<Schema> = LazyLock::new(|| schema(Microversion(2, 10)));
static CREATE_2_92: LazyLock<Schema> = LazyLock::new(|| schema(Microversion(2, 92)));

/// Reads a new key pair; its owner is for the caller to fill in.
///
/// # Errors
/// 400 naming the field, or for what is no public key.
pub(super) fn create(body: &Value, version: Microversion, now: i64) -> Result<Keypair, Fault> {
    match version.1 {
        ..2 => CREATE_2_1.check(body)?,
        2..10 => CREATE_2_2.check(body)?,
        10..92 => CREATE_2_10.check(body)?,
        92.. => CREATE_2_92.check(body)?,
    }
    let wanted = &body["keypair"];
    let name = input::text_of(wanted, "name").unwrap_or_default();
    input::name("name", &name)?;
    let kind = input::text_of(wanted, "type").unwrap_or_else(|| "ssh".into());
    if kind != "ssh" {
        return Err(Fault::bad_request(
            "Keypair data is invalid: only ssh key pairs are supported here.",
        ));
    }
    let Some(public_key) = input::text_of(wanted, "public_key") else {
        return Err(Fault::bad_request(
            "Keypair data is invalid: this service makes no private keys. Make the key pair \
             yourself (ssh-keygen) and send public_key.",
        ));
    };
    let fingerprint = fingerprint(&public_key)?;
    Ok(Keypair {
        number: 0,
        user_id: String::new(),
        name,
        kind,
        public_key,
        fingerprint,
        created_at: now,
    })
}
