//! Rows of `resource_classes`: the custom ones. Standard classes are data of the program.

use kilonova_store::{Error, Tx, params, statements};

statements! {
    /// All custom classes.
    CUSTOM = "SELECT name, updated_at FROM resource_classes ORDER BY updated_at, name";
    /// One custom class.
    GET = "SELECT updated_at FROM resource_classes WHERE name = ?1";
    /// Makes a custom class known.
    ENSURE = "INSERT INTO resource_classes (name, updated_at) VALUES (?1, ?2)
        ON CONFLICT (name) DO NOTHING";
    /// Says that something new hangs on the class, so that nobody deletes it meanwhile.
    PIN = "UPDATE resource_classes SET updated_at = updated_at WHERE name = ?1";
    /// Gives a custom class another name.
    RENAME = "UPDATE resource_classes SET name = ?2, updated_at = ?3 WHERE name = ?1";
    /// Trees that have inventory of a class.
    ROOTS = "SELECT DISTINCT p.root_id FROM inventories i
        JOIN resource_providers p ON p.id = i.provider_id WHERE i.class = ?1";
    /// The new name of a class in inventories.
    RENAME_INVENTORIES = "UPDATE inventories SET class = ?2 WHERE class = ?1";
    /// The new name of a class in allocations, which only providers with an inventory of it have:
    /// under the old name or, by now, the new one.
    RENAME_ALLOCATIONS = "UPDATE allocations SET class = ?2 WHERE class = ?1
        AND provider_id IN (SELECT provider_id FROM inventories WHERE class IN (?1, ?2))";
    /// Forgets a custom class.
    DELETE = "DELETE FROM resource_classes WHERE name = ?1";
}

/// The custom classes and when each was made.
pub fn custom(tx: &mut Tx<'_>) -> Result<Vec<(String, i64)>, Error> {
    tx.rows(CUSTOM, params![])?.iter().map(|row| Ok((row.string(0)?, row.int(1)?))).collect()
}

/// When a custom class was made; `None` when there is none of that name.
pub fn made_at(tx: &mut Tx<'_>, name: &str) -> Result<Option<i64>, Error> {
    tx.row(GET, params![name])?.map(|row| row.int(0)).transpose()
}

/// Makes a custom class known; false when it was.
pub fn ensure(tx: &mut Tx<'_>, name: &str, now: i64) -> Result<bool, Error> {
    Ok(tx.execute(ENSURE, params![name, now])? > 0)
}

/// Whether there is a custom class of that name; nobody else deletes it in this transaction.
pub fn pin(tx: &mut Tx<'_>, name: &str) -> Result<bool, Error> {
    Ok(tx.execute(PIN, params![name])? > 0)
}
