//! Rows of `attributes`: the resource class and the traits of a deployable in Cyborg's form.

use std::borrow::Cow;

use jiff::Timestamp;
use kilonova_ids::HostName;
use kilonova_store::{Error, Row, Tx, Value, params, statements};
use uuid::Uuid;

use super::consecutive;

/// A row of `attributes`.
#[derive(Debug, Clone)]
pub(crate) struct AttributeRow {
    pub id: i64,
    pub uuid: String,
    pub deployable_id: i64,
    pub name: String,
    pub value: String,
    /// True if the host reported it; otherwise an administrator added it.
    pub reported: bool,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
}

/// A new attribute.
pub(crate) struct NewAttribute<'a> {
    pub deployable_id: i64,
    pub name: Cow<'a, str>,
    pub value: Cow<'a, str>,
    pub reported: bool,
}

/// The columns of an [`AttributeRow`].
macro_rules! columns {
    () => {
        "a.id, a.uuid, a.deployable_id, a.name, a.value, a.reported, a.created_at, a.updated_at"
    };
}

statements! {
    /// The attributes of a host's deployables.
    OF_HOST = concat!(
        "SELECT ",
        columns!(),
        " FROM attributes a JOIN deployables p ON p.id = a.deployable_id
        JOIN devices d ON d.id = p.device_id WHERE d.host = ?1 ORDER BY a.id"
    );
    /// All attributes that pass the filters.
    LIST = concat!(
        "SELECT ",
        columns!(),
        " FROM attributes a WHERE (CAST(?1 AS TEXT) IS NULL OR a.name = ?1) ORDER BY a.id"
    );
    /// The attributes of a deployable, read through an index.
    LIST_OF = concat!(
        "SELECT ",
        columns!(),
        " FROM attributes a
        WHERE a.deployable_id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR a.name = ?2) ORDER BY a.id"
    );
    /// One attribute.
    BY_UUID = concat!("SELECT ", columns!(), " FROM attributes a WHERE a.uuid = ?1");
    /// Inserts attributes.
    INSERT = "INSERT INTO attributes (uuid, deployable_id, name, value, reported, created_at)
        VALUES ({}, {}, {}, {}, {}, {})";
    /// Updates the value.
    UPDATE = "UPDATE attributes SET value = ?2, updated_at = ?3 WHERE id = ?1";
    /// Deletes an attribute.
    DELETE = "DELETE FROM attributes WHERE id = ?1";
    /// Deletes all attributes of a deployable.
    DELETE_OF = "DELETE FROM attributes WHERE deployable_id = ?1";
}

fn read(row: &Row) -> Result<AttributeRow, Error> {
    Ok(AttributeRow {
        id: row.int("id")?,
        uuid: row.string("uuid")?,
        deployable_id: row.int("deployable_id")?,
        name: row.string("name")?,
        value: row.string("value")?,
        reported: row.bool("reported")?,
        created_at: row.time("created_at")?,
        updated_at: row.time_opt("updated_at")?,
    })
}

/// Announces [`of_host`].
pub(crate) fn expect_of_host(tx: &mut Tx<'_>, host: &HostName) -> Result<(), Error> {
    tx.expect(OF_HOST, params![host])
}

pub(crate) fn of_host(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<AttributeRow>, Error> {
    tx.rows(OF_HOST, params![host])?.iter().map(read).collect()
}

pub(crate) fn list(
    tx: &mut Tx<'_>,
    deployable_id: Option<i64>,
    name: Option<String>,
) -> Result<Vec<AttributeRow>, Error> {
    let rows = match deployable_id {
        None => tx.rows(LIST, params![name])?,
        Some(id) => tx.rows(LIST_OF, params![id, name])?,
    };
    rows.iter().map(read).collect()
}

pub(crate) fn by_uuid(tx: &mut Tx<'_>, uuid: Uuid) -> Result<Option<AttributeRow>, Error> {
    tx.row(BY_UUID, params![uuid.to_string()])?.as_ref().map(read).transpose()
}

/// Inserts attributes, and returns their UUIDs.
pub(crate) fn insert(
    tx: &mut Tx<'_>,
    new: &[NewAttribute<'_>],
    now: Timestamp,
) -> Result<Vec<Uuid>, Error> {
    let uuids: Vec<Uuid> = consecutive().take(new.len()).collect();
    let row = |(uuid, new): (&Uuid, &NewAttribute<'_>)| -> [Value; 6] {
        [
            uuid.to_string().into(),
            new.deployable_id.into(),
            (&*new.name).into(),
            (&*new.value).into(),
            new.reported.into(),
            now.into(),
        ]
    };
    let rows: Vec<_> = uuids.iter().zip(new).map(row).collect();
    tx.defer_rows(INSERT, &rows)?;
    Ok(uuids)
}

/// Updates the value.
pub(crate) fn update(tx: &mut Tx<'_>, id: i64, value: &str, now: Timestamp) -> Result<(), Error> {
    tx.defer(UPDATE, params![id, value, now])?;
    Ok(())
}

pub(crate) fn delete(tx: &mut Tx<'_>, id: i64) -> Result<(), Error> {
    tx.defer(DELETE, params![id])?;
    Ok(())
}

/// Deletes all attributes of a deployable.
pub(crate) fn delete_of(tx: &mut Tx<'_>, deployable_id: i64) -> Result<(), Error> {
    tx.defer(DELETE_OF, params![deployable_id])?;
    Ok(())
}
