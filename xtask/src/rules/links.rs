//! Links between documents: the file exists, and so does the heading. Links to other sites are not followed.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use crate::source::{Error, File, Sources};

/// Documents of others, whose links lead out of this repository.
const FOREIGN: &str = "crates/compute/console/novnc/";

/// Links that lead nowhere.
pub fn check(sources: &Sources) -> Result<Vec<String>, Error> {
    let link = Regex::new(r"\]\(([^)\s]+)\)")?;
    let markup = Regex::new(r"[`*]|\[([^\]]*)\]\([^)]*\)")?;
    let unnamed = Regex::new(r"[^\w\- ]")?;
    let is_document = |file: &&File| file.path.ends_with(".md") && !file.path.starts_with(FOREIGN);
    let documents: Vec<&File> = sources.files.iter().filter(is_document).collect();
    let anchors: BTreeMap<&str, BTreeSet<String>> = documents
        .iter()
        .map(|file| {
            let headings = lines(file).filter_map(|(_, line)| heading(line));
            let plain = headings.map(|heading| markup.replace_all(heading, "$1").to_lowercase());
            let names = plain.map(|text| unnamed.replace_all(&text, "").replace(' ', "-"));
            (file.path.as_str(), names.collect())
        })
        .collect();
    let mut found = Vec::new();
    for file in documents {
        for (number, line) in lines(file) {
            for link in link.captures_iter(line) {
                let target = &link[1];
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let (name, anchor) = target.split_once('#').unwrap_or((target, ""));
                let path = if name.is_empty() { file.path.clone() } else { join(&file.path, name) };
                if !sources.exists(&path) {
                    found.push(format!("{}:{number}: there is no {path}", file.path));
                } else if let Some(known) = anchors.get(path.as_str())
                    && !anchor.is_empty()
                    && !known.contains(anchor)
                {
                    found.push(format!("{}:{number}: {path} has no heading #{anchor}", file.path));
                }
            }
        }
    }
    Ok(found)
}

/// The lines outside examples, with their numbers.
fn lines(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut example = false;
    file.text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        example ^= fence;
        (!example && !fence).then_some((index + 1, line))
    })
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    (text.len() < line.len()).then(|| text.strip_prefix(' ')).flatten().map(str::trim)
}

/// A path relative to the directory of a file.
fn join(file: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in relative.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            other => parts.push(other),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Sources {
        let file =
            |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
        Sources::of(files.iter().map(file).collect())
    }

    #[test]
    fn links_to_missing_files_and_headings_are_found() {
        let text = "# One `two` [three](b.md)\n[a](#one-two-three) [b](b.md#four) [c](../README.md) <https://x/>\n\
                    ```\n[no](nowhere.md)\n```\n[d](c.md) [e](#five) [f](b.md#six) [g](https://x/y.md#z)\n";
        let all = sources(&[("docs/a.md", text), ("docs/b.md", "## Four\n"), ("README.md", "")]);
        let found = check(&all).expect("the patterns are valid");
        assert_eq!(
            found,
            [
                "docs/a.md:6: there is no docs/c.md",
                "docs/a.md:6: docs/a.md has no heading #five",
                "docs/a.md:6: docs/b.md has no heading #six",
            ]
        );
    }
}
