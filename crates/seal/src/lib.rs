//! The secrets of a cloud, in its database, sealed with a key that the operator provides.
//!
//! ```text
//!   key       one sealing key: authenticated encryption of a secret for its place
//!   keyring   the sealing keys of a controller
//!   source    their origin: a key file, or a command that prints them
//!   vault     the sealed rows of the database
//!   db/       its SQL
//! ```
//!
//! Every controller of a cloud has the same sealing keys, and reads every other secret from the
//! database. A dump of the database is useless without a sealing key. Nothing here protects a
//! secret from root on a controller.
//!
//! This crate must never log a secret or a key, write one to a file other than the key file, or
//! depend on the purpose of a secret: here a secret is only bytes with a kind and a number.

mod command;
mod db;
mod error;
mod key;
mod keyring;
mod source;
mod vault;

pub use db::{MIGRATIONS, statements};
pub use error::Error;
pub use key::{KeyId, SealKey};
pub use keyring::Keyring;
pub use source::KeySource;
pub use vault::{Inspection, Resealed, Sealed, Vault};

/// The bytes of a secret, overwritten when they are dropped. `Debug` does not show them.
#[derive(Clone)]
pub struct Secret(zeroize::Zeroizing<Vec<u8>>);

impl Secret {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(zeroize::Zeroizing::new(bytes.to_vec()))
    }

    /// The secret as text; `None` if it is not UTF-8.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl std::ops::Deref for Secret {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}
