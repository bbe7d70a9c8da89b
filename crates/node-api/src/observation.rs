//! What was seen.

use kilonova_ids::ServerId;
use serde::{Deserialize, Serialize};

/// One server as the node left it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Whose.
    pub server: ServerId,
    /// The document generation that was carried out (or tried). An observation of an older
    /// generation than the document's current one is kept but moves nothing. 0 for a guest that was
    /// found at a start and that no document names: it is left as it is until one does.
    pub generation: i64,
    /// What came of it.
    pub outcome: Outcome,
}

/// The result of carrying a document out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The guest runs with exactly the document's devices.
    Running,
    /// The guest is defined with exactly the document's devices and is shut off.
    Stopped,
    /// Nothing of it is on the host: no domain, no disk, no mediated device.
    Absent,
    /// It could not be made so. What was half made is undone, as far as the node can.
    Failed {
        /// The step that failed: `create_mdev`, `image`, `define`, `start`, `reboot`, `stop`, `destroy`.
        step: String,
        /// Why, for people.
        message: String,
    },
}
