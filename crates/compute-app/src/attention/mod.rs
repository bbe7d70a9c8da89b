//! Finds conditions that need an operator although the ledger is consistent, and names their remedies.
//!
//! ```text
//!   devices     unhealthy devices and the servers on them, devices that wait for a host that is down
//!   nodes       machines that changed their name, hosts that are down, guests that no row names,
//!               hosts that cannot offer their CPUs and memory by NUMA cell yet
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

/// The severity of a finding.
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
pub struct Finding {
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
    /// True if a controller runs; otherwise hosts that are down are not listed.
    pub listening: bool,
}

impl Default for Bounds {
    /// Half an hour for a step, because a boot from a large image can take a long time.
    fn default() -> Self {
        Self { stuck: SignedDuration::from_mins(30), listening: true }
    }
}

/// Collects all findings from one snapshot of the database.
///
/// # Errors
/// Store errors only.
pub async fn collect(store: &Store, bounds: &Bounds) -> Result<Vec<Finding>, Error> {
    let bounds = *bounds;
    store
        .read(move |tx| {
            let now = time::now();
            let mut findings = devices::unhealthy(tx)?;
            findings.extend(devices::awaited(tx, now)?);
            findings.extend(nodes::renamed(tx)?);
            findings.extend(nodes::down(tx, &bounds, now)?);
            findings.extend(nodes::undivided(tx)?);
            findings.extend(unknown_guests::found(tx, &bounds, now)?);
            findings.extend(clocks::differ(tx, now)?);
            findings.extend(operations::stuck(tx, &bounds, now)?);
            findings.extend(routers::waiting(tx)?);
            Ok(findings)
        })
        .await
}
