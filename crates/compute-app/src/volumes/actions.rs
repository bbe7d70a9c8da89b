//! The recorded actions that attach, detach or extend a volume. Each is recorded once its request is accepted, and its
//! event ends when the volume is attached, is gone, or has grown. Until then the block device names the action, so
//! that a late failure changes the same action (`wrap_instance_event` in `nova/compute/utils.py`).
//!
//! A device without an action belongs to a server's boot, or to a request of a version that did not name it.

use jiff::Timestamp;
use kilonova_compute_db::servers::{self, Server};
use kilonova_compute_db::volumes::{self as rows, BlockDevice, Phase};
use kilonova_store::Tx;
use kilonova_wire::Context;

use crate::flows::operation::Action;
use crate::{Error, flows};

/// Records an action on a device. An extension that has not ended yet fails. Without a context, the service itself
/// acts.
///
/// # Errors
/// Store errors only; the same applies to all functions below.
pub(super) fn begin(
    tx: &mut Tx<'_>,
    context: Option<&Context>,
    server: &Server,
    device: &BlockDevice,
    action: Action,
    now: Timestamp,
) -> Result<(), Error> {
    if let Some(earlier) = device.operation {
        let why = format!("{action} began before the guest's disk had its new size.");
        flows::fail_recorded(tx, earlier, &why, now)?;
    }
    let id = flows::record_in_progress(tx, context, server, action, now)?;
    Ok(rows::set_operation(tx, device.id, Some(id))?)
}

/// Records an action on a device that is complete when it is requested.
pub(super) fn record(
    tx: &mut Tx<'_>,
    context: Option<&Context>,
    server: &Server,
    action: Action,
    now: Timestamp,
) -> Result<(), Error> {
    let id = flows::record_in_progress(tx, context, server, action, now)?;
    flows::end_recorded(tx, id, now)
}

/// Ends the action of a device, if it has one.
pub(super) fn end(tx: &mut Tx<'_>, device: &BlockDevice, now: Timestamp) -> Result<(), Error> {
    let Some(id) = device.operation else { return Ok(()) };
    flows::end_recorded(tx, id, now)?;
    Ok(rows::set_operation(tx, device.id, None)?)
}

/// Ends the action of a device whose row is deleted: a detachment has succeeded, and nothing else has.
pub(super) fn end_with_row(
    tx: &mut Tx<'_>,
    device: &BlockDevice,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(id) = device.operation else { return Ok(()) };
    match device.phase {
        Phase::Detaching => flows::end_recorded(tx, id, now),
        Phase::Requested
        | Phase::Attaching
        | Phase::Attached
        | Phase::BeginDetaching
        | Phase::RollDetaching
        | Phase::Reimaging
        | Phase::Failed => flows::fail_recorded(tx, id, "The server was deleted.", now),
    }
}

/// Fails the action of a device. Without one, a failed action is recorded.
pub(super) fn fail(
    tx: &mut Tx<'_>,
    device: &BlockDevice,
    action: Action,
    why: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let volume = device.volume.map_or_else(String::new, |volume| volume.to_string());
    tracing::warn!(server = %device.server, %volume, "{action} failed: {why}");
    if let Some(id) = device.operation {
        flows::fail_recorded(tx, id, why, now)?;
        return Ok(rows::set_operation(tx, device.id, None)?);
    }
    match servers::find(tx, device.server)? {
        Some(server) => flows::record_late_failure(tx, &server, action, why, now),
        None => Ok(()),
    }
}
