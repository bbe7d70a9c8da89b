//! Rebalancing: live migrations that make room for a flavor, or that lower the cost of the hosts.
//!
//! A plan is a view: it changes nothing, and its search runs on a thread of its own, outside any transaction. Each
//! move is an ordinary live migration, an operation of its own in the journal; what is particular to it are the
//! operator's limits, which the move's transaction checks against the rows of all controllers.

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
    /// `max_concurrent_moves`: moves in progress, of all controllers; 0 allows none.
    pub max_concurrent_moves: i64,
    /// `moves_per_hour`: moves that begin within an hour, at all controllers; 0 allows none.
    pub moves_per_hour: i64,
    /// `on_refusal`: whether a boot without room waits for moves.
    pub on_refusal: bool,
    /// `wait`: how long it waits.
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
