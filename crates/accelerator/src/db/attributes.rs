//! Rows of `attributes`: the resource class and the traits of a deployable in Cyborg's form.

use kilonova_store::{Error, Row, Tx, params, statements};
use uuid::Uuid;

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
    pub created_at: i64,
    pub updated_at: Option<i64>,
}

statements! {
    /// The attributes of a host's deployables.
    OF_HOST = "SELECT a.id, a.uuid, a.deployable_id, a.name, a.value, a.reported,
        a.created_at, a.updated_at
        FROM attributes a JOIN deployables p ON p.id = a.deployable_id
        JOIN devices d ON d.id = p.device_id WHERE d.host = ?1 ORDER BY a.id";
    /// All attributes that pass the filters.
    LIST = "SELECT id, uuid, deployable_id, name, value, reported, created_at, updated_at
        FROM attributes
        WHERE (CAST(?1 AS TEXT) IS NULL OR name = ?1) ORDER BY id";
    /// The attributes of a deployable, by index.
    LIST_OF = "SELECT id, uuid, deployable_id, name, value, reported, created_at, updated_at
        FROM attributes WHERE deployable_id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR name = ?2)
        ORDER BY id";
    /// One attribute.
    BY_UUID = "SELECT id, uuid, deployable_id, name, value, reported, created_at, updated_at
        FROM attributes WHERE uuid = ?1";
    /// Inserts an attribute.
    INSERT = "INSERT INTO attributes (uuid, deployable_id, name, value, reported, created_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    /// Updates the value.
    UPDATE = "UPDATE attributes SET value = ?2, updated_at = ?3 WHERE id = ?1";
    /// Deletes an attribute.
    DELETE = "DELETE FROM attributes WHERE id = ?1";
    /// Deletes all attributes of a deployable.
    DELETE_OF = "DELETE FROM attributes WHERE deployable_id = ?1";
}

fn read(row: &Row) -> Result<AttributeRow, Error> {
    Ok(AttributeRow {
        id: row.int(0)?,
        uuid: row.string(1)?,
        deployable_id: row.int(2)?,
        name: row.string(3)?,
        value: row.string(4)?,
        reported: row.bool(5)?,
        created_at: row.int(6)?,
        updated_at: row.int_opt(7)?,
    })
}

pub(crate) fn of_host(tx: &mut Tx<'_>, host: &str) -> Result<Vec<AttributeRow>, Error> {
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
