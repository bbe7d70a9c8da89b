//! Enrollment of hosts: join tokens for one use, certificates from the cloud's own authority, and
//! their revocation.
//!
//! ```text
//!   api/    operators' routes (merged into the compute API), and the routes of hosts
//!   app/    creating tokens, issuing certificates, revoking
//!   db/     its SQL
//! ```
//!
//! Only the hash of a token is stored. To this crate a host is only a name. A certificate defines
//! which host its owner may act for; only the host-facing listener evaluates that.

mod api;
mod app;
mod authorities;
mod db;
mod error;
mod revoked;

use std::sync::{Arc, Mutex};

use jiff::SignedDuration;
use kilonova_changes::{Applied, Entry, Subscriber, Topic};
use kilonova_ids::HostName;
use kilonova_store::{Store, Tx};

pub use api::{Presented, node_routes, operations, operator_routes};
pub use app::inspection::{InspectedAuthority, Inspection};
use app::revocations::List;
pub use authorities::{Authorities, AuthorityPem};
pub use db::authorities::{AuthorityState, KnownAuthority};
pub use db::{MIGRATIONS, statements};
pub use error::Error;
pub use revoked::Revoked;

/// The operator's options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrollOptions {
    /// The URL that hosts connect to: `https://NAME:PORT`.
    pub url: String,
    /// Validity of a host's certificate.
    pub valid: SignedDuration,
}

/// Default validity of a host's certificate: thirty days. A host renews ten days
/// before the end, so it tolerates that much downtime of itself or the controller.
pub const VALID: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Returns the existing hosts whose names equal the given one in lower case, whether or not they
/// have had a certificate.
pub type Existing =
    dyn Fn(&mut Tx<'_>, &HostName) -> Result<Vec<HostName>, kilonova_store::Error> + Send + Sync;

/// The enrollment service; cheap to clone.
#[derive(Clone)]
pub struct Enrollment {
    store: Store,
    authorities: Authorities,
    revoked: Revoked,
    options: Arc<EnrollOptions>,
    existing: Arc<Existing>,
    list: Arc<Mutex<Option<List>>>,
}

impl Enrollment {
    /// The service over a migrated database.
    pub fn new(store: Store, authorities: Authorities, options: EnrollOptions) -> Self {
        Self {
            store,
            authorities,
            revoked: Revoked::default(),
            options: Arc::new(options),
            existing: Arc::new(|_, _| Ok(Vec::new())),
            list: Arc::default(),
        }
    }

    /// Adds the lookup of existing hosts, so that a new host cannot take the name of one.
    #[must_use]
    pub fn knowing(self, existing: Arc<Existing>) -> Self {
        Self { existing, ..self }
    }

    /// The cloud's authorities.
    pub fn authorities(&self) -> &Authorities {
        &self.authorities
    }

    /// The URL that hosts connect to.
    pub fn url(&self) -> &str {
        &self.options.url
    }

    /// The revoked certificates.
    pub fn revoked(&self) -> &Revoked {
        &self.revoked
    }

    /// Reads the revoked certificates and the authorities again, because other controllers and
    /// operators change them. Reads both even if one fails, and the revoked certificates first,
    /// because obtaining the sealing key of the authorities may be slow.
    ///
    /// # Errors
    /// A database error, or [`Error::Seal`].
    pub async fn refresh(&self) -> Result<(), Error> {
        let revoked = app::revoke::refresh(self).await;
        let authorities = self.authorities.reload().await;
        revoked.and(authorities.map(|_| ()))
    }

    /// Reads the authorities again in a task of its own: the operator's command that prints the
    /// sealing key may be slow, and no other cache of this process must wait for it.
    fn reload_authorities(&self) {
        let authorities = self.authorities.clone();
        tokio::spawn(async move {
            if let Err(error) = authorities.reload().await {
                tracing::debug!(%error, "cannot read the authorities again; retrying later");
            }
        });
    }
}

impl Subscriber for Enrollment {
    fn apply<'a>(&'a self, entries: &'a [Entry]) -> Applied<'a> {
        Box::pin(async move {
            if !entries.iter().any(|entry| entry.topic == Topic::Revoked) {
                return Ok(());
            }
            let is_authority = |entry: &Entry| {
                entry.topic == Topic::Revoked && entry.subject == app::authority::SUBJECT
            };
            if entries.iter().any(is_authority) {
                self.reload_authorities();
            }
            Ok(app::revoke::refresh(self).await?)
        })
    }

    fn reload(&self) -> Applied<'_> {
        self.reload_authorities();
        Box::pin(async move { Ok(app::revoke::refresh(self).await?) })
    }
}
