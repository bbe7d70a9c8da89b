//! The file itself. `configparser` parses it; messages look up the line of an option again.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use configparser::ini::Ini;

use super::{Options, is_known, is_known_group};
use crate::Failure;

/// A configuration file in which every option is known; empty if there is no file.
#[derive(Debug, Default)]
pub struct File {
    path: Option<PathBuf>,
    text: String,
    ini: Ini,
}

impl File {
    /// Reads a file and refuses options that are neither in `known` nor of devices.
    ///
    /// # Errors
    /// A message with file, line, group and option.
    pub fn read(path: &Path, known: &[&Options]) -> Result<Self, Failure> {
        let (file, strange) = Self::look(path, known)?;
        strange.into_iter().next().map_or(Ok(file), Err)
    }

    /// Reads a file and returns a failure for each unknown part.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn look(path: &Path, known: &[&Options]) -> Result<(Self, Vec<Failure>), Failure> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::Refused(format!("cannot read {shown}: {e}")))?;
        let mut ini = Ini::new_cs();
        ini.set_default_section("DEFAULT");
        // Like oslo: a comment is on a line of its own, and `#` within a value belongs to it.
        ini.set_inline_comment_symbols(Some(&[]));
        ini.set_multiline(true);
        ini.read(text.clone()).map_err(|e| Failure::Refused(format!("{shown}: {e}")))?;
        let file = Self { path: Some(path.to_owned()), text, ini };
        let mut strange: Vec<(Option<usize>, Failure)> = Vec::new();
        for (group, options) in file.ini.get_map_ref() {
            if options.is_empty() && !is_known_group(known, group) {
                strange.push((file.line_of_group(group), file.wrong_group(group)));
            }
            for (option, value) in options {
                let why = if value.is_none() {
                    "missing value; write option = value"
                } else if is_known(known, group, option) {
                    continue;
                } else if is_known_group(known, group) {
                    "this option is not known"
                } else {
                    "this group is not known"
                };
                strange.push((file.line(group, option), file.wrong(group, option, why)));
            }
        }
        strange.sort_by_key(|(line, _)| *line);
        Ok((file, strange.into_iter().map(|(_, failure)| failure).collect()))
    }

    /// The names of its groups.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.ini.get_map_ref().keys().map(String::as_str)
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

    /// A refusal with its position.
    pub fn wrong(&self, group: &str, option: &str, why: &str) -> Failure {
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

    fn wrong_group(&self, group: &str) -> Failure {
        let path = self.path.as_deref().unwrap_or(Path::new("")).display();
        let line = self.line_of_group(group).unwrap_or(0);
        Failure::Refused(format!("{path}:{line}: [{group}]: this group is not known"))
    }

    fn line(&self, group: &str, option: &str) -> Option<usize> {
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
