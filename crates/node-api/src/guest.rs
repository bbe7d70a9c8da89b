//! The metadata of a guest, for its config drive.
//!
//! It is as of the boot or the rebuild: later changes of the server do not reach an existing guest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::is_default;

/// Guest metadata. The server's name and id and its interfaces are in other parts of the document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuestMetadata {
    /// Host name; with a domain only if the user gave one.
    #[serde(skip_serializing_if = "is_default")]
    pub hostname: String,
    /// Project id.
    #[serde(skip_serializing_if = "is_default")]
    pub project: String,
    /// Authorized public keys.
    #[serde(skip_serializing_if = "is_default")]
    pub keys: Vec<Key>,
    /// The user data, in base64 as submitted.
    #[serde(skip_serializing_if = "is_default")]
    pub user_data: Option<String>,
    /// Metadata of the server.
    #[serde(skip_serializing_if = "is_default")]
    pub metadata: BTreeMap<String, String>,
    /// The availability zone of its host.
    #[serde(skip_serializing_if = "is_default")]
    pub availability_zone: String,
    /// Index among the servers of one request.
    #[serde(skip_serializing_if = "is_default")]
    pub launch_index: i64,
    /// Reservation id of that request.
    #[serde(skip_serializing_if = "is_default")]
    pub reservation: String,
    /// Name of the flavor.
    #[serde(skip_serializing_if = "is_default")]
    pub flavor: String,
}

/// A public key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Its name.
    pub name: String,
    /// `ssh` or `x509`.
    pub kind: String,
    /// The key.
    pub public_key: String,
}
