//! The report, for people and for programs.

use kilonova_compute_app::attention::clocks::Redated;
use kilonova_compute_app::attention::{HostContact, Level};
use kilonova_compute_db::audit;
use kilonova_wire::time::zulu;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::operate::text::plain;

/// A finding.
#[derive(Debug, Clone)]
pub struct Finding {
    /// Its area.
    pub area: &'static str,
    /// Its severity.
    pub level: Level,
    /// The condition.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

/// A checked area.
#[derive(Debug, Clone)]
pub struct Area {
    /// `store`, `ledger`, …
    pub name: &'static str,
    /// A summary, shown when nothing is wrong; the reason if the checks did not run.
    pub about: String,
    /// True if its checks did not run.
    pub skipped: bool,
}

/// The whole report.
#[derive(Debug, Default)]
pub struct Report {
    /// The areas in the order of the checks.
    pub areas: Vec<Area>,
    /// The findings.
    pub findings: Vec<Finding>,
    /// The results of the ledger's rules.
    pub rules: Vec<audit::Finding>,
    /// The hosts.
    pub hosts: Vec<HostContact>,
    /// The number of corrected rows, if requested.
    pub redated: Option<Redated>,
    /// Why the checks ended early.
    pub ended: Option<Failure>,
}

impl Report {
    /// Adds a checked area.
    pub fn area(&mut self, name: &'static str, about: impl Into<String>) {
        self.areas.push(Area { name, about: about.into(), skipped: false });
    }

    /// Adds an area whose checks, or some of them, did not run.
    pub fn skip(&mut self, name: &'static str, about: impl Into<String>) {
        self.areas.push(Area { name, about: about.into(), skipped: true });
    }

    /// Adds a finding.
    pub fn find(
        &mut self,
        area: &'static str,
        level: Level,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.findings.push(Finding { area, level, what: what.into(), remedy: remedy.into() });
    }

    /// The report, ended early for this reason.
    pub fn ended(mut self, why: Failure) -> Self {
        self.ended = Some(why);
        self
    }

    /// 2 if a check could not run, 1 for errors (with `strict` also for warnings), else 0.
    pub fn exit_code(&self, strict: bool) -> u8 {
        let least = if strict { Level::Warning } else { Level::Error };
        if self.ended.is_some() {
            return 2;
        }
        u8::from(self.findings.iter().any(|one| one.level >= least))
    }

    /// The state of an area: that of its worst finding, otherwise `skipped` or `ok`.
    fn state(&self, area: &Area) -> &'static str {
        let found = self.findings.iter().filter(|one| one.area == area.name);
        let untroubled = if area.skipped { "skipped" } else { "ok" };
        found.map(|one| one.level).max().map_or(untroubled, Level::as_str)
    }

    /// As JSON. `clean` and `rules` concern only the ledger; `attention` contains the other findings.
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
            let state = self.state(area);
            json!({"name": area.name, "state": state, "about": area.about})
        };
        let host = |host: &HostContact| {
            json!({
                "host": host.host,
                "up": host.up,
                "enabled": host.enabled,
                "forced_down": host.forced_down,
                "last_heard_of": zulu(host.last_seen),
                "reported_at": zulu(host.reported_at),
                "epoch": host.epoch,
                "generation": host.generation,
                "clock_skew_s": host.clock_skew.map(|skew| skew.as_micros() as f64 / 1e6),
            })
        };
        json!({
            "clean": self.ended.is_none() && self.rules.iter().all(|rule| rule.rows.is_empty()),
            "ended": self.ended.as_ref().map(Failure::to_string),
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

    /// As text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(one) = &self.redated {
            text.push_str(&format!(
                "Times set to now: {} of hosts, {} of operations, {} of servers.\n",
                one.hosts, one.operations, one.servers
            ));
        }
        for area in &self.areas {
            let state = self.state(area);
            let about = match state {
                "ok" | "skipped" => plain(&area.about),
                _ => String::new(),
            };
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
    fn errors_fail_and_warnings_only_with_strict() {
        let mut report = Report::default();
        report.area("store", "fine");
        report.area("nodes", "2 hosts");
        assert_eq!((report.exit_code(false), report.exit_code(true)), (0, 0));
        assert!(report.text().starts_with("store          ok       fine\n"), "{}", report.text());
        report.find("nodes", Level::Note, "so", "nothing");
        assert_eq!((report.exit_code(false), report.exit_code(true)), (0, 0));
        report.find("nodes", Level::Warning, "a is down", "start it");
        assert_eq!((report.exit_code(false), report.exit_code(true)), (0, 1));
        report.find("store", Level::Error, "b\u{1b}roken", "fix it");
        assert_eq!((report.exit_code(false), report.exit_code(true)), (1, 1));
        let text = report.text();
        assert!(text.contains("store          error\nnodes          warning\n"), "{text}");
        assert!(text.contains("ERROR (store): b\\u{1b}roken\n    fix it\n"), "{text}");
        assert!(text.find("ERROR") < text.find("WARNING"), "{text}");
        let json = report.json();
        assert_eq!(json["clean"], true, "the ledger is clean: {json}");
        assert_eq!(json["attention"].as_array().map(Vec::len), Some(3));
        assert_eq!(json["findings"][2]["level"], "error");
        let ended = report.ended(Failure::Refused("no database".into()));
        assert_eq!((ended.exit_code(false), &ended.json()["clean"]), (2, &false.into()));
        assert_eq!(ended.json()["ended"], "no database");
    }

    #[test]
    fn checks_that_did_not_run_are_not_ok() {
        let mut report = Report::default();
        report.skip("images", "not checked: no reason");
        assert_eq!(report.text(), "images         skipped  not checked: no reason\n");
        assert_eq!(report.json()["areas"][0]["state"], "skipped");
        report.find("images", Level::Error, "broken", "repair it");
        assert_eq!(report.json()["areas"][0]["state"], "error");
    }
}
