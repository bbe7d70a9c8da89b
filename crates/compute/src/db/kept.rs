//! What of the consumers in Placement is ours.

use kilonova_ids::ConsumerId;
use kilonova_store::{Error, Tx, params};

kilonova_store::statements! {
    /// Whether a consumer is a server.
    SERVER = "SELECT id FROM servers WHERE id = ?1";
    /// The server of which a consumer is a migration that holds something.
    MIGRATION = "SELECT server_id FROM moves WHERE id = ?1 AND held_on IS NOT NULL";
}

/// What a consumer is.
pub enum Kept {
    /// A server.
    Server,
    /// A migration of a server.
    Migration(String),
}

/// What of ours a consumer is.
///
/// # Errors
/// The database's.
pub fn by(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<Option<Kept>, Error> {
    if tx.row(SERVER, params![consumer])?.is_some() {
        return Ok(Some(Kept::Server));
    }
    let migration = tx.row(MIGRATION, params![consumer])?;
    migration.map(|row| row.string(0).map(Kept::Migration)).transpose()
}
