//! Starts, follows and stops a drain.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use kilonova_compute_app::drain::{
    Action, Allowed, DrainState, DrainedHost, Guest, HostDrain, HostState, HostStatus, MoveState,
    Next, Step, next,
};
use kilonova_ids::HostName;
use kilonova_program::signals::StopSignals;
use serde_json::{Value, json};

use super::report::{End, Moved, Report};
use crate::cloud::{Compute, ComputeError};
use crate::failure::Failure;
use crate::operate::progress::ProgressDisplay;
use crate::operate::text;

const PAUSE: Duration = Duration::from_millis(400);
/// The additional pause per guest, so that a large host is queried less often.
const PAUSE_EACH: Duration = Duration::from_millis(4);
/// How long an outage of the API may last.
const OUTAGE: Duration = Duration::from_secs(120);

/// The request of a drain.
pub struct DrainRequest {
    /// The host.
    pub host: HostName,
    /// True to shut off, move and restart servers that cannot live-migrate.
    pub cold: bool,
    /// Concurrent moves.
    pub parallel: u16,
    /// How long to follow the drain.
    pub timeout: Duration,
    /// The reason shown for the disabled host.
    pub reason: String,
    /// The command that follows the drain again.
    pub again: String,
}

/// Starts the drain of a host, or finds a running one with the same options.
///
/// # Errors
/// If the host does not exist, the cloud refuses, or its controllers do not support drains.
pub async fn begin(compute: &Compute, request: &DrainRequest) -> Result<Report, Failure> {
    let mut progress = ProgressDisplay::new();
    let host = start(compute, request, &mut progress).await?;
    Ok(Report::new(End::Begun, &host, Vec::new(), request.again.clone()))
}

/// Like [`begin`], but also shows the progress of the drain until it ends. It continues after Ctrl-C and the timeout.
///
/// # Errors
/// Those of [`begin`], or an outage of the cloud.
pub async fn drain(compute: &Compute, request: &DrainRequest) -> Result<Report, Failure> {
    let mut signals = StopSignals::handle()?;
    let mut progress = ProgressDisplay::new();
    let host = start(compute, request, &mut progress).await?;
    let (seen, printed_reasons, moved) = Default::default();
    let mut watch = Watch { compute, request, progress, host, seen, printed_reasons, moved };
    let deadline = Instant::now() + request.timeout;
    let end = tokio::select! {
        end = watch.follow(deadline) => end?,
        () = signals.recv() => End::Interrupted,
    };
    watch.progress.end();
    if matches!(end, End::Interrupted | End::TimedOut)
        && let Ok((host, _)) = query(compute, &request.host).await
    {
        watch.host = host;
    }
    Ok(Report::new(end, &watch.host, watch.moved, request.again.clone()))
}

/// Stops the drain of a host, which stays disabled.
///
/// # Errors
/// If the host does not exist, is not being drained, or the cloud refuses.
pub async fn stop(compute: &Compute, name: &HostName) -> Result<String, Failure> {
    let (host, has_drains) = query(compute, name).await.map_err(ComputeError::fatal)?;
    let shown = text::plain(&host.name);
    if !has_drains {
        return Err(without_drains());
    }
    compute.ask(Method::DELETE, &drain_of(&host.name), None).await.map_err(ComputeError::fatal)?;
    Ok(format!(
        "The drain of host {shown} is stopped. Requested moves continue, and the host stays disabled. \
         To enable it: kilonova host undrain {shown}"
    ))
}

/// Enables a host.
///
/// # Errors
/// If the host does not exist or the cloud refuses.
pub async fn undrain(compute: &Compute, name: &HostName) -> Result<String, Failure> {
    let (host, _) = query(compute, name).await.map_err(ComputeError::fatal)?;
    let name = text::plain(&host.name);
    let down = if host.state == HostState::Up { "" } else { " It is down: start its agent." };
    if host.status == HostStatus::Enabled {
        return Ok(format!("Host {name} is already enabled.{down}"));
    }
    let path = format!("/os-services/{}", host.service_id);
    let enabled = json!({"status": "enabled"});
    compute.ask(Method::PUT, &path, Some(&enabled)).await.map_err(ComputeError::fatal)?;
    let was = host.disabled_reason.map(|why| format!(" ({})", text::plain(&why)));
    let was = was.unwrap_or_default();
    Ok(format!("Host {name} is enabled; it was disabled{was}.{down}"))
}

/// The failure of a command in a cloud whose controllers do not support drains.
fn without_drains() -> Failure {
    Failure::Refused(
        "the controller that answered is of an earlier version, which does not support drains; nothing was changed. \
         Upgrade all controllers, or use the kilonova program of their version"
            .to_owned(),
    )
}

fn path_of(name: &HostName) -> String {
    format!("/kilonova/hosts/{}", text::segment(name))
}

fn drain_of(name: &HostName) -> String {
    format!("{}/drain", path_of(name))
}

/// A host, and whether the controller that answered supports drains.
async fn query(compute: &Compute, name: &HostName) -> Result<(DrainedHost, bool), ComputeError> {
    described(name, compute.get(&path_of(name)).await?)
}

fn described(name: &HostName, mut answer: Value) -> Result<(DrainedHost, bool), ComputeError> {
    let host = answer["host"].take();
    let has_drains = host.get("drain").is_some();
    let host = serde_json::from_value(host).map_err(|e| {
        ComputeError::Unreachable(format!("unexpected description of host {name}: {e}"))
    })?;
    Ok((host, has_drains))
}

/// Starts the drain, unless one with the same options is already running.
async fn start(
    compute: &Compute,
    request: &DrainRequest,
    progress: &mut ProgressDisplay,
) -> Result<DrainedHost, Failure> {
    let (host, has_drains) = query(compute, &request.host).await.map_err(ComputeError::fatal)?;
    if !has_drains {
        return Err(without_drains());
    }
    let name = text::plain(&host.name);
    if let Some(drain) = host.drain.as_ref().filter(|drain| is_requested(drain, request)) {
        let since = text::plain(&drain.begun_at);
        progress.line(&format!("The drain of host {name} has been running since {since}."));
        return Ok(host);
    }
    let body = json!({"drain": {
        "cold": request.cold,
        "parallel": request.parallel,
        "reason": request.reason,
    }});
    let answer = match compute.ask(Method::POST, &drain_of(&host.name), Some(&body)).await {
        Ok(answer) => answer,
        // An older controller answered, which has the host but does not support drains.
        Err(ComputeError::Refused { status, .. })
            if [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED].contains(&status) =>
        {
            query(compute, &request.host).await.map_err(ComputeError::fatal)?;
            return Err(without_drains());
        }
        Err(error) => return Err(error.fatal()),
    };
    progress.line(&match (host.status, &host.disabled_reason) {
        (HostStatus::Enabled, _) => format!("Host {name} is disabled."),
        (HostStatus::Disabled, Some(why)) => {
            format!("Host {name} is already disabled ({}).", text::plain(why))
        }
        (HostStatus::Disabled, None) => format!("Host {name} is already disabled."),
    });
    Ok(described(&request.host, answer).map_err(ComputeError::fatal)?.0)
}

/// True if a drain runs with the options of the request.
fn is_requested(drain: &HostDrain, request: &DrainRequest) -> bool {
    let options = (drain.cold, drain.parallel);
    drain.state == DrainState::Running && options == (request.cold, request.parallel.into())
}

/// A guest as last seen.
struct Seen {
    called: String,
    /// `live`, `cold` or `offloaded`.
    how: Option<&'static str>,
    /// True if its move was printed.
    moves: bool,
}

struct Watch<'a> {
    compute: &'a Compute,
    request: &'a DrainRequest,
    progress: ProgressDisplay,
    host: DrainedHost,
    seen: BTreeMap<String, Seen>,
    /// The printed reasons of refusals and failures, by server.
    printed_reasons: BTreeMap<String, String>,
    moved: Vec<Moved>,
}

impl Watch<'_> {
    async fn follow(&mut self, deadline: Instant) -> Result<End, Failure> {
        let mut silent: Option<Instant> = None;
        self.note_guests();
        loop {
            match self.look().await {
                Ok(Some(end)) => return Ok(end),
                Ok(None) => silent = None,
                Err(ComputeError::Unreachable(why)) => {
                    let since = *silent.get_or_insert_with(|| {
                        self.progress.line(&format!("No answer: {why}. Retrying."));
                        Instant::now()
                    });
                    if since.elapsed() > OUTAGE {
                        return Err(Failure::Failed(format!(
                            "{why}. The controllers continue the drain. To follow it: {}",
                            self.request.again
                        )));
                    }
                }
                Err(refused) => return Err(refused.fatal()),
            }
            if Instant::now() >= deadline {
                return Ok(End::TimedOut);
            }
            let guests = u32::try_from(self.host.guests.len()).unwrap_or(u32::MAX);
            tokio::time::sleep(PAUSE + PAUSE_EACH * guests.min(1000)).await;
        }
    }

    /// Queries the host and prints what changed. Returns how the drain ended, if it has.
    async fn look(&mut self) -> Result<Option<End>, ComputeError> {
        self.host = query(self.compute, &self.request.host).await?.0;
        self.note_moved().await?;
        self.note_guests();
        Ok(match self.host.drain.as_ref().map(|drain| drain.state) {
            Some(DrainState::Running) => None,
            Some(DrainState::Ended) => Some(End::Done),
            Some(DrainState::Stopped) => Some(End::Stopped),
            None => Some(End::Enabled),
        })
    }

    /// Prints the moves that began, were refused or failed, and the status line.
    fn note_guests(&mut self) {
        let (mut moving, mut waiting, mut stay) = (0, 0, 0);
        let Some(drain) = &self.host.drain else { return };
        let up = self.host.state == HostState::Up;
        let allowed = Allowed { cold: drain.cold };
        for guest in &self.host.guests {
            let seen = self.seen.entry(guest.id.clone()).or_insert_with(|| Seen {
                called: called(guest),
                how: None,
                moves: false,
            });
            let progress = drain.progress(&guest.id);
            match next(&self.host.name, up, guest, allowed, progress.as_ref()) {
                Next::Wait(_) if guest.is_moving() => moving += 1,
                Next::Wait(_) => waiting += 1,
                Next::Stays(_) | Next::Failed => stay += 1,
                Next::Request(step) => {
                    waiting += 1;
                    seen.how = step_of(&step).or(seen.how);
                }
            }
            let action = guest.operation.as_ref().map(|one| &one.action);
            if let Some((how, verb)) = action.and_then(action_of) {
                seen.how = Some(how);
                if !std::mem::replace(&mut seen.moves, true) {
                    self.progress.line(&format!("{} {verb}.", seen.called));
                }
            }
            let Some(one) = drain.move_of(&guest.id) else { continue };
            let Some(why) = &one.why else { continue };
            let line = match (one.state, &one.next_try_at) {
                (MoveState::Requested, _) => continue,
                (MoveState::Failed, _) => format!("{} stays: {}", seen.called, text::plain(why)),
                (MoveState::Refused, _) => {
                    format!("{} cannot move yet: {}", seen.called, text::plain(why))
                }
            };
            if self.printed_reasons.get(&guest.id) != Some(&line) {
                self.progress.line(&line);
                self.printed_reasons.insert(guest.id.clone(), line);
            }
        }
        let left = self.moved.len();
        self.progress
            .status(&format!("{left} moved, {moving} moving, {waiting} waiting, {stay} stay"));
    }

    /// Prints the servers that are no longer on the host.
    async fn note_moved(&mut self) -> Result<(), ComputeError> {
        let here: BTreeSet<&String> = self.host.guests.iter().map(|guest| &guest.id).collect();
        let gone: Vec<String> = self.seen.keys().filter(|id| !here.contains(id)).cloned().collect();
        for id in gone {
            let server = match self.compute.get(&format!("/kilonova/servers/{id}")).await {
                Ok(mut answer) => answer["server"].take(),
                Err(ComputeError::Refused { .. }) => Value::Null,
                Err(unreachable) => return Err(unreachable),
            };
            let Some(Seen { called, how, .. }) = self.seen.remove(&id) else { continue };
            if server.is_null() || server["deleted_at"].is_string() {
                self.progress.line(&format!("{called} was deleted."));
                continue;
            }
            let to = server["host"].as_str().map(HostName::verbatim);
            let at = to.as_deref().map_or_else(|| "no host".to_owned(), text::plain);
            let how = how.unwrap_or("by another request");
            self.progress.line(&format!("{called} is on {at} now ({how})."));
            self.moved.push(Moved { id, how, to });
        }
        Ok(())
    }
}

/// How a step moves a server.
fn step_of(step: &Step) -> Option<&'static str> {
    match step {
        Step::Live => Some("live"),
        Step::Cold | Step::Confirm => Some("cold"),
        Step::Offload => Some("offloaded"),
        Step::Wait(_) | Step::Stays(_) => None,
    }
}

/// How an operation moves a server, and the verb for it.
fn action_of(action: &Action) -> Option<(&'static str, &'static str)> {
    match action {
        Action::LiveMigration => Some(("live", "is live-migrating")),
        Action::Migrate => Some(("cold", "is cold-migrating")),
        Action::Offload => Some(("offloaded", "is being offloaded")),
        Action::Other(_) => None,
    }
}

/// The display name of a server.
pub(super) fn called(guest: &Guest) -> String {
    match &guest.name {
        Some(name) => format!("{} ({})", text::plain(name), guest.id),
        None => guest.id.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(drain: Option<Value>) -> Value {
        let mut host = json!({
            "name": "a", "service_id": "s", "state": "up", "status": "disabled",
            "disabled_reason": null, "accelerators_not_free": 0, "guests": [],
        });
        if let Some(drain) = drain {
            host["drain"] = drain;
        }
        json!({"host": host})
    }

    fn running(cold: bool, state: &str) -> Value {
        json!({
            "state": state, "cold": cold, "parallel": 4, "total": 0,
            "begun_at": "2026-01-01T00:00:00Z", "ended_at": null, "moves": [],
        })
    }

    #[test]
    fn an_earlier_controller_is_told_by_its_answer() {
        let name = HostName::verbatim("a");
        let has_drains = |answer| described(&name, answer).expect("it is a host").1;
        assert!(!has_drains(host(None)));
        assert!(has_drains(host(Some(Value::Null))));
        assert!(has_drains(host(Some(running(false, "running")))));
        assert!(described(&name, json!({"host": {"name": 7}})).is_err());
    }

    #[test]
    fn a_drain_with_other_options_begins_anew() {
        let request = |cold, parallel| DrainRequest {
            host: HostName::verbatim("a"),
            cold,
            parallel,
            timeout: Duration::ZERO,
            reason: String::new(),
            again: String::new(),
        };
        let drain = |cold, state| -> HostDrain {
            serde_json::from_value(running(cold, state)).expect("it is a drain")
        };
        assert!(is_requested(&drain(false, "running"), &request(false, 4)));
        assert!(!is_requested(&drain(false, "running"), &request(true, 4)));
        assert!(!is_requested(&drain(false, "running"), &request(false, 8)));
        assert!(!is_requested(&drain(false, "ended"), &request(false, 4)));
        assert!(!is_requested(&drain(false, "stopped"), &request(false, 4)));
    }
}
