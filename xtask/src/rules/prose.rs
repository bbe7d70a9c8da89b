//! The prose list: sentences and words that the project does not use in comments, documents and the
//! texts of programs: log lines, help and errors. The list catches what a program can; a reader judges
//! the rest.

use regex::Regex;

use crate::source::{Error, File, Sources};

/// A pattern within a comment or a document, and the advice.
const PATTERNS: &[(&str, &str)] = &[
    (
        r"(?:^|[.:;!?] )(?:What|Who|Whoever|Whether) [a-z]",
        "a sentence begins with What, Who or Whether: name the subject",
    ),
    (
        r"(?:^|\b(?:it|that|this|which|who|he) )is no (?:[a-km-z][a-z]*|l[a-np-z][a-z]*)\b",
        "\"is no X\": write \"is not a X\"",
    ),
    (r"\b(?:is|are) to be\b", "\"is to be\": say who does it"),
    (r"\bit is well if\b", "\"it is well if\": say what the code accepts"),
    (r"\b(?:[Ss]ome|[Nn]o|[Aa]ny|[Ee]very)(?:body|one) else\b", "name the other party"),
    (
        r"\b[Nn]obody (?:asks|needs|waits|wants)\b",
        "name the caller, worker or client that does not",
    ),
    (r"\bbehind (?:everybody's|its|the [A-Za-z]+'s|their) back", "write \"without the API\""),
    (
        r"(?:^|[.:;] )The most [a-z]+s (?:for|from|in|of|per|that|to|with)\b",
        "write \"Maximum number of\"",
    ),
    (
        r"\bHow far (?:an?|it|the) (?:[a-z]+ )*(?:has come|is)[.;]",
        "the word is state, step or progress",
    ),
    (r"\b(?:it is|they are) tried again\b", "write \"retrying\""),
    (r"\b(?:gave|gives) no [a-z]+\b", "the word is return or answer"),
    (r"\bin whose name\b", "name the caller"),
    (r"\bmeddle|\bmended\b|\bmends\b", "the word is rescue or roll back"),
    (r"\bsent away\b|\bsends away\b", "the word is migrate"),
    (r"\bcalled off\b|\bcalls off\b", "the word is abort or cancel"),
    (r"\bstands still\b|\bstood still\b", "the word is paused or stuck"),
    (r"\bhas gone wrong\b|\bwent wrong\b", "say what failed"),
    (r"\b[Cc]ontrol planes?\b", "the word is controller"),
    (
        r"\b(?:silent|lost) hosts?\b|\bhosts? (?:is|are|was|were|has been) (?:silent|lost)\b",
        "of a host, the word is down",
    ),
    (r"\b[Ee]nrol(?:s|ment)?(?:[ .,;:]|$)", "the word is enroll"),
    (
        r"\b(?:[Tt]he|[Aa]n?) (?:cloud's|existing) (?:Keystone|Glance|Neutron|Cinder)\b",
        "the word is external",
    ),
];

/// A string literal is prose if it has more words than this.
const LABEL: usize = 3;

/// Files whose text is upstream's or quotes it.
const EXEMPT: &[&str] =
    &["docs/glossary.md", "xtask/src/rules/prose.rs", "LICENSE", "CHANGELOG.md"];

/// Findings in comments and texts of code, and in documents.
pub fn check(sources: &Sources) -> Result<Vec<String>, Error> {
    let patterns = PATTERNS
        .iter()
        .map(|(pattern, advice)| Ok((Regex::new(pattern)?, *advice)))
        .collect::<Result<Vec<_>, Error>>()?;
    let mut found = Vec::new();
    for file in sources.files.iter().filter(|file| !EXEMPT.contains(&file.path.as_str())) {
        let comments = prose(file).into_iter().map(|(number, text)| (number, text.to_owned()));
        for (number, sentence) in comments.chain(program_texts(file)) {
            for (pattern, advice) in &patterns {
                if pattern.is_match(&sentence) {
                    found.push(format!("{}:{number}: {advice}: {sentence}", file.path));
                }
            }
        }
    }
    Ok(found)
}

/// The lines of prose with their line numbers: comments of code, and all of a document except its examples.
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

/// The string literals of a Rust file with more than [`LABEL`] words, each joined to one line, with their line numbers.
fn program_texts(file: &File) -> Vec<(usize, String)> {
    if !file.path.ends_with(".rs") {
        return Vec::new();
    }
    let texts = literals(&file.text).into_iter().map(|(start, literal)| {
        let number = file.text[..start].matches('\n').count() + 1;
        // A backslash at the end of a line joins it with the next one.
        let lines = literal.split("\\\n").map(str::trim_start);
        (number, lines.collect::<String>().replace('\n', " "))
    });
    texts.filter(|(_, text)| text.split_whitespace().count() > LABEL).collect()
}

/// The string literals of Rust code with their positions, without quotes and as written.
fn literals(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = code.get(at..) {
        let Some(offset) = rest.find(['"', '\'', '/', 'r']) else { break };
        at += offset;
        let rest = &rest[offset..];
        at += if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some((open, close)) = raw(rest, &code[..at]) {
            let Some(length) = rest[open..].find(&close) else { break };
            found.push((at + open, &rest[open..open + length]));
            open + length + close.len()
        } else if let Some(text) = rest.strip_prefix('"') {
            let Some(length) = end_of_literal(text) else { break };
            found.push((at + 1, &text[..length]));
            length + 2
        } else if rest.starts_with('\'') {
            length_of_char(rest)
        } else {
            1
        };
    }
    found
}

/// For a raw literal, the offset of its text and the delimiter that ends it. `before` is the code in front of it.
fn raw(rest: &str, before: &str) -> Option<(usize, String)> {
    let name = |c: char| c.is_alphanumeric() || c == '_';
    let hashes = rest.strip_prefix('r')?;
    let text = hashes.trim_start_matches('#').strip_prefix('"')?;
    let inside_a_name = before.ends_with(name) && !before.ends_with('b');
    let count = hashes.len() - text.len() - 1;
    (!inside_a_name).then(|| (count + 2, format!("\"{}", "#".repeat(count))))
}

/// The length of a literal's text after the opening quote.
fn end_of_literal(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

/// The length of a character literal; 1 for the quote of a lifetime.
fn length_of_char(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((escape, _))) => {
            let after = rest.get(escape + 1..).and_then(|rest| rest.find('\''));
            after.map_or(1, |end| escape + 1 + end + 1)
        }
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> usize {
        let files = vec![File { path: path.to_owned(), text: text.to_owned() }];
        check(&Sources::of(files)).expect("the patterns compile").len()
    }

    #[test]
    fn a_sentence_names_its_subject() {
        assert_eq!(findings("crates/a/src/lib.rs", "//! What hangs on a server.\n"), 1);
        assert_eq!(findings("crates/a/src/lib.rs", "//! Sub-resources of a server.\n"), 0);
        assert_eq!(findings("docs/a.md", "It runs. Whoever asks gets it.\n"), 1);
    }

    #[test]
    fn terms_replace_paraphrases() {
        let comment = |text: &str| findings("crates/a/src/lib.rs", &format!("/// {text}\n"));
        for paraphrase in [
            "The most bytes of a body.",
            "False if nobody else has it.",
            "Images that nobody needs.",
            "Changes a volume behind the API's back.",
            "How far a change in place is.",
            "It failed; it is tried again.",
            "The server gave no number.",
            "A path that is no route.",
        ] {
            assert_eq!(comment(paraphrase), 1, "{paraphrase}");
        }
        for term in [
            "The most recent report of a host.",
            "How far its clock is ahead of ours.",
            "It is no longer needed.",
            "Nobody may read it.",
        ] {
            assert_eq!(comment(term), 0, "{term}");
        }
    }

    #[test]
    fn rejected_words_of_the_glossary_are_found() {
        for text in [
            "The control plane answers.",
            "A lost host.",
            "The host is silent.",
            "Enrol a host.",
            "Enrolment.",
            "The cloud's Neutron.",
            "An existing Glance.",
        ] {
            assert_eq!(findings("docs/a.md", &format!("{text}\n")), 1, "{text}");
        }
        for text in ["Enroll it.", "It is enrolled.", "An existing nova.conf.", "`/enrolment`"] {
            assert_eq!(findings("docs/a.md", &format!("{text}\n")), 0, "{text}");
        }
    }

    #[test]
    fn code_and_examples_are_not_prose() {
        assert_eq!(findings("crates/a/src/lib.rs", "let Whoever = asks for it\n"), 0);
        assert_eq!(findings("docs/a.md", "```text\nWhat is it\n```\n"), 0);
    }

    #[test]
    fn texts_of_programs_are_prose_if_they_are_sentences() {
        let text = |text: &str| findings("crates/a/src/lib.rs", &format!("let a = {text};\n"));
        assert_eq!(text("\"What is it\""), 0);
        assert_eq!(text("\"What is it that fails\""), 1);
        assert_eq!(text("r#\"the host \"a\" is to be drained\"#"), 1);
        assert_eq!(text("(' ', \"the host is to be drained\")"), 1);
        assert_eq!(text("('\"', '\\'', x) // \"it is well, it is well\""), 0);
        assert_eq!(text("f::<'a>(\"the disk \\\n    is to be removed\")"), 1);
        assert_eq!(text("\"a \\\" b\" + \"what is it\""), 0);
    }
}
