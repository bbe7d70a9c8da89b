//! The images that are created from servers in the external Glance: the journal of the calls to Glance, which cannot be
//! part of a transaction.
//!
//! ```text
//!   creating ──adopt──► expected ──fill──► complete ──► no row   (an image of the user)
//!      │                   │                  ├──rotate──► rotating ──► no row   (a backup)
//!      └───── discard ─────┴──────────────────┴──► unwanted ──► no row
//! ```
//!
//! A row exists before the first call that names its image, so that a sweep finds every image that a dead
//! controller left behind. `due_at` is set in the states in which no operation and no server owns the image.

use jiff::Timestamp;
use kilonova_ids::{ImageId, ServerId};
use kilonova_store::{Migration, Tx, params};

use crate::Error;

/// Adds the table.
pub const GLANCE_IMAGES: Migration = Migration {
    name: "compute-0700-glance-images",
    sql: "
CREATE TABLE glance_images (
    id TEXT PRIMARY KEY,
    server_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    state TEXT NOT NULL,
    backup_type TEXT,
    rotation BIGINT,
    attempts BIGINT NOT NULL DEFAULT 0,
    due_at BIGINT,
    created_at BIGINT NOT NULL
);
CREATE INDEX glance_images_due ON glance_images (due_at) WHERE due_at IS NOT NULL;",
};

kilonova_store::statements! {
    /// Adds an image that is about to be created.
    ADD = "INSERT INTO glance_images (id, server_id, project_id, state, due_at, created_at)
        VALUES (?1, ?2, ?3, 'creating', ?4, ?5)";
    /// One image.
    ONE = "SELECT id, server_id, project_id, state, backup_type, rotation, attempts, created_at
        FROM glance_images WHERE id = ?1";
    /// Moves an image to a state in which an operation or a server owns it.
    MOVE = "UPDATE glance_images SET state = ?3, due_at = NULL WHERE id = ?1 AND state = ?2
        RETURNING id";
    /// Makes an image a backup whose rotation is due.
    ROTATE = "UPDATE glance_images SET state = 'rotating', backup_type = ?2, rotation = ?3,
        attempts = 0, due_at = ?4 WHERE id = ?1";
    /// Makes an image unwanted.
    DISCARD = "UPDATE glance_images SET state = 'unwanted', attempts = 0, due_at = ?2
        WHERE id = ?1 AND state <> 'unwanted'";
    /// Postpones the next attempt.
    POSTPONE = "UPDATE glance_images SET attempts = attempts + 1, due_at = ?2
        WHERE id = ?1 AND due_at IS NOT NULL";
    /// Deletes an image's row.
    FORGET = "DELETE FROM glance_images WHERE id = ?1";
    /// The images that are due.
    DUE = "SELECT id, server_id, project_id, state, backup_type, rotation, attempts, created_at
        FROM glance_images WHERE due_at <= ?1 ORDER BY due_at LIMIT 100";
}

/// The state of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GlanceState {
    /// A controller is creating it, and no operation has adopted it.
    Creating,
    /// An operation waits for its bytes.
    Expected,
    /// Glance has its bytes.
    Complete,
    /// It is a backup, and older ones are deleted next.
    Rotating {
        /// `daily`, …
        backup_type: String,
        /// Number of backups of the type to keep.
        rotation: i64,
    },
    /// It is deleted next.
    Unwanted,
}

/// An image in Glance that is created from a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlanceImage {
    /// Its id.
    pub id: ImageId,
    /// The server.
    pub server: ServerId,
    /// The project that owns it.
    pub project_id: String,
    /// Its state.
    pub state: GlanceState,
    /// Failed attempts at the pending call.
    pub attempts: i64,
    /// When its row was written.
    pub created_at: Timestamp,
}

/// Adds an image that is about to be created. It becomes unwanted at `due` unless an operation adopts it.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn add(
    tx: &mut Tx<'_>,
    image: ImageId,
    server: ServerId,
    project_id: &str,
    due: Timestamp,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(ADD, params![image, server, project_id, due, now])?;
    Ok(())
}

/// One image.
pub fn find(tx: &mut Tx<'_>, image: ImageId) -> Result<Option<GlanceImage>, Error> {
    tx.row(ONE, params![image])?.as_ref().map(read).transpose()
}

/// Assigns an image to an operation. False if the sweep has claimed it meanwhile.
pub fn adopt(tx: &mut Tx<'_>, image: ImageId) -> Result<bool, Error> {
    Ok(tx.row(MOVE, params![image, "creating", "expected"])?.is_some())
}

/// Records that Glance has the bytes. False if they are no longer expected.
pub fn fill(tx: &mut Tx<'_>, image: ImageId) -> Result<bool, Error> {
    Ok(tx.row(MOVE, params![image, "expected", "complete"])?.is_some())
}

/// Records that the rotation of a backup is due.
pub fn rotate(
    tx: &mut Tx<'_>,
    image: ImageId,
    backup_type: &str,
    rotation: i64,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(ROTATE, params![image, backup_type, rotation, now])?;
    Ok(())
}

/// Makes an image unwanted; its deletion is due at `due`.
pub fn discard(tx: &mut Tx<'_>, image: ImageId, due: Timestamp) -> Result<(), Error> {
    tx.defer(DISCARD, params![image, due])?;
    Ok(())
}

/// Postpones the next attempt at the pending call.
pub fn postpone(tx: &mut Tx<'_>, image: ImageId, due: Timestamp) -> Result<(), Error> {
    tx.defer(POSTPONE, params![image, due])?;
    Ok(())
}

/// Deletes an image's row.
pub fn forget(tx: &mut Tx<'_>, image: ImageId) -> Result<(), Error> {
    tx.defer(FORGET, params![image])?;
    Ok(())
}

/// At most a hundred images that are due.
pub fn due(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<GlanceImage>, Error> {
    tx.rows(DUE, params![now])?.iter().map(read).collect()
}

fn read(row: &kilonova_store::Row) -> Result<GlanceImage, Error> {
    let word = row.string("state")?;
    let state = match word.as_str() {
        "creating" => GlanceState::Creating,
        "expected" => GlanceState::Expected,
        "complete" => GlanceState::Complete,
        "rotating" => GlanceState::Rotating {
            backup_type: row.string("backup_type")?,
            rotation: row.int("rotation")?,
        },
        "unwanted" => GlanceState::Unwanted,
        other => {
            let why = format!("glance_images has the unknown state {other:?}");
            return Err(kilonova_store::Error::Shape(why).into());
        }
    };
    Ok(GlanceImage {
        id: row.id("id")?,
        server: row.id("server_id")?,
        project_id: row.string("project_id")?,
        state,
        attempts: row.int("attempts")?,
        created_at: row.time("created_at")?,
    })
}
