//! The decision of a drain: the next step for each guest of a host, from the answer of
//! `GET /v2.1/kilonova/hosts/{host}`.
//!
//! Clients drain a host by the API: `kilonova host drain` and the dashboard. This module is what they share. It
//! requests nothing, and reads nothing but that answer.

mod decide;
mod guest;

pub use decide::{Allowed, Step, Why, decide};
pub use guest::{
    Action, DrainedHost, Guest, HostState, HostStatus, Move, MoveKind, MoveStatus, Operation,
    VmState,
};

use serde_json::{Value, json};

impl Step {
    /// The body of the server action that takes this step; `None` if there is nothing to request.
    pub fn request(&self) -> Option<Value> {
        match self {
            Self::Live => {
                Some(json!({"os-migrateLive": {"host": null, "block_migration": "auto"}}))
            }
            Self::Cold => Some(json!({"migrate": null})),
            Self::Confirm => Some(json!({"confirmResize": null})),
            Self::Offload => Some(json!({"shelveOffload": null})),
            Self::Wait(_) | Self::Stays(_) => None,
        }
    }
}

impl Guest {
    /// True while an operation moves it off its host.
    pub fn is_moving(&self) -> bool {
        self.operation.as_ref().is_some_and(|one| match one.action {
            Action::LiveMigration | Action::Migrate | Action::Offload => true,
            Action::Other(_) => false,
        })
    }
}
