//! Bodies that add a key pair.

use std::sync::LazyLock;

use kilonova_wire::{Fault, Microversion};
use serde_json::{Value, json};

use crate::api::input;
use crate::app::keypairs::Kind;
use crate::microversions;
use crate::schemas::Schemas;

/// Longest public key that is taken; the longest real ones have a few thousand characters.
const MAX_KEY: usize = 65535;

fn schema(version: Microversion) -> Value {
    let names = if version >= microversions::KEYPAIR_IMPORT_ONLY {
        r"^[_\-@. a-zA-Z0-9]+$"
    } else {
        r"^[_\- a-zA-Z0-9]+$"
    };
    let mut properties = json!({
        "name": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": names},
        "public_key": {"type": "string", "maxLength": MAX_KEY},
    });
    if version >= microversions::KEYPAIR_TYPES {
        properties["type"] = json!({"type": "string", "enum": ["ssh", "x509"]});
    }
    if version >= microversions::KEYPAIRS_OF_OTHERS {
        properties["user_id"] = json!({"type": "string", "minLength": 1, "maxLength": 255});
    }
    let required: &[&str] = if version >= microversions::KEYPAIR_IMPORT_ONLY {
        &["name", "public_key"]
    } else {
        &["name"]
    };
    json!({
        "type": "object",
        "properties": {"keypair": {
            "type": "object", "properties": properties, "required": required,
            "additionalProperties": false,
        }},
        "required": ["keypair"],
        "additionalProperties": false,
    })
}

static CREATE: LazyLock<Schemas> = LazyLock::new(|| Schemas::new(schema));

/// A key pair that somebody wants.
pub(super) struct New {
    pub name: String,
    pub kind: Kind,
    /// Without one, a key pair is made.
    pub public_key: Option<String>,
}

/// Reads a request for a key pair.
///
/// # Errors
/// 400 naming the field.
pub(super) fn create(body: &Value, version: Microversion) -> Result<New, Fault> {
    CREATE.check(version, body)?;
    let wanted = &body["keypair"];
    let name = input::text_of(wanted, "name").unwrap_or_default();
    input::name("name", &name)?;
    // The schema knows these two kinds only.
    let kind = if wanted["type"] == "x509" { Kind::X509 } else { Kind::Ssh };
    Ok(New { name, kind, public_key: input::text_of(wanted, "public_key") })
}
