//! The decisions about the options of a file, and the log lines about those without effect.

use std::collections::BTreeMap;

use super::File;
use super::upstream::Users;
use crate::Failure;

/// An option of a file with the decision about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its line, from 1.
    pub line: Option<usize>,
    /// Its group.
    pub group: String,
    /// Its name in the file; `None` for a group without options.
    pub option: Option<String>,
    /// The decision.
    pub outcome: Outcome,
}

impl Entry {
    /// The refusal with file and line.
    pub(super) fn failure(&self, file: &File) -> Failure {
        let why = match &self.outcome {
            Outcome::Refused(why) => why,
            Outcome::Used(_) | Outcome::NoEffect { .. } => "",
        };
        match &self.option {
            Some(option) => file.wrong(&self.group, option, why),
            None => file.wrong_group(&self.group, why),
        }
    }
}

/// The decision about an option of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is used by these programs.
    Used(Users),
    /// It is accepted without effect.
    NoEffect {
        /// The reason.
        why: &'static str,
        /// True if Kilonova does not have the feature yet.
        later: bool,
    },
    /// The program does not start with it, for this reason.
    Refused(String),
}

/// An option that is accepted without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Its group.
    pub group: String,
    /// Its name in the file.
    pub option: String,
    /// The reason.
    pub why: &'static str,
    /// True if Kilonova does not have the feature yet.
    pub later: bool,
}

/// Logs a line for each group and reason: a warning if a feature is missing.
pub fn log(notes: &[Note]) {
    for ((group, later, why), options) in by_reason(notes) {
        let options = options.join(", ");
        if later {
            tracing::warn!(group, options, why, "options have no effect yet");
        } else {
            tracing::info!(group, options, why, "options have no effect");
        }
    }
}

fn by_reason(notes: &[Note]) -> BTreeMap<(&str, bool, &'static str), Vec<&str>> {
    let mut lines: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for note in notes {
        let options: &mut Vec<&str> =
            lines.entry((&*note.group, note.later, note.why)).or_default();
        options.push(&note.option);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_one_reason_share_a_line() {
        let note = |option: &str, why, later| Note {
            group: "vnc".into(),
            option: option.into(),
            why,
            later,
        };
        let notes = [note("b", "One.", true), note("a", "One.", true), note("c", "Two.", false)];
        let lines: Vec<_> = by_reason(&notes).into_iter().collect();
        assert_eq!(
            lines,
            [(("vnc", false, "Two."), vec!["c"]), (("vnc", true, "One."), vec!["b", "a"])]
        );
    }
}
