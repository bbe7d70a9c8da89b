//! What the steps of a move hand on to each other, kept with the operation.

use kilonova_flow::Operation;
use kilonova_node_api::{Attachment, Power};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::whereabouts::Has;
use crate::Error;
use crate::db::servers::shape;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Course {
    /// The devices of the new place.
    pub devices: Vec<Attachment>,
    /// Whether the guest is to run there.
    pub power: Option<Power>,
    /// The host that was asked for.
    pub host: Option<String>,
    /// Whether that one is taken whatever its zone.
    pub force: bool,
    /// How the new place was chosen, for operators.
    pub chosen: Option<String>,
    /// Hosts that failed.
    pub tried: Vec<String>,
    /// Why the last one did.
    pub reason: Option<String>,
    /// Whether somebody called the move off.
    pub cancelled: bool,
    /// Whether the running guest was on its way.
    pub sent: bool,
    /// What its old host has of it, if that was asked and is known.
    pub source: Option<Has>,
    /// Since when its new host is asked for it, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<i64>,
    /// Whether its user was told that nobody knows where it is.
    pub told: bool,
    /// Whether it does not run on its old host, which is to go on with it.
    pub stopped: bool,
}

impl Course {
    pub fn of(operation: &Operation) -> Result<Self, Error> {
        serde_json::from_value(operation.data.clone())
            .map_err(|error| shape(format!("course of a move: {error}")))
    }

    pub fn data(&self) -> Result<Value, Error> {
        serde_json::to_value(self).map_err(|error| shape(error.to_string()))
    }

    /// The reason of the last failure, for people.
    pub fn reason(&self) -> &str {
        self.reason.as_deref().unwrap_or("The move failed.")
    }
}
