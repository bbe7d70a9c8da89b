//! Request bodies that create or import a key pair.

use kilonova_compute_app::keypairs::Kind;
use kilonova_compute_app::microversions;
use kilonova_wire::{Microversion, Refusal};
use serde_json::{Value, json};

use crate::api::input::{self, body_schemas};

/// Maximum length of a public key. The longest real ones have a few thousand characters.
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
        properties["user_id"] = json!({"type": "string", "maxLength": 255});
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

body_schemas!(CREATE, schema, the_schemas_of_a_new_key_pair_compile);

/// A request for a key pair.
pub(super) struct CreateKeypair {
    pub name: String,
    pub kind: Kind,
    /// `None` if a key pair must be generated.
    pub public_key: Option<String>,
}

/// Reads a request for a key pair.
///
/// # Errors
/// 400 naming the field.
pub(super) fn create(body: &Value, version: Microversion) -> Result<CreateKeypair, Refusal> {
    CREATE.check(version, body)?;
    let fields = &body["keypair"];
    let name = input::text_of(fields, "name").unwrap_or_default();
    input::check_name("name", &name)?;
    // The schema allows only these two types.
    let kind = if fields["type"] == "x509" { Kind::X509 } else { Kind::Ssh };
    Ok(CreateKeypair { name, kind, public_key: input::text_of(fields, "public_key") })
}
