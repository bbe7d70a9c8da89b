//! Snapshots of volumes that become an image of a volume-backed server: the journal of the calls to
//! Cinder, which cannot be part of a transaction.
//!
//! ```text
//!   making ──keep──► no row   (the image and its snapshots belong to the user)
//!      └── discard ──► unwanted ──► no row
//! ```
//!
//! A row exists before the call that creates its snapshot, and the snapshot's metadata names the row,
//! so a sweep finds every leftover snapshot of a dead controller. A row is due when no request is working on its image
//! any more. All rows of an image are kept together, in the transaction that assigns the image to its user, or are
//! discarded together.

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
    /// Adds a snapshot that is about to be created.
    ADD = "INSERT INTO volume_snapshots (id, image_id, server_id, volume_id, state, due_at)
        VALUES (?1, ?2, ?3, ?4, 'making', ?5)";
    /// Extends the deadline of the request for an image.
    RENEW = "UPDATE volume_snapshots SET due_at = ?2 WHERE image_id = ?1 AND state = 'making'";
    /// Records the created snapshot.
    MADE = "UPDATE volume_snapshots SET snapshot_id = ?2 WHERE id = ?1";
    /// Deletes the rows of an image's snapshots, which belong to its user from now on.
    KEEP = "DELETE FROM volume_snapshots WHERE image_id = ?1 AND state = 'making'";
    /// Makes the snapshots of an image unwanted.
    DISCARD = "UPDATE volume_snapshots SET state = 'unwanted', attempts = 0, due_at = ?2
        WHERE image_id = ?1 AND state = 'making'";
    /// Postpones the next attempt.
    POSTPONE = "UPDATE volume_snapshots SET attempts = attempts + 1, due_at = ?2 WHERE id = ?1";
    /// Deletes the row of a snapshot.
    FORGET = "DELETE FROM volume_snapshots WHERE id = ?1";
    /// The snapshots that are due.
    DUE = "SELECT id, image_id, server_id, volume_id, snapshot_id, state, attempts
        FROM volume_snapshots WHERE due_at <= ?1 ORDER BY due_at LIMIT 100";
}

/// The id of a snapshot's row, which exists before Cinder assigns an id.
pub type RowId = BlockDeviceId;

/// The state of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotState {
    /// A request is creating the image.
    Making,
    /// The sweep deletes it.
    Unwanted,
}

/// A snapshot that a request for an image creates or has created.
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
    /// Its id in Cinder; `None` before Cinder has answered.
    pub snapshot: Option<SnapshotId>,
    /// Its state.
    pub state: SnapshotState,
    /// Failed attempts to delete it.
    pub attempts: i64,
}

/// Adds a snapshot that is about to be created. Its image is discarded at `due` unless [`renew`] is called before then.
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

/// Extends the deadline of the request for an image to `due`. False if the sweep has discarded the
/// image.
pub fn renew(tx: &mut Tx<'_>, image: ImageId, due: Timestamp) -> Result<bool, Error> {
    Ok(tx.execute(RENEW, params![image, due])? > 0)
}

/// Records the created snapshot, even if its image has been discarded. False if the sweep has already searched for it
/// and deleted the row.
pub fn made(tx: &mut Tx<'_>, id: RowId, snapshot: SnapshotId) -> Result<bool, Error> {
    Ok(tx.execute(MADE, params![id, snapshot])? > 0)
}

/// Assigns the snapshots of an image to its user. Returns their number: 0 if the sweep has
/// discarded the image.
pub fn keep(tx: &mut Tx<'_>, image: ImageId) -> Result<u64, Error> {
    Ok(tx.execute(KEEP, params![image])?)
}

/// Makes the snapshots of an image unwanted; their deletion is due at `due`.
pub fn discard(tx: &mut Tx<'_>, image: ImageId, due: Timestamp) -> Result<(), Error> {
    tx.defer(DISCARD, params![image, due])?;
    Ok(())
}

/// Postpones the next attempt.
pub fn postpone(tx: &mut Tx<'_>, id: RowId, due: Timestamp) -> Result<(), Error> {
    tx.defer(POSTPONE, params![id, due])?;
    Ok(())
}

/// Deletes the row of a snapshot.
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
