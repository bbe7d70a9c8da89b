//! The sealed secrets of a cloud.
//!
//! Transactions of other crates read and add sealed rows ([`Vault::sealed`], [`Vault::add`]); the
//! secrets are opened outside of the transaction ([`Vault::open_all`]), where the sealing keys may
//! be read again.

use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use kilonova_store::{Store, Tx};

use crate::db::{current, secrets};
use crate::key::{KeyId, SealKey, sealed_with};
use crate::{Error, KeySource, Keyring, Secret};

/// A sealed secret, as a row of the database contains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// Its kind.
    pub kind: String,
    /// Its number among those of its kind.
    pub number: i64,
    pub(crate) text: String,
    /// When it was created.
    pub made_at: Timestamp,
}

impl Sealed {
    pub(crate) fn place(&self) -> String {
        place(&self.kind, self.number)
    }

    /// The id of the key that sealed it.
    ///
    /// # Errors
    /// [`Error::Damaged`] for another text.
    pub fn sealed_with(&self) -> Result<KeyId, Error> {
        sealed_with(&self.place(), &self.text)
    }
}

fn place(kind: &str, number: i64) -> String {
    format!("{kind}/{number}")
}

/// The outcome of a change of the sealing key.
#[derive(Debug, PartialEq, Eq)]
pub struct Resealed {
    /// The key that seals now.
    pub key: KeyId,
    /// The number of secrets that it sealed anew.
    pub secrets: usize,
}

/// The sealed secrets of a cloud; cheap to clone.
#[derive(Clone)]
pub struct Vault {
    store: Store,
    source: Arc<KeySource>,
    ring: Arc<RwLock<Arc<Keyring>>>,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vault").field("source", &self.source.place()).finish_non_exhaustive()
    }
}

impl Vault {
    /// Reads the sealing keys over a migrated database. A new cloud gets the newest of them, or,
    /// with [`KeySource::Default`], a new one. Of controllers that start at once, one determines
    /// the key.
    ///
    /// # Errors
    /// If the cloud's sealing key is not among them, with advice for the operator.
    pub async fn open(store: Store, source: KeySource) -> Result<Self, Error> {
        let known = store.read(current::read).await?;
        let mut created = false;
        let mut ring = read(&source).await?;
        if ring.is_none() && known.is_none() && matches!(source, KeySource::Default(_)) {
            let key = SealKey::generate()?;
            let place = source.clone();
            created = blocking(move || place.create(&key)).await?;
            ring = read(&source).await?;
        }
        let ring = ring.ok_or_else(|| source.missing())?;
        let known = match known {
            Some(known) => known,
            None => {
                let id = ring.newest()?.id().as_str().to_owned();
                let ours = id.clone();
                let known = store.write(move |tx| current::first(tx, &id)).await?;
                let known = known.unwrap_or_default();
                if created && known != ours {
                    let place = source.clone();
                    blocking(move || {
                        place.discard();
                        Ok(())
                    })
                    .await?;
                    return Err(source.missing());
                }
                known
            }
        };
        let id = KeyId::parse(&known).ok_or_else(|| Error::Damaged("seal_current".to_owned()))?;
        ring.get(&id)?;
        if created {
            tracing::info!(
                key = %id,
                "created {}, which seals the secrets in the database: keep a copy apart from its backups",
                ring.place()
            );
        }
        Ok(Self { store, source: Arc::new(source), ring: Arc::new(RwLock::new(Arc::new(ring))) })
    }

    /// The sealing keys of this controller.
    pub fn ring(&self) -> Arc<Keyring> {
        Arc::clone(&self.ring.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The database.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The secrets of a kind, by number.
    ///
    /// # Errors
    /// A database error.
    pub fn sealed(tx: &mut Tx<'_>, kind: &str) -> Result<Vec<Sealed>, kilonova_store::Error> {
        secrets::of_kind(tx, kind)
    }

    /// Deletes a secret.
    ///
    /// # Errors
    /// A database error.
    pub fn delete(tx: &mut Tx<'_>, kind: &str, number: i64) -> Result<(), kilonova_store::Error> {
        secrets::delete(tx, kind, number)
    }

    /// Seals a secret and adds it.
    ///
    /// # Errors
    /// [`kilonova_store::Error::Unique`] if there is one of that kind and number;
    /// [`Error::Unknown`] if this controller lacks the key that seals.
    pub fn add(
        &self,
        tx: &mut Tx<'_>,
        kind: &str,
        number: i64,
        secret: &[u8],
        now: Timestamp,
    ) -> Result<(), Error> {
        let id = current::touch(tx)?.as_deref().and_then(KeyId::parse);
        let id = id.ok_or_else(|| Error::Damaged("seal_current".to_owned()))?;
        let text = self.ring().get(&id)?.seal(&place(kind, number), secret)?;
        Ok(secrets::add(tx, kind, number, &text, now)?)
    }

    /// Opens a secret with the keys in memory.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Damaged`].
    pub fn open_one(&self, sealed: &Sealed) -> Result<Secret, Error> {
        self.ring().open(sealed)
    }

    /// Opens secrets. An unknown sealing key makes it read the keys again, once.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Damaged`], [`Error::Key`].
    pub async fn open_all(&self, all: &[Sealed]) -> Result<Vec<Secret>, Error> {
        let open = || all.iter().map(|one| self.open_one(one)).collect::<Result<Vec<_>, _>>();
        match open() {
            Err(Error::Unknown { .. }) => {
                self.reread().await?;
                open()
            }
            outcome => outcome,
        }
    }

    /// Reads the sealing keys again.
    ///
    /// # Errors
    /// [`Error::Key`]; the keys in memory stay.
    pub async fn reread(&self) -> Result<(), Error> {
        let ring = read(&self.source).await?.ok_or_else(|| self.source.missing())?;
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
        Ok(())
    }

    /// The id of the key that seals, and all sealed secrets.
    ///
    /// # Errors
    /// A database error.
    pub async fn list(&self) -> Result<(Option<String>, Vec<Sealed>), Error> {
        Ok(self
            .store
            .read(|tx| Ok::<_, kilonova_store::Error>((current::read(tx)?, secrets::all(tx)?)))
            .await?)
    }

    /// Adds a new key to the key file of this machine. It does not seal yet.
    ///
    /// # Errors
    /// [`Error::Key`].
    pub async fn add_key(&self) -> Result<KeyId, Error> {
        let key = SealKey::generate()?;
        let id = key.id().clone();
        let source = Arc::clone(&self.source);
        blocking(move || source.append(&key)).await?;
        self.reread().await?;
        Ok(id)
    }

    /// Seals all secrets anew with the newest key, which seals from then on: in one transaction.
    ///
    /// # Errors
    /// If a secret cannot be opened; nothing is changed then.
    pub async fn reseal(&self) -> Result<Resealed, Error> {
        let ring = self.ring();
        self.store
            .write(move |tx| {
                let key = ring.newest()?;
                current::touch(tx)?;
                let all = secrets::all(tx)?;
                for one in &all {
                    let secret = ring.open(one)?;
                    let text = key.seal(&one.place(), &secret)?;
                    secrets::reseal(tx, &one.kind, one.number, &text)?;
                }
                current::set(tx, key.id().as_str())?;
                Ok(Resealed { key: key.id().clone(), secrets: all.len() })
            })
            .await
    }
}

async fn read(source: &KeySource) -> Result<Option<Keyring>, Error> {
    let source = source.clone();
    blocking(move || source.read()).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Error::Key(format!("cannot read the sealing keys: {error}"))))
}
