//! Value formats that several resources share.

use serde::{Deserialize, Deserializer};

/// The default for `null`.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A boolean, as JSON or as the text that Cinder stores: `"true"`, `"True"`.
pub(crate) fn truth<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Bool(bool),
        Text(String),
    }
    Ok(match Option::<Form>::deserialize(deserializer)? {
        None => false,
        Some(Form::Bool(value)) => value,
        Some(Form::Text(text)) => text.eq_ignore_ascii_case("true"),
    })
}

/// Percent-encodes a value for a query string.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
