//! Counts of all objects. Read-only.

use jiff::Timestamp;
use kilonova_node_api::DeviceKind;
use kilonova_store::{Error, Row, Tx, params, statements};

use crate::states::{ArqState, AttachType, DeviceStatus, HandleState, HealthState, device_kind};

/// Devices with equal properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Devices {
    /// Their kind.
    pub kind: DeviceKind,
    /// The administrative status.
    pub status: DeviceStatus,
    /// True if the host still reports them.
    pub present: bool,
    /// Their health.
    pub health: HealthState,
    /// The number of such devices.
    pub count: i64,
}

/// Handles with equal properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handles {
    /// How guests get them.
    pub attach_type: AttachType,
    /// Their state.
    pub state: HandleState,
    /// The number of such handles.
    pub count: i64,
}

/// The outbox of events for an external Nova.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outbox {
    pub events: i64,
    /// When the oldest event was created.
    pub oldest: Option<Timestamp>,
}

statements! {
    /// Devices.
    DEVICES = "SELECT kind, status, present, health, COUNT(*) AS count FROM devices
        GROUP BY kind, status, present, health ORDER BY kind, status, present, health";
    /// Attach handles.
    HANDLES = "SELECT attach_type, state, COUNT(*) AS count FROM attach_handles
        GROUP BY attach_type, state ORDER BY attach_type, state";
    /// Accelerator requests.
    REQUESTS = "SELECT state, COUNT(*) AS count FROM arqs GROUP BY state ORDER BY state";
    /// Events that are not delivered to Nova yet.
    OUTBOX = "SELECT COUNT(*) AS count, MIN(created_at) AS oldest FROM nova_events";
}

pub(crate) fn devices(tx: &mut Tx<'_>) -> Result<Vec<Devices>, Error> {
    let read = |row: &Row| {
        Ok(Devices {
            kind: device_kind(row, "kind")?,
            status: DeviceStatus::read(row, "status")?,
            present: row.bool("present")?,
            health: HealthState::read(row, "health")?,
            count: row.int("count")?,
        })
    };
    tx.rows(DEVICES, params![])?.iter().map(read).collect()
}

pub(crate) fn handles(tx: &mut Tx<'_>) -> Result<Vec<Handles>, Error> {
    let read = |row: &Row| {
        Ok(Handles {
            attach_type: AttachType::read(row, "attach_type")?,
            state: HandleState::read(row, "state")?,
            count: row.int("count")?,
        })
    };
    tx.rows(HANDLES, params![])?.iter().map(read).collect()
}

/// The number of accelerator requests in each state that occurs.
pub(crate) fn requests(tx: &mut Tx<'_>) -> Result<Vec<(ArqState, i64)>, Error> {
    let read = |row: &Row| Ok((ArqState::read(row, "state")?, row.int("count")?));
    tx.rows(REQUESTS, params![])?.iter().map(read).collect()
}

pub(crate) fn outbox(tx: &mut Tx<'_>) -> Result<Outbox, Error> {
    let Some(row) = tx.row(OUTBOX, params![])? else { return Ok(Outbox::default()) };
    Ok(Outbox { events: row.int("count")?, oldest: row.time_opt("oldest")? })
}
