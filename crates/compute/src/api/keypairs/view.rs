//! Views of a key pair, by microversion.

use kilonova_compute_app::microversions;
use kilonova_compute_db::keypairs::Keypair;
use kilonova_wire::{Microversion, time};
use serde_json::{Value, json};

/// The view in a list.
pub(super) fn brief(keypair: &Keypair, version: Microversion) -> Value {
    let mut shown = json!({
        "name": keypair.name,
        "public_key": keypair.public_key,
        "fingerprint": keypair.fingerprint,
    });
    if version >= microversions::KEYPAIR_TYPES {
        shown["type"] = json!(keypair.kind);
    }
    shown
}

/// The view in the answer to a creation.
pub(super) fn created(keypair: &Keypair, version: Microversion) -> Value {
    let mut shown = brief(keypair, version);
    shown["user_id"] = json!(keypair.user_id);
    shown
}

/// The full view.
pub(super) fn detail(keypair: &Keypair, version: Microversion) -> Value {
    let mut shown = created(keypair, version);
    shown["created_at"] = json!(time::naive(keypair.created_at));
    shown["id"] = json!(keypair.number);
    shown["deleted"] = json!(false);
    shown["deleted_at"] = Value::Null;
    shown["updated_at"] = Value::Null;
    shown
}
