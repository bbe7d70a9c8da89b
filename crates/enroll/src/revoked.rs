//! The certificates that count no more, in memory: looked at with each request.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

/// Serial numbers; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Revoked(Arc<RwLock<HashSet<String>>>);

impl Revoked {
    /// Whether a certificate counts no more.
    pub fn has(&self, serial: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(serial)
    }

    /// A certificate that was revoked stays so: what is read later may have been read before.
    pub(crate) fn add(&self, serials: impl IntoIterator<Item = String>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).extend(serials);
    }
}
