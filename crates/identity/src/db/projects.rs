//! Projects.

use kilonova_store::{Error, Row, Tx, params, statements};
use serde_json::{Map, Value};

use super::json;

/// A stored project.
#[derive(Debug, Clone)]
pub(crate) struct Project {
    pub id: String,
    pub name: String,
    pub description: String,
    pub enabled: bool,
    pub tags: Vec<String>,
    /// True if the project cannot be changed or deleted until this is reset.
    pub immutable: bool,
    pub extra: Map<String, Value>,
}

/// Selects [`Project`]s.
macro_rules! select {
    () => {
        "SELECT id, name, description, enabled, tags, immutable, extra FROM identity_projects"
    };
}

statements! {
    /// Adds a project.
    INSERT = "INSERT INTO identity_projects
        (id, name, description, enabled, tags, immutable, extra)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    /// Adds a project, unless its name is taken.
    INSERT_MISSING = "INSERT INTO identity_projects (id, name, description, enabled, tags, extra)
        VALUES (?1, ?2, ?3, 1, '[]', '{}') ON CONFLICT (name) DO NOTHING";
    /// Updates all columns but the id.
    UPDATE = "UPDATE identity_projects SET name = ?2, description = ?3, enabled = ?4, tags = ?5,
        immutable = ?6, extra = ?7 WHERE id = ?1";
    /// One project by id.
    BY_ID = concat!(select!(), " WHERE id = ?1");
    /// One project by name.
    BY_NAME = concat!(select!(), " WHERE name = ?1");
    /// Projects, optionally by name, by state, and by a member.
    LIST = concat!(select!(), " WHERE (CAST(?1 AS TEXT) IS NULL OR name = ?1)
          AND (CAST(?2 AS BIGINT) IS NULL OR enabled = ?2)
          AND (CAST(?3 AS TEXT) IS NULL OR id IN
            (SELECT project_id FROM identity_assignments WHERE user_id = ?3
             UNION SELECT g.project_id FROM identity_memberships m
               JOIN identity_group_grants g ON g.group_id = m.group_id
               WHERE m.user_id = ?3 AND g.project_id IS NOT NULL))
        ORDER BY name");
    /// Deletes a project.
    DELETE = "DELETE FROM identity_projects WHERE id = ?1";
}

fn read(row: &Row) -> Result<Project, Error> {
    Ok(Project {
        id: row.string("id")?,
        name: row.string("name")?,
        description: row.string("description")?,
        enabled: row.bool("enabled")?,
        tags: serde_json::from_str(row.text("tags")?).map_err(|e| Error::Shape(e.to_string()))?,
        immutable: row.bool("immutable")?,
        extra: json(row.text("extra")?)?.as_object().cloned().unwrap_or_default(),
    })
}

/// Adds a project.
pub(crate) fn insert(tx: &mut Tx<'_>, project: &Project) -> Result<(), Error> {
    tx.execute(INSERT, &values(project)).map(|_| ())
}

/// Adds a project, unless its name is taken.
pub(crate) fn insert_missing(
    tx: &mut Tx<'_>,
    id: &str,
    name: &str,
    about: &str,
) -> Result<(), Error> {
    tx.execute(INSERT_MISSING, params![id, name, about]).map(|_| ())
}

/// Updates a project.
pub(crate) fn update(tx: &mut Tx<'_>, project: &Project) -> Result<(), Error> {
    tx.execute(UPDATE, &values(project)).map(|_| ())
}

fn values(project: &Project) -> Vec<kilonova_store::Value> {
    params![
        &project.id,
        &project.name,
        &project.description,
        project.enabled,
        Value::from(project.tags.clone()).to_string(),
        project.immutable,
        Value::Object(project.extra.clone()).to_string(),
    ]
    .to_vec()
}

/// One project by id.
pub(crate) fn by_id(tx: &mut Tx<'_>, id: &str) -> Result<Option<Project>, Error> {
    tx.row(BY_ID, params![id])?.as_ref().map(read).transpose()
}

/// One project by name.
pub(crate) fn by_name(tx: &mut Tx<'_>, name: &str) -> Result<Option<Project>, Error> {
    tx.row(BY_NAME, params![name])?.as_ref().map(read).transpose()
}

/// Projects, optionally by name, by state, and by a member.
pub(crate) fn list(
    tx: &mut Tx<'_>,
    name: Option<&str>,
    enabled: Option<bool>,
    member: Option<&str>,
) -> Result<Vec<Project>, Error> {
    tx.rows(LIST, params![name, enabled, member])?.iter().map(read).collect()
}

/// Deletes a project; returns false if it does not exist.
pub(crate) fn delete(tx: &mut Tx<'_>, id: &str) -> Result<bool, Error> {
    Ok(tx.execute(DELETE, params![id])? > 0)
}
