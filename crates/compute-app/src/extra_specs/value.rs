//! The valid values of extra specs.

use kilonova_wire::Refusal;

use super::rules::whole;

/// A kind of value.
pub(super) enum Kind {
    /// Anything.
    Text,
    /// Any text that the expression matches.
    Format(&'static str),
    /// One of these.
    OneOf(&'static [&'static str]),
    /// An integer, with its minimum if it has one.
    Integer(Option<i64>),
    /// A boolean.
    Boolean,
}

const BOOLEANS: &[&str] =
    &["1", "t", "true", "on", "y", "yes", "0", "f", "false", "off", "n", "no"];

impl Kind {
    pub(super) fn check(&self, value: &str) -> Result<(), Refusal> {
        let wrong =
            |why: String| Err(Refusal::bad_request(format!("Validation failed; '{value}' {why}")));
        match self {
            Self::Text => Ok(()),
            Self::Format(format) => match whole(format) {
                Ok(format) if format.is_match(value) => Ok(()),
                _ => wrong(format!("is not of the format '{format}'.")),
            },
            Self::OneOf(choices) if choices.contains(&value) => Ok(()),
            Self::OneOf(choices) => wrong(format!("is not one of: {}.", choices.join(", "))),
            Self::Integer(least) => match (value.trim().parse::<i64>(), least) {
                (Err(_), _) => wrong("is not a valid integer value.".into()),
                (Ok(number), Some(least)) if number < *least => {
                    wrong(format!("is less than the min value of '{least}'."))
                }
                _ => Ok(()),
            },
            Self::Boolean => {
                let word = value.trim().to_ascii_lowercase();
                if BOOLEANS.contains(&word.as_str()) {
                    return Ok(());
                }
                wrong("is not a valid boolean-like value.".into())
            }
        }
    }
}
