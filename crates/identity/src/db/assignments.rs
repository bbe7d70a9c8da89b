//! Who has which role on which project.

use kilonova_store::{Error, Row, Tx, params, statements};

/// One assignment with the names of its ends.
#[derive(Debug, Clone)]
pub(crate) struct Assignment {
    pub user_id: String,
    pub user_name: String,
    pub project_id: String,
    pub project_name: String,
    pub role_id: String,
    pub role_name: String,
}

statements! {
    /// A new assignment, or the one that is there.
    INSERT = "INSERT INTO identity_assignments (user_id, project_id, role_id)
        VALUES (?1, ?2, ?3) ON CONFLICT (user_id, project_id, role_id) DO NOTHING";
    /// Gone.
    DELETE = "DELETE FROM identity_assignments
        WHERE user_id = ?1 AND project_id = ?2 AND role_id = ?3";
    /// Is it there?
    EXISTS = "SELECT 1 FROM identity_assignments
        WHERE user_id = ?1 AND project_id = ?2 AND role_id = ?3";
    /// All, optionally by each of their ends.
    LIST = "SELECT a.user_id, u.name, a.project_id, p.name, a.role_id, r.name
        FROM identity_assignments a
        JOIN identity_users u ON u.id = a.user_id
        JOIN identity_projects p ON p.id = a.project_id
        JOIN identity_roles r ON r.id = a.role_id
        WHERE (CAST(?1 AS TEXT) IS NULL OR a.user_id = ?1)
          AND (CAST(?2 AS TEXT) IS NULL OR a.project_id = ?2)
          AND (CAST(?3 AS TEXT) IS NULL OR a.role_id = ?3)
        ORDER BY u.name, p.name, r.name";
}

fn read(row: &Row) -> Result<Assignment, Error> {
    Ok(Assignment {
        user_id: row.string(0)?,
        user_name: row.string(1)?,
        project_id: row.string(2)?,
        project_name: row.string(3)?,
        role_id: row.string(4)?,
        role_name: row.string(5)?,
    })
}

pub(crate) fn insert(tx: &mut Tx<'_>, user: &str, project: &str, role: &str) -> Result<(), Error> {
    tx.execute(INSERT, params![user, project, role]).map(|_| ())
}

pub(crate) fn delete(
    tx: &mut Tx<'_>,
    user: &str,
    project: &str,
    role: &str,
) -> Result<bool, Error> {
    Ok(tx.execute(DELETE, params![user, project, role])? > 0)
}

pub(crate) fn exists(
    tx: &mut Tx<'_>,
    user: &str,
    project: &str,
    role: &str,
) -> Result<bool, Error> {
    Ok(tx.row(EXISTS, params![user, project, role])?.is_some())
}

pub(crate) fn list(
    tx: &mut Tx<'_>,
    user: Option<&str>,
    project: Option<&str>,
    role: Option<&str>,
) -> Result<Vec<Assignment>, Error> {
    tx.rows(LIST, params![user, project, role])?.iter().map(read).collect()
}
