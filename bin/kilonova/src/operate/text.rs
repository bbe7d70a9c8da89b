//! Formats texts of the API for a terminal: one line each, without control characters.

use serde_json::Value;

/// A text or number of a document; `-` for null.
pub fn of(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => plain(text),
        Value::Array(all) => all.iter().map(of).collect::<Vec<_>>().join(", "),
        other => plain(&other.to_string()),
    }
}

/// The text with control characters escaped.
pub fn plain(text: &str) -> String {
    let odd = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
    if !text.contains(odd) {
        return text.to_owned();
    }
    let escaped = |c: char| {
        if odd(c) { c.escape_default().to_string() } else { c.to_string() }
    };
    text.chars().map(escaped).collect()
}

/// A name, encoded for a path.
pub fn segment(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        out
    })
}

/// The members of a list of a document; none if the value is not a list.
pub fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A row of a table.
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// Aligned columns, indented by two spaces.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|at| rows.iter().filter_map(|row| row.get(at)).map(|c| c.chars().count()).max())
        .map(Option::unwrap_or_default)
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::from(" ");
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!(" {cell:width$} "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(plain("gpu \u{1b}[2Jä\n"), "gpu \\u{1b}[2Jä\\n");
        assert_eq!(of(&serde_json::json!(["a", 1, null])), "a, 1, -");
        assert_eq!(segment("a/b ä"), "a%2Fb%20%C3%A4");
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".to_owned(), "b".into()], vec!["ccc".to_owned(), "d".into()]];
        assert_eq!(table(&rows), "  a    b\n  ccc  d\n");
    }
}
