//! The rounds of a drain.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use kilonova_compute_app::drain::{
    Allowed, DrainedHost, Guest, HostState, HostStatus, Step, Why, decide,
};
use kilonova_ids::HostName;
use kilonova_program::signals::StopSignals;
use serde_json::{Value, json};

use super::report::{End, Moved, Remaining, Report};
use crate::cloud::{Compute, ComputeError};
use crate::failure::Failure;
use crate::operate::progress::ProgressDisplay;
use crate::operate::text;

const PAUSE: Duration = Duration::from_millis(400);
/// The additional pause per guest, so that a large host is queried less often.
const PAUSE_EACH: Duration = Duration::from_millis(4);
/// How long an outage of the API may last.
const OUTAGE: Duration = Duration::from_secs(120);
/// Attempts to move a server that is busy.
const TRIES: u32 = 5;

/// The request of a drain.
pub struct DrainRequest {
    /// The host.
    pub host: HostName,
    /// The operator's permissions.
    pub allowed: Allowed,
    /// Concurrent moves.
    pub parallel: usize,
    /// The timeout.
    pub timeout: Duration,
    /// The reason shown for the disabled host.
    pub reason: String,
    /// The command that resumes the drain.
    pub again: String,
}

struct Run<'a> {
    compute: &'a Compute,
    request: &'a DrainRequest,
    progress: ProgressDisplay,
    host: DrainedHost,
    /// The requested moves, by server.
    begun: BTreeMap<String, Begun>,
    failed: BTreeMap<String, String>,
    refused: BTreeMap<String, u32>,
    moved: Vec<Moved>,
}

struct Begun {
    called: String,
    how: &'static str,
}

/// Drains a host, as far as the request allows.
///
/// # Errors
/// If the host does not exist or the cloud refuses.
pub async fn drain(compute: &Compute, request: &DrainRequest) -> Result<Report, Failure> {
    let mut signals = StopSignals::handle()?;
    let mut progress = ProgressDisplay::new();
    let host = query(compute, &request.host).await.map_err(ComputeError::fatal)?;
    disable(compute, &host, request, &mut progress).await?;
    let mut run = Run {
        compute,
        request,
        progress,
        host,
        begun: BTreeMap::new(),
        failed: BTreeMap::new(),
        refused: BTreeMap::new(),
        moved: Vec::new(),
    };
    let deadline = Instant::now() + request.timeout;
    let end = tokio::select! {
        end = run.rounds(deadline) => end?,
        () = signals.recv() => End::Interrupted,
    };
    run.progress.end();
    if end != End::Done
        && let Ok(host) = query(compute, &request.host).await
    {
        run.host = host;
    }
    Ok(run.report(end))
}

/// Enables a host.
///
/// # Errors
/// If the host does not exist or the cloud refuses.
pub async fn undrain(compute: &Compute, name: &HostName) -> Result<String, Failure> {
    let host = query(compute, name).await.map_err(ComputeError::fatal)?;
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

async fn query(compute: &Compute, name: &HostName) -> Result<DrainedHost, ComputeError> {
    let mut answer = compute.get(&format!("/kilonova/hosts/{}", text::segment(name))).await?;
    serde_json::from_value(answer["host"].take()).map_err(|e| {
        ComputeError::Unreachable(format!("unexpected description of host {name}: {e}"))
    })
}

async fn disable(
    compute: &Compute,
    host: &DrainedHost,
    request: &DrainRequest,
    progress: &mut ProgressDisplay,
) -> Result<(), Failure> {
    if host.status == HostStatus::Disabled {
        let why = host.disabled_reason.as_deref().map(text::plain).unwrap_or_default();
        progress.line(&format!("Host {} is already disabled ({why}).", text::plain(&host.name)));
        return Ok(());
    }
    let body = json!({"status": "disabled", "disabled_reason": request.reason});
    let path = format!("/os-services/{}", host.service_id);
    compute.ask(Method::PUT, &path, Some(&body)).await.map_err(ComputeError::fatal)?;
    progress.line(&format!("Host {} is disabled.", text::plain(&host.name)));
    Ok(())
}

impl Run<'_> {
    async fn rounds(&mut self, deadline: Instant) -> Result<End, Failure> {
        let mut silent: Option<Instant> = None;
        loop {
            match self.round().await {
                Ok(true) => return Ok(End::Done),
                Ok(false) => silent = None,
                Err(ComputeError::Unreachable(why)) => {
                    let since = *silent.get_or_insert_with(|| {
                        self.progress.line(&format!("No answer: {why}. Retrying."));
                        Instant::now()
                    });
                    if since.elapsed() > OUTAGE {
                        return Err(Failure::Failed(format!(
                            "{why}. Requested moves continue; to resume the drain: {}",
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

    /// Queries the host and does everything possible now. Returns whether nothing is left to do or to
    /// wait for.
    async fn round(&mut self) -> Result<bool, ComputeError> {
        self.host = query(self.compute, &self.request.host).await?;
        self.note_departed().await?;
        let guests = self.host.guests.clone();
        let mut moving = guests.iter().filter(|guest| self.is_moving(guest)).count();
        let (mut waits, mut stays) = (0, 0);
        for guest in &guests {
            match self.decide(guest) {
                Step::Stays(_) => stays += 1,
                Step::Wait(_) => waits += 1,
                Step::Confirm => {
                    waits += 1;
                    self.request(guest, "cold", &Step::Confirm).await?;
                }
                step @ (Step::Live | Step::Cold | Step::Offload) => {
                    if self.begun.contains_key(&guest.id) {
                        self.note_failure(guest).await?;
                        stays += 1;
                        continue;
                    }
                    waits += 1;
                    if moving < self.request.parallel {
                        moving += 1;
                        self.begin(guest, &step).await?;
                    }
                }
            }
        }
        let left = self.moved.len();
        self.progress
            .status(&format!("{left} moved, {moving} moving, {waits} waiting, {stays} stay"));
        Ok(waits == 0)
    }

    /// The step of [`decide`], except that a server whose move failed stays.
    fn decide(&self, guest: &Guest) -> Step {
        let up = self.host.state == HostState::Up;
        let step = decide(&self.host.name, up, guest, self.request.allowed);
        match (&step, self.failed.get(&guest.id)) {
            (Step::Stays(_) | Step::Wait(_), _) | (_, None) => step,
            (_, Some(why)) => Step::Stays(Why {
                why: why.clone(),
                remedy: format!("kilonova server explain {}; then drain again", guest.id),
            }),
        }
    }

    fn is_moving(&self, guest: &Guest) -> bool {
        let requested = self.begun.contains_key(&guest.id) && !self.failed.contains_key(&guest.id);
        requested || guest.is_moving()
    }

    async fn begin(&mut self, guest: &Guest, step: &Step) -> Result<(), ComputeError> {
        let (how, verb) = match step {
            Step::Live => ("live", "migrates live"),
            Step::Offload => ("offloaded", "is being offloaded"),
            _ => ("cold", "migrates cold"),
        };
        if self.request(guest, how, step).await? {
            self.progress.line(&format!("{} {verb}.", called(guest)));
        }
        Ok(())
    }

    /// Requests a step. Returns whether it began.
    async fn request(
        &mut self,
        guest: &Guest,
        how: &'static str,
        step: &Step,
    ) -> Result<bool, ComputeError> {
        match step.request() {
            Some(body) => self.ask(guest, how, &body).await,
            None => Ok(false),
        }
    }

    /// Requests an action; a busy server is retried in a later round. Returns whether it began.
    async fn ask(
        &mut self,
        guest: &Guest,
        how: &'static str,
        body: &Value,
    ) -> Result<bool, ComputeError> {
        let id = &guest.id;
        match self.compute.ask(Method::POST, &format!("/servers/{id}/action"), Some(body)).await {
            Ok(_) => {
                self.begun.insert(id.clone(), Begun { called: called(guest), how });
                Ok(true)
            }
            // The server left by itself.
            Err(ComputeError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(false),
            Err(ComputeError::Refused { status, message }) => {
                let tries = self.refused.entry(id.clone()).or_default();
                *tries += 1;
                if status != StatusCode::CONFLICT || *tries >= TRIES {
                    self.progress.line(&format!(
                        "{} stays: {}",
                        called(guest),
                        text::plain(&message)
                    ));
                    self.failed.insert(id.clone(), message);
                }
                Ok(false)
            }
            Err(unreachable) => Err(unreachable),
        }
    }

    /// Records requested moves whose servers left the host.
    async fn note_departed(&mut self) -> Result<(), ComputeError> {
        let here: BTreeSet<&String> = self.host.guests.iter().map(|guest| &guest.id).collect();
        let gone: Vec<String> =
            self.begun.keys().filter(|id| !here.contains(id)).cloned().collect();
        for id in gone {
            let to = match self.compute.get(&format!("/kilonova/servers/{id}")).await {
                Ok(answer) => answer["server"]["host"].as_str().map(HostName::verbatim),
                Err(ComputeError::Refused { .. }) => None,
                Err(unreachable) => return Err(unreachable),
            };
            let Some(begun) = self.begun.remove(&id) else { continue };
            let at = to.as_deref().map_or_else(|| "no host".to_owned(), text::plain);
            self.progress.line(&format!("{} is on {at} now ({}).", begun.called, begun.how));
            self.moved.push(Moved { id, how: begun.how, to });
        }
        Ok(())
    }

    /// Records a failed move: the server is still here, and no operation is in progress.
    async fn note_failure(&mut self, guest: &Guest) -> Result<(), ComputeError> {
        let answer = self.compute.get(&format!("/kilonova/servers/{}", guest.id)).await?;
        let why = failure(&answer["server"]);
        self.progress.line(&format!("{} stays: {}", called(guest), text::plain(&why)));
        self.begun.remove(&guest.id);
        self.failed.insert(guest.id.clone(), why);
        Ok(())
    }

    fn report(self, end: End) -> Report {
        let mut left = Vec::new();
        for guest in &self.host.guests {
            let (why, remedy) = match self.decide(guest) {
                Step::Stays(stays) => (stays.why, stays.remedy),
                Step::Wait(what) => (what, "wait, then drain again".to_owned()),
                _ => ("it has not moved yet".to_owned(), "drain again".to_owned()),
            };
            left.push(Remaining {
                id: guest.id.clone(),
                called: called(guest),
                status: guest.status.clone(),
                why,
                remedy,
            });
        }
        Report {
            host: self.host.name,
            end,
            moved: self.moved,
            left,
            accelerators: self.host.accelerators_not_free,
            again: self.request.again.clone(),
        }
    }
}

/// The display name of a server.
fn called(guest: &Guest) -> String {
    match &guest.name {
        Some(name) => format!("{} ({})", text::plain(name), guest.id),
        None => guest.id.clone(),
    }
}

/// The reason why a server's last action failed.
fn failure(server: &Value) -> String {
    let action = &server["actions"][0];
    let events = action["events"].as_array();
    let details = events.and_then(|all| {
        all.iter()
            .rev()
            .find_map(|event| event["details"].as_str().filter(|_| event["result"] == "Error"))
    });
    let why = action["message"].as_str().or(details);
    let why = why.unwrap_or("its move ended without leaving the host; its events state no reason");
    format!("its {} failed: {why}", action["action"].as_str().unwrap_or("move"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_failure_is_the_actions_or_its_last_events() {
        let events = json!([
            {"result": "Error", "details": "first"}, {"result": "Error", "details": "last"},
            {"result": "Success", "details": null},
        ]);
        let server = json!({"actions": [{"action": "migrate", "message": "no", "events": events}]});
        assert_eq!(failure(&server), "its migrate failed: no");
        let server = json!({"actions": [{"action": "migrate", "events": events}]});
        assert_eq!(failure(&server), "its migrate failed: last");
        assert!(failure(&json!({})).contains("its events state no reason"));
    }
}
