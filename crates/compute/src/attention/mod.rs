//! What needs an operator although the ledger is in order, each with what to do about it.
//!
//! ```text
//!   devices     not in health, and the servers on them
//!   nodes       machines that changed their name, hosts that say nothing
//!   clocks      hosts whose clock differs from ours, rows from the future
//!   operations  what has not moved for long
//! ```
//!
//! It must never write ([`clocks::redate`] does, when an operator asks for it), and nothing here means
//! that the ledger is wrong.

pub mod clocks;
mod devices;
mod nodes;
mod operations;

use kilonova_store::Store;
use kilonova_wire::time::now_micros;

use crate::Error;

pub use nodes::{Heard, heard};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// To know.
    Note,
    /// To look at.
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

/// Something to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// `devices`, `nodes`, `clock` or `operations`.
    pub area: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What is so.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

/// What counts as too much.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Microseconds for which an operation may stand still.
    pub stuck: i64,
    /// Whether somebody listens to the hosts; else their silence means nothing.
    pub listening: bool,
}

impl Default for Bounds {
    /// Half an hour, as booting from a large image takes its time.
    fn default() -> Self {
        Self { stuck: 1800 * 1_000_000, listening: true }
    }
}

/// Looks at everything, on one snapshot.
///
/// # Errors
/// The database's.
pub async fn look(store: &Store, bounds: &Bounds) -> Result<Vec<Notice>, Error> {
    let bounds = *bounds;
    store
        .read(move |tx| {
            let now = now_micros();
            let mut notices = devices::unhealthy(tx)?;
            notices.extend(devices::awaited(tx, now)?);
            notices.extend(nodes::renamed(tx)?);
            notices.extend(nodes::silent(tx, &bounds, now)?);
            notices.extend(clocks::differ(tx, now)?);
            notices.extend(operations::stuck(tx, &bounds, now)?);
            Ok(notices)
        })
        .await
}
