//! Unified limits: registered limits, which are the defaults, and limits of projects and of the domain.

use kilonova_store::{Error, Row, Tx, params, statements};

/// The default limit of a resource.
#[derive(Debug, Clone)]
pub(crate) struct RegisteredLimit {
    pub id: String,
    pub service: String,
    pub region: Option<String>,
    pub resource: String,
    pub default_limit: i64,
    pub description: Option<String>,
}

/// A limit that overrides the default.
#[derive(Debug, Clone)]
pub(crate) struct Limit {
    pub id: String,
    /// The id of the registered limit.
    pub registered: String,
    /// The project; `None` for the domain.
    pub project: Option<String>,
    pub service: String,
    pub region: Option<String>,
    pub resource: String,
    pub resource_limit: i64,
    pub description: Option<String>,
}

/// The value of `target` for a limit of the domain.
const DOMAIN: &str = "domain";

/// Selects [`RegisteredLimit`]s.
macro_rules! select_registered {
    () => {
        "SELECT id, service_id, region_id, resource_name, default_limit, description
         FROM identity_registered_limits"
    };
}

/// Selects [`Limit`]s.
macro_rules! select {
    () => {
        "SELECT l.id, l.registered_id, l.project_id, r.service_id, r.region_id, r.resource_name,
                l.resource_limit, l.description
         FROM identity_limits l JOIN identity_registered_limits r ON r.id = l.registered_id"
    };
}

statements! {
    /// Adds a registered limit.
    INSERT_REGISTERED = "INSERT INTO identity_registered_limits
        (id, service_id, region_id, resource_name, default_limit, description)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    /// Updates all columns but the id.
    UPDATE_REGISTERED = "UPDATE identity_registered_limits SET service_id = ?2, region_id = ?3,
        resource_name = ?4, default_limit = ?5, description = ?6 WHERE id = ?1";
    /// All registered limits; there are few.
    REGISTERED = concat!(select_registered!(), " ORDER BY service_id, resource_name, region_id");
    /// One registered limit.
    REGISTERED_BY_ID = concat!(select_registered!(), " WHERE id = ?1");
    /// The registered limit of a resource; `?3` is empty for a limit without a region.
    REGISTERED_FOR = concat!(select_registered!(),
        " WHERE service_id = ?1 AND resource_name = ?2 AND region_id = ?3");
    /// Detects a concurrent change to the registered limit on which a limit depends.
    TOUCH_REGISTERED =
        "UPDATE identity_registered_limits SET default_limit = default_limit WHERE id = ?1";
    /// Deletes a registered limit.
    DELETE_REGISTERED = "DELETE FROM identity_registered_limits WHERE id = ?1";
    /// Any limit that overrides a registered limit.
    OVERRIDES = "SELECT 1 FROM identity_limits WHERE registered_id = ?1 LIMIT 1";
    /// Adds a limit.
    INSERT = "INSERT INTO identity_limits
        (id, target, project_id, registered_id, resource_limit, description)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    /// Updates the mutable columns.
    UPDATE = "UPDATE identity_limits SET resource_limit = ?2, description = ?3 WHERE id = ?1";
    /// All limits.
    ALL = concat!(select!(), " ORDER BY l.target, r.service_id, r.resource_name, r.region_id");
    /// The limits of a project.
    OF_PROJECT = concat!(select!(), " WHERE l.target = ?1
        ORDER BY r.service_id, r.resource_name, r.region_id");
    /// One limit.
    BY_ID = concat!(select!(), " WHERE l.id = ?1");
    /// Deletes a limit.
    DELETE = "DELETE FROM identity_limits WHERE id = ?1";
}

fn region_of(row: &Row) -> Result<Option<String>, Error> {
    Ok(Some(row.string("region_id")?).filter(|region| !region.is_empty()))
}

fn registered_of(row: &Row) -> Result<RegisteredLimit, Error> {
    Ok(RegisteredLimit {
        id: row.string("id")?,
        service: row.string("service_id")?,
        region: region_of(row)?,
        resource: row.string("resource_name")?,
        default_limit: row.int("default_limit")?,
        description: row.string_opt("description")?,
    })
}

fn registered_values(limit: &RegisteredLimit) -> Vec<kilonova_store::Value> {
    params![
        &limit.id,
        &limit.service,
        limit.region.clone().unwrap_or_default(),
        &limit.resource,
        limit.default_limit,
        limit.description.clone(),
    ]
    .to_vec()
}

fn limit_of(row: &Row) -> Result<Limit, Error> {
    Ok(Limit {
        id: row.string("id")?,
        registered: row.string("registered_id")?,
        project: row.string_opt("project_id")?,
        service: row.string("service_id")?,
        region: region_of(row)?,
        resource: row.string("resource_name")?,
        resource_limit: row.int("resource_limit")?,
        description: row.string_opt("description")?,
    })
}

/// Adds a registered limit.
pub(crate) fn insert_registered(tx: &mut Tx<'_>, limit: &RegisteredLimit) -> Result<(), Error> {
    tx.execute(INSERT_REGISTERED, &registered_values(limit)).map(|_| ())
}

/// Updates a registered limit.
pub(crate) fn update_registered(tx: &mut Tx<'_>, limit: &RegisteredLimit) -> Result<(), Error> {
    tx.execute(UPDATE_REGISTERED, &registered_values(limit)).map(|_| ())
}

/// All registered limits.
pub(crate) fn registered(tx: &mut Tx<'_>) -> Result<Vec<RegisteredLimit>, Error> {
    tx.rows(REGISTERED, params![])?.iter().map(registered_of).collect()
}

/// One registered limit.
pub(crate) fn registered_by_id(
    tx: &mut Tx<'_>,
    id: &str,
) -> Result<Option<RegisteredLimit>, Error> {
    tx.row(REGISTERED_BY_ID, params![id])?.as_ref().map(registered_of).transpose()
}

/// The registered limit of a resource.
pub(crate) fn registered_for(
    tx: &mut Tx<'_>,
    service: &str,
    resource: &str,
    region: Option<&str>,
) -> Result<Option<RegisteredLimit>, Error> {
    let row = tx.row(REGISTERED_FOR, params![service, resource, region.unwrap_or_default()])?;
    row.as_ref().map(registered_of).transpose()
}

/// Deletes a registered limit; returns false if it does not exist.
pub(crate) fn delete_registered(tx: &mut Tx<'_>, id: &str) -> Result<bool, Error> {
    Ok(tx.execute(DELETE_REGISTERED, params![id])? > 0)
}

/// True if a limit overrides the registered limit.
pub(crate) fn is_overridden(tx: &mut Tx<'_>, registered: &str) -> Result<bool, Error> {
    Ok(tx.row(OVERRIDES, params![registered])?.is_some())
}

/// Adds a limit.
pub(crate) fn insert(tx: &mut Tx<'_>, limit: &Limit) -> Result<(), Error> {
    tx.execute(TOUCH_REGISTERED, params![&limit.registered])?;
    let values = params![
        &limit.id,
        limit.project.clone().unwrap_or_else(|| DOMAIN.to_owned()),
        limit.project.clone(),
        &limit.registered,
        limit.resource_limit,
        limit.description.clone(),
    ];
    tx.execute(INSERT, values).map(|_| ())
}

/// Updates a limit.
pub(crate) fn update(tx: &mut Tx<'_>, limit: &Limit) -> Result<(), Error> {
    let values = params![&limit.id, limit.resource_limit, limit.description.clone()];
    tx.execute(UPDATE, values).map(|_| ())
}

/// All limits.
pub(crate) fn all(tx: &mut Tx<'_>) -> Result<Vec<Limit>, Error> {
    tx.rows(ALL, params![])?.iter().map(limit_of).collect()
}

/// The limits of a project.
pub(crate) fn of_project(tx: &mut Tx<'_>, project: &str) -> Result<Vec<Limit>, Error> {
    tx.rows(OF_PROJECT, params![project])?.iter().map(limit_of).collect()
}

/// One limit.
pub(crate) fn by_id(tx: &mut Tx<'_>, id: &str) -> Result<Option<Limit>, Error> {
    tx.row(BY_ID, params![id])?.as_ref().map(limit_of).transpose()
}

/// Deletes a limit; returns false if it does not exist.
pub(crate) fn delete(tx: &mut Tx<'_>, id: &str) -> Result<bool, Error> {
    Ok(tx.execute(DELETE, params![id])? > 0)
}
