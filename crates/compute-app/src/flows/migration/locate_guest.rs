//! Locates the guest of a live migration whose source did not report that the guest left.
//!
//! The source failed to send the guest, was asked to keep it, or is down. The guest may have arrived in any of these
//! cases, so nothing is removed or started until both hosts have reported. A document that changes nothing
//! ([`Power::AsIs`]) requests these reports; the destination's report is requested after the source has stopped
//! sending, so that it cannot be outdated.
//!
//! ```text
//!   transfer ──Failed │ aborted──► abort: the source is asked
//!      │   ▲                         ├─ the guest runs there ──► drop_dest, then as before
//!      │   └─it leaves after all     ├─ it has left ───────────► arrive
//!      └─source is down──► find ◄────┴─ it does not run there
//!                           find: the destination is asked
//!                             ├─ the guest runs there ──► arrive
//!                             ├─ it is not there ───────► drop_dest, then the source starts it again
//!                             └─ silence ───────────────► ERROR after a while; both sides are kept
//! ```

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::moves;
use kilonova_compute_db::servers::{self, TaskState};
use kilonova_flow as flow;
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{Desired, Domain, Outcome, Power};
use kilonova_store::Tx;

use super::super::operation::{GuestReport, LiveMigration, Operation, Transit};
use super::super::{begin as events, journal};
use super::roll_back::{self, FailedMove};
use super::{FlowContext, live, load};
use crate::{Compute, Error};

/// How long the destination may not report before the server is put in `ERROR`.
const SILENCE: SignedDuration = SignedDuration::from_mins(5);

impl GuestReport {
    /// The guest's state according to a host's report; `None` when the report does not state it.
    fn of(outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Running => Some(Self::Running),
            Outcome::Paused | Outcome::Suspended => Some(Self::Paused),
            Outcome::Ready | Outcome::Stopped | Outcome::Absent | Outcome::MigratedOut => {
                Some(Self::Absent)
            }
            Outcome::Working { .. } | Outcome::MigratingOut(_) | Outcome::Failed { .. } => None,
        }
    }
}

/// The location of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Source,
    Dest,
    Unknown,
}

/// Locates the guest from the reports of both hosts. The source's report decides as long as the source has the guest,
/// unless the guest is paused there and runs at the destination, which indicates a lost final acknowledgement. A guest
/// that was already paused before the migration is not evidence.
fn place(source: Option<GuestReport>, dest: Option<GuestReport>, was_paused: bool) -> Place {
    use GuestReport::{Absent, Paused, Running};
    match (source, dest) {
        (Some(Running), _) => Place::Source,
        (Some(Paused), _) if was_paused => Place::Source,
        (_, Some(Running)) => Place::Dest,
        (Some(Paused), Some(_)) => Place::Source,
        (Some(Absent), Some(Paused)) => Place::Dest,
        // Neither host has the guest; it is started where its disks are.
        (Some(Absent), Some(Absent)) => Place::Source,
        (_, None) | (None, Some(_)) => Place::Unknown,
    }
}

/// The request that the source answers with a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// Send the guest (`transfer`).
    Send,
    /// Stop sending the guest (`abort`).
    Stop,
    /// Report the guest's state while the destination is also asked (`find`).
    Report,
}

/// Handles the source's report on the outgoing guest.
pub(super) fn source_reported(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    asked: Asked,
    transit: &Transit,
    outcome: &Outcome,
) -> Result<(), Error> {
    let source = &ctx.migration.source;
    let unanswered = asked == Asked::Report && transit.source.is_none();
    match outcome {
        Outcome::MigratedOut => return live::departed(tx, ctx, transit),
        Outcome::MigratingOut(progress) => {
            moves::set_progress(tx, ctx.migration.id, progress, ctx.now)?;
            if unanswered {
                let transfer = LiveMigration::Transfer(transit.clone());
                ctx.advance(tx, &Operation::LiveMigration(transfer))?;
            }
            return Ok(());
        }
        Outcome::Failed { step, message } if asked == Asked::Send || unanswered => {
            let why = format!("{source}: {step}: {message}");
            tracing::warn!(
                server = %ctx.server.id,
                "the source reported a failed migration, but the guest may have left: {why}; \
                 locating the guest"
            );
            let mut transit = Transit { sent: true, ..transit.clone() };
            transit.attempts.reason.get_or_insert(why);
            return ask_source(tx, ctx, transit);
        }
        Outcome::Failed { .. }
        | Outcome::Running
        | Outcome::Paused
        | Outcome::Suspended
        | Outcome::Stopped
        | Outcome::Ready
        | Outcome::Working { .. }
        | Outcome::Absent => {}
    }
    if asked == Asked::Send {
        return Ok(());
    }
    let Some(report) = GuestReport::of(outcome) else { return Ok(()) };
    let transit = Transit { source: Some(report), ..transit.clone() };
    match place(transit.source, None, was_paused(ctx)) {
        Place::Source => stayed(tx, ctx, transit),
        Place::Dest | Place::Unknown => ask_dest(tx, ctx, transit),
    }
}

/// Handles the destination's report on the guest.
pub(super) fn dest_reported(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    transit: &Transit,
    outcome: &Outcome,
) -> Result<(), Error> {
    let Some(report) = GuestReport::of(outcome) else { return Ok(()) };
    match place(transit.source, Some(report), was_paused(ctx)) {
        Place::Source => stayed(tx, ctx, transit.clone()),
        Place::Dest => {
            tracing::warn!(
                server = %ctx.server.id, source = %ctx.migration.source,
                reason = transit.attempts.reason(),
                "the guest has arrived although the source reported a failure; completing the migration"
            );
            live::departed(tx, ctx, transit)
        }
        Place::Unknown => Ok(()),
    }
}

/// True if the guest was paused before the migration.
fn was_paused(ctx: &FlowContext<'_>) -> bool {
    ctx.migration.old_domain.power == Power::Paused
}

/// Asks the source to stop sending the guest and to report its state.
pub(super) fn ask_source(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    transit: Transit,
) -> Result<(), Error> {
    let transit = Transit { source: None, ..transit };
    let domain = Domain { power: Power::AsIs, ..ctx.migration.old_domain.clone() };
    ctx.put(tx, &ctx.migration.source, &Desired::Present(Box::new(domain)))?;
    ctx.advance(tx, &Operation::LiveMigration(LiveMigration::Abort(transit)))
}

/// Asks the destination to report the guest's state.
fn ask_dest(tx: &mut Tx<'_>, ctx: &FlowContext<'_>, transit: Transit) -> Result<(), Error> {
    let Some(dest) = ctx.migration.dest.clone() else { return Ok(()) };
    let transit = Transit { asked: Some(transit.asked.unwrap_or(ctx.now)), ..transit };
    let guest = live::guest_at_dest(tx, ctx, &transit.attempts.devices, &dest, Power::AsIs)?;
    ctx.put_as(tx, &dest, guest)?;
    ctx.advance(tx, &Operation::LiveMigration(LiveMigration::Locate(transit)))
}

/// Handles a guest that did not move: the destination removes the incoming guest.
fn stayed(tx: &mut Tx<'_>, ctx: &FlowContext<'_>, mut transit: Transit) -> Result<(), Error> {
    let (id, now, source) = (ctx.server.id, ctx.now, &ctx.migration.source);
    let row = &ctx.open.row;
    let aborted = || "The live migration was aborted.".to_owned();
    let why = transit.attempts.reason.get_or_insert_with(aborted);
    let failed = events::event("compute_live_migration", source, Some(why), row.updated_at, now);
    flow::event(tx, row.id, &failed)?;
    if transit.lost {
        let (was, power) = (ctx.migration.was, ctx.server.power_state);
        servers::set_state(tx, id, was, Some(TaskState::Migrating), power, now)?;
    }
    let as_before = transit.source == Some(GuestReport::Running)
        || (was_paused(ctx) && transit.source == Some(GuestReport::Paused));
    if as_before {
        let mut kept = ctx.migration.old_domain.clone();
        kept.require_guest();
        ctx.put(tx, source, &Desired::Present(Box::new(kept)))?;
    }
    // Otherwise the source starts the guest again once the destination has removed the incoming one.
    let transit = Transit { stopped: !as_before, sent: true, ..transit };
    roll_back::drop_dest(tx, ctx, FailedMove::Live(transit))
}

/// Repeats the request to each host that has not reported the guest's state. Puts the server in `ERROR` if its
/// destination does not report for too long.
///
/// # Errors
/// Store errors only.
pub fn locate_guest(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(open) = journal::open_of(tx, server)? else { return Ok(()) };
    let Operation::LiveMigration(live) = &open.state else { return Ok(()) };
    let Some((server, migration)) = load(tx, &open)? else { return Ok(()) };
    let ctx = FlowContext { compute, open: &open, server, migration, now };
    let Some(dest) = ctx.migration.dest.clone() else { return Ok(()) };
    let source_is_down = compute.host_is_lost(tx, &ctx.migration.source, now)?;
    match live {
        LiveMigration::Transfer(transit) | LiveMigration::Abort(transit) if source_is_down => {
            ask_dest(tx, &ctx, Transit { source: None, ..transit.clone() })
        }
        LiveMigration::Abort(transit) => ask_source(tx, &ctx, transit.clone()),
        LiveMigration::Locate(transit) => {
            let transit = transit.clone();
            if transit.source.is_none() && !source_is_down {
                ask_source(tx, &ctx, transit)
            } else if compute.host_is_declared_dead(&dest) && transit.source.is_some() {
                stayed(tx, &ctx, transit)
            } else if !compute.host_is_lost(tx, &dest, now)? {
                ask_dest(tx, &ctx, transit)
            } else if !transit.lost {
                report_silence(tx, &ctx, transit, &dest)
            } else {
                Ok(())
            }
        }
        LiveMigration::Begin
        | LiveMigration::Queued(_)
        | LiveMigration::Receive(_)
        | LiveMigration::Transfer(_)
        | LiveMigration::Arrive(_)
        | LiveMigration::DropDest(_)
        | LiveMigration::Restore(_) => Ok(()),
    }
}

/// Puts the server in `ERROR` once the destination has not reported for [`SILENCE`]. The guest may be on either host, so
/// both sides are kept.
fn report_silence(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    transit: Transit,
    dest: &HostName,
) -> Result<(), Error> {
    let (id, now, source) = (ctx.server.id, ctx.now, &ctx.migration.source);
    let since = transit.asked.unwrap_or(now);
    if now.duration_since(since) < SILENCE {
        return Ok(());
    }
    let message = format!(
        "{dest} has not reported for {} s whether the guest has arrived, and the guest does not \
         run on {source}. {} Nothing is started or removed until that is known. Start the agent of \
         {dest}; if that host is off, run `openstack compute service set --down {dest} \
         nova-compute`: the operation then continues without it.",
        SILENCE.as_secs(),
        transit.attempts.reason.as_deref().unwrap_or("The live migration was aborted."),
    );
    tracing::error!(server = %id, "{message}");
    let name = "compute_live_migration";
    let silent = events::event(name, dest, Some(&message), since, now);
    flow::event(tx, ctx.open.row.id, &silent)?;
    let summary = "The live migration was interrupted, and the destination has not reported \
                   whether the guest has arrived. Nothing is started or removed until that is \
                   known.";
    let fault = servers::Fault::new(summary, message, now);
    servers::set_error(tx, id, &fault, now)?;
    let lost = LiveMigration::Locate(Transit { lost: true, ..transit });
    ctx.advance(tx, &Operation::LiveMigration(lost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_that_has_the_guest_keeps_it() {
        use GuestReport::{Absent, Paused, Running};
        use Place::{Dest, Source, Unknown};
        for (source, dest, was_paused, is) in [
            (Some(Running), None, false, Source),
            (Some(Running), Some(Running), false, Source),
            (Some(Paused), None, false, Unknown),
            (Some(Paused), Some(Running), false, Dest),
            (Some(Paused), Some(Paused), false, Source),
            (Some(Paused), Some(Absent), false, Source),
            (Some(Paused), None, true, Source),
            (Some(Paused), Some(Paused), true, Source),
            (Some(Absent), None, false, Unknown),
            (Some(Absent), Some(Running), false, Dest),
            (Some(Absent), Some(Paused), false, Dest),
            (Some(Absent), Some(Paused), true, Dest),
            (Some(Absent), Some(Absent), false, Source),
            (None, Some(Running), false, Dest),
            (None, Some(Paused), true, Unknown),
            (None, Some(Absent), false, Unknown),
            (None, None, false, Unknown),
        ] {
            assert_eq!(place(source, dest, was_paused), is, "{source:?} {dest:?} {was_paused}");
        }
    }
}
