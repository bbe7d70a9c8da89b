//! The prose list: sentences and words that the project does not use in comments, documents, log
//! lines and help texts. The list catches what a program can; a reader judges the rest.

use regex::Regex;

use crate::source::{Error, File, Sources};

/// A pattern within a comment or a document, and the advice.
const PATTERNS: &[(&str, &str)] = &[
    (
        r"(?:^|[.:;!?] )(?:What|Who|Whoever|Whether) [a-z]",
        "a sentence begins with What, Who or Whether: name the subject",
    ),
    (r"(?:^|\b(?:it|that|this|which|who|he) )is no [a-z]+\b", "\"is no X\": write \"is not a X\""),
    (r"\b(?:is|are) to be\b", "\"is to be\": say who does it"),
    (r"\bit is well if\b", "\"it is well if\": say what the code accepts"),
    (r"\bsomebody else's\b", "name the owner"),
    (r"\bin whose name\b", "name the caller"),
    (r"\bmeddle|\bmended\b|\bmends\b", "the word is rescue or roll back"),
    (r"\bsent away\b|\bsends away\b", "the word is migrate"),
    (r"\bcalled off\b|\bcalls off\b", "the word is abort or cancel"),
    (r"\bstands still\b|\bstood still\b", "the word is paused or stuck"),
    (r"\bhas gone wrong\b|\bwent wrong\b", "say what failed"),
];

/// Files whose text is upstream's or quotes it.
const EXEMPT: &[&str] =
    &["docs/glossary.md", "xtask/src/rules/prose.rs", "LICENSE", "CHANGELOG.md"];

/// Findings in comments of code, in help texts and in documents.
pub fn check(sources: &Sources) -> Result<Vec<String>, Error> {
    let patterns = PATTERNS
        .iter()
        .map(|(pattern, advice)| Ok((Regex::new(pattern)?, *advice)))
        .collect::<Result<Vec<_>, Error>>()?;
    let mut found = Vec::new();
    for file in sources.files.iter().filter(|file| !EXEMPT.contains(&file.path.as_str())) {
        for (number, sentence) in prose(file) {
            for (pattern, advice) in &patterns {
                if pattern.is_match(sentence) {
                    found.push(format!("{}:{number}: {advice}: {sentence}", file.path));
                }
            }
        }
    }
    Ok(found)
}

/// The lines of prose with their numbers: comments of code, and all of a document but its examples.
fn prose(file: &File) -> Vec<(usize, &str)> {
    let marker = match file.path.rsplit('.').next() {
        Some("rs") => "//",
        Some("py" | "sh" | "toml") => "#",
        Some("md") => "",
        _ => return Vec::new(),
    };
    let mut example = false;
    let mut lines = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let line = line.trim_start();
        if line.starts_with("```") {
            example = !example;
        }
        if marker.is_empty() && (example || line.starts_with("    ")) {
            continue;
        }
        if let Some(text) = line.strip_prefix(marker) {
            lines.push((index + 1, text.trim_start_matches(['/', '!', '#', ' '])));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> usize {
        let files = vec![File { path: path.to_owned(), text: text.to_owned() }];
        check(&Sources { files }).expect("the patterns compile").len()
    }

    #[test]
    fn a_sentence_names_its_subject() {
        assert_eq!(findings("crates/a/src/lib.rs", "//! What hangs on a server.\n"), 1);
        assert_eq!(findings("crates/a/src/lib.rs", "//! Sub-resources of a server.\n"), 0);
        assert_eq!(findings("docs/a.md", "It runs. Whoever asks gets it.\n"), 1);
    }

    #[test]
    fn code_and_examples_are_not_prose() {
        assert_eq!(findings("crates/a/src/lib.rs", "let text = \"What is it\";\n"), 0);
        assert_eq!(findings("docs/a.md", "```text\nWhat is it\n```\n"), 0);
    }
}
