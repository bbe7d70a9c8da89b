//! Evacuation: rebuilds a server from its image on another host, because its own host is down.
//!
//! The document of the old host changes immediately: if the host returns meanwhile, it keeps the guest shut off, and
//! removes it once the server has arrived. The server's devices there stay claimed until that host reports.

use jiff::Timestamp;
use kilonova_compute_db::documents;
use kilonova_compute_db::moves::{self, Kind, Move, Status};
use kilonova_compute_db::servers::{self, Server, TaskState, VmState};
use kilonova_flow::{self as flow, Outcome as End};
use kilonova_ids::HostName;
use kilonova_node_api::{Desired, Domain, Outcome, Power};
use kilonova_store::Tx;
use kilonova_wire::{Context, Refusal};

use super::super::journal::{self, OpenOperation};
use super::super::operation::{
    Attempts, ColdMigration, Evacuation, EvacuationState, LiveMigration, Operation, Revert,
};
use super::super::{begin as events, in_place};
use super::begin::{self, NewMigration};
use super::cold::{Made, guest_at_dest};
use super::roll_back::{self, FailedMove, state_of_power};
use super::{FlowContext, Reporter, confirm};
use crate::actions::ServerAction;
use crate::{Compute, Error, aliases, moves as claims, ports, states};

/// A request for an evacuation.
#[derive(Debug, Clone, Default)]
pub struct EvacuateRequest {
    /// The destination.
    pub host: Option<HostName>,
    /// True if that host is used regardless of its zone.
    pub force: bool,
    /// True if the server is shut off afterwards (2.95).
    pub ends_stopped: bool,
}

/// Begins an evacuation.
///
/// # Errors
/// 400 while the server's host is up, 409 with Nova's message when the server's state does not allow it; 409 also if a
/// finished migration waits for its confirmation.
pub fn evacuate(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    request: &EvacuateRequest,
    now: Timestamp,
) -> Result<(), Error> {
    states::allow(context, server, ServerAction::Evacuate)?;
    let source = server.host.clone().ok_or_else(|| states::not_ready(server))?;
    if !compute.row_is_lost(tx, &source, now)? {
        let words = format!("Compute service of {source} is still in use.");
        return Err(Refusal::bad_request(words).into());
    }
    aliases::check(&compute.options.pci_aliases, &server.spec.flavor)?;
    // An open operation is cancelled with its migration. A finished migration keeps the guest at its source.
    confirm::check_none_is_finished(tx, server)?;
    let must_drop = match journal::open_of(tx, server.id)? {
        Some(open) => cancel_open(tx, compute, server, &open, now)?,
        None => None,
    };
    let new = NewMigration {
        server,
        kind: Kind::Evacuation,
        state: Operation::Evacuate(Evacuation::Begin),
        task: TaskState::Rebuilding,
        status: Status::Accepted,
        flavor: &server.spec.flavor,
        guest: begin::guest_of(tx, server)?,
    };
    let (open, migration) = begin::begin(tx, context, new, now)?;
    let runs = server.vm_state != VmState::Stopped && !request.ends_stopped;
    let power = if runs { Power::On } else { Power::Off };
    let attempts =
        Attempts { requested: request.host.clone(), force: request.force, ..Attempts::default() };
    let mut ctx = FlowContext { compute, open: &open, server: server.clone(), migration, now };
    let scheduled = begin::conductor_event("rebuild_server", None, now);
    if let Some(dest) = must_drop {
        flow::event(tx, open.row.id, &scheduled)?;
        moves::set_status(tx, ctx.migration.id, Status::PreMigrating, now)?;
        moves::set_dest(tx, ctx.migration.id, &dest, now)?;
        keep_shut_off(tx, &ctx)?;
        // The destination of the cancelled live migration may have part of the guest, and must remove it before another
        // host creates the guest.
        ctx.put(tx, &dest, &Desired::Absent)?;
        let state = EvacuationState { attempts, power };
        return ctx.advance(tx, &Operation::Evacuate(Evacuation::DropDest(state)));
    }
    let place = match begin::claim_place(tx, &ctx, &attempts, &|_| true)? {
        Ok(place) => place,
        Err(reason) => return begin::no_host(tx, &ctx, "rebuild_server", &reason),
    };
    flow::event(tx, open.row.id, &scheduled)?;
    moves::set_status(tx, ctx.migration.id, Status::PreMigrating, now)?;
    keep_shut_off(tx, &ctx)?;
    let attempts = Attempts { devices: place.devices, chosen: Some(place.how), ..attempts };
    ctx.migration.dest = Some(place.host.clone());
    make_dest(tx, &ctx, EvacuationState { attempts, power }, &place.host)
}

/// Prevents the old host from running the guest if it returns meanwhile.
fn keep_shut_off(tx: &mut Tx<'_>, ctx: &FlowContext<'_>) -> Result<(), Error> {
    let before = ctx.migration.old_domain.clone();
    let mut kept = Domain { power: Power::Off, ..before };
    kept.require_guest();
    ctx.put(tx, &ctx.migration.source, &Desired::Present(Box::new(kept)))
}

/// How an evacuation treats the server's open operation.
enum Interrupted {
    /// The operation runs on another host or deletes the server, so the evacuation is refused.
    Refuse,
    /// The operation is cancelled.
    Cancel,
    /// The operation is cancelled, and the document of the source is restored.
    Restore,
    /// Like [`Self::Restore`], and the destination must remove the incoming guest.
    RestoreAndDrop,
}

impl Interrupted {
    fn of(state: &Operation) -> Self {
        match state {
            Operation::Delete(_) => Self::Refuse,
            Operation::InPlace(_) if state.is_soft_delete() => Self::Refuse,
            Operation::Resize(cold) | Operation::Migrate(cold) => match cold {
                ColdMigration::StopSource(_) => Self::Restore,
                ColdMigration::Restore(_) => Self::Cancel,
                ColdMigration::Begin | ColdMigration::MakeDest(_) | ColdMigration::DropDest(_) => {
                    Self::Refuse
                }
            },
            Operation::Revert(revert) => match revert {
                Revert::Restore(_) => Self::Cancel,
                Revert::Begin | Revert::AskSource(_) | Revert::DropDest(_) => Self::Refuse,
            },
            Operation::Evacuate(_) => Self::Refuse,
            Operation::LiveMigration(live) => match live {
                LiveMigration::Begin => Self::Refuse,
                LiveMigration::Queued(_) | LiveMigration::Restore(_) => Self::Restore,
                LiveMigration::Receive(_)
                | LiveMigration::Transfer(_)
                | LiveMigration::Abort(_)
                | LiveMigration::Locate(_)
                | LiveMigration::DropDest(_) => Self::RestoreAndDrop,
                LiveMigration::Arrive(_) => Self::Cancel,
            },
            Operation::Create(_)
            | Operation::Power(_)
            | Operation::InPlace(_)
            | Operation::Offload(_)
            | Operation::Unshelve(_)
            | Operation::Recorded(_) => Self::Cancel,
        }
    }
}

/// Cancels the open operation. Returns the destination of a cancelled live migration if it must remove the incoming
/// guest.
fn cancel_open(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    open: &OpenOperation,
    now: Timestamp,
) -> Result<Option<HostName>, Error> {
    let mut must_drop = None;
    let interrupted = Interrupted::of(&open.state);
    match interrupted {
        Interrupted::Refuse => {
            let task = server.task_state.map_or("None", TaskState::as_str);
            return Err(Refusal::conflict(format!(
                "Cannot 'evacuate' instance {} while it is in task_state {task}",
                server.id
            ))
            .into());
        }
        Interrupted::Cancel => {}
        Interrupted::Restore | Interrupted::RestoreAndDrop => {
            if let Some(migration) = moves::open_of(tx, server.id)? {
                let mut as_before = migration.old_domain;
                as_before.require_guest();
                let as_before = Desired::Present(Box::new(as_before));
                documents::put(tx, compute, &migration.source, server.id, &as_before)?;
                must_drop =
                    migration.dest.filter(|_| matches!(interrupted, Interrupted::RestoreAndDrop));
            }
        }
    }
    in_place::cancel(tx, compute, open)?;
    roll_back::cancel(tx, compute, server, Some(open), Status::Error, now)?;
    journal::finish(tx, open, End::Cancelled, Some("The server was evacuated."), now)?;
    Ok(must_drop)
}

/// Handles a host's report on an evacuation.
pub(super) fn observed(
    tx: &mut Tx<'_>,
    ctx: FlowContext<'_>,
    evacuation: &Evacuation,
    by: Reporter,
    outcome: &Outcome,
) -> Result<(), Error> {
    match evacuation {
        Evacuation::MakeDest(state) if by.is_dest => dest_made(tx, &ctx, state, outcome),
        Evacuation::DropDest(state) if by.is_dest => {
            roll_back::dest_dropped(tx, ctx, FailedMove::Evacuation(state.clone()), outcome)
        }
        Evacuation::Begin | Evacuation::MakeDest(_) | Evacuation::DropDest(_) => Ok(()),
    }
}

/// Sends the guest's document to the destination.
pub(super) fn make_dest(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    state: EvacuationState,
    dest: &HostName,
) -> Result<(), Error> {
    servers::set_task(tx, ctx.server.id, Some(TaskState::RebuildSpawning), ctx.now)?;
    let document = guest_at_dest(tx, ctx, state.attempts.devices.clone(), state.power)?;
    ctx.put_as(tx, dest, document)?;
    ctx.advance(tx, &Operation::Evacuate(Evacuation::MakeDest(state)))
}

/// Completes the evacuations among the migrations that hold claims on a host, now that this host has removed the guest
/// (`_destroy_evacuated_instances` in `nova/compute/manager.py`).
///
/// # Errors
/// Store errors only.
pub(in crate::flows) fn source_removed(
    tx: &mut Tx<'_>,
    held: &[Move],
    now: Timestamp,
) -> Result<(), Error> {
    let is_done = |held: &&Move| held.kind == Kind::Evacuation && held.status == Status::Done;
    for held in held.iter().filter(is_done) {
        moves::set_status(tx, held.id, Status::Completed, now)?;
    }
    Ok(())
}

/// Handles the destination's report. Once the destination has the guest, the old host must remove its copy when it
/// returns.
fn dest_made(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    state: &EvacuationState,
    outcome: &Outcome,
) -> Result<(), Error> {
    let Some(dest) = ctx.migration.dest.clone() else { return Ok(()) };
    let (id, now, row) = (ctx.server.id, ctx.now, &ctx.open.row);
    let name = "compute_rebuild_instance";
    match Made::of(outcome, state.power, &dest) {
        Made::NotYet => Ok(()),
        Made::Failed(why) => {
            let failed = events::event(name, &dest, Some(&why), row.updated_at, now);
            flow::event(tx, row.id, &failed)?;
            let mut state = state.clone();
            state.attempts.reason = Some(why);
            roll_back::drop_dest(tx, ctx, FailedMove::Evacuation(state))
        }
        Made::As(power_state) => {
            flow::event(tx, row.id, &events::event(name, &dest, None, row.updated_at, now))?;
            ports::set_host(tx, &*ctx.compute.networks, id, Some(&dest), now)?;
            let source = &ctx.migration.source;
            let vm_state = state_of_power(power_state);
            servers::set_state(tx, id, vm_state, None, power_state, now)?;
            servers::set_relaunched(tx, id, now)?;
            moves::close(tx, ctx.migration.id, Status::Done, now)?;
            ctx.put(tx, source, &Desired::Absent)?;
            if ctx.compute.host_is_lost(tx, source, now)? {
                claims::abandon_claims_of_migrations(tx, ctx.compute, id, source)?;
            }
            journal::finish(tx, ctx.open, End::Done, None, now)
        }
    }
}
