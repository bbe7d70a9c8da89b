//! Password hashes: argon2id, on threads of their own, in a fair order.
//!
//! ```text
//!   known wrong? ─► refused        looks right? ─► first in line      queue ─► threads
//! ```
//!
//! Passwords must never reach a log, an error text or a `Debug` output. What is remembered of them
//! is keyed by a number that dies with the process: of a wrong one its fingerprint, of a right one
//! a single byte, too little to find it out. A memory decides the order and spares repetitions; no
//! secret is ever accepted because of it.

mod memory;
mod pool;
mod queue;

use argon2::Params;

use crate::Error;
use memory::Memory;
use pool::{Outcome, Pool, Task};
pub(crate) use queue::Party;

/// What a password may have in bytes; more would only cost time.
pub(crate) const LONGEST: usize = 4096;

/// What the threads for hashes have done, for metrics and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Hashes computed.
    pub hashes: u64,
    /// Logins sent away because too many waited.
    pub refused: u64,
    /// Logins that wait now.
    pub waiting: usize,
    /// Hashes computed between the coming of the last login that was right and its turn.
    pub passed: u64,
}

/// Hashes and checks secrets.
pub(crate) struct Hasher {
    pool: Pool,
    memory: Memory,
}

impl Hasher {
    /// At most `waiting` logins wait.
    pub(crate) fn new(params: Params, waiting: usize) -> Result<Self, Error> {
        Ok(Self { pool: Pool::new(params, waiting)?, memory: Memory::new() })
    }

    /// The PHC string to store.
    pub(crate) async fn hash(&self, party: Party, secret: String) -> Result<String, Error> {
        match self.pool.run(party, false, Task::Hash(secret)).await? {
            Outcome::Hashed(hash) => hash,
            Outcome::Fits(_) => Err(Error::Hash("the thread did something else".into())),
        }
    }

    /// Whether the secret fits. One that was wrong before is known to be, and costs no hash.
    pub(crate) async fn verify(
        &self,
        party: Party,
        secret: String,
        stored: String,
    ) -> Result<bool, Error> {
        if secret.len() > LONGEST {
            return self.refuse().await;
        }
        let print = self.memory.print(&stored, &secret);
        if self.memory.was_wrong(&print) {
            return self.refuse().await;
        }
        let likely = self.memory.looks_right(&party.user, &print);
        let user = party.user.clone();
        match self.pool.run(party, likely, Task::Verify { secret, stored }).await? {
            Outcome::Fits(true) => {
                self.memory.right(user, &print);
                Ok(true)
            }
            Outcome::Fits(false) => {
                self.memory.wrong(print);
                Ok(false)
            }
            Outcome::Hashed(_) => Err(Error::Hash("the thread did something else".into())),
        }
    }

    /// Takes as long as a hash and computes none: from outside, a user who is not there must look
    /// like one whose password is wrong.
    pub(crate) async fn refuse(&self) -> Result<bool, Error> {
        tokio::time::sleep(self.pool.typical()).await;
        Ok(false)
    }

    pub(crate) fn figures(&self) -> Figures {
        Figures {
            hashes: self.pool.hashes(),
            refused: self.pool.refused(),
            waiting: self.pool.waiting(),
            passed: self.pool.passed(),
        }
    }
}
