//! What was found, for people and for programs.

use serde_json::{Value, json};

/// How it is with something that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing to do.
    Ok,
    /// Guests can run, and something is not as it should be.
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

/// Something that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Of which area.
    pub area: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What is so.
    pub what: String,
    /// What to do about it; empty where nothing is to do.
    pub remedy: String,
}

/// All of it.
#[derive(Debug, Default)]
pub struct Report {
    /// In the order in which they were looked at.
    pub findings: Vec<Finding>,
}

impl Report {
    /// All is well with it.
    pub fn fine(&mut self, area: &'static str, what: impl Into<String>) {
        self.add(area, Level::Ok, what, "");
    }

    /// Guests can run all the same.
    pub fn warn(&mut self, area: &'static str, what: impl Into<String>, remedy: impl Into<String>) {
        self.add(area, Level::Warning, what, remedy);
    }

    /// It has to be mended.
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

    /// 1 when something has to be mended.
    pub fn exit_code(&self) -> u8 {
        u8::from(self.findings.iter().any(|one| one.level == Level::Error))
    }

    /// For programs.
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

    /// For people: a line for each, then what to do, the worst first.
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
    fn what_is_to_be_mended_comes_first_and_counts() {
        let mut report = Report::default();
        report.fine("kvm", "can be used");
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
