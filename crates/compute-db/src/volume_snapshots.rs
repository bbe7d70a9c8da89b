//! Snapshots of volumes that become an image of a volume-backed server: the journal of the calls to Cinder,
//! which no transaction can contain.
//!
//! ```text
//!   making ──keep──► no row   (the image is its user's, and so are its snapshots)
//!      └── discard ──► unwanted ──► no row
//! ```
//!
//! A row exists before the call that makes its snapshot, whose metadata names the row: so a sweep finds every
//! snapshot that a dead controller left. A row is due when nobody works on its image any more. All rows of
//! an image are kept together, in the transaction that makes the image its user's, or are discarded together.

use jiff::Timestamp;
use kilonova_ids::{BlockDeviceId, ImageId, ServerId, SnapshotId, VolumeId};
use kilonova_store::{Migration, Row, Tx, params};

use super::servers::shape;
use crate::Error;

/// Adds the table.
pub const VOLUME_SNAPSHOTS: Migration = Migration {
    name: "compute-0750-volume-snapshots",
    sql: "
CREATE TABLE volume_snapshots (
    id TEXT PRIMARY KEY,
    image_id TEXT NOT NULL,
    server_id TEXT NOT NULL,
    volume_id TEXT NOT NULL,
    snapshot_id TEXT,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL DEFAULT 0,
    due_at BIGINT NOT NULL
);
CREATE INDEX volume_snapshots_by_image ON volume_snapshots (image_id);
CREATE INDEX volume_snapshots_due ON volume_snapshots (due_at);",
};

kilonova_store::statements! {
    /// Adds a snapshot that is about to be made.
    ADD = "INSERT INTO volume_snapshots (id, image_id, server_id, volume_id, state, due_at)
        VALUES (?1, ?2, ?3, ?4, 'making', ?5)";
    /// Gives the request for an image more time.
    RENEW = "UPDATE volume_snapshots SET due_at = ?2 WHERE image_id = ?1 AND state = 'making'";
    /// Records the snapshot that was made.
    MADE = "UPDATE volume_snapshots SET snapshot_id = ?2 WHERE id = ?1";
    /// Forgets the snapshots of an image, which are its user's from now on.
    KEEP = "DELETE FROM volume_snapshots WHERE image_id = ?1 AND state = 'making'";
    /// Makes the snapshots of an image unwanted.
    DISCARD = "UPDATE volume_snapshots SET state = 'unwanted', attempts = 0, due_at = ?2
        WHERE image_id = ?1 AND state = 'making'";
    /// Postpones the next attempt.
    POSTPONE = "UPDATE volume_snapshots SET attempts = attempts + 1, due_at = ?2 WHERE id = ?1";
    /// Forgets a snapshot.
    FORGET = "DELETE FROM volume_snapshots WHERE id = ?1";
    /// The snapshots that are due.
    DUE = "SELECT id, image_id, server_id, volume_id, snapshot_id, state, attempts
        FROM volume_snapshots WHERE due_at <= ?1 ORDER BY due_at LIMIT 100";
}

/// The id of a snapshot's row, which it has before Cinder gives it one.
pub type RowId = BlockDeviceId;

/// The state of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotState {
    /// A request makes the image.
    Making,
    /// It is deleted next.
    Unwanted,
}

/// A snapshot that a request for an image makes, or made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeSnapshot {
    /// The id of the row.
    pub id: RowId,
    /// The image.
    pub image: ImageId,
    /// The server.
    pub server: ServerId,
    /// The volume.
    pub volume: VolumeId,
    /// Its id in Cinder; none before the answer.
    pub snapshot: Option<SnapshotId>,
    /// Its state.
    pub state: SnapshotState,
    /// Failed attempts of its deletion.
    pub attempts: i64,
}

/// Adds a snapshot that is about to be made. Its image is given up at `due` unless [`renew`] comes first.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn add(
    tx: &mut Tx<'_>,
    id: RowId,
    image: ImageId,
    server: ServerId,
    volume: VolumeId,
    due: Timestamp,
) -> Result<(), Error> {
    tx.defer(ADD, params![id, image, server, volume, due])?;
    Ok(())
}

/// Gives the request for an image time until `due`. False if the sweep has given the image up.
pub fn renew(tx: &mut Tx<'_>, image: ImageId, due: Timestamp) -> Result<bool, Error> {
    Ok(tx.execute(RENEW, params![image, due])? > 0)
}

/// Records the snapshot that was made, also of an image that was given up. False if the sweep has looked
/// for it already, and forgotten it.
pub fn made(tx: &mut Tx<'_>, id: RowId, snapshot: SnapshotId) -> Result<bool, Error> {
    Ok(tx.execute(MADE, params![id, snapshot])? > 0)
}

/// The snapshots of an image are its user's from now on. Returns their number: none if the sweep has given
/// the image up.
pub fn keep(tx: &mut Tx<'_>, image: ImageId) -> Result<u64, Error> {
    Ok(tx.execute(KEEP, params![image])?)
}

/// Makes the snapshots of an image unwanted; they are deleted from `due` on.
pub fn discard(tx: &mut Tx<'_>, image: ImageId, due: Timestamp) -> Result<(), Error> {
    tx.defer(DISCARD, params![image, due])?;
    Ok(())
}

/// Postpones the next attempt.
pub fn postpone(tx: &mut Tx<'_>, id: RowId, due: Timestamp) -> Result<(), Error> {
    tx.defer(POSTPONE, params![id, due])?;
    Ok(())
}

/// Forgets a snapshot.
pub fn forget(tx: &mut Tx<'_>, id: RowId) -> Result<(), Error> {
    tx.defer(FORGET, params![id])?;
    Ok(())
}

/// At most a hundred snapshots that are due.
pub fn due(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<VolumeSnapshot>, Error> {
    tx.rows(DUE, params![now])?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<VolumeSnapshot, Error> {
    let state = match row.text("state")? {
        "making" => SnapshotState::Making,
        "unwanted" => SnapshotState::Unwanted,
        other => return Err(shape(format!("state of a volume's snapshot: {other:?}"))),
    };
    Ok(VolumeSnapshot {
        id: row.id("id")?,
        image: row.id("image_id")?,
        server: row.id("server_id")?,
        volume: row.id("volume_id")?,
        snapshot: row.id_opt("snapshot_id")?,
        state,
        attempts: row.int("attempts")?,
    })
}
