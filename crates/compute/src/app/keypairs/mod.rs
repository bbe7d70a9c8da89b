//! Key pairs: what a user may add, and the fingerprints that people compare.
//!
//! This program never makes a private key: it would have to send it, and someone would have to
//! trust that it was forgotten.

mod ssh;

use kilonova_store::{Error as StoreError, Tx};
use kilonova_wire::Fault;

use crate::Error;
use crate::app::quotas;
use crate::db::keypairs::{self, Keypair};

pub use ssh::fingerprint;

/// 404 for a key pair.
pub fn not_found(user_id: &str, name: &str) -> Error {
    Fault::not_found(format!("Keypair {name} not found for user {user_id}")).into()
}

/// Adds a key pair.
///
/// # Errors
/// 403 when the user has as many as its project allows, 409 when the name is taken, or the
/// database's.
pub fn import(tx: &mut Tx<'_>, project_id: &str, keypair: &Keypair) -> Result<(), Error> {
    let exists =
        || Error::from(Fault::conflict(format!("Key pair '{}' already exists.", keypair.name)));
    let user_id = keypair.user_id.as_str();
    let limit = quotas::limits(tx, project_id, Some(user_id))?.get("key_pairs").copied();
    if let Some(limit) = limit.filter(|limit| *limit >= 0) {
        crate::db::quotas::guard(tx, &format!("key_pairs/{user_id}"))?;
        if keypairs::count(tx, user_id)? >= limit {
            return Err(Fault::forbidden("Quota exceeded, too many key pairs.").into());
        }
    }
    if keypairs::by_name(tx, user_id, &keypair.name)?.is_some() {
        return Err(exists());
    }
    keypairs::insert(tx, keypair).map_err(|error| match error {
        Error::Store(StoreError::Unique(_)) => exists(),
        other => other,
    })
}
