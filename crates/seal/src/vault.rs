//! The sealed secrets of a cloud.
//!
//! Transactions of other crates read and add sealed rows ([`Vault::sealed`], [`Vault::add`]);
//! [`Vault::open_all`] opens the secrets outside of the transaction, where it may read the sealing
//! keys again.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use jiff::Timestamp;
use kilonova_store::{Store, Tx};
use tokio::sync::Mutex;

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
    /// [`Error::Damaged`] if the text has another form.
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
    /// The number of resealed secrets.
    pub secrets: usize,
}

/// The findings of an inspection, which changes nothing.
#[derive(Debug)]
pub struct Inspection {
    /// The id of the key that seals; `None` before the first start of the cloud.
    pub current: Option<String>,
    /// The number of sealed secrets.
    pub secrets: usize,
    /// The number of sealing keys that this machine has.
    pub keys: usize,
    /// The reasons why keys cannot be read, and the secrets that they do not open, each with
    /// advice.
    pub problems: Vec<Error>,
}

/// The sealed secrets of a cloud; cheap to clone.
#[derive(Clone)]
pub struct Vault {
    store: Store,
    source: Arc<KeySource>,
    ring: Arc<RwLock<Arc<Keyring>>>,
    /// The last time that the keys were reread.
    reading: Arc<Mutex<Option<Reading>>>,
}

/// One reading of the keys.
struct Reading {
    began: Instant,
    /// `Err` with the text of the failure.
    outcome: Result<(), String>,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vault").field("source", &self.source.place()).finish_non_exhaustive()
    }
}

impl Vault {
    /// Reads the sealing keys for a migrated database. A new cloud uses the newest of them, or a
    /// new one with [`KeySource::Default`]. If several controllers start concurrently, one of them
    /// determines the key.
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
                "created {}, which seals the secrets in the database: keep a copy, separate from \
                 the database's backups",
                ring.place()
            );
        }
        Ok(Self::with(store, source, ring))
    }

    /// Reads the sealing keys of a cloud that has been started, for an operator's command. Creates
    /// and stores nothing.
    ///
    /// # Errors
    /// Before the first start of the cloud, and if its sealing key is not among the keys.
    pub async fn open_existing(store: Store, source: KeySource) -> Result<Self, Error> {
        let Some(known) = store.read(current::read).await? else {
            return Err(Error::Key(
                "this cloud has no secrets yet: start kilonova serve as the user of the service; \
                 its first start creates them"
                    .to_owned(),
            ));
        };
        let ring = read(&source).await?.ok_or_else(|| source.missing())?;
        let id = KeyId::parse(&known).ok_or_else(|| Error::Damaged("seal_current".to_owned()))?;
        ring.get(&id)?;
        Ok(Self::with(store, source, ring))
    }

    fn with(store: Store, source: KeySource, ring: Keyring) -> Self {
        let ring = Arc::new(RwLock::new(Arc::new(ring)));
        Self { store, source: Arc::new(source), ring, reading: Arc::default() }
    }

    /// Checks that this machine has the sealing keys of the cloud, and that they open every secret.
    /// Creates and stores nothing.
    ///
    /// # Errors
    /// A database error.
    pub async fn inspect(store: &Store, source: &KeySource) -> Result<Inspection, Error> {
        let (current, sealed) = store
            .read(|tx| Ok::<_, kilonova_store::Error>((current::read(tx)?, secrets::all(tx)?)))
            .await?;
        let mut found =
            Inspection { current, secrets: sealed.len(), keys: 0, problems: Vec::new() };
        let ring = match read(source).await {
            Ok(Some(ring)) => ring,
            Ok(None) if found.current.is_none() => return Ok(found),
            Ok(None) => {
                found.problems.push(source.missing());
                return Ok(found);
            }
            Err(error) => {
                found.problems.push(error);
                return Ok(found);
            }
        };
        found.keys = ring.ids().count();
        let known = found.current.as_deref().map(|text| match KeyId::parse(text) {
            Some(id) => ring.get(&id).map(|_| ()),
            None => Err(Error::Damaged("seal_current".to_owned())),
        });
        let opened = sealed.iter().map(|one| ring.open(one).map(|_| ()));
        for problem in known.into_iter().chain(opened).filter_map(Result::err) {
            let is_said = |said: &Error| said.to_string() == problem.to_string();
            if !found.problems.iter().any(is_said) {
                found.problems.push(problem);
            }
        }
        Ok(found)
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

    /// Opens secrets. Rereads the keys, once, if a sealing key is unknown.
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

    /// Rereads the sealing keys. Concurrent callers share a reading if it began after their call.
    ///
    /// # Errors
    /// [`Error::Key`]; the keys in memory are unchanged.
    pub async fn reread(&self) -> Result<(), Error> {
        let asked = Instant::now();
        let mut last = self.reading.lock().await;
        if let Some(reading) = last.as_ref().filter(|reading| reading.began >= asked) {
            return reading.outcome.clone().map_err(Error::Key);
        }
        let began = Instant::now();
        let outcome = read(&self.source).await.and_then(|ring| {
            let ring = ring.ok_or_else(|| self.source.missing())?;
            *self.ring.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
            Ok(())
        });
        let outcome = outcome.map_err(|error| error.to_string());
        *last = Some(Reading { began, outcome: outcome.clone() });
        outcome.map_err(Error::Key)
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

    /// Reseals all secrets with the newest key, in one transaction. That key seals from then on.
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
