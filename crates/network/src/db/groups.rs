//! Rows of `security_groups` and their rules. Each project has one default group.

use jiff::Timestamp;
use kilonova_ids::{
    SecurityGroupId, SecurityGroupKind, SecurityGroupRuleId, SecurityGroupRuleKind, ServerId,
};
use kilonova_store::{Asked, Error, Row, Tx, params, statements};

use super::{expect_in, record, rows_in, text};
use crate::record::Record;

pub(crate) type Group = Record<SecurityGroupKind>;

/// A rule and its group.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub record: Record<SecurityGroupRuleKind>,
    pub group: SecurityGroupId,
}

/// The columns of a [`Rule`].
macro_rules! rule_columns {
    () => {
        concat!(record_columns!("r"), ", r.security_group_id")
    };
}

statements! {
    /// Adds a group; does nothing for a second default group of a project.
    INSERT = "INSERT INTO security_groups (id, project_id, default_of, body, revision, created_at,
        updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (default_of) DO NOTHING";
    /// Updates the mutable columns.
    UPDATE = "UPDATE security_groups SET body = ?2, revision = ?3, updated_at = ?4 WHERE id = ?1";
    /// Makes the transaction conflict with a concurrent deletion; runs when a port or a rule begins to use the group.
    TOUCH = "UPDATE security_groups SET revision = revision WHERE id = ?1";
    /// Counts a change to the group's rules as a change to the group.
    REVISE = "UPDATE security_groups SET revision = revision + 1, updated_at = ?2 WHERE id = ?1";
    /// One group.
    FIND = concat!("SELECT ", record_columns!("g"), " FROM security_groups g WHERE g.id = ?1");
    /// Groups by id.
    BY_IDS = concat!(
        "SELECT ",
        record_columns!("g"),
        " FROM security_groups g WHERE g.id IN ({}) ORDER BY g.seq"
    );
    /// The groups of servers' ports.
    OF_SERVERS = concat!(
        "SELECT ",
        record_columns!("g"),
        " FROM security_groups g WHERE g.id IN (SELECT m.group_id FROM ports o
            JOIN port_groups m ON m.port_id = o.id WHERE o.server_id IN ({}))"
    );
    /// The default group of a project.
    DEFAULT = "SELECT id FROM security_groups WHERE default_of = ?1";
    /// The groups of a project, or of all projects.
    LIST = concat!(
        "SELECT ",
        record_columns!("g"),
        " FROM security_groups g
        WHERE CAST(?1 AS TEXT) IS NULL OR g.project_id = ?1 ORDER BY g.seq"
    );
    /// Deletes a group.
    DELETE = "DELETE FROM security_groups WHERE id = ?1";
    /// Adds a rule.
    INSERT_RULE = "INSERT INTO security_group_rules (id, project_id, security_group_id, body,
        revision, created_at, updated_at, remote_group_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    /// One rule.
    FIND_RULE = concat!(
        "SELECT ",
        rule_columns!(),
        " FROM security_group_rules r WHERE r.id = ?1"
    );
    /// The rules of a group.
    RULES_OF = concat!(
        "SELECT ",
        rule_columns!(),
        " FROM security_group_rules r WHERE r.security_group_id = ?1 ORDER BY r.seq"
    );
    /// The rules of a project's groups, or of all projects.
    LIST_RULES = concat!(
        "SELECT ",
        rule_columns!(),
        " FROM security_group_rules r JOIN security_groups g ON g.id = r.security_group_id
        WHERE CAST(?1 AS TEXT) IS NULL OR g.project_id = ?1 ORDER BY r.seq"
    );
    /// Deletes a rule.
    DELETE_RULE = "DELETE FROM security_group_rules WHERE id = ?1";
    /// Other groups with rules whose remote group is this one.
    REFERENCING = "SELECT DISTINCT security_group_id FROM security_group_rules
        WHERE remote_group_id = ?1 AND security_group_id <> ?1";
    /// Deletes the rules of a group.
    DELETE_RULES = "DELETE FROM security_group_rules WHERE security_group_id = ?1";
    /// Deletes the rules whose remote group is this one.
    DELETE_REFERENCING = "DELETE FROM security_group_rules WHERE remote_group_id = ?1";
}

fn rule(row: &Row) -> Result<Rule, Error> {
    Ok(Rule { record: record(row)?, group: row.id("security_group_id")? })
}

/// Adds a group; does nothing for a second default group of a project.
pub(crate) fn insert(
    tx: &mut Tx<'_>,
    group: &Group,
    default_of: Option<&str>,
) -> Result<(), Error> {
    let values = params![
        group.id,
        &group.project,
        default_of,
        text(&group.body)?,
        group.revision,
        group.created_at,
        group.updated_at,
    ];
    tx.defer(INSERT, values)
}

pub(crate) fn update(tx: &mut Tx<'_>, group: &Group) -> Result<(), Error> {
    let values = params![group.id, text(&group.body)?, group.revision, group.updated_at];
    tx.defer(UPDATE, values)
}

pub(crate) fn touch(tx: &mut Tx<'_>, id: SecurityGroupId) -> Result<(), Error> {
    tx.defer(TOUCH, params![id])
}

/// Counts a change to the group's rules as a change to the group.
pub(crate) fn revise(tx: &mut Tx<'_>, id: SecurityGroupId, now: Timestamp) -> Result<(), Error> {
    tx.defer(REVISE, params![id, now])
}

pub(crate) fn find(tx: &mut Tx<'_>, id: SecurityGroupId) -> Result<Option<Group>, Error> {
    tx.row(FIND, params![id])?.as_ref().map(record).transpose()
}

/// Asks for [`default_of`]; [`found_default`] reads the answer.
pub(crate) fn ask_default_of(tx: &mut Tx<'_>, project: &str) -> Result<Asked, Error> {
    tx.ask(DEFAULT, params![project])
}

/// The default group that [`ask_default_of`] requested.
pub(crate) fn found_default(
    tx: &mut Tx<'_>,
    asked: Asked,
) -> Result<Option<SecurityGroupId>, Error> {
    tx.answer_row(asked)?.map(|row| row.id("id")).transpose()
}

pub(crate) fn default_of(tx: &mut Tx<'_>, project: &str) -> Result<Option<SecurityGroupId>, Error> {
    tx.row(DEFAULT, params![project])?.map(|row| row.id("id")).transpose()
}

/// Groups by id, in the order of their creation.
pub(crate) fn by_ids(tx: &mut Tx<'_>, ids: &[String]) -> Result<Vec<Group>, Error> {
    rows_in(tx, BY_IDS, ids)?.iter().map(record).collect()
}

/// Announces [`of_servers`].
pub(crate) fn expect_of_servers(tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<(), Error> {
    expect_in(tx, OF_SERVERS, servers.iter().copied())
}

/// The groups of servers' ports; with many servers, some are repeated.
pub(crate) fn of_servers(tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<Vec<Group>, Error> {
    rows_in(tx, OF_SERVERS, servers.iter().copied())?.iter().map(record).collect()
}

pub(crate) fn list(tx: &mut Tx<'_>, viewer: Option<&str>) -> Result<Vec<Group>, Error> {
    tx.rows(LIST, params![viewer])?.iter().map(record).collect()
}

/// Other groups with rules whose remote group is this one.
pub(crate) fn referencing(
    tx: &mut Tx<'_>,
    id: SecurityGroupId,
) -> Result<Vec<SecurityGroupId>, Error> {
    let rows = tx.rows(REFERENCING, params![id])?;
    rows.iter().map(|row| row.id("security_group_id")).collect()
}

/// Deletes a group, its rules, and the rules of other groups that reference it, as Neutron does.
pub(crate) fn delete(tx: &mut Tx<'_>, id: SecurityGroupId) -> Result<(), Error> {
    tx.defer(DELETE_RULES, params![id])?;
    tx.defer(DELETE_REFERENCING, params![id])?;
    tx.defer(DELETE, params![id])
}

pub(crate) fn insert_rule(tx: &mut Tx<'_>, rule: &Rule) -> Result<(), Error> {
    let record = &rule.record;
    let values = params![
        record.id,
        &record.project,
        rule.group,
        text(&record.body)?,
        record.revision,
        record.created_at,
        record.updated_at,
        record.body.get("remote_group_id").and_then(serde_json::Value::as_str),
    ];
    tx.defer(INSERT_RULE, values)
}

pub(crate) fn find_rule(tx: &mut Tx<'_>, id: SecurityGroupRuleId) -> Result<Option<Rule>, Error> {
    tx.row(FIND_RULE, params![id])?.as_ref().map(rule).transpose()
}

pub(crate) fn rules_of(tx: &mut Tx<'_>, group: SecurityGroupId) -> Result<Vec<Rule>, Error> {
    tx.rows(RULES_OF, params![group])?.iter().map(rule).collect()
}

pub(crate) fn list_rules(tx: &mut Tx<'_>, viewer: Option<&str>) -> Result<Vec<Rule>, Error> {
    tx.rows(LIST_RULES, params![viewer])?.iter().map(rule).collect()
}

pub(crate) fn delete_rule(tx: &mut Tx<'_>, id: SecurityGroupRuleId) -> Result<(), Error> {
    tx.defer(DELETE_RULE, params![id])
}
