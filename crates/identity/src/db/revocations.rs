//! Revoked tokens. A row is kept for as long as the token could otherwise be accepted.

use jiff::Timestamp;
use kilonova_store::{Error, Tx, params, statements};

statements! {
    /// Revokes a token.
    INSERT = "INSERT INTO identity_revoked_tokens (audit_id, expires_at) VALUES (?1, ?2)
        ON CONFLICT (audit_id) DO NOTHING";
    /// One revocation.
    EXISTS = "SELECT 1 FROM identity_revoked_tokens WHERE audit_id = ?1";
    /// Deletes rows of tokens that expired before a time.
    PRUNE = "DELETE FROM identity_revoked_tokens WHERE expires_at < ?1";
}

/// Revokes a token. Also deletes the revocations of tokens that expired before `useless`: these
/// tokens are refused even when a service presents them.
pub(crate) fn insert(
    tx: &mut Tx<'_>,
    audit: &str,
    expires: Timestamp,
    useless: Timestamp,
) -> Result<(), Error> {
    tx.execute(PRUNE, params![useless])?;
    tx.execute(INSERT, params![audit, expires]).map(|_| ())
}

/// True if the token is revoked.
pub(crate) fn exists(tx: &mut Tx<'_>, audit: &str) -> Result<bool, Error> {
    Ok(tx.row(EXISTS, params![audit])?.is_some())
}
