//! Key pairs: import, generation, and fingerprints for comparison.
//!
//! A private key is never stored.

mod generate;
mod pkcs12;
mod ssh;
mod x509;

use kilonova_compute_db::keypairs::{self, Keypair};
use kilonova_store::{Error as StoreError, Tx};
use kilonova_wire::Refusal;

use crate::{Error, quotas};

pub use generate::{Generated, generate};

/// The kind of a key pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A key for SSH.
    Ssh,
    /// A certificate for WinRM.
    X509,
}

impl Kind {
    /// The name in the API.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ssh => "ssh",
            Self::X509 => "x509",
        }
    }
}

/// The fingerprint of a public key of a kind.
///
/// # Errors
/// 400 if the text is not such a key.
pub fn fingerprint(kind: Kind, public_key: &str) -> Result<String, Refusal> {
    match kind {
        Kind::Ssh => ssh::fingerprint(public_key),
        Kind::X509 => x509::fingerprint(public_key),
    }
}

/// `aa:bb:…`
fn colons(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// The 404 for a missing key pair.
pub fn not_found(user_id: &str, name: &str) -> Error {
    Refusal::not_found(format!("Keypair {name} not found for user {user_id}")).into()
}

/// Adds a key pair.
///
/// # Errors
/// 403 if the user has reached the project's limit, 409 if the name exists, or store errors.
pub fn import(tx: &mut Tx<'_>, project_id: &str, keypair: &Keypair) -> Result<(), Error> {
    let exists =
        || Error::from(Refusal::conflict(format!("Key pair '{}' already exists.", keypair.name)));
    let user_id = keypair.user_id.as_str();
    let limit = quotas::limits(tx, project_id, Some(user_id))?.get("key_pairs").copied();
    if let Some(limit) = limit.filter(|limit| *limit >= 0) {
        kilonova_compute_db::quotas::guard(tx, &format!("key_pairs/{user_id}"))?;
        if keypairs::count(tx, user_id)? >= limit {
            return Err(Refusal::forbidden("Quota exceeded, too many key pairs.").into());
        }
    }
    if keypairs::by_name(tx, user_id, &keypair.name)?.is_some() {
        return Err(exists());
    }
    keypairs::insert(tx, keypair).map_err(|error| match error.into() {
        Error::Store(StoreError::Unique(_)) => exists(),
        other => other,
    })
}
