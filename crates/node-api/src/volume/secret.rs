//! A secret of a connection, which never appears in a log.

use serde::{Deserialize, Serialize};

/// A secret. Its `Debug` form hides it, and it has no `Display` form. Only [`Self::reveal`] and
/// serialization expose it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret, for the program or the library that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// True if the secret has been removed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}
