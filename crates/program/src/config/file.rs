//! The file itself. `configparser` parses it; messages look up the line of an option again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use configparser::ini::Ini;

use super::notes::{Entry, Note, Outcome};
use super::upstream::{self, Fate, SourceFile, Users, Verdict};
use super::{Options, is_known, is_known_group};
use crate::Failure;

/// A configuration file in which every option is known; empty if there is no file.
#[derive(Debug, Default)]
pub struct File {
    path: Option<PathBuf>,
    text: String,
    ini: Ini,
    /// Options set under a deprecated name: the current group and name, with those in the text.
    renamed: HashMap<(String, String), (String, String)>,
    notes: Vec<Note>,
}

/// The groups of a text, with their options and values.
type Groups = HashMap<String, HashMap<String, Option<String>>>;

/// An option in the text.
struct Written<'a> {
    written: &'a Groups,
    group: &'a str,
    option: &'a str,
    value: &'a str,
}

/// A login group has the same options as this group.
const LOGIN_GROUP: &str = "vendordata_dynamic_auth";

impl Written<'_> {
    /// True if the group is otherwise unknown and `auth_section` of another group names it.
    fn is_login(&self) -> bool {
        let names = |options: &HashMap<String, Option<String>>| {
            options.get("auth_section").and_then(Option::as_deref) == Some(self.group)
        };
        !upstream::is_group(self.group) && self.written.values().any(names)
    }

    /// The value with `$name` and `${group.name}` replaced, as oslo.config does. A `$` without an option name after it
    /// belongs to the value.
    fn expanded(&self, known: &[&Options]) -> Result<String, String> {
        let mut text = String::new();
        let mut rest = self.value;
        while let Some((before, after)) = rest.split_once('$') {
            text.push_str(before);
            let braced = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            let (name, end) = match braced {
                Some((name, _)) => (name, name.len() + 2),
                None => {
                    let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                    let end = end.unwrap_or(after.len());
                    (&after[..end], end)
                }
            };
            match self.referred(known, name)? {
                Some(value) => text.push_str(value),
                None => {
                    text.push('$');
                    text.push_str(&after[..end]);
                }
            }
            rest = &after[end..];
        }
        text.push_str(rest);
        Ok(text)
    }

    /// The value of the option that a name refers to; `None` if there is no such option.
    fn referred(&self, known: &[&Options], name: &str) -> Result<Option<&str>, String> {
        let places = match name.split_once('.') {
            Some((group, option)) => vec![(group, option)],
            None => vec![(self.group, name), ("DEFAULT", name)],
        };
        let is_option = |(group, option): (&str, &str)| {
            is_known(known, group, option) || upstream::find(None, group, option).is_some()
        };
        let Some(place) = places.into_iter().find(|place| is_option(*place)) else {
            return Ok(None);
        };
        let set = self.written.get(place.0).and_then(|options| options.get(place.1)?.as_deref());
        match set {
            None => {
                Err(format!("it refers to ${name}, which this file does not set; write the value"))
            }
            Some(value) if value.contains('$') => Err(format!(
                "it refers to ${name}, which refers to another option; write the value"
            )),
            value => Ok(value),
        }
    }
}

impl File {
    /// Reads a file. Refuses options that are neither in `known` nor device options, and upstream
    /// options that cannot be ignored.
    ///
    /// # Errors
    /// A message with file, line, group and option.
    pub fn read(path: &Path, known: &[&Options]) -> Result<Self, Failure> {
        let (file, strange) = Self::look(path, known)?;
        strange.into_iter().next().map_or(Ok(file), Err)
    }

    /// Reads a file and returns a failure for each part that is unknown or refused.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn look(path: &Path, known: &[&Options]) -> Result<(Self, Vec<Failure>), Failure> {
        let (mut file, entries) = Self::examine(path, known, None)?;
        let mut strange = Vec::new();
        for entry in entries {
            match entry.outcome {
                Outcome::Refused(_) => strange.push(entry.failure(&file)),
                Outcome::NoEffect { why, later } => {
                    let (group, option) = (entry.group, entry.option.unwrap_or_default());
                    file.notes.push(Note { group, option, why, later });
                }
                Outcome::Used(_) => {}
            }
        }
        Ok((file, strange))
    }

    /// Reads a file and decides about each option, in the order of the lines. With `source`, the file is one of
    /// upstream's, and its options have upstream's meaning.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn examine(
        path: &Path,
        known: &[&Options],
        source: Option<SourceFile>,
    ) -> Result<(Self, Vec<Entry>), Failure> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::Refused(format!("cannot read {shown}: {e}")))?;
        let mut ini = Ini::new_cs();
        ini.set_default_section("DEFAULT");
        // As in oslo.config, a comment has a line of its own, and a `#` within a value belongs to
        // the value.
        ini.set_inline_comment_symbols(Some(&[]));
        ini.set_multiline(true);
        ini.read(text.clone()).map_err(|e| Failure::Refused(format!("{shown}: {e}")))?;
        let mut file = Self { path: Some(path.to_owned()), text, ini, ..Self::default() };
        let mut entries = Vec::new();
        let written = file.ini.get_map_ref().clone();
        for (group, options) in &written {
            if options.is_empty() && !is_known_group(known, group) && !upstream::is_group(group) {
                let line = file.line_of_group(group);
                let outcome = Outcome::Refused("this group is not known".into());
                entries.push(Entry { line, group: group.clone(), option: None, outcome });
            }
            for (option, value) in options {
                let line = file.line(group, option);
                let outcome = match value {
                    None => Outcome::Refused("missing value; write option = value".into()),
                    Some(value) => {
                        let one = Written { written: &written, group, option, value };
                        file.decide(known, source, &one)
                    }
                };
                let (group, option) = (group.clone(), Some(option.clone()));
                entries.push(Entry { line, group, option, outcome });
            }
        }
        entries.sort_by_key(|entry| entry.line);
        Ok((file, entries))
    }

    /// Decides about an option. An option that is used is stored under its current name, with references to other
    /// options replaced by their values.
    fn decide(
        &mut self,
        known: &[&Options],
        source: Option<SourceFile>,
        text: &Written<'_>,
    ) -> Outcome {
        let (group, option, value) = (text.group, text.option, text.value);
        let listed = is_known(known, group, option);
        let one = upstream::find(source, group, option);
        let verdict = match one {
            Some(one) if source.is_some() || !listed => one.judge(value),
            _ if listed => {
                return self.insert(known, text, (group, option), Users::Controller);
            }
            _ if text.is_login() => {
                return match upstream::find(None, LOGIN_GROUP, option) {
                    Some(one) if matches!(one.fate, Fate::Used(_)) => {
                        self.insert(known, text, (group, one.name), Users::Controller)
                    }
                    _ => {
                        Outcome::Refused("this option is not known in a group with a login".into())
                    }
                };
            }
            _ if is_known_group(known, group) || upstream::is_group(group) => {
                return Outcome::Refused("this option is not known".into());
            }
            _ => return Outcome::Refused("this group is not known".into()),
        };
        match (verdict, one) {
            (Verdict::Refused(why), _) => Outcome::Refused(why),
            (Verdict::NoEffect { why, later }, _) => Outcome::NoEffect { why, later },
            (Verdict::Used(users), Some(one)) if listed || is_known(known, one.group, one.name) => {
                let place = if listed { (group, option) } else { (one.group, one.name) };
                self.insert(known, text, place, users)
            }
            (Verdict::Used(users), _) if source.is_some() => Outcome::Used(users),
            (Verdict::Used(Users::Controller), _) => {
                Outcome::NoEffect { why: "Only kilonova serve uses it.", later: false }
            }
            (Verdict::Used(Users::Agent), _) => {
                Outcome::NoEffect { why: "Only kilonova-agent uses it.", later: false }
            }
            (Verdict::Used(Users::Both), _) => {
                Outcome::NoEffect { why: "Another program of Kilonova uses it.", later: false }
            }
        }
    }

    fn insert(
        &mut self,
        known: &[&Options],
        text: &Written<'_>,
        place: (&str, &str),
        users: Users,
    ) -> Outcome {
        let is_old = (text.group, text.option) != place;
        if is_old {
            if self.get(place.0, place.1).is_some() {
                let why = format!(
                    "it is an old name of [{}] {}, which is set too; remove one",
                    place.0, place.1
                );
                return Outcome::Refused(why);
            }
            let place = (place.0.to_owned(), place.1.to_owned());
            self.renamed.insert(place, (text.group.to_owned(), text.option.to_owned()));
        }
        match text.expanded(known) {
            Ok(expanded) => {
                if is_old || expanded != text.value {
                    self.ini.set(place.0, place.1, Some(expanded));
                }
                Outcome::Used(users)
            }
            Err(why) => Outcome::Refused(why),
        }
    }

    /// The options that are accepted without effect.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The group and name of an option in the text, which may be deprecated ones.
    fn written<'a>(&'a self, group: &'a str, option: &'a str) -> (&'a str, &'a str) {
        let renamed = self.renamed.get(&(group.to_owned(), option.to_owned()));
        renamed.map_or((group, option), |(group, option)| (group, option))
    }

    /// The names of its groups.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.ini.get_map_ref().keys().map(String::as_str)
    }

    /// The options of all groups: group, option, text. An option set under a deprecated name is listed under both
    /// names.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.ini.get_map_ref().iter().flat_map(|(group, options)| {
            let set = options.iter().filter_map(|(option, text)| Some((option, text.as_deref()?)));
            set.map(move |(option, text)| (group.as_str(), option.as_str(), text))
        })
    }

    /// The text of an option.
    pub fn get(&self, group: &str, option: &str) -> Option<&str> {
        self.ini.get_map_ref().get(group)?.get(option)?.as_deref()
    }

    /// The directory of the file; relative paths in it start there.
    pub fn folder(&self) -> Option<&Path> {
        Some(self.path.as_deref()?.parent().unwrap_or(Path::new("")))
    }

    /// An option that is a path.
    pub fn path(&self, group: &str, option: &str) -> Option<PathBuf> {
        self.get(group, option).map(PathBuf::from)
    }

    /// An option of another type; `expected` describes its values.
    ///
    /// # Errors
    /// A message with file, line, group and option.
    pub fn parse<T: FromStr>(
        &self,
        group: &str,
        option: &str,
        expected: &str,
    ) -> Result<Option<T>, Failure> {
        let Some(text) = self.get(group, option) else { return Ok(None) };
        let spelt = text.to_lowercase();
        text.parse().or_else(|_| spelt.parse()).map(Some).map_err(|_| {
            self.wrong(group, option, &format!("{text} is not a valid value; expected {expected}"))
        })
    }

    /// The values of a repeatable option with their lines. A value continues on indented lines.
    pub fn values(&self, group: &str, option: &str) -> Vec<(usize, String)> {
        let (group, option) = self.written(group, option);
        let mut values: Vec<(usize, String)> = Vec::new();
        let (mut current, mut inside) = ("DEFAULT", false);
        for (at, line) in self.text.lines().enumerate() {
            let text = line.trim();
            if text.is_empty() || text.starts_with(['#', ';']) {
                continue;
            }
            if line.starts_with([' ', '\t']) && inside {
                if let Some((_, value)) = values.last_mut() {
                    value.push('\n');
                    value.push_str(text);
                }
                continue;
            }
            inside = false;
            if let Some(name) = text.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
                current = name.trim();
            } else if let Some((name, value)) = text.split_once(['=', ':'])
                && current == group
                && name.trim() == option
            {
                values.push((at + 1, value.trim().to_owned()));
                inside = true;
            }
        }
        values
    }

    /// A refusal of a value of a repeatable option.
    pub fn wrong_at(&self, line: usize, group: &str, option: &str, why: &str) -> Failure {
        let path = self.path.as_deref().unwrap_or(Path::new("")).display();
        Failure::Refused(format!("{path}:{line}: [{group}] {option}: {why}"))
    }

    /// A refusal with its position, and with the option's name in the file, which may be deprecated.
    pub fn wrong(&self, group: &str, option: &str, why: &str) -> Failure {
        let (group, option) = self.written(group, option);
        let place = match (&self.path, self.line(group, option)) {
            (Some(path), Some(line)) => format!("{}:{line}: ", path.display()),
            (Some(path), None) => format!("{}: ", path.display()),
            (None, _) => String::new(),
        };
        Failure::Refused(format!("{place}[{group}] {option}: {why}"))
    }

    fn line_of_group(&self, group: &str) -> Option<usize> {
        let header = |line: &str| {
            let name = line.trim().strip_prefix('[').and_then(|rest| rest.split(']').next());
            name.is_some_and(|name| name.trim() == group)
        };
        self.text.lines().position(header).map(|at| at + 1)
    }

    /// A refusal of a group with its position.
    pub(super) fn wrong_group(&self, group: &str, why: &str) -> Failure {
        let path = self.path.as_deref().unwrap_or(Path::new("")).display();
        let line = self.line_of_group(group).unwrap_or(0);
        Failure::Refused(format!("{path}:{line}: [{group}]: {why}"))
    }

    fn line(&self, group: &str, option: &str) -> Option<usize> {
        let (group, option) = self.written(group, option);
        let mut current = "DEFAULT".to_owned();
        for (number, line) in self.text.lines().enumerate() {
            let line = line.trim();
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
                name.trim().clone_into(&mut current);
            } else if current == group {
                let name = line.split(['=', ':']).next().unwrap_or_default().trim();
                if name == option {
                    return Some(number + 1);
                }
            }
        }
        None
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
