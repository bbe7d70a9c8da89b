//! The Fernet keys of tokens, with Keystone's rules: the key with the highest number is the
//! *primary*, which signs; number 0 is the *staged* key, which signs after the next rotation; the
//! others are *secondary*. All of them validate tokens, so a controller that has not yet noticed a
//! rotation accepts the tokens of one that has.
//!
//! The keys are sealed rows of the database. A controller reloads them after a rotation, and when
//! none of them validates a token. In the second case, the reload runs in its own task, one at a
//! time and at most once a second. A request waits for the reload for a bounded time, because the
//! operator's command that prints the sealing keys may be slow. If the token cannot be validated by
//! then, the request fails with [`Error::KeysUnread`].

mod blobs;
mod import;
mod rotate;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use fernet::{Fernet, MultiFernet};
use kilonova_seal::{Sealed, Secret, Vault};
use kilonova_store::Store;
use kilonova_wire::time;
use tokio::sync::watch;
use tokio::time::timeout;

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
/// Minimum time between two reloads that unknown tokens cause.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum time that a request waits for such a reload.
const WAIT: Duration = Duration::from_secs(1);

/// The token keys; cheap to clone.
#[derive(Clone)]
pub struct TokenKeys(Arc<Inner>);

struct Inner {
    /// `None` for keys of tests, which are in memory only.
    vault: Option<Vault>,
    held: RwLock<Held>,
    /// The last reload that an unknown token caused.
    asked: Mutex<Option<Asked>>,
    /// True while reloads fail.
    failing: AtomicBool,
}

/// A reload that an unknown token caused.
#[derive(Clone)]
struct Asked {
    began: Instant,
    /// True if it succeeded; `None` while it is in progress.
    outcome: watch::Receiver<Option<bool>>,
}

impl Asked {
    /// True if an unknown token need not cause another reload.
    fn suffices(&self) -> bool {
        // If the sender is gone, the reload's task has panicked.
        let in_progress = self.outcome.borrow().is_none() && self.outcome.has_changed().is_ok();
        in_progress || (self.began.elapsed() < PAUSE && self.outcome.borrow().is_some())
    }
}

impl Inner {
    fn new(vault: Option<Vault>, held: Held) -> Arc<Self> {
        let (asked, failing) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { vault, held: RwLock::new(held), asked, failing })
    }
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
    /// Reads the keys of the cloud. The first controller imports those in `repository`, the key
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
        Ok(Self(Inner::new(Some(vault), Held { keys: Arc::new(keys), sealed })))
    }

    /// New keys in memory only, for tests.
    ///
    /// # Errors
    /// If the system provides no randomness.
    pub fn in_memory() -> Result<Self, Error> {
        let key = Fernet::new(&Fernet::generate_key())
            .ok_or_else(|| Error::Keys("the generated key is invalid".to_owned()))?;
        let keys = Arc::new(MultiFernet::new(vec![key]));
        Ok(Self(Inner::new(None, Held { keys, sealed: Vec::new() })))
    }

    /// The keys of a cloud, in the form shown to operators.
    ///
    /// # Errors
    /// A database error.
    pub async fn list(store: &Store) -> Result<Vec<TokenKey>, Error> {
        rotate::list(store).await
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

    /// The keys in use, with the primary first.
    pub(crate) fn current(&self) -> Arc<MultiFernet> {
        Arc::clone(&self.0.held.read().unwrap_or_else(PoisonError::into_inner).keys)
    }

    /// Reloads the keys, which another controller or an operator may have rotated. Returns whether
    /// they changed. After an error, the keys in memory stay.
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
        // Two concurrent reloads may end in the wrong order; the next reload corrects this.
        *held = Held { keys, sealed };
        tracing::info!("loaded the new token keys");
        Ok(true)
    }

    /// Like [`TokenKeys::reload`], for callers that cannot do anything about a failure. The first
    /// failure and the end of failures are logged. Returns whether it succeeded.
    pub async fn try_reload(&self) -> bool {
        let outcome = self.reload().await;
        let succeeded = outcome.is_ok();
        let failed = self.0.failing.swap(!succeeded, Ordering::Relaxed);
        match outcome {
            Ok(_) if failed => tracing::info!("read the token keys again after failures"),
            Ok(_) => {}
            Err(error) if failed => tracing::debug!(%error, "still cannot read the token keys"),
            Err(error) => {
                tracing::warn!(%error, "cannot reload the token keys; retrying");
            }
        }
        succeeded
    }

    /// Reloads the keys after a token that none of them validates. Returns true if the keys now
    /// differ from `tried`, so that another validation may succeed.
    ///
    /// # Errors
    /// [`Error::KeysUnread`] if the keys could not be read in time.
    pub(crate) async fn reload_for_unknown(&self, tried: &Arc<MultiFernet>) -> Result<bool, Error> {
        if self.0.vault.is_none() {
            return Ok(false);
        }
        let mut outcome = self.asked();
        let ended = timeout(WAIT, outcome.wait_for(Option::is_some)).await;
        let is_current = matches!(ended, Ok(Ok(ended)) if *ended == Some(true));
        match !Arc::ptr_eq(tried, &self.current()) {
            true => Ok(true),
            false if is_current => Ok(false),
            false => Err(Error::KeysUnread),
        }
    }

    /// Returns the outcome of the reload in progress or of a recent one; if there is neither,
    /// starts one. The reload continues if the client disconnects.
    fn asked(&self) -> watch::Receiver<Option<bool>> {
        let mut asked = self.0.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = asked.as_ref().filter(|last| last.suffices()) {
            return last.outcome.clone();
        }
        let (done, outcome) = watch::channel(None);
        let keys = self.clone();
        tokio::spawn(async move {
            let succeeded = keys.try_reload().await;
            done.send_replace(Some(succeeded));
        });
        *asked = Some(Asked { began: Instant::now(), outcome: outcome.clone() });
        outcome
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
