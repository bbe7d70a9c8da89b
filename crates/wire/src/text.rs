//! Validation of names that users choose, and limits on quoted input in messages.

use crate::Refusal;

const HEAD_LENGTH: usize = 2048;
const TAIL_LENGTH: usize = 1024;

/// Makes a message safe to display: it may quote user input that is long or contains control
/// characters.
pub(crate) fn tidy(text: &mut String) {
    if text.len() > HEAD_LENGTH + TAIL_LENGTH {
        let head = text.floor_char_boundary(HEAD_LENGTH);
        let tail = text.ceil_char_boundary(text.len() - TAIL_LENGTH);
        text.replace_range(head..tail, " … ");
    }
    let unfit = |c: char| c.is_control() && c != '\n';
    if text.contains(unfit) {
        let show = |c: char| if unfit(c) { c.escape_default().to_string() } else { c.into() };
        *text = text.chars().map(show).collect();
    }
}

/// Refuses names that are empty, too long or blank, or contain control characters (Nova
/// `api/validation/parameter_types.py`: name).
///
/// # Errors
/// 400 with the message of Nova's schema validation.
pub fn check_name(field: &str, name: &str, max: usize) -> Result<(), Refusal> {
    let wrong = |why: &str| {
        Err(Refusal::bad_request(format!(
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
        return wrong("The name contains control characters.");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_shortened_and_control_characters_escaped() {
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
