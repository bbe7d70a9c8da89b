//! How a host joins: tokens that are good once, certificates of the system's own authority, and the
//! list of those that count no more.
//!
//! ```text
//!   api/    operators' routes (merged into the compute API), and those that hosts call
//!   app/    what is done: make a token, give a certificate, revoke
//!   db/     its SQL
//! ```
//!
//! Of a token only its hash is kept. The crate must never know what a host is but a name; what is
//! in the certificate is what the host may speak for, and nobody but its door looks at that.

mod api;
mod app;
mod db;
mod error;
mod revoked;

use std::sync::Arc;

use kilonova_pki::Authority;
use kilonova_store::Store;

pub use api::{node_routes, operator_routes};
pub use app::authority::agree;
pub use db::{MIGRATIONS, statements};
pub use error::Error;
pub use revoked::Revoked;

/// What is decided by the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where hosts dial: `https://NAME:PORT`.
    pub url: String,
    /// For how long a host's certificate is good, microseconds.
    pub valid: i64,
}

/// Ninety days, microseconds: what a host's certificate is good for unless told otherwise.
pub const VALID: i64 = 90 * 24 * 3600 * 1_000_000;

/// The service; cheap to clone.
#[derive(Clone)]
pub struct Enrollment {
    store: Store,
    authority: Arc<Authority>,
    revoked: Revoked,
    options: Arc<Options>,
}

impl Enrollment {
    /// The service over a migrated database.
    pub fn new(store: Store, authority: Arc<Authority>, options: Options) -> Self {
        Self { store, authority, revoked: Revoked::default(), options: Arc::new(options) }
    }

    /// The authority.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Where hosts dial.
    pub fn url(&self) -> &str {
        &self.options.url
    }

    /// Which certificates count no more.
    pub fn revoked(&self) -> &Revoked {
        &self.revoked
    }

    /// Reads the list of those that count no more; other controllers add to it too.
    ///
    /// # Errors
    /// The database's.
    pub async fn refresh(&self) -> Result<(), Error> {
        app::revoke::refresh(self).await
    }
}
