//! Requests to attach a volume to an existing server, to detach it, and to change it.
//!
//! The request reserves the volume, or calls `os-begin_detaching`, with the caller's token; the
//! worker does the rest. The request and the worker lease the server one after the other.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use kilonova_cinder::{Error as CallError, Volume};
use kilonova_compute_db::documents::{self, Delivery};
use kilonova_compute_db::servers::{self, Server, VmState};
use kilonova_compute_db::volumes::{
    self as rows, Answered, BlockDevice, Phase, RowId, Source, State, Taken,
};
use kilonova_ids::{BlockDeviceId, ServerId, VolumeId};
use kilonova_node_api::{Bus, Desired};
use kilonova_store::Tx;
use kilonova_wire::{Context, IntoRefusal, Refusal, time};

use super::{Volumes, actions, by, documents as composed, new_token, start, token_of, until};
use crate::actions::ServerAction;
use crate::flows::journal;
use crate::flows::operation::Action;
use crate::{Compute, Error, states};

/// How long a request waits for another worker of the same server.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A request to attach a volume.
#[derive(Debug, Clone)]
pub struct AttachRequest {
    /// The volume.
    pub volume: VolumeId,
    /// The requested name of the disk: `/dev/vdb`.
    pub device: Option<String>,
    /// The tag shown to the guest.
    pub tag: Option<String>,
    /// True if the volume is deleted with the server.
    pub delete_on_termination: bool,
    /// True if the client's microversion supports volumes that several servers share.
    pub knows_multiattach: bool,
    /// True if the client's microversion supports volumes of shelved servers.
    pub knows_shelved: bool,
}

/// A change to an attached volume.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// True to delete the volume with the server; unchanged if absent.
    pub delete_on_termination: Option<bool>,
}

pub(super) fn bad(words: impl Into<String>) -> Error {
    Refusal::bad_request(words).into()
}

/// The external Cinder; 404 for the volume if there is none.
fn cinder<'a>(compute: &'a Compute, volume: &str) -> Result<&'a Volumes, Error> {
    compute.volumes.as_deref().ok_or_else(|| {
        Refusal::not_found(format!(
            "Volume {} could not be found: this cloud has no volumes.",
            volume.escape_debug()
        ))
        .into()
    })
}

/// The answer to a caller whose request Cinder refused.
pub(super) fn refused(error: CallError, volume: VolumeId) -> Error {
    if error.is_not_found() {
        return Refusal::not_found(format!("Volume {volume} could not be found.")).into();
    }
    error.into_refusal().into()
}

/// Begins to attach a volume, and returns its row. The volume is reserved; the guest receives it
/// soon after.
///
/// # Errors
/// 400, 403, 404 and 409 with Nova's messages; 503 if Cinder does not answer.
pub async fn attach(
    compute: &Compute,
    context: &Context,
    server: &Server,
    request: &AttachRequest,
) -> Result<BlockDevice, Error> {
    let volumes = cinder(compute, &request.volume.to_string())?;
    let request_id = context.request_id_text();
    let shown = volumes.bounded(volumes.client.volume(by(context, &request_id), request.volume));
    let shown = shown.await.map_err(|error| refused(error, request.volume))?;
    check_volume(compute, volumes, server, request, &shown)?;
    let (id, wanted, by_whom) = (server.id, request.clone(), context.clone());
    let prepared = take(compute, server, move |tx, compute| {
        prepare(tx, compute, &by_whom, id, &wanted, &shown)
    });
    let (taken, (device, row)) = prepared.await?;
    volumes.tokens.keep(id, token_of(context, &server.project_id));
    let call = volumes.client.create_attachment(by(context, &request_id), request.volume, id);
    let answer = volumes.bounded(call).await;
    let (given, device_id) = (taken.clone(), device.id);
    let outcome = answer.as_ref().map(|made| made.id).map_err(CallError::may_have_effect);
    let (by_whom, begun) = (context.clone(), device.clone());
    let recorded = compute.store.write(move |tx| {
        let now = time::now();
        let is_known = match outcome {
            Ok(attachment) => {
                let to =
                    Answered { attachment: Some(attachment), host: None, state: State::Reserved };
                let is_known = rows::set_attachment(tx, row, State::Reserving, &to)?;
                let (from, to) = (Phase::Requested, Phase::Attaching);
                if rows::set_phase(tx, device_id, from, to, None)? {
                    accepted(tx, &by_whom, id, &begun, Action::AttachVolume, now)?;
                }
                is_known
            }
            // The worker looks up the outcome.
            Err(true) => true,
            Err(false) => {
                rows::forget_attachment(tx, row)?;
                rows::forget(tx, device_id)?;
                true
            }
        };
        rows::give_back(tx, &given, 0, now)?;
        Ok::<_, Error>(is_known)
    });
    let is_known = recorded.await?;
    start(compute, id);
    match answer {
        Ok(_) if is_known => Ok(device),
        Ok(made) => Err(volumes.withdraw(by(context, &request_id), id, made.id).await),
        Err(error) => Err(refused(error, request.volume)),
    }
}

/// Records the action of a request that Cinder has accepted. As in Nova, a refused request is not
/// recorded.
fn accepted(
    tx: &mut Tx<'_>,
    context: &Context,
    server: ServerId,
    device: &BlockDevice,
    action: Action,
    now: Timestamp,
) -> Result<(), Error> {
    match servers::find(tx, server)? {
        Some(server) => actions::begin(tx, Some(context), &server, device, action, now),
        None => Ok(()),
    }
}

/// Checks that the volume's state in Cinder allows the request.
fn check_volume(
    compute: &Compute,
    volumes: &Volumes,
    server: &Server,
    request: &AttachRequest,
    volume: &Volume,
) -> Result<(), Error> {
    if volume.encrypted {
        return Err(bad(format!(
            "Invalid volume: volume {} is encrypted, and encrypted volumes are not supported.",
            volume.id
        )));
    }
    if volume.multiattach && !request.knows_multiattach {
        return Err(bad(
            "Multiattach volumes are only supported starting with compute API version 2.60.",
        ));
    }
    let is_offloaded = server.vm_state == VmState::ShelvedOffloaded;
    if is_offloaded && volume.multiattach {
        return Err(bad(
            "Attaching multiattach volumes is not supported for shelved-offloaded instances.",
        ));
    }
    let is_here = volume.attachments.iter().any(|one| one.server_id == server.id.to_string());
    if is_here {
        return Err(bad(format!(
            "Invalid volume: volume {} is already attached to instances: {}",
            volume.id, server.id
        )));
    }
    let zone = compute.zone_of(server.host.as_ref());
    let zone = if zone.is_empty() {
        server.spec.availability_zone.clone().unwrap_or_default()
    } else {
        zone
    };
    if !volumes.options.cross_az_attach && zone != volume.availability_zone {
        return Err(bad(format!(
            "Invalid volume: Instance {} and volume {} are not in the same availability_zone. Instance is \
             in {zone}. Volume is in {}",
            server.id, volume.id, volume.availability_zone
        )));
    }
    Ok(())
}

/// Refuses volumes that another server has; servers may not share any of them. Cinder checks this too, but only by the
/// volume's status, which an administrator may have reset (`_check_volume_already_attached` in `nova/compute/api.py`).
pub(super) fn check_unused(
    tx: &mut Tx<'_>,
    volumes: &[VolumeId],
    server: ServerId,
) -> Result<(), Error> {
    let mut used = rows::servers_with(tx, volumes)?;
    used.retain(|(_, other)| *other != server);
    let Some((volume, _)) = used.first().copied() else { return Ok(()) };
    let of_volume = used.iter().filter(|(other, _)| *other == volume);
    let others: Vec<String> = of_volume.map(|(_, server)| server.to_string()).collect();
    let others = others.join(" ");
    Err(bad(format!("Invalid volume: volume {volume} is already attached to instances: {others}")))
}

/// Writes the rows of a volume that is about to be reserved.
fn prepare(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    id: ServerId,
    request: &AttachRequest,
    volume: &Volume,
) -> Result<(BlockDevice, RowId), Error> {
    let now = time::now();
    let server = present(tx, id)?;
    states::allow(context, &server, ServerAction::AttachVolume)?;
    check_shelved(&server, request.knows_shelved, ServerAction::AttachVolume)?;
    let is_offloaded = server.vm_state == VmState::ShelvedOffloaded;
    if is_offloaded && request.tag.is_some() {
        return Err(bad(
            "Tagged volume attachment is not supported for shelved-offloaded instances.",
        ));
    }
    if !volume.multiattach {
        check_unused(tx, &[request.volume], id)?;
    }
    let devices = rows::of_server(tx, id)?;
    if devices.iter().any(|device| device.volume == Some(request.volume)) {
        return Err(bad(format!("Invalid volume: volume {} already attached", request.volume)));
    }
    let volumes = compute.volumes.as_deref().map(Volumes::options);
    let most = volumes.map_or(-1, |options| options.max_disk_devices);
    let local = i64::from(server.spec.image.is_some());
    if most >= 0 && devices.len() as i64 + local >= most {
        return Err(Refusal::forbidden(format!(
            "The maximum allowed number of disk devices ({most}) to attach to a single instance has been \
             exceeded."
        ))
        .into());
    }
    let bus = bus_of(&server);
    let name = device_name(tx, &server, &devices, bus, request.device.as_deref())?;
    let device = BlockDevice {
        id: BlockDeviceId::new_v4(),
        server: id,
        ordinal: devices.last().map_or(0, |device| device.ordinal + 1),
        phase: Phase::Requested,
        volume: Some(request.volume),
        source: Source::Volume,
        size_gb: volume.size,
        volume_type: volume.volume_type.clone(),
        zone: None,
        device: name,
        bus,
        medium: None,
        boot_index: None,
        tag: request.tag.clone(),
        is_shared: volume.multiattach,
        delete_on_termination: request.delete_on_termination,
        error: None,
        created_at: now,
        reimage: None,
        operation: None,
    };
    let row = RowId::new_v4();
    rows::add(tx, &device)?;
    rows::add_attachment(tx, row, &device, request.volume, None)?;
    Ok((device, row))
}

/// The bus of a server's volumes.
pub(super) fn bus_of(server: &Server) -> Bus {
    let named = server.spec.image_properties.get("hw_disk_bus");
    named.and_then(|name| Bus::parse(&name.to_ascii_lowercase())).unwrap_or(Bus::Virtio)
}

/// The name of the disk: the requested one if it fits the bus and does not precede the next free one, which is used
/// otherwise. 409 if the requested one is in use.
fn device_name(
    tx: &mut Tx<'_>,
    server: &Server,
    devices: &[BlockDevice],
    bus: Bus,
    wish: Option<&str>,
) -> Result<String, Error> {
    let taken: HashSet<&str> = devices.iter().map(|device| device.device.as_str()).collect();
    let document = match &server.host {
        Some(host) => documents::get(tx, host, server.id)?.map(|document| document.desired),
        None => None,
    };
    let mut free = match document {
        Some(Desired::Present(mut domain)) => {
            domain.config.volumes = composed::list(devices);
            domain.config.free_device(bus)
        }
        Some(Desired::Absent) | None => None,
    };
    if free.is_none() {
        // The first name is that of the root disk.
        free = bus.disk_names().skip(1).find(|name| !taken.contains(name.as_str()));
    }
    let Some(wish) = wish else { return free.ok_or_else(|| bad("There is no free device name.")) };
    let name = wish.trim_start_matches("/dev/");
    if taken.contains(name) {
        return Err(
            Refusal::conflict(format!("The supplied device path ({wish}) is in use.")).into()
        );
    }
    let first = bus.disk_names().next().unwrap_or_default();
    let fits =
        name.len() == first.len() && name.get(..2) == first.get(..2) && name > first.as_str();
    let is_later = free.as_deref().is_none_or(|free| name >= free);
    match free {
        Some(free) if !(fits && is_later) => Ok(free),
        _ => Ok(name.to_owned()),
    }
}

fn present(tx: &mut Tx<'_>, id: ServerId) -> Result<Server, Error> {
    servers::find(tx, id)?
        .ok_or_else(|| Refusal::not_found(format!("Instance {id} could not be found.")).into())
}

/// Refuses to change the volumes of a shelved server in older microversions.
fn check_shelved(server: &Server, knows: bool, action: ServerAction) -> Result<(), Error> {
    if !knows && matches!(server.vm_state, VmState::Shelved | VmState::ShelvedOffloaded) {
        return Err(Refusal::conflict(format!(
            "Cannot '{}' instance {} while it is in vm_state {}",
            action.row().refused_as,
            server.id,
            server.vm_state.as_str()
        ))
        .into());
    }
    Ok(())
}

/// Leases a server, waiting for another worker if necessary, and runs a transaction with the lease.
async fn take<T: Send + 'static>(
    compute: &Compute,
    server: &Server,
    work: impl Fn(&mut Tx<'_>, &Compute) -> Result<T, Error> + Clone + Send + 'static,
) -> Result<(Taken, T), Error> {
    let begun = tokio::time::Instant::now();
    let mut pause = Duration::from_millis(20);
    loop {
        let (id, project, token) = (server.id, server.project_id.clone(), new_token(compute));
        let (work, inner) = (work.clone(), compute.clone());
        let done = compute
            .store
            .write(move |tx| {
                let now = time::now();
                if !rows::take_or_add(tx, id, &project, now, until(now), &token)? {
                    return Ok(None);
                }
                let taken = Taken {
                    server: id,
                    project_id: project.clone(),
                    is_gone: false,
                    attempts: 0,
                    due_at: now,
                    token: token.clone(),
                };
                Ok::<_, Error>(Some((taken, work(tx, &inner)?)))
            })
            .await?;
        if let Some(done) = done {
            return Ok(done);
        }
        if begun.elapsed() >= WAIT_TIMEOUT {
            return Err(Refusal::conflict(format!(
                "Volumes of instance {} are being attached or detached. Try again.",
                server.id
            ))
            .into());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

/// Begins to detach a volume: calls `os-begin_detaching` in Cinder. The guest then releases the volume.
///
/// # Errors
/// 400, 404 and 409 with Nova's messages; 409 also while the server's host is down, because its guest may still write
/// to the volume; 503 if Cinder does not answer.
pub async fn detach(
    compute: &Compute,
    context: &Context,
    server: &Server,
    volume: VolumeId,
    knows_shelved: bool,
) -> Result<(), Error> {
    let volumes = cinder(compute, &volume.to_string())?;
    let request_id = context.request_id_text();
    let shown = volumes.bounded(volumes.client.volume(by(context, &request_id), volume)).await;
    shown.map_err(|error| refused(error, volume))?;
    let (id, by_whom) = (server.id, context.clone());
    let allowed = by_whom.clone();
    let (taken, (device, is_offloaded)) = take(compute, server, move |tx, compute| {
        let server = present(tx, id)?;
        states::allow(&allowed, &server, ServerAction::DetachVolume)?;
        check_shelved(&server, knows_shelved, ServerAction::DetachVolume)?;
        let device = device_of(tx, id, volume)?;
        if device.is_root() {
            return Err(bad("Cannot detach a root device volume"));
        }
        let is_offloaded = server.vm_state == VmState::ShelvedOffloaded;
        if !is_offloaded
            && let Some(host) = &server.host
            && compute.row_is_lost(tx, host, time::now())?
        {
            return Err(Refusal::conflict("Service is unavailable at this time.").into());
        }
        let to = if is_offloaded { Phase::Detaching } else { Phase::BeginDetaching };
        if !rows::set_phase(tx, device.id, Phase::Attached, to, None)? {
            return Err(bad(
                "Invalid volume: Unable to detach volume. Volume status must be 'in-use' and \
                 attach_status must be 'attached' to detach.",
            ));
        }
        Ok((device, is_offloaded))
    })
    .await?;
    volumes.tokens.keep(id, token_of(context, &server.project_id));
    let answer = if is_offloaded {
        Ok(())
    } else {
        volumes.bounded(volumes.client.begin_detaching(by(context, &request_id), volume)).await
    };
    let to = match &answer {
        Ok(()) => Some(Phase::Detaching),
        // The worker calls `os-roll_detaching`.
        Err(error) if error.may_have_effect() => None,
        Err(_) => Some(Phase::Attached),
    };
    let is_accepted = answer.is_ok();
    let recorded = compute.store.write(move |tx| {
        let now = time::now();
        let mut moved = is_offloaded;
        if let Some(to) = to {
            moved |= rows::set_phase(tx, device.id, Phase::BeginDetaching, to, None)?;
        }
        if is_accepted && moved {
            accepted(tx, &by_whom, id, &device, Action::DetachVolume, now)?;
        }
        Ok::<_, Error>(rows::give_back(tx, &taken, 0, now)?)
    });
    recorded.await?;
    start(compute, id);
    answer.map_err(|error| refused(error, volume))
}

fn device_of(tx: &mut Tx<'_>, server: ServerId, volume: VolumeId) -> Result<BlockDevice, Error> {
    let found = rows::of_server(tx, server)?.into_iter().find(|one| one.volume == Some(volume));
    found.ok_or_else(|| {
        Refusal::not_found(format!(
            "The volume {volume} is not attached to instance {server}: Instance {server} is not \
             attached to volume {volume}"
        ))
        .into()
    })
}

/// Changes an attached volume.
///
/// # Errors
/// 404 for a volume that is not attached to the server.
pub fn change(
    tx: &mut Tx<'_>,
    server: &Server,
    volume: VolumeId,
    change: Change,
) -> Result<(), Error> {
    let device = device_of(tx, server.id, volume)?;
    match change.delete_on_termination {
        Some(delete) => Ok(rows::set_delete(tx, device.id, delete)?),
        None => Ok(()),
    }
}

/// Runs [`extended`] in the background, for an event from Cinder. If the event is lost, a hard reboot
/// applies the new size.
pub fn extend_soon(compute: &Compute, server: ServerId, volume: VolumeId) {
    let Some(volumes) = &compute.volumes else { return };
    let compute = compute.clone();
    volumes.runtime.spawn(async move {
        match extended(&compute, server, volume).await {
            Ok(true) => tracing::info!(%server, %volume, "extended the guest's disk"),
            Ok(false) => tracing::warn!(%server, %volume, "a volume of another server was extended"),
            Err(error) => {
                tracing::warn!(%server, %volume, %error, "cannot extend a volume; reboot the server hard to show the new size");
            }
        }
    });
}

/// Extends a guest's disk to the new size of its volume in Cinder. The action ends when the host has reported the disk.
/// Returns false if the server has no such volume.
///
/// # Errors
/// 503 if Cinder does not answer; store errors.
pub async fn extended(
    compute: &Compute,
    server: ServerId,
    volume: VolumeId,
) -> Result<bool, Error> {
    let Some(volumes) = compute.volumes.clone() else { return Ok(false) };
    let shown = volumes.bounded(volumes.client.volume(kilonova_cinder::Call::OWN, volume)).await;
    let size = shown.map_err(|error| refused(error, volume))?.size;
    let compute_ = compute.clone();
    compute
        .store
        .write(move |tx| {
            let devices = rows::of_server(tx, server)?;
            let Some(device) = devices.iter().find(|one| one.volume == Some(volume)) else {
                return Ok(false);
            };
            let now: Timestamp = time::now();
            rows::set_size(tx, device.id, size)?;
            if let Some(row) = servers::find(tx, server)? {
                record_extension(tx, &compute_, &row, device, size, now)?;
            }
            super::nudge(tx, &compute_, server, now)?;
            Ok::<_, Error>(true)
        })
        .await
}

/// Records the extension of an attached volume. An event for the size that the document has already repeats a growth that
/// may have failed, unless another operation is about to change the document.
fn record_extension(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    device: &BlockDevice,
    size: i64,
    now: Timestamp,
) -> Result<(), Error> {
    let action = Action::ExtendVolume;
    let Some(host) = server.host.as_ref().filter(|_| device.phase == Phase::Attached) else {
        return actions::record(tx, None, server, action, now);
    };
    if device.size_gb == size {
        let document = documents::get(tx, host, server.id)?;
        let Some(document) = document.filter(|one| matches!(one.desired, Desired::Present(_)))
        else {
            return actions::record(tx, None, server, action, now);
        };
        if journal::open_of(tx, server.id)?.is_some() {
            return actions::record(tx, None, server, action, now);
        }
        documents::put_as(tx, compute, host, server.id, &document.desired, Delivery::AsBefore)?;
    }
    actions::begin(tx, None, server, device, action, now)
}
