//! The authorities of the cloud in memory: the one that signs hosts' certificates, the one that
//! signed the controllers' certificates, and all trusted authorities.
//!
//! ```text
//!            rotate          activate            retire, or expiry
//!   (none) ─────────▶ staged ─────────▶ signing ─ ─ ─ ─ ─ ─ ─ ─ ─ ┐ (the next rotation)
//!                                       outgoing ─────────▶ retired ◀
//! ```
//!
//! A controller presents a certificate of the outgoing authority as long as that authority is
//! trusted, because a host that has not noticed the rotation trusts no other.

use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use kilonova_pki::{Authority, CertificateDer, Fingerprint, Trust};
use kilonova_seal::{Sealed, Vault};
use kilonova_wire::time;

use crate::db::authorities::{self as db, AuthorityState, KnownAuthority};
use crate::{Error, app};

/// The kind of the sealed keys.
pub(crate) const KIND: &str = "authority";

/// Certificate and key of an authority, PEM.
pub struct AuthorityPem {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl std::fmt::Debug for AuthorityPem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthorityPem").finish_non_exhaustive()
    }
}

/// The authorities of the cloud; cheap to clone.
#[derive(Clone)]
pub struct Authorities(Arc<Inner>);

struct Inner {
    vault: Vault,
    held: RwLock<Arc<Held>>,
    trust: Arc<Trust>,
}

/// The authorities at one time.
pub(crate) struct Held {
    rows: Vec<KnownAuthority>,
    sealed: Vec<Sealed>,
    /// The authority that signed the controllers' certificates.
    pub shown: Arc<Authority>,
    /// The number of the authority that signs hosts' certificates, and the authority.
    pub signing: (i64, Arc<Authority>),
    /// All trusted authorities, `shown` first.
    pub trusted: Vec<Arc<Authority>>,
    names: Vec<String>,
    /// The certificates of the trusted authorities, PEM, that of `shown` first.
    pub bundle: String,
}

impl std::fmt::Debug for Authorities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Authorities").field(&self.held().trusted).finish()
    }
}

impl Authorities {
    /// True if the database contains the cloud's authority.
    ///
    /// # Errors
    /// A database error.
    pub async fn are_stored(vault: &Vault) -> Result<bool, Error> {
        Ok(!vault.store().read(db::all).await?.is_empty())
    }

    /// Loads the authorities. The first controller of a cloud stores `earlier`, the authority that
    /// an earlier version kept in files, or a new one.
    ///
    /// # Errors
    /// [`Error::Authority`] if `earlier` is not the cloud's; [`Error::Seal`].
    pub async fn open(vault: Vault, earlier: Option<AuthorityPem>) -> Result<Self, Error> {
        if !Self::are_stored(&vault).await? {
            app::authority::store_first(&vault, earlier).await?;
        }
        let held = Held::read(&vault, None).await?;
        let held = held.ok_or_else(|| Error::Authority("the cloud has no authority".to_owned()))?;
        let trust = Trust::new(&held.certificates())?;
        Ok(Self(Arc::new(Inner { vault, held: RwLock::new(Arc::new(held)), trust })))
    }

    /// Reads the authorities again: other controllers and operators may have changed them, and the
    /// trust in an outgoing one may have expired. Returns whether they changed. On an error, the
    /// authorities in memory stay.
    ///
    /// # Errors
    /// A database error, or [`Error::Seal`].
    pub async fn reload(&self) -> Result<bool, Error> {
        let before = self.held();
        let Some(held) = Held::read(&self.0.vault, Some(&before)).await? else { return Ok(false) };
        self.0.trust.set(&held.certificates())?;
        *self.0.held.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(held);
        Ok(true)
    }

    pub(crate) fn held(&self) -> Arc<Held> {
        Arc::clone(&self.0.held.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The trust in clients' certificates, which follows the authorities.
    pub fn trust(&self) -> Arc<Trust> {
        Arc::clone(&self.0.trust)
    }

    /// The authority for the controllers' certificates.
    pub fn shown(&self) -> Arc<Authority> {
        Arc::clone(&self.held().shown)
    }

    /// True if the authority with this distinguished name is trusted.
    pub fn trusts(&self, name: &str) -> bool {
        self.held().names.iter().any(|one| one == name)
    }
}

/// True if hosts and controllers trust an authority.
pub(crate) fn is_trusted(one: &KnownAuthority, now: Timestamp) -> bool {
    match one.state {
        AuthorityState::Staged | AuthorityState::Signing => true,
        AuthorityState::Outgoing => one.trusted_until.is_none_or(|until| now < until),
        AuthorityState::Retired => false,
    }
}

/// The trusted authorities, the one for the controllers' certificates first.
pub(crate) fn in_order(rows: &[KnownAuthority], now: Timestamp) -> Vec<&KnownAuthority> {
    let mut trusted: Vec<_> = rows.iter().filter(|one| is_trusted(one, now)).collect();
    trusted.sort_by_key(|one| {
        let rank = match one.state {
            AuthorityState::Outgoing => 0,
            AuthorityState::Signing => 1,
            AuthorityState::Staged | AuthorityState::Retired => 2,
        };
        (rank, one.number)
    });
    trusted
}

/// The certificates of the trusted authorities, as hosts get them.
pub(crate) fn bundle(trusted: &[&KnownAuthority]) -> String {
    trusted.iter().map(|one| one.certificate.as_str()).collect()
}

/// The digest of a bundle, by which a host reports the authorities that it trusts.
pub(crate) fn mark(bundle: &str) -> String {
    Fingerprint::of(bundle.as_bytes()).to_string()
}

impl Held {
    /// Reads the authorities; `None` if they equal `before`.
    async fn read(vault: &Vault, before: Option<&Self>) -> Result<Option<Self>, Error> {
        let read =
            vault.store().read(|tx| Ok::<_, Error>((db::all(tx)?, Vault::sealed(tx, KIND)?)));
        let (rows, sealed) = read.await?;
        let trusted = in_order(&rows, time::now());
        let bundle = bundle(&trusted);
        if before.is_some_and(|before| {
            before.rows == rows && before.sealed == sealed && before.bundle == bundle
        }) {
            return Ok(None);
        }
        let lost = |number: i64| {
            Error::Authority(format!(
                "the database has no key of authority {number}: restore it from a good backup"
            ))
        };
        let mut loaded: Vec<(i64, AuthorityState, Arc<Authority>)> = Vec::new();
        for row in &trusted {
            let key = sealed.iter().find(|one| one.number == row.number);
            let key = key.ok_or_else(|| lost(row.number))?;
            let secret = vault.open_all(std::slice::from_ref(key)).await?;
            let text = secret.first().and_then(|one| one.text()).ok_or_else(|| lost(row.number))?;
            let authority = Authority::load(&row.certificate, text)?;
            loaded.push((row.number, row.state, Arc::new(authority)));
        }
        let signing = loaded.iter().find(|(_, state, _)| *state == AuthorityState::Signing);
        let (Some((number, _, signing)), Some((_, _, shown))) = (signing, loaded.first()) else {
            return Err(Error::Authority("the database has no signing authority".to_owned()));
        };
        let (signing, shown) = ((*number, Arc::clone(signing)), Arc::clone(shown));
        let trusted: Vec<_> = loaded.into_iter().map(|(_, _, authority)| authority).collect();
        let names = trusted.iter().map(|one| one.name()).collect::<Result<_, _>>()?;
        Ok(Some(Self { rows, sealed, shown, signing, trusted, names, bundle }))
    }

    fn certificates(&self) -> Vec<CertificateDer<'static>> {
        self.trusted.iter().map(|one| one.certificate().clone()).collect()
    }
}
