//! Role assignments of users and groups on projects, the domain and the system.

use kilonova_store::{Error, Row, Tx, params, statements};

/// The target column of a grant on the system.
pub(crate) const SYSTEM: &str = "system";
/// The target column of a grant on the domain.
pub(crate) const DOMAIN: &str = "domain";

/// The holder of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Actor {
    User(String),
    Group(String),
}

/// The target of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Project(String),
    Domain,
    System,
}

impl Target {
    /// The value of the target column.
    pub(crate) fn column(&self) -> &str {
        match self {
            Self::Project(id) => id,
            Self::Domain => DOMAIN,
            Self::System => SYSTEM,
        }
    }

    fn read(text: String) -> Self {
        match text.as_str() {
            SYSTEM => Self::System,
            DOMAIN => Self::Domain,
            _ => Self::Project(text),
        }
    }
}

/// An assignment with the names of its actor, project and role.
#[derive(Debug, Clone)]
pub(crate) struct Assignment {
    pub actor: Actor,
    pub actor_name: String,
    pub target: Target,
    /// Empty unless the target is a project.
    pub project_name: String,
    pub role_id: String,
    pub role_name: String,
    /// The group through which the user has the role.
    pub group: Option<String>,
}

statements! {
    /// Grants a user a role on a project; idempotent.
    INSERT = "INSERT INTO identity_assignments (user_id, project_id, role_id)
        VALUES (?1, ?2, ?3) ON CONFLICT (user_id, project_id, role_id) DO NOTHING";
    /// Grants a user a role on the domain or the system; idempotent.
    INSERT_USER = "INSERT INTO identity_user_grants (user_id, target, role_id)
        VALUES (?1, ?2, ?3) ON CONFLICT (user_id, target, role_id) DO NOTHING";
    /// Grants a group a role; idempotent.
    INSERT_GROUP = "INSERT INTO identity_group_grants (group_id, target, role_id, project_id)
        VALUES (?1, ?2, ?3, ?4) ON CONFLICT (group_id, target, role_id) DO NOTHING";
    /// Revokes a user's role on a project.
    DELETE = "DELETE FROM identity_assignments
        WHERE user_id = ?1 AND project_id = ?2 AND role_id = ?3";
    /// Revokes a user's role on the domain or the system.
    DELETE_USER = "DELETE FROM identity_user_grants
        WHERE user_id = ?1 AND target = ?2 AND role_id = ?3";
    /// Revokes a group's role.
    DELETE_GROUP = "DELETE FROM identity_group_grants
        WHERE group_id = ?1 AND target = ?2 AND role_id = ?3";
    /// The roles granted to a user on a project.
    ROLES = "SELECT role_id FROM identity_assignments WHERE user_id = ?1 AND project_id = ?2";
    /// The roles granted to a user on the domain or the system.
    ROLES_USER = "SELECT role_id FROM identity_user_grants WHERE user_id = ?1 AND target = ?2";
    /// The roles granted to a group.
    ROLES_GROUP = "SELECT role_id FROM identity_group_grants WHERE group_id = ?1 AND target = ?2";
    /// Grants of users on projects, optionally by user, project and role.
    LIST = "SELECT a.user_id AS actor_id, u.name AS actor_name, a.project_id AS target,
          p.name AS project_name, a.role_id, r.name AS role_name
        FROM identity_assignments a
        JOIN identity_users u ON u.id = a.user_id
        JOIN identity_projects p ON p.id = a.project_id
        JOIN identity_roles r ON r.id = a.role_id
        WHERE (CAST(?1 AS TEXT) IS NULL OR a.user_id = ?1)
          AND (CAST(?2 AS TEXT) IS NULL OR a.project_id = ?2)
          AND (CAST(?3 AS TEXT) IS NULL OR a.role_id = ?3)
        ORDER BY u.name, p.name, r.name";
    /// Grants of users on the domain and the system, optionally by user, target and role.
    LIST_USERS = "SELECT a.user_id AS actor_id, u.name AS actor_name, a.target,
          '' AS project_name, a.role_id, r.name AS role_name
        FROM identity_user_grants a
        JOIN identity_users u ON u.id = a.user_id
        JOIN identity_roles r ON r.id = a.role_id
        WHERE (CAST(?1 AS TEXT) IS NULL OR a.user_id = ?1)
          AND (CAST(?2 AS TEXT) IS NULL OR a.target = ?2)
          AND (CAST(?3 AS TEXT) IS NULL OR a.role_id = ?3)
        ORDER BY u.name, a.target, r.name";
    /// Grants of groups, optionally by group, target and role.
    LIST_GROUPS = "SELECT a.group_id AS actor_id, g.name AS actor_name, a.target,
          COALESCE(p.name, '') AS project_name, a.role_id, r.name AS role_name
        FROM identity_group_grants a
        JOIN identity_groups g ON g.id = a.group_id
        JOIN identity_roles r ON r.id = a.role_id
        LEFT JOIN identity_projects p ON p.id = a.project_id
        WHERE (CAST(?1 AS TEXT) IS NULL OR a.group_id = ?1)
          AND (CAST(?2 AS TEXT) IS NULL OR a.target = ?2)
          AND (CAST(?3 AS TEXT) IS NULL OR a.role_id = ?3)
        ORDER BY g.name, a.target, r.name";
    /// Roles that users have through groups, optionally by user, target and role.
    LIST_MEMBERS = "SELECT m.user_id AS actor_id, u.name AS actor_name, a.target,
          COALESCE(p.name, '') AS project_name, a.role_id, r.name AS role_name, a.group_id
        FROM identity_memberships m
        JOIN identity_group_grants a ON a.group_id = m.group_id
        JOIN identity_users u ON u.id = m.user_id
        JOIN identity_roles r ON r.id = a.role_id
        LEFT JOIN identity_projects p ON p.id = a.project_id
        WHERE (CAST(?1 AS TEXT) IS NULL OR m.user_id = ?1)
          AND (CAST(?2 AS TEXT) IS NULL OR a.target = ?2)
          AND (CAST(?3 AS TEXT) IS NULL OR a.role_id = ?3)
        ORDER BY u.name, a.target, r.name";
}

fn read(row: &Row, actor: fn(String) -> Actor) -> Result<Assignment, Error> {
    Ok(Assignment {
        actor: actor(row.string("actor_id")?),
        actor_name: row.string("actor_name")?,
        target: Target::read(row.string("target")?),
        project_name: row.string("project_name")?,
        role_id: row.string("role_id")?,
        role_name: row.string("role_name")?,
        group: None,
    })
}

/// Grants a role; idempotent.
pub(crate) fn insert(
    tx: &mut Tx<'_>,
    actor: &Actor,
    target: &Target,
    role: &str,
) -> Result<(), Error> {
    let column = target.column();
    match (actor, target) {
        (Actor::User(user), Target::Project(project)) => {
            tx.execute(INSERT, params![user, project, role])
        }
        (Actor::User(user), Target::Domain | Target::System) => {
            tx.execute(INSERT_USER, params![user, column, role])
        }
        (Actor::Group(group), _) => {
            let project = match target {
                Target::Project(id) => Some(id.as_str()),
                Target::Domain | Target::System => None,
            };
            tx.execute(INSERT_GROUP, params![group, column, role, project])
        }
    }
    .map(|_| ())
}

/// Revokes a role; `false` if it was not granted.
pub(crate) fn delete(
    tx: &mut Tx<'_>,
    actor: &Actor,
    target: &Target,
    role: &str,
) -> Result<bool, Error> {
    let column = target.column();
    let gone = match (actor, target) {
        (Actor::User(user), Target::Project(_)) => {
            tx.execute(DELETE, params![user, column, role])?
        }
        (Actor::User(user), Target::Domain | Target::System) => {
            tx.execute(DELETE_USER, params![user, column, role])?
        }
        (Actor::Group(group), _) => tx.execute(DELETE_GROUP, params![group, column, role])?,
    };
    Ok(gone > 0)
}

/// The ids of the granted roles, without implied ones.
pub(crate) fn roles(tx: &mut Tx<'_>, actor: &Actor, target: &Target) -> Result<Vec<String>, Error> {
    let column = target.column();
    let rows = match (actor, target) {
        (Actor::User(user), Target::Project(_)) => tx.rows(ROLES, params![user, column])?,
        (Actor::User(user), Target::Domain | Target::System) => {
            tx.rows(ROLES_USER, params![user, column])?
        }
        (Actor::Group(group), _) => tx.rows(ROLES_GROUP, params![group, column])?,
    };
    rows.iter().map(|row| row.string("role_id")).collect()
}

/// The conditions of an assignment list, all of which must be met.
#[derive(Debug, Clone, Default)]
pub(crate) struct AssignmentFilter {
    pub user: Option<String>,
    pub group: Option<String>,
    pub target: Option<Target>,
    pub role: Option<String>,
}

/// The assignments as granted.
pub(crate) fn list(tx: &mut Tx<'_>, filter: &AssignmentFilter) -> Result<Vec<Assignment>, Error> {
    let mut all = Vec::new();
    if filter.group.is_none() {
        all.extend(users(tx, filter)?);
    }
    if filter.user.is_none() {
        let target = filter.target.as_ref().map(Target::column);
        let values = params![filter.group.as_deref(), target, filter.role.as_deref()];
        for row in tx.rows(LIST_GROUPS, values)? {
            all.push(read(&row, Actor::Group)?);
        }
    }
    Ok(all)
}

fn users(tx: &mut Tx<'_>, filter: &AssignmentFilter) -> Result<Vec<Assignment>, Error> {
    let target = filter.target.as_ref().map(Target::column);
    let values = params![filter.user.as_deref(), target, filter.role.as_deref()];
    let mut all = Vec::new();
    if !matches!(filter.target, Some(Target::Domain | Target::System)) {
        for row in tx.rows(LIST, values)? {
            all.push(read(&row, Actor::User)?);
        }
    }
    if !matches!(filter.target, Some(Target::Project(_))) {
        for row in tx.rows(LIST_USERS, values)? {
            all.push(read(&row, Actor::User)?);
        }
    }
    Ok(all)
}

/// The roles of users, direct and through groups; ignores the filter's `group`.
pub(crate) fn of_users(
    tx: &mut Tx<'_>,
    filter: &AssignmentFilter,
) -> Result<Vec<Assignment>, Error> {
    let mut all = users(tx, filter)?;
    let target = filter.target.as_ref().map(Target::column);
    let values = params![filter.user.as_deref(), target, filter.role.as_deref()];
    for row in tx.rows(LIST_MEMBERS, values)? {
        all.push(Assignment { group: Some(row.string("group_id")?), ..read(&row, Actor::User)? });
    }
    Ok(all)
}
