//! Rows of `images`.

use jiff::Timestamp;
use kilonova_ids::ImageId;
use kilonova_image_store::ObjectName;
use kilonova_store::{Error, Row, Tx, Value, params, statements};

use crate::record::{ImageRecord, Location, Status, StoreName, Visibility};

/// Selects [`ImageRecord`]s.
macro_rules! select {
    () => {
        "SELECT id, name, owner, status, visibility, disk_format, container_format, min_ram, \
         min_disk, protected, hidden, size, virtual_size, checksum, hash, store, data, tags, \
         properties, created_at, updated_at FROM images"
    };
}

/// The conditions and the order of a list. [`ImageQuery`] supplies the parameters.
macro_rules! listed {
    () => {
        "
        WHERE (CAST(?1 AS TEXT) IS NULL OR owner = ?1 OR visibility IN ('public', 'community')
            OR (visibility = 'shared' AND EXISTS (SELECT 1 FROM image_members m
                WHERE m.image_id = images.id AND m.member = ?1
                  AND (CAST(?7 AS TEXT) IS NULL OR m.status = ?7))))
          AND (CAST(?2 AS TEXT) IS NULL OR name = ?2)
          AND (CAST(?3 AS TEXT) IS NULL OR owner = ?3)
          AND (CAST(?4 AS BIGINT) IS NULL OR created_at < ?4 OR (created_at = ?4 AND id < ?5))
        ORDER BY created_at DESC, id DESC LIMIT ?6"
    };
}

statements! {
    /// Adds an image.
    INSERT = "INSERT INTO images (id, name, owner, status, visibility, disk_format,
        container_format, min_ram, min_disk, protected, hidden, tags, properties, created_at,
        updated_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
    /// Updates the columns that users can change.
    UPDATE = "UPDATE images SET name = ?2, owner = ?3, visibility = ?4, disk_format = ?5,
        container_format = ?6, min_ram = ?7, min_disk = ?8, protected = ?9, hidden = ?10,
        tags = ?11, properties = ?12, updated_at = ?13 WHERE id = ?1";
    /// One image by id.
    BY_ID = concat!(select!(), " WHERE id = ?1");
    /// The public images.
    PUBLIC = concat!(select!(), " WHERE visibility = 'public' ORDER BY id");
    /// Images visible to a project (all images if none is given), newest first, after a marker.
    LIST = concat!(select!(), listed!());
    /// The size of the metadata of each image that `LIST` returns, in the same order.
    WEIGHTS = concat!(
        "SELECT OCTET_LENGTH(tags) + OCTET_LENGTH(properties) AS bytes FROM images",
        listed!()
    );
    /// Changes the status if it is as expected.
    SET_STATUS = "UPDATE images SET status = ?3, updated_at = ?4 WHERE id = ?1 AND status = ?2";
    /// Writes an owner's row, which serializes transactions that check the owner's quota.
    LOCK_OWNER = "INSERT INTO image_owners (owner, changes) VALUES (?1, 1)
        ON CONFLICT (owner) DO UPDATE SET changes = image_owners.changes + 1";
    /// The number of a project's images.
    NUMBER = "SELECT COUNT(*) AS count FROM images WHERE owner = ?1";
    /// The total size of a project's images in bytes.
    BYTES = "SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) AS bytes FROM images WHERE owner = ?1";
    /// Deletes an image.
    DELETE = "DELETE FROM images WHERE id = ?1";
    /// Records that an id is used.
    CLAIM = "INSERT INTO image_ids (id) VALUES (?1) ON CONFLICT (id) DO NOTHING";
}

fn shape(what: &str) -> Error {
    Error::Shape(format!("images: {what}"))
}

/// Reads the location of the data from the columns `store` and `data`.
pub(super) fn location(row: &Row) -> Result<Option<Location>, Error> {
    let Some(name) = row.string_opt("data")? else { return Ok(None) };
    let name = ObjectName::parse(&name).ok_or_else(|| shape("data"))?;
    let store = match row.string_opt("store")? {
        None => StoreName::File,
        Some(word) => StoreName::parse(&word).ok_or_else(|| shape("store"))?,
    };
    Ok(Some(Location { store, name }))
}

fn read(row: &Row) -> Result<ImageRecord, Error> {
    Ok(ImageRecord {
        id: row.id("id")?,
        name: row.string_opt("name")?,
        owner: row.string("owner")?,
        status: Status::parse(row.text("status")?).ok_or_else(|| shape("status"))?,
        visibility: Visibility::parse(row.text("visibility")?)
            .ok_or_else(|| shape("visibility"))?,
        disk_format: row.string_opt("disk_format")?,
        container_format: row.string_opt("container_format")?,
        min_ram: row.int("min_ram")?,
        min_disk: row.int("min_disk")?,
        protected: row.bool("protected")?,
        hidden: row.bool("hidden")?,
        size: row.int_opt("size")?,
        virtual_size: row.int_opt("virtual_size")?,
        checksum: row.string_opt("checksum")?,
        hash: row.string_opt("hash")?,
        location: location(row)?,
        tags: serde_json::from_str(row.text("tags")?).map_err(|_| shape("tags"))?,
        properties: serde_json::from_str(row.text("properties")?)
            .map_err(|_| shape("properties"))?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}

/// The public images.
pub(crate) fn public(tx: &mut Tx<'_>) -> Result<Vec<ImageRecord>, Error> {
    tx.rows(PUBLIC, params![])?.iter().map(read).collect()
}

fn json(value: &impl serde::Serialize) -> Result<Value, Error> {
    serde_json::to_string(value).map(Value::Text).map_err(|e| shape(&e.to_string()))
}

/// Adds an image.
pub(crate) fn insert(tx: &mut Tx<'_>, image: &ImageRecord) -> Result<(), Error> {
    let values = params![
        image.id,
        image.name.clone(),
        &image.owner,
        image.status.as_str(),
        image.visibility.as_str(),
        image.disk_format.clone(),
        image.container_format.clone(),
        image.min_ram,
        image.min_disk,
        image.protected,
        image.hidden,
        json(&image.tags)?,
        json(&image.properties)?,
        image.created_at,
        image.updated_at,
    ];
    tx.execute(INSERT, values).map(|_| ())
}

/// Updates the columns that users can change.
pub(crate) fn update(tx: &mut Tx<'_>, image: &ImageRecord) -> Result<(), Error> {
    let values = params![
        image.id,
        image.name.clone(),
        &image.owner,
        image.visibility.as_str(),
        image.disk_format.clone(),
        image.container_format.clone(),
        image.min_ram,
        image.min_disk,
        image.protected,
        image.hidden,
        json(&image.tags)?,
        json(&image.properties)?,
        image.updated_at,
    ];
    tx.execute(UPDATE, values).map(|_| ())
}

/// Announces [`by_id`].
pub(crate) fn expect(tx: &mut Tx<'_>, id: ImageId) -> Result<(), Error> {
    tx.expect(BY_ID, params![id])
}

/// One image by id.
pub(crate) fn by_id(tx: &mut Tx<'_>, id: ImageId) -> Result<Option<ImageRecord>, Error> {
    tx.row(BY_ID, params![id])?.as_ref().map(read).transpose()
}

/// The conditions of a list query; all must hold.
#[derive(Debug, Clone)]
pub(crate) struct ImageQuery {
    /// The project that requests the list; `None` for an administrator.
    pub viewer: Option<String>,
    /// The project's decision about images shared with it; `None` for any.
    pub shared: Option<&'static str>,
    pub name: Option<String>,
    pub owner: Option<String>,
    /// Creation time and id of the previous row.
    pub after: Option<(Timestamp, ImageId)>,
    pub limit: i64,
}

impl ImageQuery {
    /// The parameters of `LIST` and `WEIGHTS`.
    fn values(&self, limit: i64) -> [Value; 7] {
        let (at, id) = self.after.unzip();
        [
            self.viewer.clone().into(),
            self.name.clone().into(),
            self.owner.clone().into(),
            at.into(),
            id.into(),
            limit.into(),
            self.shared.into(),
        ]
    }
}

/// The next images of a list, and true if more may follow. Returns at most `query.limit` images with about `heaviest`
/// bytes of metadata, but always the first image.
pub(crate) fn list(
    tx: &mut Tx<'_>,
    query: &ImageQuery,
    heaviest: i64,
) -> Result<(Vec<ImageRecord>, bool), Error> {
    let weights = tx.rows(WEIGHTS, &query.values(query.limit))?;
    let found = weights.len() as i64;
    let (mut total, mut count) = (0, 0);
    for row in &weights {
        total += row.int("bytes")?;
        if count > 0 && total > heaviest {
            break;
        }
        count += 1;
    }
    if count == 0 {
        return Ok((Vec::new(), false));
    }
    let rows = tx.rows(LIST, &query.values(count))?;
    let more = count < found || found >= query.limit;
    Ok((rows.iter().map(read).collect::<Result<_, _>>()?, more))
}

/// Changes the status; `false` if it was not `from`.
pub(crate) fn set_status(
    tx: &mut Tx<'_>,
    id: ImageId,
    from: Status,
    to: Status,
    now: Timestamp,
) -> Result<bool, Error> {
    Ok(tx.execute(SET_STATUS, params![id, from.as_str(), to.as_str(), now])? > 0)
}

/// Serializes this transaction with others that check the owner's quota.
pub(crate) fn lock_owner(tx: &mut Tx<'_>, owner: &str) -> Result<(), Error> {
    tx.execute(LOCK_OWNER, params![owner]).map(|_| ())
}

/// The number of a project's images.
pub(crate) fn number(tx: &mut Tx<'_>, owner: &str) -> Result<i64, Error> {
    tx.row(NUMBER, params![owner])?.map_or(Ok(0), |row| row.int("count"))
}

/// The total size of a project's images in bytes.
pub(crate) fn bytes(tx: &mut Tx<'_>, owner: &str) -> Result<i64, Error> {
    tx.row(BYTES, params![owner])?.map_or(Ok(0), |row| row.int("bytes"))
}

/// Records that an id is used; returns false if an image, which may be deleted, has used it before.
pub(crate) fn claim(tx: &mut Tx<'_>, id: ImageId) -> Result<bool, Error> {
    Ok(tx.execute(CLAIM, params![id])? > 0)
}

/// Deletes an image; returns false if it does not exist. Its id stays used.
pub(crate) fn delete(tx: &mut Tx<'_>, id: ImageId) -> Result<bool, Error> {
    let existed = tx.execute(DELETE, params![id])? > 0;
    // A controller of an earlier version creates images without a claim.
    claim(tx, id)?;
    Ok(existed)
}
