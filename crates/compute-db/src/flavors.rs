//! Flavors, and the access lists of private ones.
//!
//! A flavor's extra specs are one JSON text in its row, so that two writers conflict on that row. A
//! change to the access list updates the flavor's row too, for the same reason.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kilonova_store::{Error as StoreError, Row, Tx, params};

use crate::Error;

/// Selects [`Flavor`]s.
macro_rules! select {
    () => {
        "SELECT number, id, name, memory_mb, vcpus, root_gb, ephemeral_gb, swap, rxtx_factor,
        is_public, description, extra_specs, created_at, updated_at FROM flavors"
    };
}

kilonova_store::statements! {
    /// Every flavor, oldest first.
    ALL = concat!(select!(), " ORDER BY number");
    /// One flavor.
    BY_ID = concat!(select!(), " WHERE id = ?1");
    /// Selects the flavor with a name.
    NAMED = "SELECT id FROM flavors WHERE name = ?1";
    /// Inserts a flavor.
    INSERT = "INSERT INTO flavors (id, name, memory_mb, vcpus, root_gb, ephemeral_gb, swap,
        rxtx_factor, is_public, description, extra_specs, created_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    /// Updates the mutable fields.
    UPDATE = "UPDATE flavors SET description = ?2, extra_specs = ?3, updated_at = ?4 WHERE id = ?1";
    /// Records a change to dependent rows.
    TOUCH = "UPDATE flavors SET updated_at = ?2 WHERE id = ?1";
    /// Deletes a flavor.
    DELETE = "DELETE FROM flavors WHERE id = ?1";
    /// Deletes the access list of a flavor.
    REVOKE_ALL = "DELETE FROM flavor_access WHERE flavor_id = ?1";
    /// The projects on the access list.
    PROJECTS = "SELECT project_id FROM flavor_access WHERE flavor_id = ?1 ORDER BY project_id";
    /// The private flavors of a project.
    GRANTED = "SELECT flavor_id FROM flavor_access WHERE project_id = ?1";
    /// Selects a project if it is on the access list.
    IS_GRANTED = "SELECT project_id FROM flavor_access WHERE flavor_id = ?1 AND project_id = ?2";
    /// Adds a project to the access list.
    GRANT = "INSERT INTO flavor_access (flavor_id, project_id) VALUES (?1, ?2)";
    /// Removes a project from the access list.
    REVOKE = "DELETE FROM flavor_access WHERE flavor_id = ?1 AND project_id = ?2";
}

/// A flavor.
#[derive(Debug, Clone, PartialEq)]
pub struct Flavor {
    /// Sequence number, assigned by the database.
    pub number: i64,
    /// Id: chosen by the operator, or a UUID.
    pub id: String,
    /// Name.
    pub name: String,
    /// Memory in MiB.
    pub memory_mb: i64,
    /// Number of vCPUs.
    pub vcpus: i64,
    /// Root disk in GiB.
    pub root_gb: i64,
    /// Ephemeral disk in GiB.
    pub ephemeral_gb: i64,
    /// Swap in MiB.
    pub swap: i64,
    /// Stored and shown, without effect.
    pub rxtx_factor: f64,
    /// True if every project may use it.
    pub is_public: bool,
    /// Description.
    pub description: Option<String>,
    /// Extra specs.
    pub extra_specs: BTreeMap<String, String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
}

fn flavor(row: &Row) -> Result<Flavor, Error> {
    let extra_specs = serde_json::from_str(row.text("extra_specs")?)
        .map_err(|error| StoreError::Shape(format!("extra specs: {error}")))?;
    Ok(Flavor {
        number: row.int("number")?,
        id: row.string("id")?,
        name: row.string("name")?,
        memory_mb: row.int("memory_mb")?,
        vcpus: row.int("vcpus")?,
        root_gb: row.int("root_gb")?,
        ephemeral_gb: row.int("ephemeral_gb")?,
        swap: row.int("swap")?,
        rxtx_factor: row.real("rxtx_factor")?,
        is_public: row.bool("is_public")?,
        description: row.string_opt("description")?,
        extra_specs,
        created_at: row.time("created_at")?,
        updated_at: row.time_opt("updated_at")?,
    })
}

fn specs_text(flavor: &Flavor) -> Result<String, Error> {
    serde_json::to_string(&flavor.extra_specs)
        .map_err(|error| StoreError::Shape(format!("extra specs: {error}")).into())
}

/// Every flavor, oldest first.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn all(tx: &mut Tx<'_>) -> Result<Vec<Flavor>, Error> {
    tx.rows(ALL, params![])?.iter().map(flavor).collect()
}

/// Announces [`by_id`].
pub fn expect(tx: &mut Tx<'_>, id: &str) -> Result<(), Error> {
    Ok(tx.expect(BY_ID, params![id])?)
}

/// One flavor, regardless of its access list.
pub fn by_id(tx: &mut Tx<'_>, id: &str) -> Result<Option<Flavor>, Error> {
    tx.row(BY_ID, params![id])?.as_ref().map(flavor).transpose()
}

/// True if a flavor has this name.
pub fn name_taken(tx: &mut Tx<'_>, name: &str) -> Result<bool, Error> {
    Ok(tx.row(NAMED, params![name])?.is_some())
}

/// Inserts a flavor; its number is ignored.
pub fn insert(tx: &mut Tx<'_>, flavor: &Flavor) -> Result<(), Error> {
    tx.execute(
        INSERT,
        params![
            &flavor.id,
            &flavor.name,
            flavor.memory_mb,
            flavor.vcpus,
            flavor.root_gb,
            flavor.ephemeral_gb,
            flavor.swap,
            flavor.rxtx_factor,
            flavor.is_public,
            flavor.description.clone(),
            specs_text(flavor)?,
            flavor.created_at,
        ],
    )?;
    Ok(())
}

/// Updates the description and the extra specs.
pub fn update(tx: &mut Tx<'_>, flavor: &Flavor, now: Timestamp) -> Result<(), Error> {
    let specs = specs_text(flavor)?;
    tx.execute(UPDATE, params![&flavor.id, flavor.description.clone(), specs, now])?;
    Ok(())
}

/// Deletes a flavor and its access list; returns whether it existed.
pub fn delete(tx: &mut Tx<'_>, id: &str) -> Result<bool, Error> {
    tx.execute(REVOKE_ALL, params![id])?;
    Ok(tx.execute(DELETE, params![id])? == 1)
}

/// The projects that may use a private flavor.
pub fn projects(tx: &mut Tx<'_>, id: &str) -> Result<Vec<String>, Error> {
    tx.rows(PROJECTS, params![id])?.iter().map(|row| Ok(row.string("project_id")?)).collect()
}

/// The private flavors that a project may use.
pub fn granted(tx: &mut Tx<'_>, project_id: &str) -> Result<Vec<String>, Error> {
    tx.rows(GRANTED, params![project_id])?.iter().map(|row| Ok(row.string("flavor_id")?)).collect()
}

/// True if a project is on the access list.
pub fn is_granted(tx: &mut Tx<'_>, id: &str, project_id: &str) -> Result<bool, Error> {
    Ok(tx.row(IS_GRANTED, params![id, project_id])?.is_some())
}

/// Adds a project to the access list.
pub fn grant(tx: &mut Tx<'_>, id: &str, project_id: &str, now: Timestamp) -> Result<(), Error> {
    tx.execute(TOUCH, params![id, now])?;
    tx.execute(GRANT, params![id, project_id])?;
    Ok(())
}

/// Removes a project from the access list; returns whether it was on the list.
pub fn revoke(tx: &mut Tx<'_>, id: &str, project_id: &str, now: Timestamp) -> Result<bool, Error> {
    tx.execute(TOUCH, params![id, now])?;
    Ok(tx.execute(REVOKE, params![id, project_id])? == 1)
}
