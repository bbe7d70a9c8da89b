//! The last changes of servers, for readers that display them.

use std::collections::HashMap;

use jiff::Timestamp;
use kilonova_ids::ServerId;
use kilonova_store::{Row, Tx, Value, params};

use crate::Error;

kilonova_store::statements! {
    /// The last changes of some servers.
    SOME = "SELECT id, updated_at, CASE WHEN locked_by IS NULL THEN 0 ELSE 1 END AS locked FROM servers
        WHERE id IN ({})";
    /// The newest servers after a number.
    NEWEST = "SELECT seq FROM servers WHERE seq > ?1 ORDER BY seq DESC LIMIT ?2";
    /// The newest servers of a project.
    NEWEST_OF = "SELECT seq FROM servers WHERE project_id = ?1 ORDER BY seq DESC LIMIT ?2";
}

/// Maximum count of numbers in [`newest`]. PostgreSQL numbers a row before its commit, so a server may appear after
/// servers with higher numbers; a reader that compares this many numbers still sees it.
pub const NEWEST_COUNT: usize = 50;

/// A value that differs between any two states of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    at: Timestamp,
    locked: bool,
}

/// The marks of the servers that exist.
///
/// # Errors
/// Store errors only; also for the function below.
pub fn of(tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<HashMap<ServerId, Mark>, Error> {
    let ids: Vec<Value> = servers.iter().map(|id| Value::from(*id)).collect();
    let asked = tx.ask_list(SOME, &ids)?;
    let read = |row: &Row| {
        let mark = Mark { at: row.time("updated_at")?, locked: row.int("locked")? != 0 };
        Ok((row.id("id")?, mark))
    };
    tx.answers(asked)?.iter().map(read).collect()
}

/// The numbers of the newest servers of a project, or of all, the newest first.
pub fn newest(tx: &mut Tx<'_>, project: Option<&str>) -> Result<Vec<i64>, Error> {
    let most = NEWEST_COUNT as i64;
    let rows = match project {
        Some(project) => tx.rows(NEWEST_OF, params![project, most])?,
        None => tx.rows(NEWEST, params![0_i64, most])?,
    };
    Ok(rows.iter().map(|row| row.int("seq")).collect::<Result<_, _>>()?)
}
