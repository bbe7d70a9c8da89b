//! Counts of all objects, for operators' metrics. Read-only.

use kilonova_store::{Row, Tx, params, statements};

use crate::Error;

statements! {
    /// Devices.
    DEVICES = "SELECT kind, status, present, health, COUNT(*) FROM devices
        GROUP BY kind, status, present, health ORDER BY kind, status, present, health";
    /// Attach handles.
    HANDLES = "SELECT attach_type, state, COUNT(*) FROM attach_handles
        GROUP BY attach_type, state ORDER BY attach_type, state";
    /// Accelerator requests.
    REQUESTS = "SELECT state, COUNT(*) FROM arqs GROUP BY state ORDER BY state";
    /// Events that are not delivered to Nova yet.
    OUTBOX = "SELECT COUNT(*), MIN(created_at) FROM nova_events";
}

/// Devices with equal properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Devices {
    /// `GPU`, `FPGA`, …
    pub kind: String,
    /// `enabled` or `maintaining`.
    pub status: String,
    /// True if the host still reports them.
    pub present: bool,
    /// `healthy`, `degraded` or `failed`.
    pub health: String,
    /// The number of such devices.
    pub count: i64,
}

/// Handles with equal properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handles {
    /// `MDEV`, `PCI`, …
    pub attach_type: String,
    /// `free`, `owned`, `dirty` or `failed`.
    pub state: String,
    /// The number of such handles.
    pub count: i64,
}

/// The content of the device ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    /// Devices.
    pub devices: Vec<Devices>,
    /// Attach handles.
    pub handles: Vec<Handles>,
    /// Accelerator requests by state.
    pub requests: Vec<(String, i64)>,
    /// Events that are not delivered to Nova yet.
    pub outbox: i64,
    /// When the oldest of them was created, in microseconds.
    pub outbox_since: Option<i64>,
}

/// Counts all objects.
///
/// # Errors
/// Store errors only.
pub fn census(tx: &mut Tx<'_>) -> Result<Census, Error> {
    let devices = |row: &Row| {
        Ok(Devices {
            kind: row.string(0)?,
            status: row.string(1)?,
            present: row.bool(2)?,
            health: row.string(3)?,
            count: row.int(4)?,
        })
    };
    let handles = |row: &Row| {
        Ok(Handles { attach_type: row.string(0)?, state: row.string(1)?, count: row.int(2)? })
    };
    let request = |row: &Row| Ok((row.string(0)?, row.int(1)?));
    let outbox = |row: &Row| Ok((row.int(0)?, row.int_opt(1)?));
    let (outbox, outbox_since) = read(tx, OUTBOX, outbox)?.pop().unwrap_or_default();
    Ok(Census {
        devices: read(tx, DEVICES, devices)?,
        handles: read(tx, HANDLES, handles)?,
        requests: read(tx, REQUESTS, request)?,
        outbox,
        outbox_since,
    })
}

fn read<T>(
    tx: &mut Tx<'_>,
    sql: &'static str,
    row: impl Fn(&Row) -> Result<T, kilonova_store::Error>,
) -> Result<Vec<T>, Error> {
    Ok(tx.rows(sql, params![])?.iter().map(row).collect::<Result<_, _>>()?)
}
