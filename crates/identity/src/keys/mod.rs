//! The Fernet keys of tokens, with Keystone's rules: the key with the highest number is the
//! *primary*, which signs; number 0 is the *staged* key, which signs after the next rotation; the
//! others are *secondary*. All of them validate, so a controller that has not noticed a rotation
//! validates the tokens of one that has.
//!
//! The keys are sealed rows of the database. A controller reads them again when it is told to, and
//! when a token arrives that none of them validates, at most once a second.

mod import;
mod rotate;

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use fernet::{Fernet, MultiFernet};
use kilonova_seal::{Sealed, Secret, Vault};
use kilonova_wire::time;
use tokio::sync::Mutex;

use crate::Error;
use crate::db::keys as db;
pub use rotate::{KeyRole, Rotated, TokenKey};

/// The kind of the sealed rows.
const KIND: &str = "fernet";
/// The subject of a rotation in the change log.
pub(crate) const SUBJECT: &str = "token-keys";
/// The number of the key that signs after the next rotation.
const STAGED: i64 = 0;
/// The number of the first key that signs.
const FIRST: i64 = 1;
/// The least time between two reloads that unknown tokens cause.
const PAUSE: Duration = Duration::from_secs(1);

/// The keys of tokens; cheap to clone.
#[derive(Clone)]
pub struct TokenKeys(Arc<Inner>);

struct Inner {
    /// The keys of a test are in no database.
    vault: Option<Vault>,
    held: RwLock<Held>,
    /// When an unknown token last caused a reload.
    reloaded: Mutex<Option<Instant>>,
}

struct Held {
    keys: Arc<MultiFernet>,
    sealed: Vec<Sealed>,
}

impl std::fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKeys(…)")
    }
}

impl TokenKeys {
    /// Reads the keys of the cloud. The first controller imports those of `repository`, the key
    /// repository of an earlier version, or creates a staged and a primary key.
    ///
    /// # Errors
    /// [`Error::Keys`], with a message for the operator.
    pub async fn open(vault: Vault, repository: &Path) -> Result<Self, Error> {
        let sealed = sealed(&vault).await?;
        let sealed = if sealed.is_empty() {
            create(&vault, repository).await?;
            self::sealed(&vault).await?
        } else {
            if repository.is_dir() {
                tracing::info!(
                    "the token keys are in the database; those in {} are not read any more",
                    repository.display()
                );
            }
            sealed
        };
        let keys = multi(&vault.open_all(&sealed).await?, &sealed)?;
        let held = RwLock::new(Held { keys: Arc::new(keys), sealed });
        Ok(Self(Arc::new(Inner { vault: Some(vault), held, reloaded: Mutex::default() })))
    }

    /// New keys in memory only, for tests.
    ///
    /// # Errors
    /// If the system provides no randomness.
    pub fn in_memory() -> Result<Self, Error> {
        let key = Fernet::new(&Fernet::generate_key())
            .ok_or_else(|| Error::Keys("the generated key is invalid".to_owned()))?;
        let keys = Arc::new(MultiFernet::new(vec![key]));
        let held = RwLock::new(Held { keys, sealed: Vec::new() });
        Ok(Self(Arc::new(Inner { vault: None, held, reloaded: Mutex::default() })))
    }

    /// The keys of a cloud, for its operator.
    ///
    /// # Errors
    /// A database error.
    pub async fn list(vault: &Vault) -> Result<Vec<TokenKey>, Error> {
        rotate::list(vault).await
    }

    /// Rotates the keys of a cloud. `most` bounds their number, the staged one included; a key that
    /// signed a token within `token_expiration` stays.
    ///
    /// # Errors
    /// [`Error::Keys`] if there are no keys yet; [`Error::Seal`] without the sealing key.
    pub async fn rotate(
        vault: &Vault,
        most: usize,
        token_expiration: Duration,
    ) -> Result<Rotated, Error> {
        rotate::rotate(vault, most, time::signed(token_expiration)).await
    }

    /// The keys, the primary first.
    pub(crate) fn current(&self) -> Arc<MultiFernet> {
        Arc::clone(&self.0.held.read().unwrap_or_else(PoisonError::into_inner).keys)
    }

    /// Reads the keys again, as another controller or an operator rotates them. Returns whether
    /// they changed. After an error the keys in memory stay.
    ///
    /// # Errors
    /// A database error, or [`Error::Keys`].
    pub async fn reload(&self) -> Result<bool, Error> {
        let Some(vault) = &self.0.vault else { return Ok(false) };
        let sealed = sealed(vault).await?;
        let is_same =
            || self.0.held.read().unwrap_or_else(PoisonError::into_inner).sealed == sealed;
        if is_same() {
            return Ok(false);
        }
        let keys = Arc::new(multi(&vault.open_all(&sealed).await?, &sealed)?);
        let mut held = self.0.held.write().unwrap_or_else(PoisonError::into_inner);
        // Of two reloads at once the later snapshot may come first; the next reload corrects it.
        *held = Held { keys, sealed };
        tracing::info!("took up the new token keys");
        Ok(true)
    }

    /// Reads the keys again after a token that none of them validates. Returns whether it is worth
    /// trying again: the keys differ from `tried`.
    pub(crate) async fn reload_for_unknown(&self, tried: &Arc<MultiFernet>) -> bool {
        if self.0.vault.is_none() {
            return false;
        }
        let mut reloaded = self.0.reloaded.lock().await;
        if reloaded.is_none_or(|at| at.elapsed() >= PAUSE) {
            if let Err(error) = self.reload().await {
                tracing::warn!(%error, "cannot read the token keys again");
            }
            *reloaded = Some(Instant::now());
        }
        drop(reloaded);
        !Arc::ptr_eq(tried, &self.current())
    }
}

async fn sealed(vault: &Vault) -> Result<Vec<Sealed>, Error> {
    Ok(vault.store().read(|tx| Vault::sealed(tx, KIND)).await?)
}

/// Stores the first keys of the cloud in one transaction, unless another controller has done so.
async fn create(vault: &Vault, repository: &Path) -> Result<(), Error> {
    let repository = repository.to_owned();
    let found = {
        let repository = repository.clone();
        tokio::task::spawn_blocking(move || import::read(&repository))
            .await
            .map_err(|e| Error::Keys(e.to_string()))??
    };
    let imported = found.len();
    let first = Arc::new(import::complete(found));
    let (sealing, now) = (vault.clone(), time::now());
    let stored = vault.store().write(move |tx| {
        if !Vault::sealed(tx, KIND)?.is_empty() {
            return Ok(false);
        }
        for (number, key) in &*first {
            sealing.add(tx, KIND, *number, key, now)?;
            db::add(tx, *number, None)?;
        }
        Ok::<_, Error>(true)
    });
    let stored = stored.await;
    match stored {
        Ok(true) if imported > 0 => tracing::info!(
            keys = imported,
            "imported the token keys of {} into the database; the files are not read any more",
            repository.display()
        ),
        Ok(true) => tracing::info!("created the token keys in the database"),
        // Another controller was first.
        Ok(false) | Err(Error::Store(kilonova_store::Error::Unique(_))) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The keys with the primary first.
fn multi(secrets: &[Secret], sealed: &[Sealed]) -> Result<MultiFernet, Error> {
    let mut keys = Vec::with_capacity(secrets.len());
    for (secret, sealed) in secrets.iter().zip(sealed).rev() {
        let key = secret.text().and_then(Fernet::new);
        keys.push(key.ok_or_else(|| {
            Error::Keys(format!("token key {} is not a Fernet key", sealed.number))
        })?);
    }
    if keys.is_empty() {
        return Err(Error::Keys("the database contains no token key".to_owned()));
    }
    Ok(MultiFernet::new(keys))
}
