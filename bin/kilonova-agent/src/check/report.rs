//! The result of the checks, as text and as JSON.

use serde_json::{Value, json};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing to do.
    Ok,
    /// Guests can run, but something needs attention.
    Warning,
    /// Guests cannot run, or not with their devices.
    Error,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its area.
    pub area: &'static str,
    /// Its severity.
    pub level: Level,
    /// Its text.
    pub what: String,
    /// The remedy; empty if none is needed.
    pub remedy: String,
}

/// All findings.
#[derive(Debug, Default)]
pub struct Report {
    /// In the order of the checks.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Adds a finding that needs no remedy.
    pub fn ok(&mut self, area: &'static str, what: impl Into<String>) {
        self.add(area, Level::Ok, what, "");
    }

    /// Adds a warning.
    pub fn warn(&mut self, area: &'static str, what: impl Into<String>, remedy: impl Into<String>) {
        self.add(area, Level::Warning, what, remedy);
    }

    /// Adds an error.
    pub fn wrong(
        &mut self,
        area: &'static str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(area, Level::Error, what, remedy);
    }

    fn add(
        &mut self,
        area: &'static str,
        level: Level,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.findings.push(Finding { area, level, what: what.into(), remedy: remedy.into() });
    }

    /// 1 if there is an error.
    pub fn exit_code(&self) -> u8 {
        u8::from(self.findings.iter().any(|one| one.level == Level::Error))
    }

    /// The report as JSON.
    pub fn json(&self) -> Value {
        let finding = |one: &Finding| {
            json!({
                "area": one.area,
                "level": one.level.as_str(),
                "what": one.what,
                "remedy": one.remedy,
            })
        };
        let findings: Vec<Value> = self.findings.iter().map(finding).collect();
        json!({"ready": self.exit_code() == 0, "findings": findings})
    }

    /// The report as text: a line per finding, then the remedies, the worst findings first.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for one in &self.findings {
            text.push_str(&format!("{:13}  {:7}  {}\n", one.area, one.level.as_str(), one.what));
        }
        for level in [Level::Error, Level::Warning] {
            for one in self.findings.iter().filter(|one| one.level == level) {
                let word = level.as_str().to_uppercase();
                text.push_str(&format!(
                    "\n{word} ({}): {}\n    {}\n",
                    one.area, one.what, one.remedy
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
    fn errors_come_first_and_determine_the_exit_code() {
        let mut report = Report::default();
        report.ok("kvm", "can be used");
        report.warn("clock", "2 s off", "set it");
        assert_eq!(report.exit_code(), 0);
        report.wrong("iommu", "is off", "turn it on");
        assert_eq!((report.exit_code(), &report.json()["ready"]), (1, &false.into()));
        let text = report.text();
        assert!(text.starts_with("kvm            ok       can be used\n"), "{text}");
        assert!(text.contains("ERROR (iommu): is off\n    turn it on\n"), "{text}");
        assert!(text.find("ERROR") < text.find("WARNING"), "{text}");
    }
}
