//! User data: its base64 text in requests, as Nova reads it. Must never change the text that clients see.

use base64::prelude::{BASE64_STANDARD, Engine};

/// The text without the characters that are not of the base64 alphabet, such as line breaks: Nova ignores them
/// (`oslo_serialization.base64.decode_as_bytes`).
pub fn plain(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=')).collect()
}

/// The user data of a text.
///
/// # Errors
/// The decoder's error if the text is not base64.
pub fn decode(text: &str) -> Result<Vec<u8>, base64::DecodeError> {
    BASE64_STANDARD.decode(plain(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_are_ignored_and_wrong_padding_is_not() {
        for text in ["aGVsbG8gd29ybGQ=", "aGVsbG8g\nd29ybGQ=\n", " aGVs bG8gd29y\r\nbGQ= "] {
            assert_eq!(decode(text).expect(text), b"hello world", "{text:?}");
        }
        assert_eq!(plain("aGVs\nbG8="), "aGVsbG8=");
        for text in ["aGVsbG8", "a", "=aGVs"] {
            assert!(decode(text).is_err(), "{text:?}");
        }
    }
}
