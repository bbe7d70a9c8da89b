//! What was found, for people and for programs.

use kilonova_compute::attention::clocks::Redated;
use kilonova_compute::attention::{Heard, Level};
use kilonova_compute::audit;
use kilonova_wire::time::zulu;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::operate::text::plain;

/// Something to do.
#[derive(Debug, Clone)]
pub struct Finding {
    /// Of which area.
    pub area: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What is so.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

/// Something that was looked at.
#[derive(Debug, Clone)]
pub struct Area {
    /// `store`, `ledger`, …
    pub name: &'static str,
    /// In a few words, when nothing is wrong.
    pub about: String,
}

/// All of it.
#[derive(Debug, Default)]
pub struct Report {
    /// In the order in which they were looked at.
    pub areas: Vec<Area>,
    /// What was found.
    pub findings: Vec<Finding>,
    /// The rules of the ledger.
    pub rules: Vec<audit::Finding>,
    /// The hosts.
    pub hosts: Vec<Heard>,
    /// Rows that were given the present time, where that was asked for.
    pub redated: Option<Redated>,
    /// Why it could not look any further.
    pub ended: Option<Failure>,
}

impl Report {
    /// Something that was looked at.
    pub fn area(&mut self, name: &'static str, about: impl Into<String>) {
        self.areas.push(Area { name, about: about.into() });
    }

    /// Something that was found.
    pub fn find(
        &mut self,
        area: &'static str,
        level: Level,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.findings.push(Finding { area, level, what: what.into(), remedy: remedy.into() });
    }

    /// As it is, and why there is no more.
    pub fn ended(mut self, why: Failure) -> Self {
        self.ended = Some(why);
        self
    }

    /// 2 when it could not look, 1 for errors (with `strict` for warnings too), else 0.
    pub fn exit_code(&self, strict: bool) -> u8 {
        let least = if strict { Level::Warning } else { Level::Error };
        if self.ended.is_some() {
            return 2;
        }
        u8::from(self.findings.iter().any(|one| one.level >= least))
    }

    fn state(&self, area: &str) -> Option<Level> {
        let levels = self.findings.iter().filter(|one| one.area == area).map(|one| one.level);
        levels.max()
    }

    /// For programs. `clean` and `rules` are of the ledger alone, `attention` is the rest.
    pub fn json(&self) -> Value {
        let rules: Vec<Value> =
            self.rules.iter().map(|f| json!({"rule": f.rule, "broken_by": f.rows})).collect();
        let rest = self.findings.iter().filter(|one| one.area != "ledger");
        let attention: Vec<Value> =
            rest.map(|one| json!({"what": one.what, "remedy": one.remedy})).collect();
        let finding = |one: &Finding| {
            json!({
                "area": one.area,
                "level": one.level.as_str(),
                "what": one.what,
                "remedy": one.remedy,
            })
        };
        let area = |area: &Area| {
            let state = self.state(area.name).map_or("ok", Level::as_str);
            json!({"name": area.name, "state": state, "about": area.about})
        };
        let host = |host: &Heard| {
            json!({
                "host": host.host,
                "up": host.up,
                "enabled": host.enabled,
                "forced_down": host.forced_down,
                "last_heard_of": zulu(host.last_seen),
                "reported_at": zulu(host.reported_at),
                "epoch": host.epoch,
                "generation": host.generation,
                "clock_skew_s": host.clock_skew.map(|skew| skew as f64 / 1e6),
            })
        };
        json!({
            "clean": self.ended.is_none() && self.rules.iter().all(|rule| rule.rows.is_empty()),
            "rules": rules,
            "attention": attention,
            "findings": self.findings.iter().map(finding).collect::<Vec<_>>(),
            "areas": self.areas.iter().map(area).collect::<Vec<_>>(),
            "hosts": self.hosts.iter().map(host).collect::<Vec<_>>(),
            "redated": self.redated.map(|one| {
                json!({
                    "hosts": one.hosts, "operations": one.operations, "servers": one.servers,
                })
            }),
        })
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(one) = &self.redated {
            text.push_str(&format!(
                "Rows that got the present time: {} of hosts, {} of operations, {} of servers.\n",
                one.hosts, one.operations, one.servers
            ));
        }
        for area in &self.areas {
            let state = self.state(area.name).map_or("ok", Level::as_str);
            let about = if state == "ok" { plain(&area.about) } else { String::new() };
            text.push_str(format!("{:13}  {state:7}  {about}", area.name).trim_end());
            text.push('\n');
        }
        for level in [Level::Error, Level::Warning, Level::Note] {
            for one in self.findings.iter().filter(|one| one.level == level) {
                let (what, remedy) = (plain(&one.what), plain(&one.remedy));
                text.push_str(&format!(
                    "\n{} ({}): {what}\n    {remedy}\n",
                    level.as_str().to_uppercase(),
                    one.area
                ));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_fail_and_warnings_do_when_they_shall() {
        let mut report = Report::default();
        report.area("store", "fine");
        report.area("nodes", "2 hosts");
        assert_eq!((report.exit_code(false), report.exit_code(true)), (0, 0));
        assert!(report.text().starts_with("store          ok       fine\n"), "{}", report.text());
        report.find("nodes", Level::Note, "so", "nothing");
        assert_eq!((report.exit_code(false), report.exit_code(true)), (0, 0));
        report.find("nodes", Level::Warning, "a is silent", "start it");
        assert_eq!((report.exit_code(false), report.exit_code(true)), (0, 1));
        report.find("store", Level::Error, "b\u{1b}roken", "mend it");
        assert_eq!((report.exit_code(false), report.exit_code(true)), (1, 1));
        let text = report.text();
        assert!(text.contains("store          error\nnodes          warning\n"), "{text}");
        assert!(text.contains("ERROR (store): b\\u{1b}roken\n    mend it\n"), "{text}");
        assert!(text.find("ERROR") < text.find("WARNING"), "{text}");
        let json = report.json();
        assert_eq!(json["clean"], true, "the ledger is: {json}");
        assert_eq!(json["attention"].as_array().map(Vec::len), Some(3));
        assert_eq!(json["findings"][2]["level"], "error");
        let ended = report.ended(Failure::Refused("no database".into()));
        assert_eq!((ended.exit_code(false), &ended.json()["clean"]), (2, &false.into()));
    }
}
