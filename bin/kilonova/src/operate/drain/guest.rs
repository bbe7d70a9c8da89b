//! A host and its guests as the cloud tells of them.

use serde::Deserialize;

/// A host and all that is on it.
#[derive(Debug, Clone, Deserialize)]
pub struct Host {
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
    /// Accelerators that somebody holds, or that are to be cleaned.
    pub accelerators_not_free: i64,
    /// Who has something there.
    pub guests: Vec<Guest>,
}

/// A server that has something on the host.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Guest {
    /// Its uuid.
    pub id: String,
    /// Its name; none of one that is no more.
    pub name: Option<String>,
    /// Nova's status.
    pub status: Option<String>,
    /// Nova's state.
    pub vm_state: Option<String>,
    /// Where the server is.
    pub host: Option<String>,
    /// Address of a device that cannot move while the guest runs.
    pub cannot_move_running: Option<String>,
    /// What is under way.
    pub operation: Option<Operation>,
    /// Its move that is not over.
    #[serde(rename = "move")]
    pub open_move: Option<Move>,
}

/// What is under way.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Operation {
    /// Nova's action.
    pub action: String,
    /// In words.
    pub waits_for: Option<String>,
}

/// A move.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Move {
    /// `migration`, `resize`, `live-migration` or `evacuation`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Nova's status.
    pub status: String,
    /// From where.
    pub source: String,
}

impl Guest {
    /// What people call it.
    pub fn called(&self) -> String {
        match &self.name {
            Some(name) => format!("{} ({})", crate::operate::text::plain(name), self.id),
            None => self.id.clone(),
        }
    }
}
