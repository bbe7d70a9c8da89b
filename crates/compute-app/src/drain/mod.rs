//! The drain of a host: it keeps new servers off the host and moves the existing ones away, as far as the operator
//! allows.
//!
//! ```text
//!   begin: disable the host, one row ──► a round per second, on the controller with the lease:
//!
//!     read the host ─► decide, guest by guest ─► request some moves ─► until nothing more can move
//! ```
//!
//! A drain is a row in the database: it continues after its request has been answered, and on another controller if its
//! controller dies. Each move is an ordinary operation of the server, and its transaction records it in the drain. The
//! decision is pure. Clients make the same decision from the answer to `GET /v2.1/kilonova/hosts/{host}`, to show why a
//! server is still there.

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

impl Guest {
    /// True while an operation moves the guest off its host. An operation that cannot be read does not count, because
    /// its outcome is unknown and it would block the moves of other guests.
    pub fn is_moving(&self) -> bool {
        let readable = self.operation.as_ref().filter(|one| one.unreadable.is_none());
        readable.is_some_and(|one| match one.action {
            Action::LiveMigration | Action::Migrate | Action::Offload => true,
            Action::Other(_) => false,
        })
    }
}
