//! A host and its guests, as the API describes them.

use serde::Deserialize;

/// A host and the servers on it.
#[derive(Debug, Clone, Deserialize)]
pub struct DrainedHost {
    /// Its name.
    pub name: String,
    /// The id of its compute service.
    pub service_id: String,
    /// `up` or `down`.
    pub state: String,
    /// `enabled` or `disabled`.
    pub status: String,
    /// Why it is disabled.
    pub disabled_reason: Option<String>,
    /// Accelerators that are allocated or dirty.
    pub accelerators_not_free: i64,
    /// The servers with anything on the host.
    pub guests: Vec<Guest>,
}

/// A server with anything on the host.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Guest {
    /// Its uuid.
    pub id: String,
    /// Its name; `None` for a deleted server.
    pub name: Option<String>,
    /// Nova's status.
    pub status: Option<String>,
    /// Nova's VM state.
    pub vm_state: Option<String>,
    /// Its current host.
    pub host: Option<String>,
    /// PCI address of a device that prevents live migration.
    pub cannot_move_running: Option<String>,
    /// The operation in progress.
    pub operation: Option<Operation>,
    /// Its unfinished migration.
    #[serde(rename = "move")]
    pub open_move: Option<Move>,
}

/// An operation in progress.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Operation {
    /// Nova's action.
    pub action: String,
    /// The awaited event, as a message.
    pub waits_for: Option<String>,
}

/// A migration.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Move {
    /// `migration`, `resize`, `live-migration` or `evacuation`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Nova's status.
    pub status: String,
    /// The source host.
    pub source: String,
}

impl Guest {
    /// Its display name.
    pub fn called(&self) -> String {
        match &self.name {
            Some(name) => format!("{} ({})", crate::operate::text::plain(name), self.id),
            None => self.id.clone(),
        }
    }
}
