//! The moves of a plan, one after the other.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use kilonova_program::signals::StopSignals;
use serde_json::{Value, json};

use super::query;
use super::report::{Done, End, Report};
use crate::cloud::{Compute, ComputeError};
use crate::failure::Failure;
use crate::operate::progress::ProgressDisplay;
use crate::operate::text::{self, of};

const PAUSE: Duration = Duration::from_millis(400);
/// How long an outage of the API may last.
const OUTAGE: Duration = Duration::from_secs(120);

struct Run<'a> {
    compute: &'a Compute,
    progress: ProgressDisplay,
    deadline: Instant,
    moves: Vec<Done>,
}

/// Why the moves end early.
enum Stop {
    /// The last one failed or could not begin.
    Failed,
    TimedOut,
    Error(Failure),
}

/// Plans and performs moves for a flavor, or for the cost of the hosts.
///
/// # Errors
/// If the cloud refuses, or stays unreachable.
pub async fn apply(
    compute: &Compute,
    flavor: Option<&str>,
    timeout: Duration,
) -> Result<Report, Failure> {
    let mut signals = StopSignals::handle()?;
    let plan = query(compute, flavor).await.map_err(ComputeError::fatal)?;
    let deadline = Instant::now() + timeout;
    let mut run = Run { compute, progress: ProgressDisplay::new(), deadline, moves: Vec::new() };
    let ended = tokio::select! {
        ended = run.all(&plan) => ended,
        () = signals.recv() => Ok(End::Interrupted),
    };
    run.progress.end();
    let end = match ended {
        Ok(end) => end,
        Err(Stop::Failed) => End::Failed,
        Err(Stop::TimedOut) => End::TimedOut,
        Err(Stop::Error(failure)) => return Err(failure),
    };
    let moves = std::mem::take(&mut run.moves);
    let mut fits_now = None;
    // The plan has the id of the requested flavor.
    let wanted = flavor.and_then(|_| plan["flavors"][0]["id"].as_str());
    if let (Some(flavor), false) = (wanted, moves.is_empty()) {
        let path = format!("/kilonova/room?flavor={}", text::segment(flavor));
        let now = compute.get(&path).await.map_err(ComputeError::fatal)?;
        fits_now = now["room"]["servers"].as_u64();
    }
    Ok(Report { plan, moves, end, fits_now })
}

impl Run<'_> {
    async fn all(&mut self, plan: &Value) -> Result<End, Stop> {
        for planned in plan["moves"].as_array().into_iter().flatten() {
            self.moves.push(Done {
                planned: planned.clone(),
                migration: None,
                request_id: None,
                failure: None,
            });
            self.begin(planned).await?;
            self.wait(planned).await?;
        }
        Ok(End::Done)
    }

    /// Requests a move, as soon as the number of concurrent moves allows it.
    async fn begin(&mut self, planned: &Value) -> Result<(), Stop> {
        let body = json!({"move": {"server": planned["server"], "host": planned["to"]}});
        let called = called(planned);
        loop {
            let asked = self.compute.ask(Method::POST, "/kilonova/rebalance", Some(&body)).await;
            match asked {
                Ok(answer) => {
                    let request_id = answer["move"]["request_id"].as_str().map(str::to_owned);
                    let request = request_id.as_deref().map(text::plain).unwrap_or_default();
                    self.progress.line(&format!(
                        "{called} is live-migrating from {} to {} ({request}).",
                        of(&planned["from"]),
                        of(&planned["to"]),
                    ));
                    if let Some(last) = self.moves.last_mut() {
                        last.migration = answer["move"]["migration"].as_i64();
                        last.request_id = request_id;
                    }
                    return Ok(());
                }
                Err(ComputeError::Refused { status, message }) => {
                    // Retries only after a refusal because of moves in progress, not because of the hourly limit.
                    if status != StatusCode::CONFLICT || !message.contains("when one has ended") {
                        return Err(self.fail(&called, message));
                    }
                    self.progress.status(&text::plain(&message));
                }
                // A retry might begin the move a second time.
                Err(unreachable) => return Err(Stop::Error(unreachable.fatal())),
            }
            self.pause().await?;
        }
    }

    /// Waits until the migration has ended and nothing of the server remains on its source.
    async fn wait(&mut self, planned: &Value) -> Result<(), Stop> {
        let (called, mut silent) = (called(planned), None::<Instant>);
        let Some(number) = self.moves.last().and_then(|one| one.migration) else {
            return Err(self.fail(&called, "the answer names no migration".to_owned()));
        };
        let path = format!("/kilonova/servers/{}", text::segment(&of(&planned["server"])));
        loop {
            match self.compute.get(&path).await {
                Ok(answer) => {
                    silent = None;
                    let server = &answer["server"];
                    match state(server, number) {
                        State::Moves(what) => self.progress.status(&format!("{called}: {what}")),
                        State::Moved => {
                            let at = of(&server["host"]);
                            self.progress.line(&format!("{called} is on {at} now."));
                            return Ok(());
                        }
                        State::Failed(why) => return Err(self.fail(&called, why)),
                    }
                }
                Err(ComputeError::Unreachable(why)) => {
                    let since = *silent.get_or_insert_with(Instant::now);
                    if since.elapsed() > OUTAGE {
                        let why = format!("{why}. The move of {called} continues.");
                        return Err(Stop::Error(Failure::Failed(why)));
                    }
                }
                Err(refused) => return Err(Stop::Error(refused.fatal())),
            }
            self.pause().await?;
        }
    }

    async fn pause(&self) -> Result<(), Stop> {
        if Instant::now() >= self.deadline {
            return Err(Stop::TimedOut);
        }
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }

    fn fail(&mut self, called: &str, why: String) -> Stop {
        self.progress.line(&format!("{called} did not move: {}", text::plain(&why)));
        if let Some(last) = self.moves.last_mut() {
            last.failure = Some(why);
        }
        Stop::Failed
    }
}

fn called(planned: &Value) -> String {
    format!("{} ({})", of(&planned["name"]), of(&planned["server"]))
}

/// The state of a move.
#[derive(Debug, PartialEq, Eq)]
enum State {
    Moves(String),
    Moved,
    Failed(String),
}

/// The state of a migration, from the API's description of its server.
fn state(server: &Value, number: i64) -> State {
    let moves = server["moves"].as_array();
    let found = moves.into_iter().flatten().find(|one| one["id"].as_i64() == Some(number));
    let Some(one) = found else {
        return State::Failed("its migration no longer exists; the server was deleted".into());
    };
    if one["open"] == true {
        let waits = &server["operation"]["waits_for"];
        let waits =
            if waits.is_null() { String::new() } else { format!(", waits for {}", of(waits)) };
        return State::Moves(format!("{}{waits}", of(&one["status"])));
    }
    if one["status"] != "completed" {
        let why = server["actions"][0]["message"].as_str().map(text::plain);
        let why = why.unwrap_or_else(|| format!("the migration is {}", of(&one["status"])));
        return State::Failed(why);
    }
    if !one["holds_on"].is_null() {
        return State::Moves(format!("{} removes its remains", of(&one["holds_on"])));
    }
    State::Moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_over_when_its_source_holds_nothing() {
        let server = |one: Value| json!({"moves": [one], "actions": [{"message": "no answer"}]});
        let moving = server(json!({"id": 3, "open": true, "status": "running", "holds_on": "a"}));
        assert_eq!(state(&moving, 3), State::Moves("running".into()));
        let left = server(json!({"id": 3, "open": false, "status": "completed", "holds_on": "a"}));
        assert_eq!(state(&left, 3), State::Moves("a removes its remains".into()));
        let done = server(json!({"id": 3, "open": false, "status": "completed", "holds_on": null}));
        assert_eq!(state(&done, 3), State::Moved);
        let failed = server(json!({"id": 3, "open": false, "status": "error", "holds_on": null}));
        assert_eq!(state(&failed, 3), State::Failed("no answer".into()));
        assert!(matches!(state(&done, 4), State::Failed(_)));
    }
}
