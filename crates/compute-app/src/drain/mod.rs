//! The drain of a host: it keeps new servers away and moves the others, as far as the operator allows.
//!
//! ```text
//!   begin: disable the host, one row ──► a round per second, on the controller with the lease:
//!
//!     read the host ─► decide, guest by guest ─► request some moves ─► until nothing more can move
//! ```
//!
//! A drain is a row of the database: it goes on after its request, whoever looks, and on another controller after the
//! death of one. Each move is an ordinary operation of the server, and its transaction records it in the drain. The
//! decision is pure. `kilonova host drain` makes the same decision from the answer of `GET
//! /v2.1/kilonova/hosts/{host}` and requests the moves itself.

mod decide;
mod guest;
mod run;

pub use decide::{Allowed, Next, Step, Why, decide, next};
pub use kilonova_compute_db::drains::Progress;

pub use guest::{
    Action, DrainState, DrainedHost, Guest, GuestMove, HostDrain, HostState, HostStatus, Move,
    MoveKind, MoveState, MoveStatus, Operation, VmState,
};
pub use run::{DrainRequest, MAX_PARALLEL, begin, round, stop};

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
    /// True while an operation moves it off its host. Nobody knows how an operation that cannot be read goes on, so
    /// that one takes no other guest's turn.
    pub fn is_moving(&self) -> bool {
        let readable = self.operation.as_ref().filter(|one| one.unreadable.is_none());
        readable.is_some_and(|one| match one.action {
            Action::LiveMigration | Action::Migrate | Action::Offload => true,
            Action::Other(_) => false,
        })
    }
}
