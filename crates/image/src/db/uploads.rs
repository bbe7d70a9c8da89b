//! Statements about the data of images: uploads in progress, and the objects that rows name.

use std::collections::HashSet;

use jiff::Timestamp;
use kilonova_ids::ImageId;
use kilonova_image_store::ObjectName;
use kilonova_store::{Error, Row, Tx, Value, listed, params, statements};

use super::images::location;
use crate::record::Location;

statements! {
    /// Begins an upload of a queued image; only one uploader succeeds.
    BEGIN = "UPDATE images SET status = 'saving', store = ?2, data = ?3, uploader = ?4, sign = 0,
        updated_at = ?5 WHERE id = ?1 AND status = 'queued'";
    /// Begins an upload that supersedes one in progress.
    SUPERSEDE = "UPDATE images SET status = 'saving', store = ?2, data = ?3, uploader = ?4, sign = 0,
        updated_at = ?5 WHERE id = ?1 AND status IN ('queued', 'saving')";
    /// Writes a heartbeat of an upload.
    HEARTBEAT = "UPDATE images SET sign = COALESCE(sign, 0) + 1
        WHERE id = ?1 AND status = 'saving' AND data = ?2";
    /// Completes an upload.
    FINISH = "UPDATE images SET status = 'active', size = ?3, virtual_size = ?4, checksum = ?5,
        hash = ?6, disk_format = ?7, updated_at = ?8, uploader = NULL, sign = NULL
        WHERE id = ?1 AND status = 'saving' AND data = ?2";
    /// Completes a queued image without data. The hashes are the MD5 and SHA-512 of empty data.
    COMPLETE_EMPTY = "UPDATE images SET status = 'active', size = 0, virtual_size = 0,
        checksum = 'd41d8cd98f00b204e9800998ecf8427e',
        hash = 'cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e'
        WHERE id = ?1 AND status = 'queued'";
    /// Queues the image of a failed upload again.
    RESET = "UPDATE images SET status = 'queued', store = NULL, data = NULL, uploader = NULL,
        sign = NULL WHERE id = ?1 AND status = 'saving' AND data = ?2";
    /// Queues the image of a dead upload again, unless the upload has had another heartbeat.
    RESET_SILENT = "UPDATE images SET status = 'queued', store = NULL, data = NULL, uploader = NULL,
        sign = NULL WHERE id = ?1 AND status = 'saving' AND data = ?2
        AND COALESCE(sign, -1) = ?3";
    /// The uploads in progress.
    IN_PROGRESS = "SELECT id, store, data, uploader, sign FROM images WHERE status = 'saving'";
    /// The image that names an object.
    NAMED = "SELECT id FROM images WHERE data = ?1";
    /// The listed objects that images name.
    NAMED_OF = "SELECT data FROM images WHERE data IN ({})";
    /// The cloud's name.
    CLOUD = "SELECT cloud FROM image_clouds WHERE one = 1";
    /// Sets the cloud's name if it has none.
    NAME_CLOUD = "INSERT INTO image_clouds (one, cloud) VALUES (1, ?1) ON CONFLICT (one) DO NOTHING";
}

/// An upload in progress.
#[derive(Debug, Clone)]
pub(crate) struct InProgress {
    pub image: ImageId,
    pub location: Location,
    /// The machine that receives the upload; `None` if that machine runs an earlier version.
    pub uploader: Option<String>,
    /// The number of the last heartbeat; `None` if that machine runs an earlier version.
    pub heartbeat: Option<i64>,
}

/// Begins an upload; returns false if the image is not queued. With `supersedes` it also replaces an upload
/// in progress, whose [`finish`] then fails.
pub(crate) fn begin(
    tx: &mut Tx<'_>,
    id: ImageId,
    location: &Location,
    uploader: &str,
    supersedes: bool,
    now: Timestamp,
) -> Result<bool, Error> {
    let statement = if supersedes { SUPERSEDE } else { BEGIN };
    let values = params![id, location.store.as_str(), location.name.as_str(), uploader, now];
    Ok(tx.execute(statement, values)? > 0)
}

/// Writes a heartbeat; returns false if the row no longer belongs to this upload.
pub(crate) fn write_heartbeat(
    tx: &mut Tx<'_>,
    id: ImageId,
    name: &ObjectName,
) -> Result<bool, Error> {
    Ok(tx.execute(HEARTBEAT, params![id, name.as_str()])? > 0)
}

/// The size, format and hashes of received data.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedData {
    pub size: i64,
    pub virtual_size: i64,
    /// The disk format.
    pub format: Option<String>,
    pub checksum: String,
    pub hash: String,
}

/// Completes a queued image without data.
pub(crate) fn complete_empty(tx: &mut Tx<'_>, id: ImageId) -> Result<(), Error> {
    tx.execute(COMPLETE_EMPTY, params![id]).map(|_| ())
}

/// Completes an upload; returns false if it was reset or superseded, or the image is deleted.
pub(crate) fn finish(
    tx: &mut Tx<'_>,
    id: ImageId,
    name: &ObjectName,
    received: &ReceivedData,
    now: Timestamp,
) -> Result<bool, Error> {
    let values = params![
        id,
        name.as_str(),
        received.size,
        received.virtual_size,
        &received.checksum,
        &received.hash,
        received.format.clone(),
        now,
    ];
    Ok(tx.execute(FINISH, values)? > 0)
}

/// Queues the image of a failed upload again. Returns true if a row still names the object: the
/// upload was completed after all.
pub(crate) fn reset(tx: &mut Tx<'_>, id: ImageId, name: &ObjectName) -> Result<bool, Error> {
    tx.execute(RESET, params![id, name.as_str()])?;
    is_named(tx, name)
}

/// Resets an image to `queued` unless its upload has had another heartbeat; returns false if it has.
pub(crate) fn reset_silent(tx: &mut Tx<'_>, upload: &InProgress) -> Result<bool, Error> {
    let values =
        params![upload.image, upload.location.name.as_str(), upload.heartbeat.unwrap_or(-1)];
    Ok(tx.execute(RESET_SILENT, values)? > 0)
}

/// The uploads in progress.
pub(crate) fn in_progress(tx: &mut Tx<'_>) -> Result<Vec<InProgress>, Error> {
    let read = |row: &Row| {
        Ok(InProgress {
            image: row.id("id")?,
            location: location(row)?
                .ok_or_else(|| Error::Shape("images: an upload without data".into()))?,
            uploader: row.string_opt("uploader")?,
            heartbeat: row.int_opt("sign")?,
        })
    };
    tx.rows(IN_PROGRESS, params![])?.iter().map(read).collect()
}

/// True if an image names the object.
pub(crate) fn is_named(tx: &mut Tx<'_>, name: &ObjectName) -> Result<bool, Error> {
    Ok(tx.row(NAMED, params![name.as_str()])?.is_some())
}

/// Maximum number of objects in one statement of [`named`].
const LISTED: usize = 100;

/// The listed objects that images name.
pub(crate) fn named(tx: &mut Tx<'_>, objects: &[ObjectName]) -> Result<HashSet<String>, Error> {
    let mut named = HashSet::new();
    for some in objects.chunks(LISTED) {
        let values: Vec<Value> = some.iter().map(|name| Value::from(name.as_str())).collect();
        for row in tx.rows(&listed(NAMED_OF, some.len()), &values)? {
            named.insert(row.string("data")?);
        }
    }
    Ok(named)
}

/// The cloud's name, if it has one.
pub(crate) fn cloud(tx: &mut Tx<'_>) -> Result<Option<String>, Error> {
    tx.row(CLOUD, params![])?.map(|row| row.string("cloud")).transpose()
}

/// Sets the cloud's name if it has none; returns its name.
pub(crate) fn name_cloud(tx: &mut Tx<'_>, proposed: &str) -> Result<String, Error> {
    tx.execute(NAME_CLOUD, params![proposed])?;
    cloud(tx)?.ok_or_else(|| Error::Shape("image_clouds: no row".into()))
}
