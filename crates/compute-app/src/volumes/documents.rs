//! The volumes of a document, each with its connection to the document's host. A document that lacks a connection is
//! held back until the worker has connected the host.

use std::collections::HashMap;

use kilonova_compute_db::documents;
use kilonova_compute_db::volumes::{self as rows, AttachmentRow, BlockDevice, Phase};
use kilonova_ids::{AttachmentId, HostName, ServerId, VolumeId};
use kilonova_node_api::{Connection, Desired, Domain, Target, Verb, Volume};
use kilonova_store::Tx;
use kilonova_wire::time;

use super::scene;
use crate::{Compute, Error};

/// A volume without a connection, for a document that is completed elsewhere.
fn placeholder(device: &BlockDevice) -> Volume {
    let connection = Connection {
        target: Target::Unknown,
        readonly: false,
        discard: false,
        qos: Default::default(),
        logical_block_size: None,
        physical_block_size: None,
    };
    volume(device, device.volume.unwrap_or_else(VolumeId::nil), AttachmentId::nil(), connection)
}

fn volume(
    device: &BlockDevice,
    volume_id: VolumeId,
    attachment_id: AttachmentId,
    connection: Connection,
) -> Volume {
    Volume {
        volume_id,
        attachment_id,
        device: device.device.clone(),
        bus: device.bus,
        medium: device.medium,
        boot_index: device.boot_index,
        tag: device.tag.clone(),
        shareable: device.is_shared,
        size_gb: device.size_gb,
        connection,
    }
}

/// Placeholders for the volumes of these devices.
pub(super) fn list(devices: &[BlockDevice]) -> Vec<Volume> {
    devices.iter().map(placeholder).collect()
}

/// The volume of an attachment with its connection.
pub(super) fn connected(
    device: &BlockDevice,
    row: &AttachmentRow,
    connection: Connection,
) -> Option<Volume> {
    Some(volume(device, row.volume, row.attachment?, connection))
}

/// The volumes of a server, for a document that is written from scratch: [`complete`] adds their connections.
///
/// # Errors
/// Store errors only.
pub(crate) fn placeholders(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
) -> Result<Vec<Volume>, Error> {
    if compute.volumes.is_none() {
        return Ok(Vec::new());
    }
    Ok(rows::of_server(tx, server)?.iter().map(placeholder).collect())
}

/// Removes the connection data of volumes from a document that must not keep it.
pub(crate) fn forget_connections(volumes: &mut [Volume]) {
    for volume in volumes {
        volume.connection.target = Target::Unknown;
        volume.attachment_id = AttachmentId::nil();
    }
}

/// The known connections of a document's volumes.
pub(super) fn connections(volumes: &[Volume]) -> HashMap<AttachmentId, Connection> {
    let known = volumes.iter().filter(|volume| volume.connection.target != Target::Unknown);
    known.map(|volume| (volume.attachment_id, volume.connection.clone())).collect()
}

/// True if the volumes' connection data must be read from Cinder again before the host receives the
/// document: a backend's addresses or passwords may have changed.
pub(super) fn renews(domain: &Domain) -> bool {
    matches!(domain.verb, Some((_, Verb::RebootHard)))
}

/// The document of a host with the volumes that its guest has there, and true if the document must be held back. `None`
/// for a document without volumes.
///
/// A volume that is being attached does not hold back the document of a running guest. A hard reboot waits until the
/// connection data has been read from Cinder again.
///
/// # Errors
/// Store errors only.
pub(crate) fn complete(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    server: ServerId,
    desired: &Desired,
) -> Result<Option<(Desired, bool)>, Error> {
    let Desired::Present(domain) = desired else { return Ok(None) };
    if compute.volumes.is_none() || domain.config.volumes.is_empty() {
        return Ok(None);
    }
    let now = time::now();
    let before = documents::get(tx, host, server)?.map(|document| document.desired);
    let scene = scene::read(tx, compute, server, false, Some(host), now)?;
    let (mut known, verb) = match &before {
        Some(Desired::Present(before)) => (connections(&before.config.volumes), before.verb),
        Some(Desired::Absent) | None => (HashMap::new(), None),
    };
    let renews = renews(domain) && domain.verb != verb;
    known.extend(connections(&domain.config.volumes));
    let mut domain = domain.clone();
    domain.config.volumes.clear();
    let guest = scene.guests.iter().find(|guest| guest.host == *host);
    if !guest.is_some_and(|guest| guest.wants) {
        super::nudge(tx, compute, server, now)?;
        return Ok(Some((Desired::Present(domain), false)));
    }
    let is_new =
        !matches!(before, Some(Desired::Present(_))) || guest.is_some_and(|guest| guest.lacks);
    let ready = scene.deliverable(host);
    let (mut is_held, mut lacks_any) = (false, false);
    for device in scene.devices.iter().filter(|device| scene.is_wanted(device)) {
        let row = ready.iter().find(|(ready, _)| ready.id == device.id).map(|(_, row)| *row);
        let found = row.and_then(|row| {
            let connection = known.remove(&row.attachment?)?;
            connected(device, row, connection)
        });
        match found {
            Some(found) => {
                lacks_any |= renews;
                is_held |= renews;
                domain.config.volumes.push(found);
            }
            None => {
                lacks_any = true;
                let waits = is_new || device.phase != Phase::Attaching;
                is_held |= waits;
                if waits {
                    domain.config.volumes.push(placeholder(device));
                }
            }
        }
    }
    if lacks_any {
        super::nudge(tx, compute, server, now)?;
    }
    Ok(Some((Desired::Present(domain), is_held)))
}
