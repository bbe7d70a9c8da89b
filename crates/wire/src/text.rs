//! Checks on names that users choose, and bounds on what is said about them.

use crate::Fault;

const HEAD: usize = 2048;
const TAIL: usize = 1024;

/// Makes a sentence fit to be shown: what a user sent is quoted in it, and may be long or hold what
/// moves a terminal's cursor.
pub(crate) fn tidy(text: &mut String) {
    if text.len() > HEAD + TAIL {
        let head = text.floor_char_boundary(HEAD);
        let tail = text.ceil_char_boundary(text.len() - TAIL);
        text.replace_range(head..tail, " … ");
    }
    let unfit = |c: char| c.is_control() && c != '\n';
    if text.contains(unfit) {
        let show = |c: char| if unfit(c) { c.escape_default().to_string() } else { c.into() };
        *text = text.chars().map(show).collect();
    }
}

/// Refuses names that are empty, too long, blank at an end, or hold characters that cannot be
/// printed (Nova `api/validation/parameter_types.py`: name).
///
/// # Errors
/// 400 in the words of Nova's schema check.
pub fn check_name(field: &str, name: &str, max: usize) -> Result<(), Fault> {
    let wrong = |why: &str| {
        Err(Fault::bad_request(format!(
            "Invalid input for field/attribute {field}. Value: {}. {why}",
            name.escape_debug()
        )))
    };
    if name.is_empty() || name.trim().is_empty() {
        return wrong("The name is empty or blank.");
    }
    if name.chars().count() > max {
        return wrong(&format!("{name:?} is too long: at most {max} characters."));
    }
    if name.chars().any(char::is_control) {
        return wrong("The name holds control characters.");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentences_keep_their_ends_and_none_moves_the_cursor() {
        let mut text = format!("Invalid input for name: {}. Too long.", "é".repeat(5000));
        tidy(&mut text);
        assert!(text.len() < 3100, "{}", text.len());
        assert!(text.starts_with("Invalid input for name: éé") && text.ends_with("é. Too long."));
        let mut short = "short".to_owned();
        tidy(&mut short);
        assert_eq!(short, "short");
        let mut odd = "a\u{7f}b\u{85}c\u{1b}[1m\n".to_owned();
        tidy(&mut odd);
        assert_eq!(odd, "a\\u{7f}b\\u{85}c\\u{1b}[1m\n");
    }
}
