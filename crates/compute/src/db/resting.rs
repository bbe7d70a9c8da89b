//! Servers that are shelved, in rescue, or deleted but can be had back: since when, and the image that
//! a shelved one is made from again.

use kilonova_ids::{ImageId, ServerId};
use kilonova_store::{Tx, params};

use crate::Error;

kilonova_store::statements! {
    /// It rests, from now on for this reason.
    PUT = "INSERT INTO resting (server_id, why, image_id, since) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (server_id) DO UPDATE SET why = excluded.why, image_id = excluded.image_id,
        since = excluded.since";
    /// The image of one.
    IMAGE = "SELECT image_id FROM resting WHERE server_id = ?1";
    /// It rests no more.
    END = "DELETE FROM resting WHERE server_id = ?1";
    /// Those that have rested long, nothing being done to them.
    LONG = "SELECT r.server_id FROM resting r JOIN servers s ON s.id = r.server_id
        WHERE r.why = ?1 AND r.since < ?2 AND s.task_state IS NULL AND s.vm_state = ?3
        ORDER BY r.since LIMIT 100";
}

/// Why a server rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is shelved.
    Shelved,
    /// It is deleted and can be restored.
    Deleted,
    /// It is in rescue.
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

    /// The state in which the time counts.
    fn vm_state(self) -> &'static str {
        match self {
            Self::Shelved => "shelved",
            Self::Deleted => "soft-delete",
            Self::Rescued => "rescued",
        }
    }
}

/// The server rests from now on.
///
/// # Errors
/// The database's; so for all functions here.
pub fn put(
    tx: &mut Tx<'_>,
    server: ServerId,
    why: Why,
    image: Option<ImageId>,
    now: i64,
) -> Result<(), Error> {
    tx.execute(PUT, params![server, why.as_str(), image, now])?;
    Ok(())
}

/// The image that a shelved server is made from again.
pub fn image(tx: &mut Tx<'_>, server: ServerId) -> Result<Option<ImageId>, Error> {
    let Some(row) = tx.row(IMAGE, params![server])? else { return Ok(None) };
    Ok(row.id_opt(0)?)
}

/// The server rests no more.
pub fn end(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    tx.execute(END, params![server])?;
    Ok(())
}

/// Up to a hundred servers that rest since before `before`, while nothing is done to them.
pub fn long(tx: &mut Tx<'_>, why: Why, before: i64) -> Result<Vec<ServerId>, Error> {
    let rows = tx.rows(LONG, params![why.as_str(), before, why.vm_state()])?;
    rows.iter().map(|row| Ok(row.id(0)?)).collect()
}
