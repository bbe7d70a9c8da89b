//! Parses `options.txt`, whose header describes the format.

use std::collections::HashMap;

use super::{Fate, SourceFile, UpstreamOption, Users};

/// The table.
pub(super) const TEXT: &str = include_str!("options.txt");

#[derive(Default)]
struct Reader {
    reasons: HashMap<&'static str, &'static str>,
    shared: HashMap<&'static str, Vec<&'static str>>,
    files: Vec<SourceFile>,
    groups: Vec<&'static str>,
    options: Vec<UpstreamOption>,
}

/// The options, and the lines that cannot be parsed.
pub(super) fn table(text: &'static str) -> (Vec<UpstreamOption>, Vec<String>) {
    let (mut reader, mut wrong) = (Reader::default(), Vec::new());
    for line in text.lines().map(str::trim) {
        if !line.is_empty() && !line.starts_with('#') && reader.line(line).is_none() {
            wrong.push(line.to_owned());
        }
    }
    (reader.options, wrong)
}

impl Reader {
    fn line(&mut self, line: &'static str) -> Option<()> {
        if let Some(groups) = line.strip_prefix('[') {
            self.groups = groups.strip_suffix(']')?.split_whitespace().collect();
            return (!self.groups.is_empty()).then_some(());
        }
        if let Some(files) = line.strip_prefix("file ") {
            self.files = files.split_whitespace().map(file).collect::<Option<_>>()?;
            self.groups.clear();
            return Some(());
        }
        let (head, rest) = line.split_once(": ")?;
        if let Some(key) = head.strip_prefix("reason ") {
            return self.reasons.insert(key, rest).is_none().then_some(());
        }
        let names = rest.split_whitespace();
        if head.starts_with('@') {
            return self.shared.insert(head, names.collect()).is_none().then_some(());
        }
        let fate = self.fate(head)?;
        for name in names {
            let shared = self.shared.get(name).cloned();
            if name.starts_with('@') && shared.is_none() {
                return None;
            }
            for name in shared.unwrap_or_else(|| vec![name]) {
                self.option(name, &fate)?;
            }
        }
        Some(())
    }

    fn fate(&self, head: &'static str) -> Option<Fate> {
        let why = |key: &str| self.reasons.get(key).copied();
        let mut words = head.split_whitespace();
        let fate = match (words.next()?, words.next(), words.next()) {
            ("controller", None, None) => Fate::Used(Users::Controller),
            ("agent", None, None) => Fate::Used(Users::Agent),
            ("both", None, None) => Fate::Used(Users::Both),
            ("none", Some(key), None) => Fate::NoEffect(why(key)?),
            ("later", Some(key), None) => Fate::Later(why(key)?),
            ("refused", Some(key), None) => Fate::Refused(why(key)?),
            ("only", Some(values), Some(key)) => Fate::Only(values.split('|').collect(), why(key)?),
            _ => return None,
        };
        words.next().is_none().then_some(fate)
    }

    fn option(&mut self, text: &'static str, fate: &Fate) -> Option<()> {
        if self.files.is_empty() || self.groups.is_empty() {
            return None;
        }
        for group in &self.groups {
            let mut names = text.split('<');
            let name = names.next()?;
            let old = names.map(|old| old.split_once('/').unwrap_or((group, old))).collect();
            let (files, fate) = (self.files.clone(), fate.clone());
            self.options.push(UpstreamOption { files, group, name, old, fate });
        }
        Some(())
    }
}

fn file(name: &str) -> Option<SourceFile> {
    match name {
        "nova" => Some(SourceFile::Nova),
        "placement" => Some(SourceFile::Placement),
        "cyborg" => Some(SourceFile::Cyborg),
        _ => None,
    }
}
