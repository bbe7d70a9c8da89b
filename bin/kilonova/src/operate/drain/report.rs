//! The result of a drain.

use kilonova_compute_app::drain::{
    Allowed, DrainState, DrainedHost, HostState, Next, Progress, next,
};
use kilonova_ids::HostName;
use serde_json::{Value, json};

use super::run::called;
use crate::operate::text::plain;

/// A server that left the host.
#[derive(Debug, Clone)]
pub struct Moved {
    /// Its UUID.
    pub id: String,
    /// `live`, `cold` or `offloaded`.
    pub how: &'static str,
    /// Its current host.
    pub to: Option<HostName>,
}

/// A server that still has something on the host.
#[derive(Debug, Clone)]
pub struct Remaining {
    /// Its UUID.
    pub id: String,
    /// Its name and UUID.
    pub called: String,
    /// Nova's status.
    pub status: Option<String>,
    /// The reason.
    pub why: String,
    /// The remedy.
    pub remedy: String,
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The drain ended: no further server can move automatically.
    Done,
    /// The command only started the drain.
    Begun,
    /// Ctrl-C.
    Interrupted,
    /// The timeout expired.
    TimedOut,
    /// Another request stopped the drain.
    Stopped,
    /// Another request enabled the host.
    Enabled,
}

/// The whole result.
#[derive(Debug, Clone)]
pub struct Report {
    host: HostName,
    end: End,
    /// The servers on the host when the drain began.
    total: usize,
    /// True while the controllers continue the drain.
    runs: bool,
    /// The servers that left while the command ran.
    moved: Vec<Moved>,
    /// The servers that remain.
    left: Vec<Remaining>,
    /// Allocated or dirty accelerators of the host.
    accelerators: i64,
    /// The command that follows the drain, or starts it again.
    again: String,
}

impl Report {
    /// The report of a command that last saw the host in this state.
    pub fn new(end: End, host: &DrainedHost, moved: Vec<Moved>, again: String) -> Self {
        let drain = host.drain.as_ref();
        let runs = drain.is_some_and(|drain| drain.state == DrainState::Running);
        let left: Vec<Remaining> =
            host.guests.iter().map(|guest| remaining(host, guest, runs)).collect();
        let gone = moved.len() + left.len();
        Self {
            host: host.name.clone(),
            end,
            total: drain.map_or(gone, |drain| drain.total.max(left.len())),
            runs,
            moved,
            left,
            accelerators: host.accelerators_not_free,
            again,
        }
    }

    /// True if the host is empty.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// 0 if the host is empty, or if the command should only start the drain; 130 after Ctrl-C; else 1.
    pub fn exit_code(&self) -> u8 {
        match (self.is_empty(), self.end) {
            (true, _) | (false, End::Begun) => 0,
            (false, End::Interrupted) => 130,
            (false, End::Done | End::TimedOut | End::Stopped | End::Enabled) => 1,
        }
    }

    /// The drain's state, as the API names it; `enabled` for a host that is no longer drained.
    fn state(&self) -> &'static str {
        match self.end {
            End::Enabled => "enabled",
            End::Stopped => "stopped",
            End::Done | End::Begun | End::Interrupted | End::TimedOut => {
                if self.runs {
                    "running"
                } else {
                    "ended"
                }
            }
        }
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let moved: Vec<Value> = self
            .moved
            .iter()
            .map(|one| json!({"id": one.id, "how": one.how, "to": one.to}))
            .collect();
        let left: Vec<Value> = self
            .left
            .iter()
            .map(|one| {
                json!({"id": one.id, "status": one.status, "why": one.why, "remedy": one.remedy})
            })
            .collect();
        json!({
            "host": self.host,
            "state": self.state(),
            "empty": self.is_empty(),
            "interrupted": self.end == End::Interrupted,
            "timed_out": self.end == End::TimedOut,
            "total": self.total,
            "moved": moved,
            "remaining": left,
            "accelerators_not_free": self.accelerators,
            "go_on": (!self.is_empty()).then_some(&self.again),
        })
    }

    /// As text.
    pub fn text(&self) -> String {
        let host = plain(&self.host);
        let mut text = match self.end {
            End::Done | End::Begun => String::new(),
            End::Interrupted => "Interrupted.\n".to_owned(),
            End::TimedOut => "The timeout expired.\n".to_owned(),
            End::Stopped => "The drain was stopped. Requested moves continue.\n".to_owned(),
            End::Enabled => format!("Host {host} was enabled, which ended its drain.\n"),
        };
        let gone = self.total - self.left.len();
        if self.is_empty() {
            text.push_str(&format!("Host {host} is empty: {gone} server(s) left it.\n"));
            if self.accelerators > 0 {
                text.push_str(&format!(
                    "{} of its accelerators are allocated through the accelerator API, or must be \
                     cleaned: openstack accelerator arq list.\n",
                    self.accelerators
                ));
            }
            return text;
        }
        let is = if self.end == End::Enabled { "enabled" } else { "disabled" };
        text.push_str(&format!(
            "Host {host} is {is}. {gone} server(s) left it; {} are still there:\n",
            self.left.len()
        ));
        for one in &self.left {
            let status = one.status.as_deref().unwrap_or("gone");
            text.push_str(&format!(
                "  {} [{status}]: {}\n      {}\n",
                one.called,
                plain(&one.why),
                plain(&one.remedy)
            ));
        }
        if self.runs {
            text.push_str(&format!(
                "The controllers continue the drain.\nTo follow it: {}\nTo stop it: kilonova host drain {host} --stop\n",
                self.again
            ));
        } else {
            text.push_str(&format!("To drain it again: {}\n", self.again));
        }
        if self.end != End::Enabled {
            text.push_str(&format!("To enable the host again: kilonova host undrain {host}\n"));
        }
        text
    }
}

/// A server that remains, and why.
fn remaining(
    host: &DrainedHost,
    guest: &kilonova_compute_app::drain::Guest,
    runs: bool,
) -> Remaining {
    let drain = host.drain.as_ref();
    let allowed = Allowed { cold: drain.is_some_and(|drain| drain.cold) };
    let progress = drain.and_then(|drain| drain.progress(&guest.id));
    let next_try = drain.and_then(|drain| drain.move_of(&guest.id)?.next_try_at.as_deref());
    let up = host.state == HostState::Up;
    let wait = if runs { "wait" } else { "wait, then drain again" };
    let (why, remedy) = match next(&host.name, up, guest, allowed, progress.as_ref()) {
        Next::Stays(stays) => (stays.why, stays.remedy),
        Next::Wait(what) => (what, wait.to_owned()),
        Next::Failed => (
            "it did not move".to_owned(),
            format!("kilonova server explain {}, then drain again", guest.id),
        ),
        Next::Request(_) => match (progress, next_try) {
            (Some(Progress::Refused(why)), Some(at)) if runs => {
                (why, format!("wait: the next attempt is at {at}"))
            }
            (Some(Progress::Refused(why)), _) => (why, wait.to_owned()),
            (Some(Progress::Requested | Progress::Failed(_)) | None, _) => {
                let remedy = if runs { "wait" } else { "drain again" };
                ("it has not moved yet".to_owned(), remedy.to_owned())
            }
        },
    };
    Remaining {
        id: guest.id.clone(),
        called: called(guest),
        status: guest.status.clone(),
        why,
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(state: &str, guests: &Value, moves: &Value) -> DrainedHost {
        let host = json!({
            "name": "a", "service_id": "s", "state": "up", "status": "disabled",
            "disabled_reason": "fans", "accelerators_not_free": 0, "guests": guests,
            "drain": {
                "state": state, "cold": false, "parallel": 4, "total": 3,
                "begun_at": "2026-01-01T00:00:00Z", "ended_at": null, "moves": moves,
            },
        });
        serde_json::from_value(host).expect("it is a host")
    }

    fn report(end: End, host: &DrainedHost) -> Report {
        Report::new(end, host, Vec::new(), "kilonova host drain a".into())
    }

    #[test]
    fn only_an_empty_host_is_a_success() {
        let empty = host("ended", &json!([]), &json!([]));
        let done = report(End::Done, &empty);
        assert_eq!(done.exit_code(), 0);
        assert_eq!(done.text(), "Host a is empty: 3 server(s) left it.\n");
        assert_eq!(report(End::Interrupted, &empty).exit_code(), 0, "the host is empty");
        let one = json!([{"id": "u", "name": "one", "status": "SUSPENDED", "vm_state": "suspended",
            "host": "a", "cannot_move_running": null, "operation": null, "move": null}]);
        let full = host("ended", &one, &json!([]));
        let codes = [
            (End::Done, 1),
            (End::Begun, 0),
            (End::Interrupted, 130),
            (End::TimedOut, 1),
            (End::Stopped, 1),
            (End::Enabled, 1),
        ];
        for (end, code) in codes {
            assert_eq!(report(end, &full).exit_code(), code, "{end:?}");
        }
        let text = report(End::Done, &full).text();
        for part in [
            "2 server(s) left it; 1 are still there",
            "one (u) [SUSPENDED]: it is suspended",
            "openstack server resume u",
            "To drain it again: kilonova host drain a",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_drain_that_goes_on_says_so() {
        let one = json!([{"id": "u", "name": "one", "status": "ACTIVE", "vm_state": "active",
            "host": "a", "cannot_move_running": null, "operation": null, "move": null}]);
        let moves = json!([{"server": "u", "state": "refused", "tries": 3, "why": "it is busy",
            "next_try_at": "2026-01-01T00:01:00Z"}]);
        let busy = host("running", &one, &moves);
        for (end, begin) in
            [(End::Interrupted, "Interrupted."), (End::TimedOut, "The timeout expired.")]
        {
            let report = report(end, &busy);
            let text = report.text();
            for part in [
                begin,
                "The controllers continue the drain.",
                "--stop",
                "it is busy",
                "wait: the next attempt is at 2026-01-01T00:01:00Z",
            ] {
                assert!(text.contains(part), "{text}");
            }
            let json = report.json();
            assert_eq!((&json["state"], &json["total"]), (&"running".into(), &3.into()), "{json}");
            assert_eq!(json["timed_out"], end == End::TimedOut);
            assert_eq!(json["remaining"][0]["why"], "it is busy");
        }
        let stopped = report(End::Stopped, &host("stopped", &one, &moves));
        assert!(stopped.text().starts_with("The drain was stopped."), "{}", stopped.text());
        assert_eq!((stopped.json()["state"].clone(), stopped.exit_code()), ("stopped".into(), 1));
        let mut enabled = busy;
        enabled.drain = None;
        let text = report(End::Enabled, &enabled).text();
        assert!(text.contains("was enabled, which ended its drain") && !text.contains("undrain"));
    }
}
