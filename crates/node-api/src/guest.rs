//! What a guest is told of itself, by its config drive.
//!
//! It is as of the boot, or the rebuild: later changes of a server do not reach a guest that exists.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::is_default;

/// What it is told. Its name, its id and its connections to networks are said elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Guest {
    /// Its host name, without a domain unless the user gave one.
    #[serde(skip_serializing_if = "is_default")]
    pub hostname: String,
    /// Id of its project.
    #[serde(skip_serializing_if = "is_default")]
    pub project: String,
    /// The public keys that may log in.
    #[serde(skip_serializing_if = "is_default")]
    pub keys: Vec<Key>,
    /// What the user has to say to it; base64, as it came.
    #[serde(skip_serializing_if = "is_default")]
    pub user_data: Option<String>,
    /// Metadata of the server.
    #[serde(skip_serializing_if = "is_default")]
    pub metadata: BTreeMap<String, String>,
    /// The zone of its host.
    #[serde(skip_serializing_if = "is_default")]
    pub availability_zone: String,
    /// Its place among those of one request.
    #[serde(skip_serializing_if = "is_default")]
    pub launch_index: i64,
    /// Id of that request.
    #[serde(skip_serializing_if = "is_default")]
    pub reservation: String,
    /// Name of its flavor.
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
