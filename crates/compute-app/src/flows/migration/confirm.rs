//! The end of a resize or a cold migration: confirm, or revert.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kilonova_compute_db::documents;
use kilonova_compute_db::moves::{self, Move, Status};
use kilonova_compute_db::servers::{self, PowerState, Server, TaskState, VmState};
use kilonova_flow::{self as flow, Outcome as End};
use kilonova_ids::{ProviderId, ServerId};
use kilonova_node_api::{Desired, Domain, Outcome, Power};
use kilonova_store::Tx;
use kilonova_wire::{Context, Refusal};

use super::super::begin;
use super::super::journal::{self, Requester};
use super::super::operation::{Action, AskedSource, Operation, Revert, RevertState};
use super::roll_back::{self, FailedMove, state_of_power};
use super::{FlowContext, load};
use crate::actions::ServerAction;
use crate::ports::external::{self, SeenRequests};
use crate::{Compute, Error, moves as claims, ports, states};

/// The migration that waits to be confirmed or reverted.
fn finished(tx: &mut Tx<'_>, server: &Server) -> Result<Move, Error> {
    let open = moves::open_of(tx, server.id)?.filter(|open| open.status == Status::Finished);
    open.ok_or_else(|| Refusal::bad_request("Instance has not been resized.").into())
}

/// [`states::allow`] for the confirmation or the revert of a resize. Both are also allowed if `os-resetState` has replaced
/// the state `RESIZED`; otherwise the source would keep its disk until the server is deleted.
///
/// # Errors
/// 409 with Nova's message when the server's state does not allow it.
pub fn allow_end(
    tx: &mut Tx<'_>,
    context: &Context,
    server: &Server,
    action: ServerAction,
) -> Result<(), Error> {
    let may_be_reset =
        matches!(server.vm_state, VmState::Active | VmState::Stopped | VmState::Error);
    let waits = |open: Move| open.status == Status::Finished;
    if may_be_reset && moves::open_of(tx, server.id)?.is_some_and(waits) {
        let as_resized = Server { vm_state: VmState::Resized, ..server.clone() };
        return states::allow(context, &as_resized, action);
    }
    states::allow(context, server, action)
}

/// Refuses an operation that could lose one of the two places of a server whose resize waits for its confirmation, after
/// `os-resetState` has replaced the state `RESIZED`.
///
/// # Errors
/// 409.
pub(in crate::flows) fn check_none_waits(tx: &mut Tx<'_>, server: &Server) -> Result<(), Error> {
    match moves::open_of(tx, server.id)? {
        Some(_) => Err(must_end_first(server)),
        None => Ok(()),
    }
}

/// [`check_none_waits`] for an operation that may interrupt another move.
///
/// # Errors
/// 409.
pub(super) fn check_none_is_finished(tx: &mut Tx<'_>, server: &Server) -> Result<(), Error> {
    match moves::open_of(tx, server.id)? {
        Some(open) if open.status == Status::Finished => Err(must_end_first(server)),
        Some(_) | None => Ok(()),
    }
}

/// The refusal of [`check_none_waits`].
pub(super) fn must_end_first(server: &Server) -> Error {
    let words =
        format!("Instance {} was resized or migrated: confirm or revert that first.", server.id);
    Refusal::conflict(words).into()
}

/// Confirms a resize or a cold migration: the server stays at the destination. The claims on the source are released
/// when the source reports that it has removed the guest; no operation waits for that.
///
/// # Errors
/// 409 with Nova's message when the server's state does not allow it; 409 also if the destination has reported that it
/// has removed the guest (`desired_state`), because the source may have the only copy.
pub fn confirm(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    now: Timestamp,
) -> Result<(), Error> {
    allow_end(tx, context, server, ServerAction::ConfirmResize)?;
    let migration = finished(tx, server)?;
    if server.power_state == PowerState::NoState {
        return Err(Refusal::conflict(format!(
            "Cannot 'confirmResize' instance {}: its host has removed the guest after a request that the database has \
             lost. The guest may be on the source of the resize. Revert the resize, or delete the server.",
            server.id
        ))
        .into());
    }
    confirmed(tx, compute, server, &migration, &Requester::from(context), now)
}

/// Confirms a migration that exceeds `resize_confirm_window`. Returns true if it was confirmed. If `os-resetState` has
/// replaced the state `RESIZED`, an operator has intervened and decides, as upstream (`_poll_unconfirmed_resizes` in
/// `nova/compute/manager.py`).
///
/// # Errors
/// Store errors only.
pub fn confirm_expired(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    before: Timestamp,
    now: Timestamp,
) -> Result<bool, Error> {
    let Some(server) = servers::find(tx, server)? else { return Ok(false) };
    let migration = moves::open_of(tx, server.id)?
        .filter(|open| open.status == Status::Finished && open.updated_at <= before);
    let Some(migration) = migration else { return Ok(false) };
    let is_there = server.power_state != PowerState::NoState;
    if server.vm_state != VmState::Resized || server.task_state.is_some() || !is_there {
        return Ok(false);
    }
    confirmed(tx, compute, &server, &migration, &Requester::service(&server), now)?;
    Ok(true)
}

fn confirmed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    migration: &Move,
    by: &Requester,
    now: Timestamp,
) -> Result<(), Error> {
    leave_resized(tx, server, now)?;
    release_source(tx, compute, server.id, migration, now)?;
    let action = Operation::Recorded(Action::ConfirmResize);
    let id = journal::record(tx, server.id, by, &action, End::Done, now)?;
    let done = begin::event("compute_confirm_resize", &migration.source, None, now, now);
    Ok(flow::event(tx, id, &done)?)
}

/// Sets the state of a server whose resize is confirmed. Another state, which `os-resetState` has set, stays.
fn leave_resized(tx: &mut Tx<'_>, server: &Server, now: Timestamp) -> Result<(), Error> {
    if server.vm_state != VmState::Resized {
        return Ok(servers::set_task(tx, server.id, None, now)?);
    }
    let state = state_of_power(server.power_state);
    Ok(servers::set_state(tx, server.id, state, None, server.power_state, now)?)
}

/// Closes the migration and releases the source.
fn release_source(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    migration: &Move,
    now: Timestamp,
) -> Result<(), Error> {
    let source = &migration.source;
    moves::close(tx, migration.id, Status::Confirmed, now)?;
    if migration.same_host() {
        return claims::release_claims_of_migrations(tx, compute, server, source);
    }
    documents::put(tx, compute, source, server, &Desired::Absent)?;
    if compute.host_is_lost(tx, source, now)? {
        claims::abandon_claims_of_migrations(tx, compute, server, source)?;
    }
    Ok(())
}

/// Begins `revertResize`. The source is asked first whether it still has the guest. If it does, the server holds the
/// claims at the source and its old flavor from then on, and the guest is started there once the destination has removed
/// it. At the source, the server claims the resources that its ports request now; a change to their QoS policy may have
/// changed them.
///
/// # Errors
/// 409 with Nova's message when the server's state does not allow it, and if the source has too few resources for the
/// ports.
pub fn revert(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    requests: &SeenRequests,
    now: Timestamp,
) -> Result<(), Error> {
    allow_end(tx, context, server, ServerAction::RevertResize)?;
    let migration = finished(tx, server)?;
    if compute.host_is_lost(tx, &migration.source, now)? {
        return Err(Refusal::conflict("Service is unavailable at this time.").into());
    }
    requests.claim(tx, compute, server.id, (migration.id, &migration.source))?;
    let state = Operation::Revert(Revert::Begin);
    let open = begin::begin(tx, context, server, Some(TaskState::ResizeReverting), state, now)?;
    moves::set_status(tx, migration.id, Status::Reverting, now)?;
    let ctx = FlowContext { compute, open: &open, server: server.clone(), migration, now };
    if ctx.migration.same_host() {
        return leave_dest(tx, &ctx);
    }
    let claimed = claimed_for_ports(tx, &ctx)?;
    ask_source(tx, &ctx, AskedSource { claimed })
}

/// The amounts that the server has claimed for its ports. Neutron changes these when it changes the QoS policy of a port.
fn claimed_for_ports(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
) -> Result<BTreeMap<ProviderId, BTreeMap<String, i64>>, Error> {
    if ctx.compute.neutron.is_none() || !ctx.server.spec.networked {
        return Ok(BTreeMap::new());
    }
    external::claimed_by(tx, ctx.server.id)
}

/// Asks the source to report whether it still has the guest. If the database has lost a confirmation, the destination
/// has the only copy of the guest, and only that report shows it.
fn ask_source(tx: &mut Tx<'_>, ctx: &FlowContext<'_>, state: AskedSource) -> Result<(), Error> {
    let asked = Domain { power: Power::AsIs, ..ctx.migration.old_domain.clone() };
    ctx.put(tx, &ctx.migration.source, &Desired::Present(Box::new(asked)))?;
    ctx.advance(tx, &Operation::Revert(Revert::AskSource(state)))
}

/// Continues a revert whose source has not reported since `before`: ends it if the source is lost, and asks the source
/// again otherwise, because a controller of an earlier version may have received the report and ignored it.
///
/// # Errors
/// Store errors only.
pub fn ask_source_again(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    before: Timestamp,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(open) = journal::open_of(tx, server)? else { return Ok(()) };
    let Operation::Revert(Revert::AskSource(asked)) = &open.state else { return Ok(()) };
    // Another controller may have asked in the meantime.
    if open.row.updated_at >= before {
        return Ok(());
    }
    let Some((server, migration)) = load(tx, &open)? else { return Ok(()) };
    let ctx = FlowContext { compute, open: &open, server, migration, now };
    let source = &ctx.migration.source;
    if compute.host_is_lost(tx, source, now)? {
        return not_asked(tx, &ctx, &format!("{source} went down."));
    }
    ask_source(tx, &ctx, asked.clone())
}

/// Returns the server to the claims at the source, and clears the destination.
fn leave_dest(tx: &mut Tx<'_>, ctx: &FlowContext<'_>) -> Result<(), Error> {
    let (server, source, now) = (&ctx.server, &ctx.migration.source, ctx.now);
    let networks = &*ctx.compute.networks;
    servers::set_flavor(tx, server, &ctx.migration.old_flavor, now)?;
    ports::set_host(tx, networks, server.id, Some(source), now)?;
    roll_back::drop_dest(tx, ctx, FailedMove::Revert(RevertState::default()))?;
    // The ports are bound to the server's devices at the source, which the server holds only from now on.
    if server.spec.networked {
        ports::bind(tx, networks, server.id, Some(source), now)?;
    }
    Ok(())
}

/// Handles the source's report on whether it still has the guest of a revert.
pub(super) fn source_reported(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    asked: &AskedSource,
    outcome: &Outcome,
) -> Result<(), Error> {
    match outcome {
        Outcome::Stopped | Outcome::Running | Outcome::Paused | Outcome::Suspended => {
            if claimed_for_ports(tx, ctx)? != asked.claimed {
                // The claims on the source are those of the earlier policy, and Neutron must be read outside of a
                // transaction.
                let why = "The QoS policy of a port changed while the source was asked. Revert the resize again.";
                return not_asked(tx, ctx, why);
            }
            leave_dest(tx, ctx)
        }
        Outcome::Absent | Outcome::Ready | Outcome::MigratedOut => was_confirmed(tx, ctx),
        Outcome::Failed { step, message } => {
            not_asked(tx, ctx, &format!("{}: {step}: {message}", ctx.migration.source))
        }
        Outcome::Working { .. } | Outcome::MigratingOut(_) => Ok(()),
    }
}

/// Ends a revert whose source no longer has the guest: only a confirmation removes it there, so the resize counts as
/// confirmed, and the server stays at the destination.
fn was_confirmed(tx: &mut Tx<'_>, ctx: &FlowContext<'_>) -> Result<(), Error> {
    let (server, migration, now) = (&ctx.server, &ctx.migration, ctx.now);
    let why = format!(
        "{} no longer has the guest: the resize was probably confirmed, and the database has lost the confirmation. It is \
         confirmed now, and the server stays on its host.",
        migration.source
    );
    leave_resized(tx, server, now)?;
    if server.power_state == PowerState::NoState {
        // A deletion was lost: the destination has removed the guest too.
        let fault = servers::Fault::new("No host has the guest.", &*why, now);
        servers::set_error(tx, server.id, &fault, now)?;
    }
    release_source(tx, ctx.compute, server.id, migration, now)?;
    refused(tx, ctx, &why)
}

/// Ends a revert before the server leaves the destination: nothing has changed.
fn not_asked(tx: &mut Tx<'_>, ctx: &FlowContext<'_>, why: &str) -> Result<(), Error> {
    let (migration, now) = (&ctx.migration, ctx.now);
    let before = migration.old_domain.clone();
    let mut kept = Domain { power: Power::Off, verb: None, ..before };
    kept.require_guest();
    ctx.put(tx, &migration.source, &Desired::Present(Box::new(kept)))?;
    moves::set_status(tx, migration.id, Status::Finished, now)?;
    servers::set_task(tx, ctx.server.id, None, now)?;
    refused(tx, ctx, why)
}

/// Records why a revert ends before it has begun.
fn refused(tx: &mut Tx<'_>, ctx: &FlowContext<'_>, why: &str) -> Result<(), Error> {
    tracing::warn!(server = %ctx.server.id, "the resize is not reverted: {why}");
    let (row, source) = (&ctx.open.row, &ctx.migration.source);
    let failed = begin::event("compute_revert_resize", source, Some(why), row.created_at, ctx.now);
    flow::event(tx, row.id, &failed)?;
    journal::finish(tx, ctx.open, End::Failed, Some(why), ctx.now)
}

/// Adds the events of a revert.
pub(super) fn record_revert(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    failure: Option<&str>,
) -> Result<(), Error> {
    let (row, migration, now) = (&ctx.open.row, &ctx.migration, ctx.now);
    let dest = migration.dest.clone().unwrap_or_else(begin::nowhere);
    let name = "compute_revert_resize";
    flow::event(tx, row.id, &begin::event(name, &dest, None, row.created_at, row.updated_at))?;
    let name = "compute_finish_revert_resize";
    let done = begin::event(name, &migration.source, failure, row.updated_at, now);
    Ok(flow::event(tx, row.id, &done)?)
}
