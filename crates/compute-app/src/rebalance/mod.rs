//! Rebalancing: live migrations that make room for a flavor, or that lower the cost of the hosts.
//!
//! A plan is a view: it changes nothing, and its search runs on a separate thread, outside any transaction. Each move
//! is an ordinary live migration with its own operation in the journal. In addition, the move's transaction checks the
//! operator's limits against the rows of all controllers.

mod begin;
mod guests;
mod plan;

use jiff::SignedDuration;

pub use begin::{Begun, begin};
pub use plan::{Drain, Gain, Plan, PlannedMove, plan};
pub(crate) use plan::{Step, for_boot};

/// The settings of `[rebalance]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebalanceOptions {
    /// `max_concurrent_moves`: maximum number of moves in progress, on all controllers together; 0 allows none.
    pub max_concurrent_moves: i64,
    /// `moves_per_hour`: maximum number of moves that begin within an hour, on all controllers together; 0 allows none.
    pub moves_per_hour: i64,
    /// `on_refusal`: true if a boot that finds no room waits for moves.
    pub on_refusal: bool,
    /// `wait`: how long such a boot waits.
    pub wait: SignedDuration,
}

impl Default for RebalanceOptions {
    fn default() -> Self {
        Self {
            max_concurrent_moves: 2,
            moves_per_hour: 20,
            on_refusal: false,
            wait: SignedDuration::from_secs(120),
        }
    }
}
