//! The rollback of a move: the destination is cleared, then the move tries the next host, or the
//! server continues at its old place.
//!
//! From the first step of a rollback on, the server holds its old place again, and the migration
//! holds the destination until that host reports that it has removed the guest.

use jiff::Timestamp;
use kilonova_compute_db::documents::{self, Delivery};
use kilonova_compute_db::moves::{self, Kind, Move, NewMove, Status};
use kilonova_compute_db::servers::{self, PowerState, Server, VmState};
use kilonova_compute_scheduler::NoHost;
use kilonova_flow::{self as flow, Outcome as End};
use kilonova_ids::{ConsumerId, HostName, ServerId};
use kilonova_node_api::{Desired, GuestMetadata, Outcome, Power};
use kilonova_store::Tx;
use kilonova_wire::Refusal;

use super::super::begin as events;
use super::super::journal::{self, OpenOperation};
use super::super::operation::{
    Attempts, ColdMigration, ColdState, Evacuation, EvacuationState, LiveMigration, Operation,
    Revert, RevertState, Transit,
};
use super::cold::{self, ColdKind};
use super::{FlowContext, begin, confirm, evacuate, live, load};
use crate::{Compute, Error, boot, moves as claims, ports};

/// The state of a move that is rolled back.
#[derive(Clone)]
pub(super) enum FailedMove {
    /// A resize or a cold migration.
    Cold(ColdKind, ColdState),
    /// A revert, in which the server leaves the destination at the user's request.
    Revert(RevertState),
    /// An evacuation.
    Evacuation(EvacuationState),
    /// A live migration.
    Live(Transit),
}

impl FailedMove {
    /// The move in that operation and the step of its destination, if the operation waits for the destination.
    fn awaiting_dest(state: &Operation) -> Option<(Self, DestStep)> {
        match state {
            Operation::Resize(cold) => Self::of_cold(Operation::Resize, cold),
            Operation::Migrate(cold) => Self::of_cold(Operation::Migrate, cold),
            Operation::Revert(revert) => match revert {
                Revert::DropDest(state) => Some((Self::Revert(state.clone()), DestStep::Drop)),
                Revert::Begin | Revert::AskSource(_) | Revert::Restore(_) => None,
            },
            Operation::Evacuate(evacuation) => match evacuation {
                Evacuation::MakeDest(state) => {
                    Some((Self::Evacuation(state.clone()), DestStep::Make))
                }
                Evacuation::DropDest(state) => {
                    Some((Self::Evacuation(state.clone()), DestStep::Drop))
                }
                Evacuation::Begin => None,
            },
            Operation::LiveMigration(live) => match live {
                LiveMigration::Receive(attempts) => {
                    Some((Self::Live(attempts.clone().into()), DestStep::Make))
                }
                LiveMigration::DropDest(transit) => {
                    Some((Self::Live(transit.clone()), DestStep::Drop))
                }
                LiveMigration::Begin
                | LiveMigration::Queued(_)
                | LiveMigration::Transfer(_)
                | LiveMigration::Abort(_)
                | LiveMigration::Locate(_)
                | LiveMigration::Arrive(_)
                | LiveMigration::Restore(_) => None,
            },
            Operation::Create(_)
            | Operation::Delete(_)
            | Operation::Power(_)
            | Operation::InPlace(_)
            | Operation::Offload(_)
            | Operation::Unshelve(_)
            | Operation::Recorded(_) => None,
        }
    }

    fn of_cold(kind: ColdKind, cold: &ColdMigration) -> Option<(Self, DestStep)> {
        match cold {
            ColdMigration::MakeDest(state) => {
                Some((Self::Cold(kind, state.clone()), DestStep::Make))
            }
            ColdMigration::DropDest(state) => {
                Some((Self::Cold(kind, state.clone()), DestStep::Drop))
            }
            ColdMigration::Begin | ColdMigration::StopSource(_) | ColdMigration::Restore(_) => None,
        }
    }

    fn drop_dest(self) -> Operation {
        match self {
            Self::Cold(kind, state) => kind(ColdMigration::DropDest(state)),
            Self::Revert(state) => Operation::Revert(Revert::DropDest(state)),
            Self::Evacuation(state) => Operation::Evacuate(Evacuation::DropDest(state)),
            Self::Live(transit) => Operation::LiveMigration(LiveMigration::DropDest(transit)),
        }
    }

    fn tried(&mut self) -> &mut Vec<HostName> {
        match self {
            Self::Cold(_, state) => &mut state.attempts.tried,
            Self::Revert(state) => &mut state.tried,
            Self::Evacuation(state) => &mut state.attempts.tried,
            Self::Live(transit) => &mut transit.attempts.tried,
        }
    }

    /// The attempts of the move; a revert has none.
    fn attempts(&self) -> Option<&Attempts> {
        match self {
            Self::Cold(_, state) => Some(&state.attempts),
            Self::Revert(_) => None,
            Self::Evacuation(state) => Some(&state.attempts),
            Self::Live(transit) => Some(&transit.attempts),
        }
    }

    fn set_reason(&mut self, reason: String) {
        match self {
            Self::Cold(_, state) => state.attempts.reason = Some(reason),
            Self::Revert(_) => {}
            Self::Evacuation(state) => state.attempts.reason = Some(reason),
            Self::Live(transit) => transit.attempts.reason = Some(reason),
        }
    }

    /// The step that follows once the destination is clear. No other host is tried after a revert or an aborted
    /// migration, or if the guest may have left its source.
    fn may_try_next(&self, max_attempts: usize) -> Next {
        let goes_back = match self {
            Self::Cold(..) | Self::Evacuation(_) => false,
            Self::Revert(_) => true,
            Self::Live(transit) => transit.cancelled || transit.sent,
        };
        match self.attempts().filter(|_| !goes_back) {
            None => Next::GoBack,
            Some(attempts) if attempts.tried.len() < max_attempts => Next::TryHost,
            Some(_) => Next::Exhausted,
        }
    }
}

/// The step that follows once the destination is clear.
enum Next {
    /// The server continues at its old place.
    GoBack,
    /// The move tries another host.
    TryHost,
    /// The server continues at its old place, because `max_attempts` hosts failed.
    Exhausted,
}

/// The step that the destination of an open move carries out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DestStep {
    /// The destination creates the guest, or prepares for it.
    Make,
    /// The destination removes the guest.
    Drop,
}

/// Clears the destination.
pub(super) fn drop_dest(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    mut failed: FailedMove,
) -> Result<(), Error> {
    let Some(dest) = ctx.migration.dest.clone() else { return Ok(()) };
    claims::swap(tx, &ctx.server, &ctx.migration, &dest)?;
    failed.tried().push(dest.clone());
    if ctx.migration.kind == Kind::Live {
        ports::leave(tx, &*ctx.compute.networks, &ctx.server, &dest, ctx.now)?;
    }
    if ctx.migration.same_host() {
        return restore(tx, ctx, failed);
    }
    ctx.put(tx, &dest, &Desired::Absent)?;
    ctx.advance(tx, &failed.drop_dest())
}

/// Releases a destination for which the move has written no document yet.
pub(super) fn release_untouched_dest(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    failed: FailedMove,
) -> Result<(), Error> {
    let Some(dest) = ctx.migration.dest.clone() else { return Ok(()) };
    claims::swap(tx, &ctx.server, &ctx.migration, &dest)?;
    claims::release_claims_of_migrations(tx, ctx.compute, ctx.server.id, &dest)?;
    restore(tx, ctx, failed)
}

/// Handles the destination's report on the removal.
pub(super) fn dest_dropped(
    tx: &mut Tx<'_>,
    ctx: FlowContext<'_>,
    failed: FailedMove,
    outcome: &Outcome,
) -> Result<(), Error> {
    let Some(dest) = ctx.migration.dest.clone() else { return Ok(()) };
    match outcome {
        Outcome::Absent => {
            documents::forget(tx, &dest, ctx.server.id)?;
            claims::release_claims_of_migrations(tx, ctx.compute, ctx.server.id, &dest)?;
            if ctx.migration.kind == Kind::Live {
                let name = "compute_rollback_live_migration_at_destination";
                let row = &ctx.open.row;
                let done = events::event(name, &dest, None, row.updated_at, ctx.now);
                flow::event(tx, row.id, &done)?;
            }
            next_host_or_back(tx, ctx, failed)
        }
        Outcome::Failed { step, message } => {
            tracing::warn!(
                server = %ctx.server.id, host = %dest,
                "the destination failed to remove the guest: {step}: {message}; retrying"
            );
            Ok(())
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

/// Continues after the destination has removed the guest.
fn next_host_or_back(
    tx: &mut Tx<'_>,
    mut ctx: FlowContext<'_>,
    mut failed: FailedMove,
) -> Result<(), Error> {
    match failed.may_try_next(ctx.compute.options.max_attempts) {
        Next::GoBack => {}
        Next::TryHost => match next_host(tx, &mut ctx, &failed)? {
            Ok(()) => return Ok(()),
            Err(why) => {
                let reason = no_other_host(&failed, &why);
                failed.set_reason(reason);
            }
        },
        Next::Exhausted => {
            let last = failed.attempts().map_or("The move failed.", Attempts::reason).to_owned();
            failed.set_reason(format!(
                "Exceeded maximum number of retries. Exhausted all hosts available for retrying the \
                 move of instance {}. Last failure: {last}",
                ctx.server.id
            ));
        }
    }
    restore(tx, &ctx, failed)
}

fn no_other_host(failed: &FailedMove, why: &NoHost) -> String {
    let why = why.details();
    match failed.attempts().and_then(|attempts| attempts.reason.as_ref()) {
        Some(reason) => format!("{why} Last failure: {reason}"),
        None => why,
    }
}

/// Claims another place and begins the move there. Returns the reason if there is none.
fn next_host(
    tx: &mut Tx<'_>,
    ctx: &mut FlowContext<'_>,
    failed: &FailedMove,
) -> Result<Result<(), NoHost>, Error> {
    let attempts = match failed {
        FailedMove::Live(transit) => return live::next_host(tx, ctx, &transit.attempts),
        FailedMove::Revert(_) => {
            return Ok(Err(NoHost::new("A revert can only go to its source.")));
        }
        FailedMove::Cold(_, state) => &state.attempts,
        FailedMove::Evacuation(state) => &state.attempts,
    };
    let place = match begin::claim_place(tx, ctx, attempts, &|_| true)? {
        Ok(place) => place,
        Err(why) => return Ok(Err(why)),
    };
    let (devices, chosen, dest) = (place.devices, Some(place.how), place.host);
    let attempts = Attempts { devices, chosen, ..attempts.clone() };
    ctx.migration.dest = Some(dest.clone());
    match failed {
        FailedMove::Cold(kind, state) => {
            let state = ColdState { attempts, power: state.power };
            cold::make_dest(tx, ctx, *kind, state, &dest)?;
        }
        FailedMove::Evacuation(state) => {
            let state = EvacuationState { attempts, power: state.power };
            evacuate::make_dest(tx, ctx, state, &dest)?;
        }
        FailedMove::Revert(_) | FailedMove::Live(_) => {}
    }
    Ok(Ok(()))
}

/// Requests that the source restore the guest's previous state.
fn restore(tx: &mut Tx<'_>, ctx: &FlowContext<'_>, failed: FailedMove) -> Result<(), Error> {
    match failed {
        // The guest never stopped.
        FailedMove::Live(transit) if !transit.stopped => {
            end_as_before(tx, ctx, &FailedMove::Live(transit))
        }
        FailedMove::Live(transit) => {
            put_back(tx, ctx, Waits::No)?;
            ctx.advance(tx, &Operation::LiveMigration(LiveMigration::Restore(transit)))
        }
        FailedMove::Cold(kind, state) => {
            put_back(tx, ctx, Waits::No)?;
            ctx.advance(tx, &kind(ColdMigration::Restore(state)))
        }
        FailedMove::Revert(state) => {
            put_back(tx, ctx, Waits::ForPorts)?;
            ctx.advance(tx, &Operation::Revert(Revert::Restore(state)))
        }
        // The source is down and cannot report; it applies the document once it is back.
        FailedMove::Evacuation(state) => {
            put_back(tx, ctx, Waits::No)?;
            end_as_before(tx, ctx, &FailedMove::Evacuation(state))
        }
    }
}

/// Determines whether a restored guest waits for its ports. As upstream, the guest of a revert is paused until they are
/// plugged, and the guest of any other rollback does not wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    ForPorts,
    No,
}

/// Writes the document that the source had before the move. The source must still have the guest's disks. A move on one
/// host keeps the disks, even if the server was rebuilt meanwhile (`os-resetState` allows it). The document then keeps
/// the rebuild; otherwise the host would replace the disks, or refuse.
fn put_back(tx: &mut Tx<'_>, ctx: &FlowContext<'_>, waits: Waits) -> Result<(), Error> {
    let mut domain = ctx.migration.old_domain.clone();
    domain.require_guest();
    domain.config.display_name.clone_from(&ctx.server.name);
    let (networks, source) = (&*ctx.compute.networks, &ctx.migration.source);
    if ctx.migration.same_host()
        && let Some(Desired::Present(rebuilt)) =
            documents::get(tx, source, ctx.server.id)?.map(|document| document.desired)
        && rebuilt.config.boot.rebuilt != domain.config.boot.rebuilt
    {
        domain.config.boot.image = rebuilt.config.boot.image;
        domain.config.boot.rebuilt = rebuilt.config.boot.rebuilt;
        let (spec, flavor) = (&ctx.server.spec, &ctx.migration.old_flavor);
        domain.config.machine = boot::machine::of(spec, flavor);
        domain.config.guest = GuestMetadata {
            flavor: flavor.name.clone(),
            dedicated_cpus: boot::dedicated_cpus(spec, flavor),
            ..rebuilt.config.guest
        };
    }
    let mut delivery = Delivery::Now;
    if let Some(ports) = ports::of_returning_guest(tx, networks, &ctx.server, source)? {
        (domain.config.interfaces, delivery) = (ports.interfaces, ports.delivery);
        domain.starts_paused =
            ports.are_awaited && domain.power == Power::On && waits == Waits::ForPorts;
    }
    ctx.put_as(tx, source, (Desired::Present(Box::new(domain)), delivery))
}

/// Handles the source's report on the restored guest.
pub(super) fn restored(
    tx: &mut Tx<'_>,
    ctx: FlowContext<'_>,
    failed: FailedMove,
    outcome: &Outcome,
) -> Result<(), Error> {
    let (id, now) = (ctx.server.id, ctx.now);
    let source = &ctx.migration.source;
    let reverts = matches!(failed, FailedMove::Revert(_));
    let power_state = match (outcome, ctx.migration.old_domain.power) {
        (Outcome::Running, Power::On) => PowerState::Running,
        (Outcome::Stopped, Power::Off) => PowerState::Shutdown,
        (Outcome::Paused, Power::Paused) => PowerState::Paused,
        // Only `os-resetState` lets a suspended guest begin a live migration.
        (Outcome::Suspended, Power::Suspended) => PowerState::Suspended,
        (Outcome::Failed { step, message }, _) => {
            let why = format!("{source}: {step}: {message}");
            return not_restored(tx, &ctx, &failed, why);
        }
        (Outcome::Running | Outcome::Stopped | Outcome::Paused | Outcome::Suspended, _)
        | (
            Outcome::Ready
            | Outcome::Working { .. }
            | Outcome::MigratingOut(_)
            | Outcome::MigratedOut
            | Outcome::Absent,
            _,
        ) => return Ok(()),
    };
    if ctx.migration.same_host() {
        claims::release_claims_of_migrations(tx, ctx.compute, id, source)?;
    }
    servers::set_state(tx, id, ctx.migration.was, None, power_state, now)?;
    if reverts {
        confirm::record_revert(tx, &ctx, None)?;
        servers::set_relaunched(tx, id, now)?;
        moves::close(tx, ctx.migration.id, Status::Reverted, now)?;
        ports::record_guest_change(tx, ctx.compute, &ctx.server)?;
        return journal::finish(tx, ctx.open, End::Done, None, now);
    }
    end(tx, &ctx, &failed)
}

/// Puts the server in `ERROR`, because the source failed too.
fn not_restored(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    failed: &FailedMove,
    why: String,
) -> Result<(), Error> {
    let message = match failed.attempts().and_then(|attempts| attempts.reason.as_ref()) {
        Some(reason) => format!("{reason} The rollback failed too: {why}"),
        None => why,
    };
    let summary = match failed {
        FailedMove::Revert(_) => {
            confirm::record_revert(tx, ctx, Some(&message))?;
            "The host could not revert the guest's resize."
        }
        FailedMove::Cold(..) | FailedMove::Evacuation(_) | FailedMove::Live(_) => {
            "The move failed, and the source could not restore the guest."
        }
    };
    let fault = servers::Fault::new(summary, &*message, ctx.now);
    moves::close(tx, ctx.migration.id, Status::Error, ctx.now)?;
    servers::set_error(tx, ctx.server.id, &fault, ctx.now)?;
    journal::fail(tx, ctx.open, &message, ctx.now)
}

/// Ends the operation and leaves the server in its previous state.
fn end_as_before(tx: &mut Tx<'_>, ctx: &FlowContext<'_>, failed: &FailedMove) -> Result<(), Error> {
    servers::set_task(tx, ctx.server.id, None, ctx.now)?;
    end(tx, ctx, failed)
}

/// Ends the operation, and records the reason in the instance action.
fn end(tx: &mut Tx<'_>, ctx: &FlowContext<'_>, failed: &FailedMove) -> Result<(), Error> {
    let (id, now) = (ctx.open.row.id, ctx.now);
    let reason = failed.attempts().map_or("The move failed.", Attempts::reason);
    let (event, status) = match failed {
        // As upstream (`rebuild_instance` in `nova/compute/manager.py`).
        FailedMove::Evacuation(_) => ("rebuild_server", Status::Failed),
        FailedMove::Cold(..) | FailedMove::Revert(_) => ("conductor_migrate_server", Status::Error),
        FailedMove::Live(transit) => {
            // As upstream: `_rollback_live_migration` in `nova/compute/manager.py` also ends a migration whose destination could
            // not prepare.
            let begun = transit.sent || !transit.attempts.tried.is_empty();
            let status = match (transit.cancelled, begun) {
                (true, _) => Status::Cancelled,
                (false, true) => Status::Failed,
                (false, false) => Status::Error,
            };
            ("conductor_live_migrate_instance", status)
        }
    };
    flow::event(tx, id, &begin::conductor_event(event, Some(reason), now))?;
    moves::close(tx, ctx.migration.id, status, now)?;
    ports::record_guest_change(tx, ctx.compute, &ctx.server)?;
    journal::fail(tx, ctx.open, reason, now)?;
    match failed {
        FailedMove::Live(_) => live::start_queued(tx, ctx.compute, &ctx.migration.source, now),
        FailedMove::Cold(..) | FailedMove::Revert(_) | FailedMove::Evacuation(_) => Ok(()),
    }
}

/// Continues the server's move without its destination, if that host is down. Returns false if the server has no
/// such move.
///
/// # Errors
/// Store errors only.
pub fn abandon_dest(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<bool, Error> {
    let Some(open) = journal::open_of(tx, server)? else { return Ok(false) };
    let Some((mut failed, step)) = FailedMove::awaiting_dest(&open.state) else {
        return Ok(false);
    };
    let Some((server, migration)) = load(tx, &open)? else { return Ok(false) };
    let dest = migration.dest.clone().filter(|_| !migration.same_host());
    let Some(dest) = dest else { return Ok(false) };
    if !compute.host_is_lost(tx, &dest, now)? {
        return Ok(false);
    }
    let (id, down) = (server.id, dest.clone());
    tx.on_commit(move || {
        tracing::warn!(
            server = %id, host = %down,
            "the destination of the move is down; the move continues without it, and its devices stay dirty"
        );
    });
    let ctx = FlowContext { compute, open: &open, server, migration, now };
    if step == DestStep::Make {
        failed.set_reason(format!("{dest} went down."));
        drop_dest(tx, &ctx, failed)?;
    }
    claims::abandon_claims_of_migrations(tx, compute, ctx.server.id, &dest)?;
    let Some(open) = journal::open_of(tx, ctx.server.id)? else { return Ok(true) };
    let Some((mut failed, _)) = FailedMove::awaiting_dest(&open.state) else { return Ok(true) };
    let ctx = FlowContext { open: &open, ..ctx };
    if matches!(failed.may_try_next(compute.options.max_attempts), Next::TryHost) {
        match tx.attempt(|tx| try_another_host(tx, &ctx, &failed)) {
            Ok(()) => return Ok(true),
            Err(Error::Refused(why)) => {
                let reason = no_other_host(&failed, &NoHost::new(&why.message));
                failed.set_reason(reason);
            }
            Err(error) => return Err(error),
        }
    }
    restore(tx, &ctx, failed)?;
    Ok(true)
}

/// Tries another host with a new migration. Closes the migration to the host that is down; the closed
/// migration keeps the dirty devices there.
fn try_another_host(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    failed: &FailedMove,
) -> Result<(), Error> {
    let (old, now) = (&ctx.migration, ctx.now);
    let status = if old.kind == Kind::Live { Status::Failed } else { Status::Error };
    moves::close(tx, old.id, status, now)?;
    let new = NewMove {
        id: ConsumerId::new_v4(),
        server: old.server,
        kind: old.kind,
        status: if old.kind == Kind::Live { Status::Preparing } else { Status::Migrating },
        source: old.source.clone(),
        was: old.was,
        old_flavor: old.old_flavor.clone(),
        new_flavor: old.new_flavor.clone(),
        old_domain: old.old_domain.clone(),
        user_id: old.user_id.clone(),
        project_id: old.project_id.clone(),
    };
    moves::insert(tx, &new, now)?;
    let Some(migration) = moves::open_of(tx, old.server)? else { return Ok(()) };
    let mut ctx = FlowContext { server: ctx.server.clone(), migration, ..*ctx };
    next_host(tx, &mut ctx, failed)?.map_err(|why| Refusal::conflict(why.all()).into())
}

/// Closes the migration of a move that another operation replaces (a delete, an evacuation). The
/// server then holds its present place, and the migration holds the other place. The caller writes the
/// documents.
///
/// # Errors
/// Store errors only.
pub(in crate::flows) fn cancel(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    open: Option<&OpenOperation>,
    status: Status,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(migration) = moves::open_of(tx, server.id)? else { return Ok(()) };
    if open.is_some_and(|open| server_holds_dest(&open.state)) {
        swap_back(tx, compute, server, &migration)?;
    }
    Ok(moves::close(tx, migration.id, status, now)?)
}

/// True if the server is still at its source while its own consumer already holds the destination.
fn server_holds_dest(state: &Operation) -> bool {
    match state {
        Operation::Resize(cold) | Operation::Migrate(cold) => match cold {
            ColdMigration::StopSource(_) | ColdMigration::MakeDest(_) => true,
            ColdMigration::Begin | ColdMigration::DropDest(_) | ColdMigration::Restore(_) => false,
        },
        Operation::Evacuate(evacuation) => match evacuation {
            Evacuation::MakeDest(_) => true,
            Evacuation::Begin | Evacuation::DropDest(_) => false,
        },
        Operation::LiveMigration(live) => match live {
            LiveMigration::Queued(_)
            | LiveMigration::Receive(_)
            | LiveMigration::Transfer(_)
            | LiveMigration::Abort(_)
            | LiveMigration::Locate(_) => true,
            LiveMigration::Begin
            | LiveMigration::Arrive(_)
            | LiveMigration::DropDest(_)
            | LiveMigration::Restore(_) => false,
        },
        Operation::Create(_)
        | Operation::Delete(_)
        | Operation::Power(_)
        | Operation::InPlace(_)
        | Operation::Offload(_)
        | Operation::Unshelve(_)
        | Operation::Revert(_)
        | Operation::Recorded(_) => false,
    }
}

fn swap_back(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    migration: &Move,
) -> Result<(), Error> {
    let Some(dest) = &migration.dest else { return Ok(()) };
    claims::swap(tx, server, migration, dest)?;
    if documents::get(tx, dest, server.id)?.is_none() {
        claims::release_claims_of_migrations(tx, compute, server.id, dest)?;
    }
    Ok(())
}

/// The state of a server whose guest has this power state.
pub(super) fn state_of_power(power_state: PowerState) -> VmState {
    match power_state {
        PowerState::Shutdown => VmState::Stopped,
        PowerState::NoState | PowerState::Running | PowerState::Paused | PowerState::Suspended => {
            VmState::Active
        }
    }
}
