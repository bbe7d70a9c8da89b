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

use std::sync::{Arc, Mutex};

use kilonova_pki::Authority;
use kilonova_store::{Store, Tx};

pub use api::{node_routes, operations, operator_routes};
pub use app::authority::agree;
use app::revocations::List;
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

/// Thirty days, microseconds: what a host's certificate is good for unless told otherwise. A host renews
/// when ten are left, so it may be off, or without the control plane, for that long.
pub const VALID: i64 = 30 * 24 * 3600 * 1_000_000;

/// Names of hosts that exist and that are the given one in lower case, whether or not they ever had a
/// certificate.
pub type Existing =
    dyn Fn(&mut Tx<'_>, &str) -> Result<Vec<String>, kilonova_store::Error> + Send + Sync;

/// The service; cheap to clone.
#[derive(Clone)]
pub struct Enrollment {
    store: Store,
    authority: Arc<Authority>,
    revoked: Revoked,
    options: Arc<Options>,
    existing: Arc<Existing>,
    list: Arc<Mutex<Option<List>>>,
}

impl Enrollment {
    /// The service over a migrated database.
    pub fn new(store: Store, authority: Arc<Authority>, options: Options) -> Self {
        Self {
            store,
            authority,
            revoked: Revoked::default(),
            options: Arc::new(options),
            existing: Arc::new(|_, _| Ok(Vec::new())),
            list: Arc::default(),
        }
    }

    /// The same, knowing which hosts exist: a new host does not get the name of one.
    #[must_use]
    pub fn knowing(self, existing: Arc<Existing>) -> Self {
        Self { existing, ..self }
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
