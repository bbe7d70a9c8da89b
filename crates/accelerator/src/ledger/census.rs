//! Counts of all objects, for operators' metrics. Read-only.

use jiff::Timestamp;
use kilonova_store::Tx;

use crate::db::census::{self, Devices, Handles};
use crate::{ArqState, Error};

/// The content of the device ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    /// Devices.
    pub devices: Vec<Devices>,
    /// Attach handles.
    pub handles: Vec<Handles>,
    /// Accelerator requests by state.
    pub requests: Vec<(ArqState, i64)>,
    /// Events that are not delivered to Nova yet.
    pub outbox: i64,
    /// When the oldest of these events was created.
    pub outbox_since: Option<Timestamp>,
}

/// Counts all objects.
///
/// # Errors
/// Store errors only.
pub fn census(tx: &mut Tx<'_>) -> Result<Census, Error> {
    let outbox = census::outbox(tx)?;
    Ok(Census {
        devices: census::devices(tx)?,
        handles: census::handles(tx)?,
        requests: census::requests(tx)?,
        outbox: outbox.events,
        outbox_since: outbox.oldest,
    })
}
