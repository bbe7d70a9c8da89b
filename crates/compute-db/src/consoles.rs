//! Consoles: the tokens with which users connect, and the requests that these connections send to hosts.
//!
//! A token's row contains only the token's SHA-256. Requests are rows, so that any controller that the host contacts
//! can deliver them; the host answers the requesting controller. They are not stored as questions, because a controller
//! of an earlier version must be able to read all open questions.

use jiff::{SignedDuration, Timestamp};
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::ConsoleRequest;
use kilonova_store::{Migration, Row, Tx, params};
use kilonova_wire::time;
use uuid::Uuid;

use super::documents::{self, Wake};
use super::servers::shape;
use crate::Error;

/// The tables.
pub const CONSOLES: Migration = Migration {
    name: "compute-0610-consoles",
    sql: "
CREATE TABLE console_tokens (
    hash TEXT PRIMARY KEY,
    server_id TEXT NOT NULL,
    host TEXT NOT NULL,
    console_type TEXT NOT NULL,
    access_url_base TEXT NOT NULL,
    user_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX console_tokens_by_server ON console_tokens (server_id);
CREATE INDEX console_tokens_expire ON console_tokens (expires_at);
CREATE TABLE console_requests (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    generation BIGINT NOT NULL,
    body TEXT NOT NULL,
    asked_at BIGINT NOT NULL
);
CREATE INDEX console_requests_by_host ON console_requests (host, generation);
CREATE INDEX console_requests_asked ON console_requests (asked_at);",
};

/// The age after which a request to a host is obsolete: no client waits that long.
pub const STALE: SignedDuration = SignedDuration::from_secs(60);

kilonova_store::statements! {
    /// Adds a token.
    ADD_TOKEN = "INSERT INTO console_tokens (hash, server_id, host, console_type, access_url_base,
        user_id, project_id, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    /// A token, with the current host of its server.
    TOKEN = "SELECT t.server_id, t.host, t.console_type, t.access_url_base, t.user_id, t.project_id,
        t.expires_at, s.host AS now_on FROM console_tokens t JOIN servers s ON s.id = t.server_id
        WHERE t.hash = ?1";
    /// Deletes the tokens of a server.
    END_TOKENS = "DELETE FROM console_tokens WHERE server_id = ?1";
    /// Deletes the tokens of a server for all hosts but one.
    LEAVE_HOST = "DELETE FROM console_tokens WHERE server_id = ?1 AND host <> ?2";
    /// Deletes expired tokens.
    PURGE_TOKENS = "DELETE FROM console_tokens WHERE hash IN (SELECT hash FROM console_tokens
        WHERE expires_at < ?1 ORDER BY expires_at LIMIT ?2)";
    /// Inserts a request to a host.
    ASK = "INSERT INTO console_requests (id, host, generation, body, asked_at)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    /// A host's requests that are not stale.
    OPEN = "SELECT body FROM console_requests WHERE host = ?1 AND generation > ?2 AND asked_at > ?3
        ORDER BY generation";
    /// Deletes a request.
    FORGET = "DELETE FROM console_requests WHERE id = ?1";
    /// Deletes stale requests.
    PURGE_REQUESTS = "DELETE FROM console_requests WHERE id IN (SELECT id FROM console_requests
        WHERE asked_at < ?1 ORDER BY asked_at LIMIT ?2)";
}

/// A token for a console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleToken {
    /// The server.
    pub server: ServerId,
    /// The server's host when the token was made. The token is valid there only.
    pub host: HostName,
    /// Nova's type of the console: `novnc`, `serial`.
    pub console_type: String,
    /// The URL to which the token was added.
    pub access_url_base: String,
    /// The user who requested it.
    pub user: String,
    /// That user's project.
    pub project: String,
    /// The end of its validity.
    pub expires: Timestamp,
}

/// Adds a token. `hash` is the SHA-256 of its text, in hexadecimal.
///
/// The insertion does not conflict with the deletion of the server in another transaction:
/// [`token`] finds no token without its server, and the row is deleted after its expiry.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn add_token(tx: &mut Tx<'_>, hash: &str, token: &ConsoleToken) -> Result<(), Error> {
    tx.defer(
        ADD_TOKEN,
        params![
            hash,
            token.server,
            &token.host,
            &token.console_type,
            &token.access_url_base,
            &token.user,
            &token.project,
            token.expires
        ],
    )?;
    Ok(())
}

/// The valid token with this hash: it is not expired, and its server exists and is still on the token's host.
pub fn token(tx: &mut Tx<'_>, hash: &str, now: Timestamp) -> Result<Option<ConsoleToken>, Error> {
    let Some(row) = tx.row(TOKEN, params![hash])? else { return Ok(None) };
    let now_on = row.host_opt("now_on")?;
    let token = read(&row)?;
    let is_valid = now < token.expires && now_on.is_some_and(|host| host == token.host);
    Ok(is_valid.then_some(token))
}

fn read(row: &Row) -> Result<ConsoleToken, Error> {
    Ok(ConsoleToken {
        server: row.id("server_id")?,
        host: row.host("host")?,
        console_type: row.string("console_type")?,
        access_url_base: row.string("access_url_base")?,
        user: row.string("user_id")?,
        project: row.string("project_id")?,
        expires: row.time("expires_at")?,
    })
}

/// Ends the tokens of a server that is deleted.
pub(super) fn end(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    tx.defer(END_TOKENS, params![server])?;
    Ok(())
}

/// Ends the tokens of a server for all hosts but its new one.
pub(super) fn leave(
    tx: &mut Tx<'_>,
    server: ServerId,
    host: Option<&HostName>,
) -> Result<(), Error> {
    match host {
        Some(host) => tx.defer(LEAVE_HOST, params![server, host])?,
        None => tx.defer(END_TOKENS, params![server])?,
    }
    Ok(())
}

/// Adds a request to a host in the host's next generation, and wakes the host on commit.
pub fn ask(
    tx: &mut Tx<'_>,
    wake: &impl Wake,
    host: &HostName,
    request: &ConsoleRequest,
    now: Timestamp,
) -> Result<(), Error> {
    let generation = documents::next(tx, host)?;
    let body = serde_json::to_string(request).map_err(|e| shape(e.to_string()))?;
    tx.defer(ASK, params![request.id.to_string(), host, generation, body, now])?;
    wake.wake_on_commit(tx, host, generation);
    Ok(())
}

/// A host's requests newer than a generation.
pub fn open_since(
    tx: &mut Tx<'_>,
    host: &HostName,
    since: i64,
    now: Timestamp,
) -> Result<Vec<ConsoleRequest>, Error> {
    let fresh = time::before(now, STALE);
    tx.rows(OPEN, params![host, since, fresh])?
        .iter()
        .map(|row| {
            serde_json::from_str(row.text("body")?)
                .map_err(|e| shape(format!("console request: {e}")))
        })
        .collect()
}

/// Deletes a request.
pub fn forget(tx: &mut Tx<'_>, id: Uuid) -> Result<(), Error> {
    tx.defer(FORGET, params![id.to_string()])?;
    Ok(())
}

/// Deletes at most `most` expired tokens and `most` stale requests. Returns the larger of the two
/// numbers.
pub fn purge(tx: &mut Tx<'_>, now: Timestamp, most: i64) -> Result<u64, Error> {
    let tokens = tx.execute(PURGE_TOKENS, params![now, most])?;
    let requests = tx.execute(PURGE_REQUESTS, params![time::before(now, STALE), most])?;
    Ok(tokens.max(requests))
}
