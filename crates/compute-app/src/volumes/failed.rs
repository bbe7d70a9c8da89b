//! Failed attachments of volumes.

use jiff::Timestamp;
use kilonova_compute_db::documents;
use kilonova_compute_db::volumes::{self as rows, BlockDevice, Phase};
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{Observation, Outcome, VOLUME_STEP};
use kilonova_store::Tx;

use super::actions;
use crate::flows::operation::Action;
use crate::flows::{self, journal};
use crate::{Compute, Error};

/// Records a failed attachment to an existing server. The worker then deletes the parts of it that exist. Unless the
/// server is still being built, its guest may have had the volume before, so the volume is never deleted.
///
/// # Errors
/// Store errors only; the same applies to all functions below.
pub(super) fn fail_attach(
    tx: &mut Tx<'_>,
    device: &BlockDevice,
    why: &str,
    now: Timestamp,
) -> Result<(), Error> {
    if !rows::set_phase(tx, device.id, Phase::Attaching, Phase::Failed, Some(why))? {
        return Ok(());
    }
    if device.delete_on_termination && !is_being_built(tx, device.server)? {
        rows::set_delete(tx, device.id, false)?;
    }
    actions::fail(tx, device, Action::AttachVolume, why, now)
}

fn is_being_built(tx: &mut Tx<'_>, server: ServerId) -> Result<bool, Error> {
    let open = journal::open_of(tx, server)?;
    Ok(open.is_some_and(|open| open.state.action() == Action::Create))
}

/// Releases the volumes of a server whose build was aborted. The worker ends their attachments, and deletes those that
/// were created for the server with `delete_on_termination`.
pub(crate) fn release_failed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    why: &str,
    now: Timestamp,
) -> Result<(), Error> {
    if compute.volumes.is_none() {
        return Ok(());
    }
    for device in rows::of_server(tx, server)? {
        if matches!(device.phase, Phase::Attaching | Phase::Attached) {
            rows::set_phase(tx, device.id, device.phase, Phase::Failed, Some(why))?;
        }
    }
    super::nudge(tx, compute, server, now)
}

/// Permanently fails the operation that waits for a device. Returns false if there is no such
/// operation, in which case the worker must retry later.
pub(super) fn give_up(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    device: Option<&BlockDevice>,
    host: Option<&HostName>,
    why: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    if is_being_built(tx, server)? {
        for device in rows::of_server(tx, server)? {
            rows::set_phase(tx, device.id, Phase::Attaching, Phase::Failed, Some(why))?;
        }
        flows::fail_build(tx, compute, server, why, now)?;
        return Ok(true);
    }
    // A guest never loses the disk from which it runs.
    let is_failed = |device: &&BlockDevice| device.phase == Phase::Attaching && !device.is_root();
    if let Some(device) = device.filter(is_failed) {
        fail_attach(tx, device, why, now)?;
        return Ok(true);
    }
    let lacking = documents::lacking(tx, server)?;
    let Some(host) = host.filter(|host| lacking.contains(host)) else { return Ok(false) };
    let Some(document) = documents::get(tx, host, server)? else { return Ok(false) };
    if journal::open_of(tx, server)?.is_none() {
        return Ok(false);
    }
    let outcome = Outcome::Failed { step: VOLUME_STEP.to_owned(), message: why.to_owned() };
    let observation = Observation::new(server, document.generation, outcome);
    flows::observe(tx, compute, host, &observation, now)?;
    Ok(documents::lacking(tx, server)? != lacking)
}
