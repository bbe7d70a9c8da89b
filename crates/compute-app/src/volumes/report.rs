//! The reports of hosts on volumes of guests.

use jiff::Timestamp;
use kilonova_compute_db::volumes::{self as rows, AttachmentRow, BlockDevice, Phase, Plug};
use kilonova_ids::HostName;
use kilonova_node_api::{Desired, Domain, Observation, Outcome, VolumeStatus};
use kilonova_store::Tx;

use super::actions;
use crate::flows::operation::Action;
use crate::{Compute, Error};

/// Applies a report on the disks of a guest, made for its newest document. The worker then processes
/// the server.
///
/// # Errors
/// Store errors only.
pub(crate) fn observed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    desired: &Desired,
    observation: &Observation,
    now: Timestamp,
) -> Result<(), Error> {
    if compute.volumes.is_none() {
        return Ok(());
    }
    match observation.outcome {
        Outcome::Working { .. } | Outcome::MigratingOut(_) => return Ok(()),
        Outcome::Running
        | Outcome::Paused
        | Outcome::Suspended
        | Outcome::Stopped
        | Outcome::Ready
        | Outcome::MigratedOut
        | Outcome::Absent
        | Outcome::Failed { .. } => {}
    }
    let server = observation.server;
    if let (Desired::Present(domain), Some(reported)) = (desired, &observation.volumes) {
        let attachments = rows::attachments(tx, server)?;
        let devices =
            if attachments.is_empty() { Vec::new() } else { rows::of_server(tx, server)? };
        for row in attachments.iter().filter(|row| row.host.as_ref() == Some(host)) {
            let Some(device) = devices.iter().find(|device| device.id == row.device) else {
                continue;
            };
            let is_in_document =
                domain.config.volumes.iter().any(|one| Some(one.attachment_id) == row.attachment);
            let found = reported.iter().find(|one| {
                one.volume_id == row.volume
                    && one.attachment_id.is_none_or(|id| Some(id) == row.attachment)
            });
            let plug = match found.map(|one| &one.status) {
                Some(VolumeStatus::Attached { not_grown, .. }) => {
                    if device.phase == Phase::Attached && is_of_size(domain, row, device) {
                        match not_grown {
                            Some(reason) if device.operation.is_some() => {
                                let why = format!("{host}: {reason}");
                                actions::fail(tx, device, Action::ExtendVolume, &why, now)?;
                            }
                            _ => actions::end(tx, device, now)?,
                        }
                    }
                    Plug::Plugged
                }
                Some(VolumeStatus::Failed { reason }) => {
                    if device.phase == Phase::Attaching {
                        let why = format!("{host}: {reason}");
                        super::failed::fail_attach(tx, device, &why, now)?;
                    }
                    Plug::Unplugged
                }
                Some(VolumeStatus::Held { reason, .. }) => {
                    let why = Some(reason.as_str());
                    let to = Phase::RollDetaching;
                    if rows::set_phase(tx, device.id, Phase::Detaching, to, why)? {
                        actions::fail(tx, device, Action::DetachVolume, reason, now)?;
                    }
                    Plug::Plugged
                }
                None if is_in_document => continue,
                None => Plug::Unplugged,
            };
            // A document that is held back cannot have been reported on.
            if plug != row.plug && row.plug != Plug::None {
                rows::set_plug(tx, row.id, plug)?;
            }
        }
    }
    super::nudge(tx, compute, server, now)
}

/// True if the document has the volume with its current size.
fn is_of_size(domain: &Domain, row: &AttachmentRow, device: &BlockDevice) -> bool {
    let mut volumes = domain.config.volumes.iter();
    let volume = volumes.find(|one| Some(one.attachment_id) == row.attachment);
    volume.is_some_and(|volume| volume.size_gb == device.size_gb)
}
