//! Soft delete, if `reclaim_instance_interval` enables it: the guest is shut off and keeps its
//! host, its disk and its devices until it is restored or reclaimed.

use jiff::Timestamp;
use kilonova_compute_db::moves::{self, Status};
use kilonova_compute_db::resting::{self, Why};
use kilonova_compute_db::servers::{self, Server, VmState};
use kilonova_flow::Outcome as End;
use kilonova_ids::ServerId;
use kilonova_node_api::Outcome;
use kilonova_store::Tx;
use kilonova_wire::Context;

use super::super::{begin, journal};
use super::{FlowContext, ServerCommand, shelve};
use crate::actions::ServerAction;
use crate::flows::operation::Operation;
use crate::{Compute, Error, flows, states, usage, volumes};

/// Soft-deletes a server, so that `restore` can undo the deletion; deletes it permanently if soft
/// delete is disabled or impossible, for example because the server's host is down (`_local_delete` in
/// `nova/compute/api.py`). Idempotent.
///
/// # Errors
/// 409 when the server is locked; store errors.
pub fn soft_delete(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    now: Timestamp,
) -> Result<(), Error> {
    states::allow(context, server, ServerAction::Delete)?;
    if server.vm_state == VmState::SoftDeleted {
        return Ok(());
    }
    let enabled = compute.options.reclaim_instance_interval.is_positive();
    let restorable = server.launched_at.is_some() && server.vm_state != VmState::Resized;
    if !(enabled && restorable) || super::guest_of(tx, server).is_err() {
        return flows::delete(tx, compute, context, server, now);
    }
    // `os-resetState` may have replaced the state `RESIZED`. The source still has its disk.
    if moves::open_of(tx, server.id)?.is_some_and(|open| open.status == Status::Finished) {
        return flows::delete(tx, compute, context, server, now);
    }
    if let Some(host) = &server.host
        && compute.host_is_lost(tx, host, now)?
    {
        return flows::delete(tx, compute, context, server, now);
    }
    if let Some(open) = journal::open_of(tx, server.id)? {
        if open.state.is_soft_delete() {
            return Ok(());
        }
        if matches!(open.state, Operation::Create(_)) || open.state.is_move() {
            return flows::delete(tx, compute, context, server, now);
        }
        super::cancel(tx, compute, &open)?;
        journal::finish(tx, &open, End::Cancelled, Some("The server was deleted."), now)?;
    }
    volumes::keep_deleter(tx, compute, context, server)?;
    super::begin(tx, compute, context, server, &ServerCommand::SoftDelete, now)
}

/// Starts the interval after which the server is reclaimed, now that the guest is shut off.
pub(super) fn deleted(tx: &mut Tx<'_>, ctx: &FlowContext<'_>) -> Result<(), Error> {
    shelve::discard_shelved_image(tx, ctx.compute, ctx.server.id)?;
    Ok(resting::put(tx, ctx.server.id, Why::Deleted, None, ctx.now)?)
}

/// Deletes a server permanently, because its host has neither a guest nor a disk that `restore` could start, or has a
/// later rebuild of the guest, which it does not shut off for this document. A rollback of the soft deletion would fail
/// for the same reason. Not called for a shelved server, which `unshelve` can still start from its image.
pub(super) fn permanently(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    outcome: &Outcome,
) -> Result<(), Error> {
    let (server, host) = (&ctx.server, ctx.host);
    if let Outcome::Failed { step, message } = outcome {
        let why = format!("{host}: {step}: {message}");
        tracing::warn!(server = %server.id, "the server cannot be soft-deleted; deleting it permanently: {why}");
        ctx.event(tx, ServerAction::Delete, Some(&why))?;
    }
    flows::delete(tx, ctx.compute, &begin::owner_context(server), server, ctx.now)
}

/// Begins `restore`.
///
/// # Errors
/// 409 with Nova's message when the server is not soft-deleted; 403 over quota.
pub fn restore(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    now: Timestamp,
) -> Result<(), Error> {
    states::allow(context, server, ServerAction::Restore)?;
    let flavor = &server.spec.flavor;
    let wanted = usage::ProjectUsage { instances: 1, cores: flavor.vcpus, ram: flavor.ram };
    usage::check(tx, &server.project_id, &server.user_id, wanted)?;
    super::begin(tx, compute, context, server, &ServerCommand::Restore, now)
}

/// Deletes a soft-deleted server permanently once `reclaim_instance_interval` has passed.
///
/// # Errors
/// Store errors only.
pub fn reclaim(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(server) = servers::find(tx, server)? else { return Ok(()) };
    if server.vm_state != VmState::SoftDeleted || server.task_state.is_some() {
        return Ok(());
    }
    flows::delete(tx, compute, &begin::owner_context(&server), &server, now)
}
