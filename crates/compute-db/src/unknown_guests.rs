//! Guests that hosts report but no document names. After a restore of an older dump, these are the servers that
//! were created or moved after the dump.

use jiff::Timestamp;
use kilonova_ids::{HostName, ServerId};
use kilonova_store::{Migration, Tx, params};

use crate::Error;

/// The table.
pub const UNKNOWN_GUESTS: Migration = Migration {
    name: "compute-0012-unknown-guests",
    sql: "
CREATE TABLE unknown_guests (
    host TEXT NOT NULL,
    server_id TEXT NOT NULL,
    seen_at BIGINT NOT NULL,
    PRIMARY KEY (host, server_id)
);
CREATE INDEX unknown_guests_seen ON unknown_guests (seen_at);
",
};

kilonova_store::statements! {
    /// Records a guest.
    SEEN = "INSERT INTO unknown_guests (host, server_id, seen_at) VALUES (?1, ?2, ?3)
        ON CONFLICT (host, server_id) DO UPDATE SET seen_at = excluded.seen_at";
    /// The guests that were seen since a time, with the host of the server's row.
    SINCE = "SELECT u.host, u.server_id, s.id AS known, s.host AS own FROM unknown_guests u
        LEFT JOIN servers s ON s.id = u.server_id WHERE u.seen_at >= ?1
        ORDER BY u.seen_at DESC LIMIT ?2";
    /// Deletes guests that were last seen before a time.
    PURGE = "DELETE FROM unknown_guests WHERE (host, server_id) IN (SELECT host, server_id
        FROM unknown_guests WHERE seen_at < ?1 ORDER BY seen_at LIMIT ?2)";
}

/// A guest that no document names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownGuest {
    /// The host that reported it.
    pub host: HostName,
    /// The id of its server.
    pub server: ServerId,
    /// True if the database has that server.
    pub is_known: bool,
    /// The host of that server in the database.
    pub own_host: Option<HostName>,
}

/// Records that a host has a guest without a document.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn seen(
    tx: &mut Tx<'_>,
    host: &HostName,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(SEEN, params![host, server, now])?;
    Ok(())
}

/// At most `most` guests that were seen since a time, the latest first.
pub fn since(tx: &mut Tx<'_>, since: Timestamp, most: i64) -> Result<Vec<UnknownGuest>, Error> {
    let rows = tx.rows(SINCE, params![since, most])?;
    let read = |row: &kilonova_store::Row| {
        Ok(UnknownGuest {
            host: row.host("host")?,
            server: row.id("server_id")?,
            is_known: row.text_opt("known")?.is_some(),
            own_host: row.host_opt("own")?,
        })
    };
    Ok(rows.iter().map(read).collect::<Result<_, kilonova_store::Error>>()?)
}

/// Deletes at most `most` guests that were last seen before `before`.
pub fn purge(tx: &mut Tx<'_>, before: Timestamp, most: i64) -> Result<u64, Error> {
    Ok(tx.execute(PURGE, params![before, most])?)
}
