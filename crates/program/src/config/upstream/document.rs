//! Generates docs/nova-conf.md from the table.

use std::fmt::Write as _;

use super::{Fate, SourceFile, UpstreamOption, all};

const HEAD: &str = "\
# The options of nova.conf, placement.conf and cyborg.conf

This page is generated from the table that the programs read (`crates/program/src/config/upstream/options.txt`), with every option of
Nova 34, Placement 16 and Cyborg 17. [operating.md](operating.md#an-existing-novaconf) shows how to carry files over.

- **used**: by `kilonova serve`, by `kilonova-agent` of each host, or by both. Values that the program cannot honour are refused.
- **no effect**: accepted. Each start logs a line with the reason for each group.
- **not yet**: accepted without effect, with a warning at each start, because Kilonova does not have the feature yet.
- **refused**: the programs do not start, because ignoring the option would change who may do what, or where data is. \u{201c}only X\u{201d}
  means that the value X is accepted, because it describes Kilonova.

Deprecated names are in parentheses; they set the current option. Any other option is refused as unknown. An option that only
placement.conf or cyborg.conf has is marked with the file.

| group | options | in Kilonova |
|---|---|---|
";

/// The document.
pub(super) fn document() -> String {
    let mut groups: Vec<&str> = all().iter().map(|one| one.group).collect();
    groups.sort_unstable_by_key(|group| (*group != "DEFAULT", *group));
    groups.dedup();
    let mut text = HEAD.to_owned();
    for group in groups {
        let mut rows: Vec<(String, Vec<String>)> = Vec::new();
        for one in all().iter().filter(|one| one.group == group) {
            let fate = fate(one);
            match rows.iter_mut().find(|(known, _)| *known == fate) {
                Some((_, names)) => names.push(name(one)),
                None => rows.push((fate, vec![name(one)])),
            }
        }
        rows.sort_by_key(|(fate, _)| rank(fate));
        for (fate, mut names) in rows {
            names.sort_unstable();
            names.dedup();
            let _ = writeln!(text, "| `[{group}]` | {} | {fate} |", names.join(", "));
        }
    }
    text
}

fn rank(fate: &str) -> usize {
    let order = ["used", "**refused**", "not yet", "no effect"];
    order.iter().position(|word| fate.starts_with(word)).unwrap_or(order.len())
}

fn name(one: &UpstreamOption) -> String {
    let mut text = format!("`{}`", one.name);
    let old = one.old.iter().map(|(group, old)| match *group == one.group {
        true => format!("`{old}`"),
        false => format!("`[{group}] {old}`"),
    });
    let mut notes: Vec<String> = old.collect();
    if !one.files.contains(&SourceFile::Nova) {
        notes.extend(one.files.iter().map(|file| file.as_str().to_owned()));
    }
    if !notes.is_empty() {
        let _ = write!(text, " ({})", notes.join(", "));
    }
    text
}

fn fate(one: &UpstreamOption) -> String {
    match &one.fate {
        Fate::Used(users) => format!("used by {users}"),
        Fate::NoEffect(why) => format!("no effect. {why}"),
        Fate::Later(why) => format!("not yet. {why}"),
        Fate::Only(values, why) => {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            format!("**refused**, only {} is accepted. {why}", values.join(" or "))
        }
        Fate::Refused(why) => format!("**refused**. {why}"),
    }
}
