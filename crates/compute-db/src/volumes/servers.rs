//! One row for each server with volumes: when work on it is due, and the lease of its worker.

use jiff::Timestamp;
use kilonova_ids::ServerId;
use kilonova_store::{Asked, Tx, params};

use crate::Error;

kilonova_store::statements! {
    /// Leases a server to a worker until a time; adds the server if it has no row.
    TAKE_OR_ADD = "INSERT INTO volume_servers (server_id, project_id, due_at, taken_until, token)
        VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (server_id) DO UPDATE SET due_at = excluded.due_at,
        taken_until = excluded.taken_until, token = excluded.token
        WHERE volume_servers.taken_until <= ?3 RETURNING server_id";
    /// Adds a server that is due.
    ADD_SERVER = "INSERT INTO volume_servers (server_id, project_id, due_at) VALUES (?1, ?2, ?3)";
    /// Leases a server that is due.
    TAKE = "UPDATE volume_servers SET taken_until = ?3, token = ?4 WHERE server_id = ?1
        AND due_at <= ?2 AND taken_until <= ?2 RETURNING project_id, is_gone, attempts, due_at";
    /// Shortens the leases of a controller: its workers' tokens begin with its id, which has 36
    /// characters. A leased server always has a `due_at`.
    END_LEASES = "UPDATE volume_servers SET taken_until = ?2 WHERE due_at >= 0 AND taken_until > ?2
        AND SUBSTR(token, 1, 36) = ?1";
    /// Renews the lease of a server.
    RENEW = "UPDATE volume_servers SET taken_until = ?3 WHERE server_id = ?1 AND token = ?2
        RETURNING due_at, is_gone";
    /// Records that Cinder matches the rows, unless something changed since `due_at` was read.
    SETTLE = "UPDATE volume_servers SET due_at = NULL, taken_until = 0, attempts = 0
        WHERE server_id = ?1 AND token = ?2 AND due_at = ?3 RETURNING server_id";
    /// Ends the lease of a server, and makes it due again at a time.
    GIVE_BACK = "UPDATE volume_servers SET taken_until = 0, attempts = ?4,
        due_at = CASE WHEN due_at = ?3 OR due_at IS NULL THEN ?5 ELSE due_at END
        WHERE server_id = ?1 AND token = ?2";
    /// Makes a server due because something changed.
    NUDGE = "UPDATE volume_servers SET due_at = ?2, attempts = 0 WHERE server_id = ?1
        RETURNING server_id";
    /// Records that the server is gone.
    END = "UPDATE volume_servers SET is_gone = 1, due_at = ?2, attempts = 0 WHERE server_id = ?1
        RETURNING server_id";
    /// The row of a server.
    FIND = "SELECT server_id FROM volume_servers WHERE server_id = ?1";
    /// Deletes the row of a server that no worker leases.
    FORGET_SERVER = "DELETE FROM volume_servers WHERE server_id = ?1 AND taken_until = 0
        AND due_at IS NULL";
    /// The servers that are due and that no worker leases.
    DUE = "SELECT server_id FROM volume_servers WHERE due_at <= ?1 AND taken_until <= ?1
        ORDER BY due_at LIMIT 100";
}

/// The row of a server as leased by its worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The server.
    pub server: ServerId,
    /// Its project.
    pub project_id: String,
    /// True if the server is gone.
    pub is_gone: bool,
    /// Failed attempts since the last change.
    pub attempts: i64,
    /// The time of the change that the worker processes.
    pub due_at: Timestamp,
    /// The token that fences earlier workers.
    pub token: String,
}

/// Leases a server until a time; adds it if it has no row. False if another worker leases it.
pub fn take_or_add(
    tx: &mut Tx<'_>,
    server: ServerId,
    project_id: &str,
    now: Timestamp,
    until: Timestamp,
    token: &str,
) -> Result<bool, Error> {
    let values = params![server, project_id, now, until, token];
    Ok(tx.row(TAKE_OR_ADD, values)?.is_some())
}

/// Adds a server that is due.
pub fn add_server(
    tx: &mut Tx<'_>,
    server: ServerId,
    project_id: &str,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(ADD_SERVER, params![server, project_id, now])?;
    Ok(())
}

/// Leases a server that is due, until a time. `None` if it is not due or another worker leases it.
pub fn take(
    tx: &mut Tx<'_>,
    server: ServerId,
    now: Timestamp,
    until: Timestamp,
    token: &str,
) -> Result<Option<Taken>, Error> {
    let Some(row) = tx.row(TAKE, params![server, now, until, token])? else { return Ok(None) };
    Ok(Some(Taken {
        server,
        project_id: row.string("project_id")?,
        is_gone: row.bool("is_gone")?,
        attempts: row.int("attempts")?,
        due_at: row.time("due_at")?,
        token: token.to_owned(),
    }))
}

/// Shortens the leases of a controller to a time. The tokens of its workers begin with its id.
pub fn end_leases(tx: &mut Tx<'_>, controller: &str, until: Timestamp) -> Result<(), Error> {
    tx.defer(END_LEASES, params![controller, until])?;
    Ok(())
}

/// Renews the lease of a server and returns its current row. `None` if another worker has leased it.
pub fn renew(tx: &mut Tx<'_>, taken: &Taken, until: Timestamp) -> Result<Option<Taken>, Error> {
    let values = params![taken.server, taken.token.as_str(), until];
    let Some(row) = tx.row(RENEW, values)? else { return Ok(None) };
    let due_at = row.time_opt("due_at")?.unwrap_or(taken.due_at);
    Ok(Some(Taken { is_gone: row.bool("is_gone")?, due_at, ..taken.clone() }))
}

/// Records that Cinder matches the rows. False if something has changed since.
pub fn settle(tx: &mut Tx<'_>, taken: &Taken) -> Result<bool, Error> {
    let values = params![taken.server, taken.token.as_str(), taken.due_at];
    Ok(tx.row(SETTLE, values)?.is_some())
}

/// Ends the lease of a server, and records when it is due again and the number of failed attempts.
pub fn give_back(
    tx: &mut Tx<'_>,
    taken: &Taken,
    attempts: i64,
    due: Timestamp,
) -> Result<(), Error> {
    let values = params![taken.server, taken.token.as_str(), taken.due_at, attempts, due];
    tx.defer(GIVE_BACK, values)?;
    Ok(())
}

/// Asks the store to record that something changed for a server; the answer contains a row if the server has volumes.
pub fn ask_nudge(tx: &mut Tx<'_>, server: ServerId, now: Timestamp) -> Result<Asked, Error> {
    Ok(tx.ask(NUDGE, params![server, now])?)
}

/// Records that a server is gone. False if it has no volumes.
pub fn end(tx: &mut Tx<'_>, server: ServerId, now: Timestamp) -> Result<bool, Error> {
    Ok(tx.row(END, params![server, now])?.is_some())
}

/// True if a server has volumes, or attachments that have to be ended.
pub fn has_any(tx: &mut Tx<'_>, server: ServerId) -> Result<bool, Error> {
    Ok(tx.row(FIND, params![server])?.is_some())
}

/// Asks the store whether a server has volumes, or attachments that have to be ended: the answer then contains a row.
pub fn ask_has_any(tx: &mut Tx<'_>, server: ServerId) -> Result<Asked, Error> {
    Ok(tx.ask(FIND, params![server])?)
}

/// Deletes the row of a server without devices or attachments, once it is settled.
pub fn forget_settled(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    tx.defer(FORGET_SERVER, params![server])?;
    Ok(())
}

/// At most a hundred servers that are due.
pub fn due(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<ServerId>, Error> {
    tx.rows(DUE, params![now])?.iter().map(|row| Ok(row.id("server_id")?)).collect()
}
