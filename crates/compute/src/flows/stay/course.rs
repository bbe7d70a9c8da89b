//! What an operation remembers from its beginning to its end.

use kilonova_flow::Operation;
use kilonova_ids::ImageId;
use kilonova_node_api::Domain;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::db::servers::{VmState, shape};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Course {
    /// The guest as it was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<Box<Domain>>,
    /// The server's state before.
    #[serde(default)]
    pub vm_state: String,
    /// The guest's power state before.
    #[serde(default)]
    pub power_state: i64,
    /// The image that is being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageId>,
    /// Of a backup: its type, and how many of them are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<(String, i64)>,
    /// How the new place was chosen, for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
    /// Hosts that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<String>,
    /// The host that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Why it is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Course {
    pub(super) fn of(operation: &Operation) -> Result<Self, Error> {
        serde_json::from_value(operation.data.clone())
            .map_err(|e| shape(format!("data of operation {}: {e}", operation.id)))
    }

    pub(super) fn to_data(&self) -> Result<serde_json::Value, Error> {
        serde_json::to_value(self).map_err(|e| shape(e.to_string()))
    }

    pub(super) fn was(&self) -> VmState {
        VmState::parse(&self.vm_state)
    }
}
