//! Determines whether a consumer in Placement is a server or a migration of this service.

use kilonova_ids::ConsumerId;
use kilonova_store::{Error, Tx, params};

kilonova_store::statements! {
    /// Selects a row if a consumer is a server.
    SERVER = "SELECT id FROM servers WHERE id = ?1";
    /// The server of a consumer that is a migration with a claim.
    MIGRATION = "SELECT server_id FROM moves WHERE id = ?1 AND held_on IS NOT NULL";
}

/// The kind of a consumer.
pub enum Kept {
    /// A server.
    Server,
    /// A migration of a server.
    Migration(String),
}

/// The kind of a consumer, if it is ours.
///
/// # Errors
/// Store errors only.
pub fn by(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<Option<Kept>, Error> {
    if tx.row(SERVER, params![consumer])?.is_some() {
        return Ok(Some(Kept::Server));
    }
    let migration = tx.row(MIGRATION, params![consumer])?;
    migration.map(|row| row.string("server_id").map(Kept::Migration)).transpose()
}
