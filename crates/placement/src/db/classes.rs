//! Rows of `resource_classes`: the custom classes. Standard classes are constants of the program.

use jiff::Timestamp;
use kilonova_ids::{ProviderId, ResourceClass};
use kilonova_store::{Error, Tx, params, statements};

statements! {
    /// All custom classes.
    CUSTOM = "SELECT name, updated_at FROM resource_classes ORDER BY updated_at, name";
    /// One custom class.
    GET = "SELECT updated_at FROM resource_classes WHERE name = ?1";
    /// Creates a custom class.
    ENSURE = "INSERT INTO resource_classes (name, updated_at) VALUES (?1, ?2)
        ON CONFLICT (name) DO NOTHING";
    /// Touches the class, so that a concurrent delete conflicts.
    PIN = "UPDATE resource_classes SET updated_at = updated_at WHERE name = ?1";
    /// Renames a custom class.
    RENAME = "UPDATE resource_classes SET name = ?2, updated_at = ?3 WHERE name = ?1";
    /// Trees with an inventory of a class.
    ROOTS = "SELECT DISTINCT p.root_id FROM inventories i
        JOIN resource_providers p ON p.id = i.provider_id WHERE i.class = ?1";
    /// Renames a class in inventories.
    RENAME_INVENTORIES = "UPDATE inventories SET class = ?2 WHERE class = ?1";
    /// Renames a class in allocations. Only providers with an inventory of the class have such
    /// allocations; the inventory may already have the new name.
    RENAME_ALLOCATIONS = "UPDATE allocations SET class = ?2 WHERE class = ?1
        AND provider_id IN (SELECT provider_id FROM inventories WHERE class IN (?1, ?2))";
    /// Deletes a custom class.
    DELETE = "DELETE FROM resource_classes WHERE name = ?1";
}

/// The custom classes, each with the time of its creation or last rename.
pub fn custom(tx: &mut Tx<'_>) -> Result<Vec<(ResourceClass, Timestamp)>, Error> {
    tx.rows(CUSTOM, params![])?
        .iter()
        .map(|row| Ok((row.class("name")?, row.time("updated_at")?)))
        .collect()
}

/// The time at which a custom class was created or last renamed; `None` if it does not exist.
pub fn created_at(tx: &mut Tx<'_>, name: &ResourceClass) -> Result<Option<Timestamp>, Error> {
    tx.row(GET, params![name])?.map(|row| row.time("updated_at")).transpose()
}

/// Creates a custom class; returns false if it exists.
pub fn ensure(tx: &mut Tx<'_>, name: &ResourceClass, now: Timestamp) -> Result<bool, Error> {
    Ok(tx.execute(ENSURE, params![name, now])? > 0)
}

/// True if the custom class exists. No other transaction can then delete it before this one ends.
pub fn pin(tx: &mut Tx<'_>, name: &ResourceClass) -> Result<bool, Error> {
    Ok(tx.execute(PIN, params![name])? > 0)
}

/// Creates a custom class unless it exists. No other transaction can then delete it before this one ends.
pub fn ensure_and_pin(tx: &mut Tx<'_>, name: &ResourceClass, now: Timestamp) -> Result<(), Error> {
    tx.defer(ENSURE, params![name, now])?;
    tx.defer(PIN, params![name])
}

/// Renames a custom class in its own row, in inventories and in allocations. Returns the roots of
/// the trees with inventories of the class.
pub fn rename(
    tx: &mut Tx<'_>,
    name: &ResourceClass,
    new: &ResourceClass,
    now: Timestamp,
) -> Result<Vec<ProviderId>, Error> {
    tx.defer(RENAME, params![name, new, now])?;
    let rows = tx.rows(ROOTS, params![name])?;
    tx.defer(RENAME_INVENTORIES, params![name, new])?;
    tx.defer(RENAME_ALLOCATIONS, params![name, new])?;
    rows.iter().map(|row| row.id("root_id")).collect()
}

/// Deletes a custom class.
pub fn delete(tx: &mut Tx<'_>, name: &ResourceClass) -> Result<(), Error> {
    tx.execute(DELETE, params![name]).map(|_| ())
}
