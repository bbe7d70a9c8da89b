//! Checks on names that users choose.

use crate::Fault;

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
