//! The result of a drain.

use kilonova_ids::HostName;
use serde_json::{Value, json};

use crate::operate::text::plain;

/// A server that left the host.
#[derive(Debug, Clone)]
pub struct Moved {
    /// Its uuid.
    pub id: String,
    /// `live`, `cold` or `offloaded`.
    pub how: &'static str,
    /// Its current host.
    pub to: Option<HostName>,
}

/// A server with anything left on the host.
#[derive(Debug, Clone)]
pub struct Remaining {
    /// Its uuid.
    pub id: String,
    /// Its name and uuid.
    pub called: String,
    /// Nova's status.
    pub status: Option<String>,
    /// The reason.
    pub why: String,
    /// The remedy.
    pub remedy: String,
}

/// How the drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nothing more could be done.
    Done,
    /// Ctrl-C.
    Interrupted,
    /// The timeout expired.
    TimedOut,
}

/// The whole result.
#[derive(Debug, Clone)]
pub struct Report {
    /// The host.
    pub host: HostName,
    /// How it ended.
    pub end: End,
    /// The servers that left.
    pub moved: Vec<Moved>,
    /// The servers that remain.
    pub left: Vec<Remaining>,
    /// Allocated or dirty accelerators of the host.
    pub accelerators: i64,
    /// The command that resumes the drain.
    pub again: String,
}

impl Report {
    /// True if the host is empty.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// 0 if the host is empty, 130 after Ctrl-C, else 1.
    pub fn exit_code(&self) -> u8 {
        match (self.is_empty(), self.end) {
            (true, _) => 0,
            (false, End::Interrupted) => 130,
            (false, _) => 1,
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
            "empty": self.is_empty(),
            "interrupted": self.end == End::Interrupted,
            "timed_out": self.end == End::TimedOut,
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
            End::Done => String::new(),
            End::Interrupted => "Interrupted. Requested moves continue.\n".to_owned(),
            End::TimedOut => "The timeout expired. Requested moves continue.\n".to_owned(),
        };
        let moved = self.moved.len();
        if self.is_empty() {
            text.push_str(&format!("Host {host} is empty: {moved} server(s) left it.\n"));
            if self.accelerators > 0 {
                text.push_str(&format!(
                    "{} of its accelerators are allocated through the accelerator API, or must be \
                                         cleaned: openstack accelerator arq list.\n",
                    self.accelerators
                ));
            }
            return text;
        }
        text.push_str(&format!(
            "Host {host} is disabled. {moved} server(s) left it; {} are still there:\n",
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
        text.push_str(&format!("To continue: {}\n", self.again));
        text.push_str(&format!("To enable the host again: kilonova host undrain {host}\n"));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_host_is_a_success() {
        let mut report = Report {
            host: HostName::verbatim("a"),
            end: End::Done,
            moved: Vec::new(),
            left: Vec::new(),
            accelerators: 0,
            again: "kilonova host drain a".into(),
        };
        assert_eq!(report.exit_code(), 0);
        assert!(report.text().contains("Host a is empty"));
        report.end = End::Interrupted;
        assert_eq!(report.exit_code(), 0, "the host is empty");
        report.left.push(Remaining {
            id: "u".into(),
            called: "one (u)".into(),
            status: Some("ACTIVE".into()),
            why: "it stays".into(),
            remedy: "do this".into(),
        });
        assert_eq!(report.exit_code(), 130);
        report.end = End::TimedOut;
        assert_eq!(report.exit_code(), 1);
        let text = report.text();
        for part in ["timeout expired", "one (u) [ACTIVE]: it stays", "do this", "host drain a"] {
            assert!(text.contains(part), "{text}");
        }
        let json = report.json();
        assert_eq!((&json["empty"], &json["timed_out"]), (&false.into(), &true.into()));
        assert_eq!(json["remaining"][0]["remedy"], "do this");
    }
}
