//! Password hashes: argon2id, off the async threads and never more at once than there are cores,
//! since each one takes 19 MiB and tens of milliseconds by design.
//!
//! Passwords must never reach a log, an error text or a `Debug` output.

use std::sync::{Arc, LazyLock};

use argon2::{Algorithm, Argon2, Params, PasswordHash, PasswordHasher, PasswordVerifier, Version};
use tokio::sync::Semaphore;

use crate::Error;

/// What a password may have in bytes; more would only cost time.
pub(crate) const LONGEST: usize = 4096;

/// Hashes and checks secrets.
#[derive(Clone)]
pub(crate) struct Hasher {
    params: Params,
    turns: Arc<Semaphore>,
    /// The hash that a login of an unknown user is checked against, so that it takes as long.
    decoy: Arc<LazyLock<String, Box<dyn FnOnce() -> String + Send>>>,
}

impl Hasher {
    pub(crate) fn new(params: Params) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let own = params.clone();
        let decoy: Box<dyn FnOnce() -> String + Send> =
            Box::new(move || hash(own, "no user has this password").unwrap_or_default());
        Self {
            params,
            turns: Arc::new(Semaphore::new(cores)),
            decoy: Arc::new(LazyLock::new(decoy)),
        }
    }

    /// The PHC string to store.
    pub(crate) async fn hash(&self, secret: String) -> Result<String, Error> {
        let params = self.params.clone();
        self.run(move || hash(params, &secret)).await?
    }

    /// Whether the secret fits; `None` takes as long and never fits.
    pub(crate) async fn verify(
        &self,
        secret: String,
        stored: Option<String>,
    ) -> Result<bool, Error> {
        if secret.len() > LONGEST {
            return Ok(false);
        }
        let decoy = Arc::clone(&self.decoy);
        self.run(move || {
            let known = stored.is_some();
            let stored = stored.unwrap_or_else(|| (**decoy).clone());
            let fits = PasswordHash::new(&stored).is_ok_and(|hash| {
                Argon2::default().verify_password(secret.as_bytes(), &hash).is_ok()
            });
            fits && known
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let turn = Arc::clone(&self.turns)
            .acquire_owned()
            .await
            .map_err(|e| Error::Hash(e.to_string()))?;
        tokio::task::spawn_blocking(move || {
            let value = work();
            drop(turn);
            value
        })
        .await
        .map_err(|e| Error::Hash(e.to_string()))
    }
}

fn hash(params: Params, secret: &str) -> Result<String, Error> {
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon2
        .hash_password(secret.as_bytes())
        .map(|hash: PasswordHash| hash.to_string())
        .map_err(|e| Error::Hash(e.to_string()))
}
