//! The start, the rounds and the end of a drain.
//!
//! A crash between two transactions loses nothing: the move and its record are one transaction, and the next round
//! decides from the rows.

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::drain_guests::{self, DrainGuest};
use kilonova_compute_db::drains::{self, Drain, DrainMove, Progress, State};
use kilonova_compute_db::hosts::{self, Host};
use kilonova_compute_db::{moves, servers};
use kilonova_compute_scheduler::fleet::Fleet;
use kilonova_ids::{HostName, RequestId, ServerId};
use kilonova_store::Tx;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Context, IntoRefusal, Refusal, time};

use super::{Allowed, Guest, Next, Operation, Step, next};
use crate::flows::{self, ColdRequest, LiveRequest};
use crate::services::{self, Change, Status};
use crate::{Compute, Error, explain};

/// Maximum number of servers of a host that move at the same time.
pub const MAX_PARALLEL: i64 = 100;
/// Maximum number of requests to move a busy server. Together with the pauses between them, they span a quarter of an
/// hour, which is enough for a busy volume service. A move and its confirmation together may take twice as many
/// requests.
pub const ATTEMPTS: i64 = 20;
/// The longest pause between two requests.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(1);

/// The pause after a refusal. It doubles with each refusal.
fn pause(attempts: i64) -> SignedDuration {
    let exponent = u32::try_from(attempts).unwrap_or(u32::MAX);
    let seconds = 2_i64.checked_pow(exponent).unwrap_or(i64::MAX);
    SignedDuration::from_secs(seconds).min(LONGEST_PAUSE)
}

/// A request to drain a host.
#[derive(Debug, Clone)]
pub struct DrainRequest {
    /// True if servers that cannot live-migrate may be shut off, moved and restarted.
    pub cold: bool,
    /// Maximum number of servers that move at the same time, from 1 to [`MAX_PARALLEL`].
    pub parallel: i64,
    /// The reason for disabling the host; not used if the host is already disabled.
    pub reason: Option<String>,
}

/// Begins the drain of a host, and replaces an earlier one. Disables the host; the rounds then move its servers.
///
/// # Errors
/// 404 if the host does not exist; store errors.
pub async fn begin(
    compute: &Compute,
    context: &Context,
    name: &HostName,
    request: &DrainRequest,
) -> Result<(), Error> {
    let host = name.clone();
    let read = compute.store.read(move |tx| Ok::<_, Error>(drain_guests::count(tx, &host)?));
    let total = read.await?;
    let id = context.request_id.unwrap_or_else(RequestId::new_v4);
    let drain = Drain {
        host: name.clone(),
        state: State::Running,
        cold: request.cold,
        parallel: request.parallel.clamp(1, MAX_PARALLEL),
        total,
        user: context.user_id.clone(),
        project: context.project_id.clone(),
        request_id: format!("req-{id}"),
        begun_at: time::now(),
        ended_at: None,
    };
    let (own, reason) = (compute.clone(), request.reason.clone());
    let write = move |tx: &mut Tx<'_>| {
        let name = &drain.host;
        let row = hosts::by_name(tx, name)?.ok_or_else(|| no_host(name))?;
        if row.enabled {
            let status = Some(Status::Disabled(reason.clone()));
            let change = Change { status, forced_down: None };
            services::change(tx, &own.fleet, name, &change, drain.begun_at)?;
        } else {
            touch(tx, &own, row)?;
        }
        Ok::<_, Error>(drains::begin(tx, &drain)?)
    };
    compute.store.write(write).await?;
    tracing::info!(host = %name, user = %context.user_id, "starting the drain of a host");
    Ok(())
}

/// Stops the drain of a host, which stays disabled. Requested moves continue.
///
/// # Errors
/// 404 if the host does not exist or has no drain; 409 if the drain has ended; store errors.
pub async fn stop(compute: &Compute, name: &HostName) -> Result<(), Error> {
    let (own, name) = (compute.clone(), name.clone());
    let write = move |tx: &mut Tx<'_>| {
        let row = hosts::by_name(tx, &name)?.ok_or_else(|| no_host(&name))?;
        let shown = name.escape_debug();
        let drain = drains::of_host(tx, &name)?.ok_or_else(|| {
            Refusal::not_found(format!("Compute host {shown} is not being drained."))
        })?;
        if !drains::end(tx, &drain, State::Stopped, time::now())? {
            let why = format!("The drain of compute host {shown} has already ended.");
            return Err(Refusal::conflict(why).into());
        }
        touch(tx, &own, row)
    };
    compute.store.write(write).await
}

fn no_host(name: &HostName) -> Error {
    let name = name.escape_debug();
    Refusal::not_found(format!("Compute host {name} could not be found.")).into()
}

/// Notifies open dashboard pages, at every controller, that the host has changed.
fn touch(tx: &mut Tx<'_>, compute: &Compute, mut host: Host) -> Result<(), Error> {
    hosts::touch(tx, &mut host)?;
    let (fleet, row) = (compute.fleet.clone(), services::row_of(&host));
    tx.on_commit(move || fleet.refresh(&row));
    Ok(())
}

/// One round of the drain of a host: does everything possible now, and ends the drain if nothing remains to do or to
/// wait for.
///
/// # Errors
/// Store errors only; the next round continues.
pub async fn round(compute: &Compute, name: &HostName) -> Result<(), Error> {
    let (fleet, host) = (compute.fleet.clone(), name.clone());
    let read = compute.store.read(move |tx| read(tx, &fleet, &host));
    let Found { drain, up, now, moves, guests } = match read.await? {
        Reading::Running(found) => *found,
        Reading::Over => return Ok(()),
        // A controller of an earlier version has enabled or deleted the host.
        Reading::Enabled => return forget(compute, name).await,
    };
    let round = Round { compute, drain, up };
    let guests: Vec<(ServerId, Guest)> =
        guests.iter().map(|guest| (guest.server, guest.into())).collect();
    let mut moving = guests.iter().filter(|(_, guest)| guest.is_moving()).count();
    let parallel = usize::try_from(round.drain.parallel).unwrap_or(1);
    let (mut goes_on, mut left) = (false, 0_usize);
    for (server, guest) in &guests {
        let (server, past) = (*server, moves.iter().find(|one| one.server == *server));
        if let Some(why) = guest.operation.as_ref().and_then(Operation::unread) {
            round.note_unreadable(server, why, past).await?;
        }
        let pauses = past.and_then(|one| one.next_at).is_some_and(|next_at| now < next_at);
        let waits = match round.next(guest, past) {
            Next::Wait(_) => true,
            Next::Stays(_) => false,
            Next::Failed => {
                round.note_failure(server, past).await?;
                false
            }
            Next::Request(_) if pauses => true,
            Next::Request(Step::Confirm) => round.request(server, Step::Confirm, past).await?,
            Next::Request(_) if moving >= parallel => true,
            Next::Request(step) => {
                moving += 1;
                round.request(server, step, past).await?
            }
        };
        goes_on |= waits;
        left += usize::from(!waits);
    }
    if !goes_on {
        round.end(left).await?;
    }
    Ok(())
}

/// The rows on which a round bases its decisions.
struct Found {
    drain: Drain,
    /// The host's state.
    up: bool,
    /// The database's time, by which every controller measures pauses.
    now: Timestamp,
    moves: Vec<DrainMove>,
    guests: Vec<DrainGuest>,
}

/// The result of a round's read.
enum Reading {
    Running(Box<Found>),
    /// The drain has ended.
    Over,
    /// The host is enabled, or gone.
    Enabled,
}

/// Reads a round's rows. The number of statements does not depend on the number of guests.
fn read(tx: &mut Tx<'_>, fleet: &Fleet, name: &HostName) -> Result<Reading, Error> {
    let Some(row) = hosts::by_name(tx, name)?.filter(|row| !row.enabled) else {
        return Ok(Reading::Enabled);
    };
    let running = |drain: &Drain| drain.state == State::Running;
    let Some(drain) = drains::of_host(tx, name)?.filter(running) else { return Ok(Reading::Over) };
    let up = services::is_up(fleet, &row, time::now());
    let now = tx.database_time()?;
    let (moves, guests) = (drains::moves(tx, name)?, drain_guests::on(tx, name)?);
    Ok(Reading::Running(Box::new(Found { drain, up, now, moves, guests })))
}

/// Deletes the drain of a host that is enabled, or gone.
async fn forget(compute: &Compute, name: &HostName) -> Result<(), Error> {
    let name = name.clone();
    let write = move |tx: &mut Tx<'_>| {
        if hosts::by_name(tx, &name)?.is_none_or(|host| host.enabled) {
            drains::forget(tx, &name)?;
        }
        Ok::<_, Error>(())
    };
    compute.store.write(write).await
}

struct Round<'a> {
    compute: &'a Compute,
    drain: Drain,
    up: bool,
}

impl Round<'_> {
    fn next(&self, guest: &Guest, past: Option<&DrainMove>) -> Next {
        let allowed = Allowed { cold: self.drain.cold };
        next(&self.drain.host, self.up, guest, allowed, past.map(|one| &one.progress))
    }

    /// Requests a step, unless the drain is over. Returns whether there is something to wait for.
    async fn request(
        &self,
        server: ServerId,
        step: Step,
        past: Option<&DrainMove>,
    ) -> Result<bool, Error> {
        let attempts = past.map_or(0, |one| one.attempts) + 1;
        if attempts > 2 * ATTEMPTS {
            let why =
                format!("its move was requested {} times, and it is still here", attempts - 1);
            self.record(server, Progress::Failed(why), attempts, None).await?;
            return Ok(false);
        }
        let most = if step == Step::Confirm { 2 * ATTEMPTS } else { ATTEMPTS };
        let compute = self.compute.explaining();
        let (own, drain) = (compute.clone(), self.drain.clone());
        let context = flows::service_context(&drain.user, &drain.project);
        let write = move |tx: &mut Tx<'_>| {
            if !is_current(tx, &drain)? {
                return Ok(());
            }
            let Some(found) = servers::find(tx, server)? else { return Ok(()) };
            if !is_due(tx, &drain.host, &found, &step)? {
                return Ok(());
            }
            take(tx, &own, &context, &found, &step, time::now())?;
            let progress = Progress::Requested;
            let requested = DrainMove { server, progress, attempts, next_at: None };
            Ok(drains::record(tx, &drain.host, &requested)?)
        };
        let refused = match compute.write(write).await {
            Ok(()) => return Ok(true),
            Err(error @ Error::Store(_)) => return Err(error),
            Err(error) => error.into_refusal(),
        };
        // The request is repeated if the server is busy.
        let again = matches!(refused.kind, Kind::Conflict | Kind::Unavailable) && attempts < most;
        if again {
            self.record(
                server,
                Progress::Refused(refused.message),
                attempts,
                Some(pause(attempts)),
            )
            .await?;
        } else {
            self.record(server, Progress::Failed(refused.message), attempts, None).await?;
        }
        Ok(again)
    }

    /// Records an operation that this controller cannot read, and logs one warning.
    async fn note_unreadable(
        &self,
        server: ServerId,
        why: String,
        past: Option<&DrainMove>,
    ) -> Result<(), Error> {
        let progress = Progress::Refused(why);
        if past.is_some_and(|one| one.progress == progress) {
            return Ok(());
        }
        tracing::warn!(
            host = %self.drain.host, %server, why = progress.why(),
            "the drain of a host skips a server and continues with the others; run kilonova doctor"
        );
        self.record(server, progress, past.map_or(0, |one| one.attempts), None).await
    }

    /// Records why the guest is still here after a requested move.
    async fn note_failure(&self, server: ServerId, past: Option<&DrainMove>) -> Result<(), Error> {
        let why = self.compute.store.read(move |tx| failure(tx, server)).await?;
        let attempts = past.map_or(1, |one| one.attempts);
        self.record(server, Progress::Failed(why), attempts, None).await
    }

    /// Records the progress of a move, unless the drain is over. `pause` is the time until the next request.
    async fn record(
        &self,
        server: ServerId,
        progress: Progress,
        attempts: i64,
        pause: Option<SignedDuration>,
    ) -> Result<(), Error> {
        let (own, drain) = (self.compute.clone(), self.drain.clone());
        let write = move |tx: &mut Tx<'_>| {
            if !is_current(tx, &drain)? {
                return Ok(());
            }
            let next_at = match pause {
                Some(pause) => Some(time::after(tx.database_time()?, pause)),
                None => None,
            };
            let one = DrainMove { server, progress: progress.clone(), attempts, next_at };
            drains::record(tx, &drain.host, &one)?;
            match hosts::by_name(tx, &drain.host)? {
                Some(row) => touch(tx, &own, row),
                None => Ok(()),
            }
        };
        self.compute.store.write(write).await
    }

    async fn end(&self, left: usize) -> Result<(), Error> {
        let (own, drain) = (self.compute.clone(), self.drain.clone());
        let write = move |tx: &mut Tx<'_>| {
            let has_ended = drains::end(tx, &drain, State::Ended, time::now())?;
            if let Some(row) = hosts::by_name(tx, &drain.host)?.filter(|_| has_ended) {
                touch(tx, &own, row)?;
            }
            Ok::<_, Error>(has_ended)
        };
        if self.compute.store.write(write).await? {
            tracing::info!(host = %self.drain.host, servers_left = left, "the drain of a host has ended");
        }
        Ok(())
    }
}

/// True if the drain is still the current one of its host and is still running.
fn is_current(tx: &mut Tx<'_>, drain: &Drain) -> Result<bool, Error> {
    let now = drains::of_host(tx, &drain.host)?;
    Ok(now.is_some_and(|now| now.state == State::Running && now.request_id == drain.request_id))
}

/// True if a step that was decided a moment ago still applies to the host: the server is still on it, or the
/// migration to confirm is a cold migration away from it, never a resize by the server's owner.
fn is_due(
    tx: &mut Tx<'_>,
    host: &HostName,
    server: &servers::Server,
    step: &Step,
) -> Result<bool, Error> {
    Ok(match step {
        Step::Live | Step::Cold | Step::Offload => server.host.as_ref() == Some(host),
        Step::Confirm => {
            let open = moves::open_of(tx, server.id)?;
            open.is_some_and(|one| one.kind == moves::Kind::Cold && one.source == *host)
        }
        Step::Wait(_) | Step::Stays(_) => false,
    })
}

/// Begins the operation of a step.
fn take(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &servers::Server,
    step: &Step,
    now: Timestamp,
) -> Result<(), Error> {
    match step {
        Step::Live => {
            flows::migrate_live(tx, compute, context, server, &LiveRequest::default(), now)
        }
        Step::Cold => {
            let cold = ColdRequest::Migrate(None);
            flows::migrate_cold(tx, compute, context, server, &cold, now)
        }
        Step::Confirm => flows::confirm(tx, compute, context, server, now),
        Step::Offload => flows::offload(tx, compute, context, server, now),
        Step::Wait(_) | Step::Stays(_) => Ok(()),
    }
}

/// Why the last operation of a server failed.
fn failure(tx: &mut Tx<'_>, server: ServerId) -> Result<String, Error> {
    let actions = explain::actions(tx, server, 1)?;
    let why = actions.first().and_then(|(last, events)| {
        explain::failure(last, events).map(|why| format!("its {} failed: {why}", last.kind))
    });
    let nothing = "its move ended without leaving the host; its events state no reason";
    Ok(why.unwrap_or_else(|| nothing.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute() {
        let seconds = |attempts| pause(attempts).as_secs();
        let first: Vec<i64> = (1..=7).map(seconds).collect();
        assert_eq!(first, [2, 4, 8, 16, 32, 60, 60]);
        assert_eq!((seconds(-1), seconds(i64::MAX)), (60, 60));
        let all: i64 = (1..ATTEMPTS).map(seconds).sum();
        assert!((840..=960).contains(&all), "{all} s");
    }
}
