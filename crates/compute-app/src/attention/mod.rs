//! Finds conditions that need an operator although the ledger is consistent, and names their remedies.
//!
//! ```text
//!   devices     unhealthy devices and the servers on them, devices that wait for a silent host
//!   nodes       machines that changed their name, silent hosts, guests that no row names, hosts that
//!               cannot offer their CPUs and memory by NUMA cell yet
//!   clocks      hosts whose clock differs from the controller's, rows with times in the future
//!   operations  operations that have not advanced for a long time, or that cannot be read
//!   routers     routers that wait for a gateway host
//!   report      all of these and the ledger's rules, as one examination
//! ```
//!
//! This module must never write, except [`clocks::redate`], which an operator requests.

pub mod clocks;
mod devices;
mod nodes;
mod operations;
pub mod report;
mod routers;
mod unknown_guests;

use jiff::SignedDuration;
use kilonova_store::Store;
use kilonova_wire::time;

use crate::Error;

pub use nodes::{HostContact, contacts};

/// The severity of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For information.
    Note,
    /// An operator should examine the condition.
    Warning,
    /// Something does not work.
    Error,
}

impl Level {
    /// `note`, `warning` or `error`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A condition that needs an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// `devices`, `nodes`, `clock`, `operations`, `routers` or `ledger`.
    pub area: &'static str,
    /// The severity.
    pub level: Level,
    /// The condition.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

/// Determines which conditions are normal and therefore not reported.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The time that an operation may stay at one step.
    pub stuck: SignedDuration,
    /// True if a controller runs; otherwise silent hosts are not reported.
    pub listening: bool,
}

impl Default for Bounds {
    /// Half an hour for a step, because a boot from a large image can take a long time.
    fn default() -> Self {
        Self { stuck: SignedDuration::from_mins(30), listening: true }
    }
}

/// Collects all notices from one snapshot of the database.
///
/// # Errors
/// Store errors only.
pub async fn collect(store: &Store, bounds: &Bounds) -> Result<Vec<Notice>, Error> {
    let bounds = *bounds;
    store
        .read(move |tx| {
            let now = time::now();
            let mut notices = devices::unhealthy(tx)?;
            notices.extend(devices::awaited(tx, now)?);
            notices.extend(nodes::renamed(tx)?);
            notices.extend(nodes::silent(tx, &bounds, now)?);
            notices.extend(nodes::undivided(tx)?);
            notices.extend(unknown_guests::found(tx, &bounds, now)?);
            notices.extend(clocks::differ(tx, now)?);
            notices.extend(operations::stuck(tx, &bounds, now)?);
            notices.extend(routers::waiting(tx)?);
            Ok(notices)
        })
        .await
}
