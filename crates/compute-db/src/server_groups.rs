//! Server groups and their members.
//!
//! A group's generation increments with each new member: two boots into one group conflict on its
//! row, so that neither counts members or schedules without seeing the other.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kilonova_ids::{HostName, ServerGroupId, ServerId};
use kilonova_store::{Error as StoreError, Row, Tx, params};

use crate::Error;
use crate::servers::VmState;

/// Selects [`Group`]s.
macro_rules! select {
    () => {
        "SELECT id, project_id, user_id, name, policy, max_per_host FROM server_groups"
    };
}

kilonova_store::statements! {
    /// Inserts a group.
    INSERT = "INSERT INTO server_groups (id, project_id, user_id, name, policy, max_per_host,
        generation, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7)";
    /// One group.
    FIND = concat!(select!(), " WHERE id = ?1");
    /// A page of all groups, oldest first.
    PAGE = concat!(select!(), " ORDER BY seq LIMIT ?1 OFFSET ?2");
    /// A page of one project's groups.
    PAGE_OF_PROJECT = concat!(select!(), " WHERE project_id = ?3 ORDER BY seq LIMIT ?1 OFFSET ?2");
    /// Number of groups of a project, or of one user in it.
    COUNT = "SELECT COUNT(*) AS count FROM server_groups
        WHERE project_id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR user_id = ?2)";
    /// Deletes a group and its memberships.
    DELETE = "DELETE FROM server_groups WHERE id = ?1";
    /// The members of a group, soft-deleted ones included.
    MEMBERS = "SELECT s.id, s.host, s.user_id, s.vm_state FROM server_group_members m
        JOIN servers s ON s.id = m.server_id WHERE m.group_id = ?1 ORDER BY s.seq";
    /// The members of all groups, without soft-deleted ones.
    MEMBERS_OF_ALL = "SELECT m.group_id, s.id FROM server_group_members m
        JOIN servers s ON s.id = m.server_id WHERE s.vm_state <> 'soft-delete' ORDER BY s.seq";
    /// The members of a project's groups, without soft-deleted ones. `CROSS JOIN` fixes SQLite's order of tables.
    MEMBERS_OF_PROJECT = "SELECT m.group_id, s.id FROM server_groups g
        CROSS JOIN server_group_members m CROSS JOIN servers s
        WHERE g.project_id = ?1 AND m.group_id = g.id AND s.id = m.server_id
        AND s.vm_state <> 'soft-delete' ORDER BY s.seq";
    /// Increments the generation before a member is added.
    TOUCH = "UPDATE server_groups SET generation = generation + 1 WHERE id = ?1";
    /// Adds a member.
    JOIN = "INSERT INTO server_group_members (server_id, group_id) VALUES (?1, ?2)";
    /// Removes a member.
    LEAVE = "DELETE FROM server_group_members WHERE server_id = ?1";
    /// The group of a server.
    OF_SERVER = "SELECT group_id FROM server_group_members WHERE server_id = ?1";
}

/// The policy of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// All on one host.
    Affinity,
    /// Each on a different host, or at most `max_server_per_host` on one.
    AntiAffinity,
    /// On one host if possible.
    SoftAffinity,
    /// On as many hosts as possible.
    SoftAntiAffinity,
}

impl Policy {
    /// All policies by Nova's names.
    pub const ALL: [(&'static str, Self); 4] = [
        ("affinity", Self::Affinity),
        ("anti-affinity", Self::AntiAffinity),
        ("soft-affinity", Self::SoftAffinity),
        ("soft-anti-affinity", Self::SoftAntiAffinity),
    ];

    /// Nova's name.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, policy)| *policy == self).map_or("", |(name, _)| name)
    }

    /// Parses Nova's name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, policy)| *policy)
    }
}

/// A server group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Id.
    pub id: ServerGroupId,
    /// Owner.
    pub project_id: String,
    /// Owner.
    pub user_id: String,
    /// Name; several groups may have the same one.
    pub name: String,
    /// The policy.
    pub policy: Policy,
    /// With anti-affinity: the number of members that may share a host. One if absent.
    pub max_per_host: Option<i64>,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The server.
    pub server: ServerId,
    /// Its host.
    pub host: Option<HostName>,
    /// Its user.
    pub user_id: String,
    /// True if it is soft-deleted. Such a member is not shown and not counted, but its host counts, for
    /// it can be restored.
    pub soft_deleted: bool,
}

fn read(row: &Row) -> Result<Group, Error> {
    let policy = row.text("policy")?;
    let policy = Policy::parse(policy)
        .ok_or_else(|| StoreError::Shape(format!("policy of a server group: {policy:?}")))?;
    Ok(Group {
        id: row.id("id")?,
        project_id: row.string("project_id")?,
        user_id: row.string("user_id")?,
        name: row.string("name")?,
        policy,
        max_per_host: row.int_opt("max_per_host")?,
    })
}

/// Inserts a group.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn insert(tx: &mut Tx<'_>, group: &Group, now: Timestamp) -> Result<(), Error> {
    tx.defer(
        INSERT,
        params![
            group.id,
            &group.project_id,
            &group.user_id,
            &group.name,
            group.policy.as_str(),
            group.max_per_host,
            now
        ],
    )?;
    Ok(())
}

/// One group.
pub fn find(tx: &mut Tx<'_>, id: ServerGroupId) -> Result<Option<Group>, Error> {
    tx.row(FIND, params![id])?.as_ref().map(read).transpose()
}

/// `limit` groups after the first `offset`, oldest first; of one project or of all.
pub fn page(
    tx: &mut Tx<'_>,
    project_id: Option<&str>,
    limit: i64,
    offset: i64,
) -> Result<Vec<Group>, Error> {
    let rows = match project_id {
        None => tx.rows(PAGE, params![limit, offset])?,
        Some(project) => tx.rows(PAGE_OF_PROJECT, params![limit, offset, project])?,
    };
    rows.iter().map(read).collect()
}

/// Number of groups of a project, or of one user in it.
pub fn count(tx: &mut Tx<'_>, project_id: &str, user_id: Option<&str>) -> Result<i64, Error> {
    Ok(tx.row(COUNT, params![project_id, user_id])?.map_or(Ok(0), |row| row.int("count"))?)
}

/// Deletes a group; its servers stay. Returns whether it existed.
pub fn delete(tx: &mut Tx<'_>, id: ServerGroupId) -> Result<bool, Error> {
    Ok(tx.execute(DELETE, params![id])? == 1)
}

/// The members of a group, soft-deleted ones included, oldest first.
pub fn members(tx: &mut Tx<'_>, id: ServerGroupId) -> Result<Vec<Member>, Error> {
    tx.rows(MEMBERS, params![id])?
        .iter()
        .map(|row| {
            Ok(Member {
                server: row.id("id")?,
                host: row.host_opt("host")?,
                user_id: row.string("user_id")?,
                soft_deleted: row.text("vm_state")? == VmState::SoftDeleted.as_str(),
            })
        })
        .collect()
}

/// The members of each group of a project, or of all groups, without soft-deleted ones.
pub fn members_of_all(
    tx: &mut Tx<'_>,
    project_id: Option<&str>,
) -> Result<BTreeMap<String, Vec<ServerId>>, Error> {
    let mut all: BTreeMap<String, Vec<ServerId>> = BTreeMap::new();
    let rows = match project_id {
        None => tx.rows(MEMBERS_OF_ALL, params![])?,
        Some(project) => tx.rows(MEMBERS_OF_PROJECT, params![project])?,
    };
    for row in rows {
        all.entry(row.string("group_id")?).or_default().push(row.id("id")?);
    }
    Ok(all)
}

/// Call this before counting members or scheduling by them: two transactions that do so are
/// serialized. Returns false if the group does not exist.
pub fn touch(tx: &mut Tx<'_>, id: ServerGroupId) -> Result<bool, Error> {
    Ok(tx.execute(TOUCH, params![id])? == 1)
}

/// Adds a server to a group, in the transaction that inserts the server.
pub fn join(tx: &mut Tx<'_>, id: ServerGroupId, server: ServerId) -> Result<(), Error> {
    tx.defer(JOIN, params![server, id])?;
    Ok(())
}

/// Removes a server from its group, if it has one.
pub fn leave(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    tx.defer(LEAVE, params![server])?;
    Ok(())
}

/// Announces [`of_server`].
pub fn expect_of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    Ok(tx.expect(OF_SERVER, params![server])?)
}

/// The group of a server.
pub fn of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<Option<ServerGroupId>, Error> {
    Ok(tx.row(OF_SERVER, params![server])?.map(|row| row.id("group_id")).transpose()?)
}
