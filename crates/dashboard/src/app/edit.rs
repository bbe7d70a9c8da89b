//! Converts the metadata and the tags of a server to text that a user edits, and back. Performs no
//! I/O.
//!
//! Each value has exactly one text form, which converts back to the same value.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::texts;

/// The metadata of a server: one line `key=value` for each entry. In a value `\\` stands for a
/// backslash, `\n` for a line feed and `\r` for a carriage return.
pub(crate) fn metadata_text(server: &Value) -> String {
    let all = server["metadata"].as_object().into_iter().flatten();
    let line = |(key, value): (&String, &Value)| {
        let value = value.as_str().unwrap_or_default();
        let value = value.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r");
        format!("{key}={value}")
    };
    all.map(line).collect::<Vec<_>>().join("\n")
}

/// Parses the text of metadata.
///
/// # Errors
/// The reason, as text for the user.
pub(crate) fn metadata(text: &str) -> Result<BTreeMap<String, String>, &'static str> {
    let mut all = BTreeMap::new();
    for line in text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)) {
        if line.trim().is_empty() {
            continue;
        }
        let (key, value) = line.split_once('=').ok_or(texts::METADATA_LINE)?;
        if all.insert(key.to_owned(), unescaped(value)).is_some() {
            return Err(texts::METADATA_TWICE);
        }
    }
    Ok(all)
}

fn unescaped(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            value.push(c);
            continue;
        }
        match rest.next() {
            Some('\\') => value.push('\\'),
            Some('n') => value.push('\n'),
            Some('r') => value.push('\r'),
            // A backslash before any other character is literal.
            Some(other) => value.extend(['\\', other]),
            None => value.push('\\'),
        }
    }
    value
}

/// The tags of a server, separated by commas. A tag cannot contain a comma.
pub(crate) fn tags_text(server: &Value) -> String {
    let all = server["tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
    all.collect::<Vec<_>>().join(", ")
}

/// Parses the text of tags.
pub(crate) fn tags(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|tag| !tag.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_value_comes_back_from_its_text() {
        let values = ["", " a = b ", "a\nb\r\n", "\\", "\\n", "C:\\new\\\\", "ü=😀", "\t"];
        let given: BTreeMap<String, String> =
            values.iter().enumerate().map(|(n, v)| (format!("key {n}"), (*v).to_owned())).collect();
        let text = metadata_text(&json!({"metadata": given}));
        assert_eq!(metadata(&text), Ok(given.clone()));
        // Browsers send CRLF at the end of each line.
        assert_eq!(metadata(&format!("\r\n{}\r\n", text.replace('\n', "\r\n"))), Ok(given));
        assert_eq!(metadata_text(&json!({})), "");
    }

    #[test]
    fn a_text_without_metadata_is_refused() {
        assert_eq!(metadata("a=1\nb"), Err(texts::METADATA_LINE));
        assert_eq!(metadata("a=1\na=2"), Err(texts::METADATA_TWICE));
        assert_eq!(metadata(" \n\n"), Ok(BTreeMap::new()));
        assert_eq!(metadata("a=\\x\\"), Ok(BTreeMap::from([("a".into(), "\\x\\".into())])));
    }

    #[test]
    fn tags_are_separated_by_commas() {
        assert_eq!(tags(" a,b c , ,d"), ["a", "b c", "d"]);
        assert_eq!(tags_text(&json!({"tags": ["a", "b c"]})), "a, b c");
        assert!(tags(&tags_text(&json!({}))).is_empty());
    }
}
