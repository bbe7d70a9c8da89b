//! Keystone v3, the part that clients need: users, groups, projects and roles of one domain, token
//! scopes, trusts, application credentials, credentials for other services, logins with EC2 signatures, and the service
//! catalog with registered services.
//!
//! ```text
//!   api/       one file per resource: routes, request, view
//!   app/       login, validation, the rules for changes
//!   db/        its SQL
//!   hashing/   password hashes, on dedicated threads, in a fair order
//! ```
//!
//! Two invariants matter most. A token contains identities and times, never rights: roles and states
//! are read from the database at validation, so a revocation takes effect immediately. Every change
//! goes through [`Identity::change`], which empties the token cache of every controller on commit.
//!
//! This service must never log a password, a secret or a token, and never reveal to a client why a login failed.

mod api;
mod app;
mod cache;
mod catalog;
mod db;
mod error;
mod hashing;
mod keys;
mod token;

use std::sync::{Arc, RwLock};
use std::time::Duration;

use jiff::SignedDuration;
use kilonova_access::Enforcer;
use kilonova_changes::{Applied, Entry, Subscriber, Topic};
use kilonova_store::{Store, Tx};
use kilonova_wire::{Dialect, time};

pub use api::{RULES, operations, routes, service};
pub use app::{Lockout, has_admin};
pub use catalog::CatalogEntry;
pub use db::{MIGRATIONS, statements};
pub use error::Error;
pub use hashing::HashStatistics;
pub use keys::{KeyRole, Rotated, TokenKey, TokenKeys};

use cache::Cache;
use hashing::Hasher;

/// The id of the only domain.
pub const DOMAIN_ID: &str = "default";
/// The name of the only domain.
pub const DOMAIN_NAME: &str = "Default";
/// The only region.
pub const REGION: &str = "RegionOne";

/// The operator's options.
#[derive(Debug, Clone)]
pub struct IdentityOptions {
    /// Lifetime of a token (`[token] expiration`).
    pub token_expiration: Duration,
    /// How long an expired token is still accepted together with a service token
    /// (`[token] allow_expired_window`).
    pub allow_expired_window: Duration,
    /// The service tokens that are accepted.
    pub service_tokens: ServiceTokens,
    /// Lifetime of a validated token in the cache; at most 30 seconds.
    pub cache_time: Duration,
    /// The cost of a password hash.
    pub hash_cost: argon2::Params,
    /// Maximum number of logins that may wait for a hash.
    pub logins_waiting: usize,
    /// When failed logins lock an account (`[security_compliance] lockout_*`); `None` for never.
    pub lockout: Option<Lockout>,
    /// Maximum number of application credentials per user (`[application_credential] user_limit`).
    pub credential_limit: Option<i64>,
    /// How many times a trust may be redelegated (`[trust] max_redelegation_count`).
    pub max_redelegation: i64,
    /// How long the signature of an EC2 or S3 request is accepted (`[credential] auth_ttl`).
    pub signature_lifetime: Duration,
}

impl Default for IdentityOptions {
    fn default() -> Self {
        Self {
            token_expiration: Duration::from_secs(3600),
            allow_expired_window: Duration::from_secs(48 * 3600),
            service_tokens: ServiceTokens::default(),
            cache_time: Duration::from_secs(15),
            hash_cost: argon2::Params::default(),
            logins_waiting: 512,
            lockout: None,
            credential_limit: Some(100),
            max_redelegation: 3,
            signature_lifetime: Duration::from_secs(15 * 60),
        }
    }
}

/// The service tokens that are accepted (`[keystone_authtoken] service_token_*`).
#[derive(Debug, Clone)]
pub struct ServiceTokens {
    /// The token's user must have one of these roles.
    pub roles: Vec<String>,
    /// True to refuse requests with other service tokens instead of ignoring those tokens.
    pub roles_required: bool,
}

impl Default for ServiceTokens {
    fn default() -> Self {
        Self { roles: vec!["service".to_owned()], roles_required: true }
    }
}

/// The identity service; cheap to clone.
#[derive(Clone)]
pub struct Identity {
    store: Store,
    inner: Arc<Inner>,
    policy: Enforcer,
}

struct Inner {
    keys: TokenKeys,
    hasher: Hasher,
    cache: Arc<Cache>,
    catalog: RwLock<Arc<Vec<CatalogEntry>>>,
    token_expiration: SignedDuration,
    allow_expired_window: SignedDuration,
    service_tokens: ServiceTokens,
    lockout: Option<Lockout>,
    credential_limit: Option<i64>,
    max_redelegation: i64,
    signature_lifetime: SignedDuration,
}

impl Identity {
    /// Opens the service with these token keys.
    ///
    /// # Errors
    /// [`Error::Hash`] if the system cannot start a thread.
    pub async fn open(
        store: Store,
        keys: TokenKeys,
        options: IdentityOptions,
    ) -> Result<Self, Error> {
        Ok(Self {
            store,
            inner: Arc::new(Inner {
                keys,
                hasher: Hasher::new(options.hash_cost, options.logins_waiting)?,
                cache: Arc::new(Cache::new(options.cache_time)),
                catalog: RwLock::default(),
                token_expiration: time::signed(options.token_expiration),
                allow_expired_window: time::signed(options.allow_expired_window),
                service_tokens: options.service_tokens,
                lockout: options.lockout,
                credential_limit: options.credential_limit,
                max_redelegation: options.max_redelegation,
                signature_lifetime: time::signed(options.signature_lifetime),
            }),
            policy: Enforcer::of(RULES, Dialect::Identity),
        })
    }

    /// Replaces upstream's default policy with the operator's.
    #[must_use]
    pub fn with_policy(mut self, policy: Enforcer) -> Self {
        self.policy = policy;
        self
    }

    /// The policy for requests.
    pub fn policy(&self) -> &Enforcer {
        &self.policy
    }

    /// Sets the built-in entries of the catalog.
    pub fn set_catalog(&self, entries: Vec<CatalogEntry>) {
        let mut catalog =
            self.inner.catalog.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        *catalog = Arc::new(entries);
    }

    pub(crate) fn catalog(&self) -> Arc<Vec<CatalogEntry>> {
        let catalog = self.inner.catalog.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        Arc::clone(&catalog)
    }

    /// Statistics of the password hashing threads.
    pub fn hash_statistics(&self) -> HashStatistics {
        self.inner.hasher.hash_statistics()
    }

    /// Runs a write transaction that empties the token cache on commit, here and at the other
    /// controllers.
    pub(crate) async fn change<T, F>(&self, mut work: F) -> Result<T, Error>
    where
        F: FnMut(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
        T: Send + 'static,
    {
        let cache = Arc::clone(&self.inner.cache);
        self.store
            .write(move |tx| {
                let cache = Arc::clone(&cache);
                tx.on_commit(move || cache.clear());
                let answer = work(tx)?;
                kilonova_changes::append(tx, Topic::Identity, "", 0)?;
                Ok(answer)
            })
            .await
    }

    pub(crate) async fn read<T, F>(&self, work: F) -> Result<T, Error>
    where
        F: FnMut(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
        T: Send + 'static,
    {
        self.store.read(work).await
    }
}

impl Identity {
    /// Rereads the token keys in a separate task: the operator's command that prints the sealing keys may be slow or
    /// fail, and the other caches of this process must not wait for it.
    fn reload_keys(&self) {
        let keys = self.inner.keys.clone();
        tokio::spawn(async move { keys.try_reload().await });
    }
}

impl Subscriber for Identity {
    fn apply<'a>(&'a self, entries: &'a [Entry]) -> Applied<'a> {
        if entries.iter().any(|entry| entry.topic == Topic::Identity) {
            self.inner.cache.clear();
        }
        let is_rotation =
            |entry: &Entry| entry.topic == Topic::Identity && entry.subject == keys::SUBJECT;
        if entries.iter().any(is_rotation) {
            self.reload_keys();
        }
        Box::pin(async { Ok(()) })
    }

    fn reload(&self) -> Applied<'_> {
        self.inner.cache.clear();
        self.reload_keys();
        Box::pin(async { Ok(()) })
    }
}

/// A new id in Keystone's form: 32 hex digits.
pub(crate) fn new_id() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
