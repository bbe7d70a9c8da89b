//! Values in Neutron's answers, which may be null or absent, and queries of its lists.

use serde::{Deserialize, Deserializer};

/// The default for `null`.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// The query of a list.
#[derive(Debug, Default)]
pub(crate) struct Query(String);

impl Query {
    /// Adds a condition; several conditions with the same key match any of the values.
    pub(crate) fn with(mut self, key: &str, value: impl AsRef<str>) -> Self {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        for (text, end) in [(key, "="), (value.as_ref(), "")] {
            for byte in text.bytes() {
                match byte {
                    b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' => {
                        self.0.push(char::from(byte));
                    }
                    other => self.0.push_str(&format!("%{other:02X}")),
                }
            }
            self.0.push_str(end);
        }
        self
    }

    /// Adds a condition if there is a value.
    pub(crate) fn maybe(self, key: &str, value: Option<impl AsRef<str>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// Requests only these fields, or all if the list is empty.
    pub(crate) fn fields(self, fields: &[&str]) -> Self {
        fields.iter().fold(self, |query, field| query.with("fields", field))
    }

    /// The text with its question mark; empty without conditions.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}
