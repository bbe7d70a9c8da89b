//! The metadata of a guest, for its config drive and the metadata service on its host.
//!
//! A config drive contains the metadata as of the boot or of the last rebuild.

use std::collections::BTreeMap;

use kilonova_ids::ServerId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
    /// The EC2 numbers of its images.
    #[serde(skip_serializing_if = "is_default")]
    pub images: ImageNumbers,
    /// The vCPUs that have host CPUs of their own, in order.
    #[serde(skip_serializing_if = "is_default")]
    pub dedicated_cpus: Vec<u32>,
    /// The names of the security groups of its ports, in order.
    #[serde(skip_serializing_if = "is_default")]
    pub security_groups: Vec<String>,
    /// True if the operator's services provide vendor data for the guest, which the host requests
    /// from the controller.
    #[serde(skip_serializing_if = "is_default")]
    pub dynamic_vendordata: bool,
    /// The files of the request that created or rebuilt the server. Only the config drive contains them.
    #[serde(skip_serializing_if = "is_default")]
    pub files: Vec<InjectedFile>,
}

impl GuestMetadata {
    /// The metadata for every use but a config drive.
    #[must_use]
    pub fn without_files(self) -> Self {
        Self { files: Vec::new(), ..self }
    }
}

/// A file that a request gives to a guest.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectedFile {
    /// The path in the guest where its owner expects the file.
    pub path: String,
    /// The content, in base64.
    pub contents: String,
}

impl std::fmt::Debug for InjectedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InjectedFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The numbers of images in their EC2 names, such as `ami-0000002a`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageNumbers {
    /// The number of the root disk's image.
    #[serde(skip_serializing_if = "is_default")]
    pub machine: Option<i64>,
    /// The number of the kernel.
    #[serde(skip_serializing_if = "is_default")]
    pub kernel: Option<i64>,
    /// The number of the initial RAM disk.
    #[serde(skip_serializing_if = "is_default")]
    pub ramdisk: Option<i64>,
}

impl ImageNumbers {
    /// True if no image has a number.
    pub fn is_empty(&self) -> bool {
        is_default(self)
    }
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

/// A host's request for the vendor data of a guest from the operator's services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VendordataRequest {
    /// The server, which has a document on the host.
    pub server: ServerId,
}

/// The answer to a [`VendordataRequest`].
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "vendordata", rename_all = "snake_case")]
pub enum VendordataAnswer {
    /// The answers of the services, by name.
    Are {
        /// The answers.
        answers: Map<String, Value>,
    },
    /// A service failed, and the operator requires its data (`vendordata_dynamic_failure_fatal`).
    Failed,
    /// The host has no such server.
    NoServer,
}

impl std::fmt::Debug for VendordataAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Are { .. } => "VendordataAnswer::Are",
            Self::Failed => "VendordataAnswer::Failed",
            Self::NoServer => "VendordataAnswer::NoServer",
        })
    }
}

/// A guest's request to read or to set its password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PasswordRequest {
    /// The server, which has a document on the host.
    pub server: ServerId,
    /// The password to store, which the guest has encrypted for its owner; `None` to read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
}

impl std::fmt::Debug for PasswordRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PasswordRequest").field("server", &self.server).finish_non_exhaustive()
    }
}

/// The answer to a [`PasswordRequest`].
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "password", rename_all = "snake_case")]
pub enum PasswordAnswer {
    /// The password that the guest has set; empty if it has set none.
    Is {
        /// The password.
        text: String,
    },
    /// It is stored.
    Stored,
    /// The guest has already set a password, which remains.
    Exists,
    /// The host has no such server.
    NoServer,
}
