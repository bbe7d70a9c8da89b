//! What a drain came to.

use serde_json::{Value, json};

use crate::operate::text::plain;

/// A server that left the host.
#[derive(Debug, Clone)]
pub struct Moved {
    /// Its uuid.
    pub id: String,
    /// `live`, `cold` or `offloaded`.
    pub how: &'static str,
    /// Where it is now.
    pub to: Option<String>,
}

/// A server that has something left on the host.
#[derive(Debug, Clone)]
pub struct Left {
    /// Its uuid.
    pub id: String,
    /// Its name and uuid.
    pub called: String,
    /// Nova's status.
    pub status: Option<String>,
    /// Why.
    pub why: String,
    /// What to do.
    pub remedy: String,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nothing more could be done.
    Done,
    /// Ctrl-C.
    Interrupted,
    /// The time was over.
    TimedOut,
}

/// All of it.
#[derive(Debug, Clone)]
pub struct Report {
    /// The host.
    pub host: String,
    /// How it ended.
    pub end: End,
    /// What left it.
    pub moved: Vec<Moved>,
    /// What is still there.
    pub left: Vec<Left>,
    /// Accelerators there that somebody holds.
    pub accelerators: i64,
    /// What to type to go on.
    pub again: String,
}

impl Report {
    /// Whether nothing is on the host any more.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// 0 when the host is empty, 130 after Ctrl-C, else 1.
    pub fn exit_code(&self) -> u8 {
        match (self.is_empty(), self.end) {
            (true, _) => 0,
            (false, End::Interrupted) => 130,
            (false, _) => 1,
        }
    }

    /// For programs.
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

    /// For people.
    pub fn text(&self) -> String {
        let host = plain(&self.host);
        let mut text = match self.end {
            End::Done => String::new(),
            End::Interrupted => "Interrupted. What was asked for goes on by itself.\n".to_owned(),
            End::TimedOut => "The time is over. What was asked for goes on by itself.\n".to_owned(),
        };
        let moved = self.moved.len();
        if self.is_empty() {
            text.push_str(&format!("Host {host} is empty: {moved} server(s) left it.\n"));
            if self.accelerators > 0 {
                text.push_str(&format!(
                    "{} of its accelerators are held by requests of the accelerator API, or wait to be \
                     cleaned: openstack accelerator arq list.\n",
                    self.accelerators
                ));
            }
            return text;
        }
        text.push_str(&format!(
            "Host {host} takes no new servers. {moved} server(s) left it; {} are still there:\n",
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
        text.push_str(&format!("To go on: {}\n", self.again));
        text.push_str(&format!("To give it servers again: kilonova host undrain {host}\n"));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_host_ends_well() {
        let mut report = Report {
            host: "a".into(),
            end: End::Done,
            moved: Vec::new(),
            left: Vec::new(),
            accelerators: 0,
            again: "kilonova host drain a".into(),
        };
        assert_eq!(report.exit_code(), 0);
        assert!(report.text().contains("Host a is empty"));
        report.end = End::Interrupted;
        assert_eq!(report.exit_code(), 0, "it was empty all the same");
        report.left.push(Left {
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
        for part in ["time is over", "one (u) [ACTIVE]: it stays", "do this", "host drain a"] {
            assert!(text.contains(part), "{text}");
        }
        let json = report.json();
        assert_eq!((&json["empty"], &json["timed_out"]), (&false.into(), &true.into()));
        assert_eq!(json["remaining"][0]["remedy"], "do this");
    }
}
