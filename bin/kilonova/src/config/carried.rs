//! The fate of each option of an existing nova.conf, placement.conf and cyborg.conf in Kilonova.
//!
//! The table of upstream's options decides first, then the modules that read the values. This file
//! changes nothing and never shows the value of an option.

use std::path::{Path, PathBuf};

use kilonova_program::config::upstream::{SourceFile, Users};
use kilonova_program::config::{Entry, Outcome};

use super::{File, KNOWN, problems};
use crate::failure::Failure;

/// The fate of an option of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// These programs use it.
    Used(Users),
    /// It is accepted without effect.
    NoEffect {
        /// The reason.
        why: String,
        /// True if Kilonova does not have the feature yet.
        later: bool,
    },
    /// `kilonova serve` does not start with it.
    Refused(String),
}

/// An option of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Its line, from 1.
    pub line: Option<usize>,
    /// Its group; empty for a problem of the file as a whole.
    pub group: String,
    /// Its name; empty for a group without options.
    pub option: String,
    /// The decision.
    pub fate: Fate,
}

/// A file with the decisions about its options, in the order of the lines.
#[derive(Debug)]
pub struct Carried {
    /// The file.
    pub path: PathBuf,
    /// Which file it is.
    pub source: SourceFile,
    /// The decisions.
    pub decisions: Vec<Decision>,
}

/// Decides about the options of each file. Kilonova has one configuration: where two files set an option to
/// different values, the first one applies.
///
/// # Errors
/// If a file cannot be read.
pub fn carried(files: &[(SourceFile, &Path)]) -> Result<Vec<Carried>, Failure> {
    let mut done: Vec<(Carried, File)> = Vec::new();
    for (source, path) in files {
        let (file, entries) = File::examine(path, KNOWN, Some(*source))?;
        let mut decisions: Vec<Decision> = entries.into_iter().map(decision).collect();
        refuse_values(*source, path, &mut decisions);
        for one in &mut decisions {
            let sets = |other: &File| {
                let (here, there) =
                    (file.get(&one.group, &one.option), other.get(&one.group, &one.option));
                matches!((here, there), (Some(here), Some(there)) if here != there)
            };
            let is_used = matches!(one.fate, Fate::Used(_));
            if let Some((earlier, _)) = done.iter().find(|(_, other)| is_used && sets(other)) {
                let why = format!(
                    "{} sets another value, and Kilonova has one configuration.",
                    earlier.source.as_str()
                );
                one.fate = Fate::NoEffect { why, later: false };
            }
        }
        done.push((Carried { path: path.to_path_buf(), source: *source, decisions }, file));
    }
    Ok(done.into_iter().map(|(carried, _)| carried).collect())
}

fn decision(entry: Entry) -> Decision {
    let fate = match entry.outcome {
        Outcome::Used(users) => Fate::Used(users),
        Outcome::NoEffect { why, later } => Fate::NoEffect { why: why.to_owned(), later },
        Outcome::Refused(why) => Fate::Refused(why),
    };
    let option = entry.option.unwrap_or_default();
    Decision { line: entry.line, group: entry.group, option, fate }
}

/// Adds the problems that the readers of the values find. A problem without an option of this file
/// matters only in nova.conf, because the other files are not the whole configuration.
fn refuse_values(source: SourceFile, path: &Path, decisions: &mut Vec<Decision>) {
    let prefix = format!("{}:", path.display());
    for problem in problems(path) {
        let rest = problem.strip_prefix(&prefix).unwrap_or(&problem);
        let mine = decisions.iter_mut().find_map(|one| {
            let place = format!("[{}] {}: ", one.group, one.option);
            let at = rest.find(&place)?;
            let is_first =
                rest[..at].trim_matches(|c: char| c.is_ascii_digit() || c == ':' || c == ' ');
            is_first.is_empty().then(|| (one, rest[at + place.len()..].to_owned()))
        });
        match mine {
            Some((one, why)) => {
                if let Fate::Used(users) = one.fate
                    && users.has_controller()
                {
                    one.fate = Fate::Refused(why);
                }
            }
            None if source == SourceFile::Nova => {
                let fate = Fate::Refused(rest.trim_start().to_owned());
                let (group, option) = (String::new(), String::new());
                let already = decisions.iter().any(|one| {
                    matches!((&one.fate, &fate), (Fate::Refused(a), Fate::Refused(b)) if b.ends_with(a.as_str()))
                });
                if !already {
                    decisions.push(Decision { line: None, group, option, fate });
                }
            }
            None => {}
        }
    }
}

#[cfg(test)]
#[path = "carried_tests.rs"]
mod tests;
