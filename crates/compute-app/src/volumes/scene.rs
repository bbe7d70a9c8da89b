//! Reads the input of the plan for a server.

use jiff::Timestamp;
use kilonova_compute_db::moves::{self, Kind, Move};
use kilonova_compute_db::servers::{self, VmState};
use kilonova_compute_db::{documents, volumes as rows};
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::Desired;
use kilonova_store::Tx;

use super::plan::{Guest, Scene};
use crate::{Compute, Error};

/// Reads the rows and the documents of a server. `next` is a host for which this transaction writes a document with
/// the guest.
///
/// # Errors
/// Store errors only.
pub(super) fn read(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    is_gone: bool,
    next: Option<&HostName>,
    now: Timestamp,
) -> Result<Scene, Error> {
    rows::expect_of_server(tx, server)?;
    rows::expect_attachments(tx, server)?;
    servers::expect(tx, server)?;
    documents::expect_of_server(tx, server)?;
    moves::expect_open_of(tx, server)?;
    let devices = rows::of_server(tx, server)?;
    let attachments = rows::attachments(tx, server)?;
    let row = servers::find(tx, server)?;
    let documents = documents::of_server(tx, server)?;
    let migration = moves::open_of(tx, server)?;
    let lacking = documents::lacking(tx, server)?;
    let mut guests = Vec::new();
    for (host, document) in documents {
        let has = match &document.desired {
            Desired::Present(domain) => {
                let volumes = domain.config.volumes.iter();
                volumes.map(|volume| (volume.attachment_id, volume.size_gb)).collect()
            }
            Desired::Absent => Vec::new(),
        };
        let is_present = matches!(document.desired, Desired::Present(_)) || next == Some(&host);
        let is_lost = compute.host_is_lost(tx, &host, now)?;
        let lacks = lacking.contains(&host);
        guests.push(Guest { host, is_present, wants: false, is_lost, has, lacks });
    }
    if let Some(host) = next
        && !guests.iter().any(|guest| guest.host == *host)
    {
        let (host, has) = (host.clone(), Vec::new());
        let lacks = false;
        guests.push(Guest { host, is_present: true, wants: false, is_lost: false, has, lacks });
    }
    let host = row.as_ref().and_then(|row| row.host.clone());
    let wanting: Vec<bool> = guests
        .iter()
        .map(|guest| guest.is_present && wants(guest, &guests, host.as_ref(), migration.as_ref()))
        .collect();
    for (guest, wants) in guests.iter_mut().zip(wanting) {
        guest.wants = wants;
    }
    Ok(Scene {
        is_gone: is_gone || row.is_none(),
        is_offloaded: row.is_some_and(|row| row.vm_state == VmState::ShelvedOffloaded),
        host,
        guests,
        devices,
        attachments,
    })
}

/// True if a guest must have the volumes of its server.
fn wants(
    guest: &Guest,
    guests: &[Guest],
    host: Option<&HostName>,
    migration: Option<&Move>,
) -> bool {
    let is_present =
        |host: &HostName| guests.iter().any(|guest| guest.host == *host && guest.is_present);
    let Some(migration) = migration else { return host == Some(&guest.host) };
    let is_source = migration.source == guest.host;
    let is_dest = migration.dest.as_ref() == Some(&guest.host);
    match migration.kind {
        Kind::Live => is_source || is_dest,
        Kind::Evacuation => is_dest,
        Kind::Resize | Kind::Cold => match &migration.dest {
            Some(dest) if is_present(dest) => is_dest,
            Some(_) | None => is_source,
        },
    }
}
