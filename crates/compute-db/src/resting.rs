//! Records of servers that are shelved, rescued or soft-deleted (*resting*). A record contains the time at which the
//! server entered that state, and the image from which a shelved server is unshelved.

use jiff::Timestamp;
use kilonova_ids::{ImageId, ServerId};
use kilonova_store::{Tx, params};

use crate::Error;

kilonova_store::statements! {
    /// Inserts or replaces the record of a server, with the reason.
    PUT = "INSERT INTO resting (server_id, why, image_id, since) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (server_id) DO UPDATE SET why = excluded.why, image_id = excluded.image_id,
        since = excluded.since";
    /// The image of a shelved server.
    IMAGE = "SELECT image_id FROM resting WHERE server_id = ?1";
    /// Deletes the record of a server.
    END = "DELETE FROM resting WHERE server_id = ?1";
    /// Servers without a task that have been in a state since before a time.
    LONG = "SELECT r.server_id FROM resting r JOIN servers s ON s.id = r.server_id
        WHERE r.why = ?1 AND r.since < ?2 AND s.task_state IS NULL AND s.vm_state = ?3
        ORDER BY r.since LIMIT 100";
}

/// The state that a record describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Shelved, on its host.
    Shelved,
    /// Soft-deleted.
    Deleted,
    /// Rescued.
    Rescued,
}

impl Why {
    fn as_str(self) -> &'static str {
        match self {
            Self::Shelved => "shelved",
            Self::Deleted => "deleted",
            Self::Rescued => "rescued",
        }
    }

    /// The `vm_state` of a server that has a record for this reason.
    fn vm_state(self) -> &'static str {
        match self {
            Self::Shelved => "shelved",
            Self::Deleted => "soft-delete",
            Self::Rescued => "rescued",
        }
    }
}

/// Records that the server enters this state at `now`.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn put(
    tx: &mut Tx<'_>,
    server: ServerId,
    why: Why,
    image: Option<ImageId>,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(PUT, params![server, why.as_str(), image, now])?;
    Ok(())
}

/// Announces [`image`].
pub fn expect_image(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    Ok(tx.expect(IMAGE, params![server])?)
}

/// The image from which a shelved server is unshelved.
pub fn image(tx: &mut Tx<'_>, server: ServerId) -> Result<Option<ImageId>, Error> {
    let Some(row) = tx.row(IMAGE, params![server])? else { return Ok(None) };
    Ok(row.id_opt("image_id")?)
}

/// Deletes the record of a server that leaves its state.
pub fn end(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    tx.defer(END, params![server])?;
    Ok(())
}

/// At most a hundred servers without a task that have been in a state since before `before`.
pub fn long(tx: &mut Tx<'_>, why: Why, before: Timestamp) -> Result<Vec<ServerId>, Error> {
    let rows = tx.rows(LONG, params![why.as_str(), before, why.vm_state()])?;
    rows.iter().map(|row| Ok(row.id("server_id")?)).collect()
}
