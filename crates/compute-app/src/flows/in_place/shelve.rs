//! Shelving: the server's disk becomes an image, and its host is released.

use jiff::Timestamp;
use kilonova_compute_db::documents;
use kilonova_compute_db::resting::{self, Why};
use kilonova_compute_db::servers::{self, PowerState, Server, TaskState, VmState};
use kilonova_flow::Outcome as End;
use kilonova_ids::{ImageId, ServerId};
use kilonova_node_api::{Desired, Outcome};
use kilonova_store::Tx;
use kilonova_wire::Context;

use super::super::begin;
use super::{FlowContext, ServerCommand};
use crate::actions::ServerAction;
use crate::flows::migration;
use crate::flows::operation::{Before, Offload, OffloadCause, Operation};
use crate::images::{self, PreparedImage, Snapshot};
use crate::{Compute, Error, boot, ports, states};

/// The request for the image that `shelve` creates.
pub fn shelved_image(server: &Server) -> Snapshot {
    Snapshot { name: format!("{}-shelved", server.name), ..Snapshot::default() }
}

/// Begins `shelve`.
///
/// # Errors
/// 409 with Nova's message when the server's state does not allow it; 503 without an image service.
pub fn shelve(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    prepared: PreparedImage,
    now: Timestamp,
) -> Result<(), Error> {
    states::allow(context, server, ServerAction::Shelve)?;
    migration::check_none_waits(tx, server)?;
    if server.spec.image.is_none() {
        return shelve_volume_backed(tx, compute, context, server, now);
    }
    let request = shelved_image(server);
    let image = images::reserve(tx, compute, context, server, &request, prepared, now)?;
    super::begin(tx, compute, context, server, &ServerCommand::Shelve(image), now)
}

/// Begins `shelve` of a volume-backed server. It needs no image, so its host removes the guest
/// immediately.
fn shelve_volume_backed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    now: Timestamp,
) -> Result<(), Error> {
    let (host, _) = super::guest_of(tx, server)?;
    let (vm_state, power_state) = (server.vm_state, server.power_state);
    let cause = OffloadCause::ShelveOffload { vm_state, power_state };
    let state = Operation::Offload(Offload { cause, reason: None });
    begin::begin(tx, context, server, Some(TaskState::ShelvingOffloading), state, now)?;
    resting::put(tx, server.id, Why::Shelved, None, now)?;
    Ok(documents::put(tx, compute, &host, server.id, &Desired::Absent)?)
}

/// Completes shelving, now that the image is uploaded and the guest is shut off. Continues with the
/// offload if `shelved_offload_time` is 0.
pub(super) fn shelved(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    before: &Before,
    image: Option<ImageId>,
) -> Result<(), Error> {
    let (id, now) = (ctx.server.id, ctx.now);
    resting::put(tx, id, Why::Shelved, image, now)?;
    let at_once = ctx.compute.options.shelved_offload_time.is_zero();
    let task = at_once.then_some(TaskState::ShelvingOffloading);
    servers::set_state(tx, id, VmState::Shelved, task, PowerState::Shutdown, now)?;
    if !at_once {
        return ctx.finish(tx, End::Done, None);
    }
    // The image belongs to the server from now on, not to the operation.
    let offload = Offload { cause: OffloadCause::Shelve(before.clone()), reason: None };
    ctx.advance(tx, &Operation::Offload(offload))?;
    ctx.put(tx, &Desired::Absent)
}

/// Begins `shelveOffload`.
///
/// # Errors
/// 409 with Nova's message when the server is not shelved.
pub fn offload(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    now: Timestamp,
) -> Result<(), Error> {
    states::allow(context, server, ServerAction::ShelveOffload)?;
    let (host, _) = super::guest_of(tx, server)?;
    let (vm_state, power_state) = (server.vm_state, server.power_state);
    let cause = OffloadCause::ShelveOffload { vm_state, power_state };
    let state = Operation::Offload(Offload { cause, reason: None });
    begin::begin(tx, context, server, Some(TaskState::ShelvingOffloading), state, now)?;
    Ok(documents::put(tx, compute, &host, server.id, &Desired::Absent)?)
}

/// Begins `shelveOffload` for a server that has been shelved for longer than
/// `shelved_offload_time`.
///
/// # Errors
/// Store errors only.
pub fn offload_expired(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(server) = servers::find(tx, server)? else { return Ok(()) };
    let context = begin::owner_context(&server);
    if states::allow(&context, &server, ServerAction::ShelveOffload).is_err() {
        return Ok(());
    }
    offload(tx, compute, &context, &server, now)
}

/// Handles the host's report on the removal; once the guest is removed, the server has no claims.
pub(super) fn cleared(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    offload: &Offload,
    outcome: &Outcome,
) -> Result<(), Error> {
    let (id, now) = (ctx.server.id, ctx.now);
    match outcome {
        Outcome::Absent => {
            documents::forget(tx, ctx.host, id)?;
            boot::release(tx, ctx.compute, id)?;
            ports::set_host(tx, &*ctx.compute.networks, id, None, now)?;
            servers::set_state(tx, id, VmState::ShelvedOffloaded, None, PowerState::Shutdown, now)?;
            ctx.event(tx, ServerAction::ShelveOffload, None)?;
            ctx.finish(tx, End::Done, None)
        }
        Outcome::Failed { step, message } => {
            let why = format!("{}: {step}: {message}", ctx.host);
            tracing::warn!(server = %id, "host failed to offload the guest: {why}; retrying");
            if offload.reason.as_deref() != Some(&why) {
                ctx.event(tx, ServerAction::ShelveOffload, Some(&why))?;
            }
            let again = Offload { cause: offload.cause.clone(), reason: Some(why) };
            ctx.advance(tx, &Operation::Offload(again))
        }
        Outcome::Running
        | Outcome::Paused
        | Outcome::Suspended
        | Outcome::Stopped
        | Outcome::Ready
        | Outcome::Working { .. }
        | Outcome::MigratingOut(_)
        | Outcome::MigratedOut => Ok(()),
    }
}

/// Discards the image of a shelved server that was unshelved or deleted.
pub(in crate::flows) fn discard_shelved_image(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
) -> Result<(), Error> {
    if let Some(image) = resting::image(tx, server)? {
        images::discard(tx, compute, image)?;
    }
    Ok(resting::end(tx, server)?)
}
