//! Password hashes: argon2id on dedicated threads, in a fair order.
//!
//! ```text
//!   known wrong? ─► refused        likely correct? ─► first in line      queue ─► threads
//! ```
//!
//! Passwords must never reach a log, an error text or a `Debug` output. In memory, a wrong password leaves a
//! fingerprint keyed with a random number, and a correct one leaves a single byte of its fingerprint, which is too
//! little to recover the password. This memory only orders the queue and avoids repeated hashes; it never causes a
//! secret to be accepted.

mod memory;
mod pool;
mod queue;

use std::sync::atomic::{AtomicU64, Ordering};

use argon2::Params;

use crate::Error;
use memory::Memory;
use pool::{Outcome, Pool, Task};
pub(crate) use queue::Party;

/// Maximum number of bytes in a password; more would only cost time.
pub(crate) const LONGEST: usize = 4096;

/// Statistics of the hashing threads, for metrics and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashStatistics {
    /// Hashes computed.
    pub hashes: u64,
    /// Logins refused because the queue was full.
    pub refused: u64,
    /// Logins in the queue.
    pub waiting: usize,
    /// Hashes computed between the arrival of the last successful login and its turn.
    pub passed: u64,
    /// Logins refused because their account is locked.
    pub locked: u64,
}

/// Hashes and verifies secrets.
pub(crate) struct Hasher {
    pool: Pool,
    memory: Memory,
    locked: AtomicU64,
}

impl Hasher {
    /// Starts the threads. `waiting` is the maximum length of the queue.
    pub(crate) fn new(params: Params, waiting: usize) -> Result<Self, Error> {
        let pool = Pool::new(params, waiting)?;
        Ok(Self { pool, memory: Memory::new(), locked: AtomicU64::new(0) })
    }

    /// Hashes a secret; returns the PHC string to store.
    pub(crate) async fn hash(&self, party: Party, secret: String) -> Result<String, Error> {
        match self.pool.run(party, false, Task::Hash(secret)).await? {
            Outcome::Hashed(hash) => hash,
            Outcome::Fits(_) => Err(Error::Hash("unexpected outcome of a hash task".into())),
        }
    }

    /// Verifies a secret. A secret that is known to be wrong is refused without computing a hash.
    pub(crate) async fn verify(
        &self,
        party: Party,
        secret: String,
        stored: String,
    ) -> Result<bool, Error> {
        if secret.len() > LONGEST {
            return self.refuse().await;
        }
        let fingerprint = self.memory.fingerprint(&stored, &secret);
        if self.memory.was_wrong(&fingerprint) {
            return self.refuse().await;
        }
        let likely = self.memory.is_likely_right(&party.user, &fingerprint);
        let user = party.user.clone();
        match self.pool.run(party, likely, Task::Verify { secret, stored }).await? {
            Outcome::Fits(true) => {
                self.memory.right(user, &fingerprint);
                Ok(true)
            }
            Outcome::Fits(false) => {
                self.memory.wrong(fingerprint);
                Ok(false)
            }
            Outcome::Hashed(_) => Err(Error::Hash("unexpected outcome of a verify task".into())),
        }
    }

    /// Refuses after the time that a hash takes, without computing one, so that a client cannot tell
    /// a missing user from a wrong password.
    pub(crate) async fn refuse(&self) -> Result<bool, Error> {
        tokio::time::sleep(self.pool.typical()).await;
        Ok(false)
    }

    /// Counts a login that was refused because its account is locked.
    pub(crate) fn count_locked(&self) {
        self.locked.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn hash_statistics(&self) -> HashStatistics {
        HashStatistics {
            hashes: self.pool.hashes(),
            refused: self.pool.refused(),
            waiting: self.pool.waiting(),
            passed: self.pool.passed(),
            locked: self.locked.load(Ordering::Relaxed),
        }
    }
}
