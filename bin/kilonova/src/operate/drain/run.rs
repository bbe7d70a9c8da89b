//! The rounds of a drain.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::board::Board;
use super::decide::{Allowed, Step, Why, decide};
use super::guest::{Guest, Host};
use super::report::{End, Left, Moved, Report};
use crate::cloud::{Asked, Compute};
use crate::failure::Failure;
use crate::operate::text;

const PAUSE: Duration = Duration::from_millis(400);
/// What a round waits longer for each guest that is there: a large host is not asked all the time.
const PAUSE_EACH: Duration = Duration::from_millis(4);
/// A cloud that does not answer for so long is not waited for.
const OUTAGE: Duration = Duration::from_secs(120);
/// How often a server is asked to move that is just busy with something else.
const TRIES: u32 = 5;

/// What is wanted.
pub struct Wish {
    /// Which host.
    pub host: String,
    /// What may be done to its servers.
    pub allowed: Allowed,
    /// Moves at once.
    pub parallel: usize,
    /// How long it may take.
    pub timeout: Duration,
    /// Why it is disabled, for whoever looks at it.
    pub reason: String,
    /// What to type to go on.
    pub again: String,
}

struct Run<'a> {
    compute: &'a Compute,
    wish: &'a Wish,
    board: Board,
    host: Host,
    /// What we asked for, by server.
    begun: BTreeMap<String, Begun>,
    failed: BTreeMap<String, String>,
    refused: BTreeMap<String, u32>,
    moved: Vec<Moved>,
}

struct Begun {
    called: String,
    how: &'static str,
}

/// Empties a host, as far as that is allowed.
///
/// # Errors
/// When the host is not there, or the cloud lets us do nothing to it.
pub async fn drain(compute: &Compute, wish: &Wish) -> Result<Report, Failure> {
    let no_signals = |e| Failure::failed("cannot listen to signals", e);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut board = Board::new();
    let host = look(compute, &wish.host).await.map_err(Asked::fatal)?;
    disable(compute, &host, wish, &mut board).await?;
    let mut run = Run {
        compute,
        wish,
        board,
        host,
        begun: BTreeMap::new(),
        failed: BTreeMap::new(),
        refused: BTreeMap::new(),
        moved: Vec::new(),
    };
    let deadline = Instant::now() + wish.timeout;
    let end = tokio::select! {
        end = run.rounds(deadline) => end?,
        _ = interrupt.recv() => End::Interrupted,
        _ = terminate.recv() => End::Interrupted,
    };
    run.board.end();
    if end != End::Done
        && let Ok(host) = look(compute, &wish.host).await
    {
        run.host = host;
    }
    Ok(run.report(end))
}

/// Lets a host have servers again.
///
/// # Errors
/// When the host is not there, or the cloud does not let us.
pub async fn undrain(compute: &Compute, name: &str) -> Result<String, Failure> {
    let host = look(compute, name).await.map_err(Asked::fatal)?;
    let name = text::plain(&host.name);
    let down = if host.state == "up" { "" } else { " It is down: start its agent." };
    if host.status == "enabled" {
        return Ok(format!("Host {name} was enabled already.{down}"));
    }
    let path = format!("/os-services/{}", host.service_id);
    let enabled = json!({"status": "enabled"});
    compute.ask(Method::PUT, &path, Some(&enabled)).await.map_err(Asked::fatal)?;
    let was = host.disabled_reason.map(|why| format!(" ({})", text::plain(&why)));
    let was = was.unwrap_or_default();
    Ok(format!("Host {name} takes servers again; it was disabled{was}.{down}"))
}

async fn look(compute: &Compute, name: &str) -> Result<Host, Asked> {
    let mut told = compute.get(&format!("/kilonova/hosts/{}", text::segment(name))).await?;
    serde_json::from_value(told["host"].take())
        .map_err(|e| Asked::Nothing(format!("the cloud tells of host {name} in other words: {e}")))
}

async fn disable(
    compute: &Compute,
    host: &Host,
    wish: &Wish,
    board: &mut Board,
) -> Result<(), Failure> {
    if host.status == "disabled" {
        let why = host.disabled_reason.as_deref().map(text::plain).unwrap_or_default();
        board.line(&format!("Host {} is disabled already ({why}).", text::plain(&host.name)));
        return Ok(());
    }
    let body = json!({"status": "disabled", "disabled_reason": wish.reason});
    let path = format!("/os-services/{}", host.service_id);
    compute.ask(Method::PUT, &path, Some(&body)).await.map_err(Asked::fatal)?;
    board.line(&format!("Host {} takes no new servers.", text::plain(&host.name)));
    Ok(())
}

impl Run<'_> {
    async fn rounds(&mut self, deadline: Instant) -> Result<End, Failure> {
        let mut silent: Option<Instant> = None;
        loop {
            match self.round().await {
                Ok(true) => return Ok(End::Done),
                Ok(false) => silent = None,
                Err(Asked::Nothing(why)) => {
                    let since = *silent.get_or_insert_with(|| {
                        self.board.line(&format!("No answer: {why}. Trying again."));
                        Instant::now()
                    });
                    if since.elapsed() > OUTAGE {
                        return Err(Failure::Failed(format!(
                            "{why}. What was asked for goes on by itself; to go on here: {}",
                            self.wish.again
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

    /// Looks, and does what can be done now. Says whether nothing is left to do or to wait for.
    async fn round(&mut self) -> Result<bool, Asked> {
        self.host = look(self.compute, &self.wish.host).await?;
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
                    self.ask(guest, "cold", &json!({"confirmResize": null})).await?;
                }
                step @ (Step::Live | Step::Cold | Step::Offload) => {
                    if self.begun.contains_key(&guest.id) {
                        self.note_failure(guest).await?;
                        stays += 1;
                        continue;
                    }
                    waits += 1;
                    if moving < self.wish.parallel {
                        moving += 1;
                        self.begin(guest, &step).await?;
                    }
                }
            }
        }
        let left = self.moved.len();
        self.board.status(&format!(
            "{left} left the host, {moving} on their way, {waits} to go, {stays} stay"
        ));
        Ok(waits == 0)
    }

    /// As [`decide`] has it; a server whose move failed stays.
    fn decide(&self, guest: &Guest) -> Step {
        let up = self.host.state == "up";
        let step = decide(&self.host.name, up, guest, self.wish.allowed);
        match (&step, self.failed.get(&guest.id)) {
            (Step::Stays(_) | Step::Wait(_), _) | (_, None) => step,
            (_, Some(why)) => Step::Stays(Why {
                why: why.clone(),
                remedy: format!("kilonova server explain {}; then drain again", guest.id),
            }),
        }
    }

    fn is_moving(&self, guest: &Guest) -> bool {
        let moves = |action: &str| matches!(action, "live-migration" | "migrate" | "shelveOffload");
        let asked = self.begun.contains_key(&guest.id) && !self.failed.contains_key(&guest.id);
        asked || guest.operation.as_ref().is_some_and(|one| moves(&one.action))
    }

    async fn begin(&mut self, guest: &Guest, step: &Step) -> Result<(), Asked> {
        let (how, words, body) = match step {
            Step::Live => (
                "live",
                "moves while it runs",
                json!({"os-migrateLive": {"host": null, "block_migration": "auto"}}),
            ),
            Step::Offload => ("offloaded", "leaves its shelf here", json!({"shelveOffload": null})),
            _ => ("cold", "moves shut off", json!({"migrate": null})),
        };
        if self.ask(guest, how, &body).await? {
            self.board.line(&format!("{} {words}.", guest.called()));
        }
        Ok(())
    }

    /// Asks for an action; a server that is just busy is asked again later. Says whether it was begun.
    async fn ask(&mut self, guest: &Guest, how: &'static str, body: &Value) -> Result<bool, Asked> {
        let id = &guest.id;
        match self.compute.ask(Method::POST, &format!("/servers/{id}/action"), Some(body)).await {
            Ok(_) => {
                self.begun.insert(id.clone(), Begun { called: guest.called(), how });
                Ok(true)
            }
            // It went by itself.
            Err(Asked::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(false),
            Err(Asked::Refused { status, words }) => {
                let tries = self.refused.entry(id.clone()).or_default();
                *tries += 1;
                if status != StatusCode::CONFLICT || *tries >= TRIES {
                    self.board.line(&format!("{} stays: {}", guest.called(), text::plain(&words)));
                    self.failed.insert(id.clone(), words);
                }
                Ok(false)
            }
            Err(nothing) => Err(nothing),
        }
    }

    /// Servers that we moved and that have nothing here any more.
    async fn note_departed(&mut self) -> Result<(), Asked> {
        let here: BTreeSet<&String> = self.host.guests.iter().map(|guest| &guest.id).collect();
        let gone: Vec<String> =
            self.begun.keys().filter(|id| !here.contains(id)).cloned().collect();
        for id in gone {
            let to = match self.compute.get(&format!("/kilonova/servers/{id}")).await {
                Ok(told) => told["server"]["host"].as_str().map(str::to_owned),
                Err(Asked::Refused { .. }) => None,
                Err(nothing) => return Err(nothing),
            };
            let Some(begun) = self.begun.remove(&id) else { continue };
            let at = to.as_deref().map_or_else(|| "no host".to_owned(), text::plain);
            self.board.line(&format!("{} is on {at} now ({}).", begun.called, begun.how));
            self.moved.push(Moved { id, how: begun.how, to });
        }
        Ok(())
    }

    /// A server that was to move is here, and nothing is being done to it: it failed.
    async fn note_failure(&mut self, guest: &Guest) -> Result<(), Asked> {
        let told = self.compute.get(&format!("/kilonova/servers/{}", guest.id)).await?;
        let why = failure(&told["server"]);
        self.board.line(&format!("{} stays: {}", guest.called(), text::plain(&why)));
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
            left.push(Left {
                id: guest.id.clone(),
                called: guest.called(),
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
            again: self.wish.again.clone(),
        }
    }
}

/// Why the last action of a server failed.
fn failure(server: &Value) -> String {
    let action = &server["actions"][0];
    let events = action["events"].as_array();
    let details = events.and_then(|all| {
        all.iter()
            .rev()
            .find_map(|event| event["details"].as_str().filter(|_| event["result"] == "Error"))
    });
    let why = action["message"].as_str().or(details);
    let why = why.unwrap_or("its move ended, and it is still here; its events say nothing");
    format!("its {} failed: {why}", action["action"].as_str().unwrap_or("move"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_failure_is_the_actions_or_that_of_its_last_event() {
        let events = json!([
            {"result": "Error", "details": "first"}, {"result": "Error", "details": "last"},
            {"result": "Success", "details": null},
        ]);
        let server = json!({"actions": [{"action": "migrate", "message": "no", "events": events}]});
        assert_eq!(failure(&server), "its migrate failed: no");
        let server = json!({"actions": [{"action": "migrate", "events": events}]});
        assert_eq!(failure(&server), "its migrate failed: last");
        assert!(failure(&json!({})).contains("its events say nothing"));
    }
}
