//! Rows of `device_profiles`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kilonova_ids::DeviceProfileId;
use kilonova_store::{Error, Row, Tx, params, statements};

/// A group: a flat map, for example from `resources:VGPU` to `1`.
pub(crate) type Group = BTreeMap<String, String>;

/// A row of `device_profiles`.
#[derive(Debug, Clone)]
pub(crate) struct ProfileRow {
    pub uuid: DeviceProfileId,
    pub name: String,
    pub description: Option<String>,
    pub groups: Vec<Group>,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
}

/// Selects a [`ProfileRow`].
macro_rules! select {
    ($condition:literal) => {
        concat!(
            "SELECT uuid, name, description, groups_json, created_at, updated_at
            FROM device_profiles ",
            $condition
        )
    };
}

statements! {
    /// All profiles.
    LIST = select!("ORDER BY id");
    /// One profile by UUID.
    BY_UUID = select!("WHERE uuid = ?1");
    /// One profile by name.
    BY_NAME = select!("WHERE name = ?1");
    /// Inserts a profile.
    INSERT = "INSERT INTO device_profiles (uuid, name, description, groups_json, created_at)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    /// Deletes a profile.
    DELETE = "DELETE FROM device_profiles WHERE uuid = ?1";
    /// Number of requests that name a profile.
    USES = "SELECT COUNT(*) AS uses FROM arqs WHERE profile_id = ?1";
}

/// Reads the column `groups_json`.
pub(super) fn groups(row: &Row) -> Result<Vec<Group>, Error> {
    serde_json::from_str(row.text("groups_json")?)
        .map_err(|error| Error::Shape(format!("groups of a device profile: {error}")))
}

fn read(row: &Row) -> Result<ProfileRow, Error> {
    Ok(ProfileRow {
        uuid: row.id("uuid")?,
        name: row.string("name")?,
        description: row.string_opt("description")?,
        groups: groups(row)?,
        created_at: row.time("created_at")?,
        updated_at: row.time_opt("updated_at")?,
    })
}

pub(crate) fn list(tx: &mut Tx<'_>) -> Result<Vec<ProfileRow>, Error> {
    tx.rows(LIST, params![])?.iter().map(read).collect()
}

pub(crate) fn by_uuid(tx: &mut Tx<'_>, uuid: DeviceProfileId) -> Result<Option<ProfileRow>, Error> {
    tx.row(BY_UUID, params![uuid])?.as_ref().map(read).transpose()
}

pub(crate) fn by_name(tx: &mut Tx<'_>, name: &str) -> Result<Option<ProfileRow>, Error> {
    tx.row(BY_NAME, params![name])?.as_ref().map(read).transpose()
}

pub(crate) fn insert(tx: &mut Tx<'_>, profile: &ProfileRow) -> Result<(), Error> {
    let groups = serde_json::to_string(&profile.groups)
        .map_err(|error| Error::Shape(format!("groups of a device profile: {error}")))?;
    tx.execute(
        INSERT,
        params![
            profile.uuid,
            &profile.name,
            profile.description.clone(),
            groups,
            profile.created_at
        ],
    )?;
    Ok(())
}

/// Deletes a profile; [`Error::Reference`] if requests name it.
pub(crate) fn delete(tx: &mut Tx<'_>, uuid: DeviceProfileId) -> Result<(), Error> {
    tx.execute(DELETE, params![uuid])?;
    Ok(())
}

/// Number of requests that name a profile.
pub(crate) fn uses(tx: &mut Tx<'_>, uuid: DeviceProfileId) -> Result<i64, Error> {
    tx.row(USES, params![uuid])?.map_or(Ok(0), |row| row.int("uses"))
}
