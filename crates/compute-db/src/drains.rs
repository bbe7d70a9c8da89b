//! The drains of hosts: the operator's request, and the outcome of each move.
//!
//! A host has at most one drain, and the drain at most one row for each server. Enabling or
//! deleting the host deletes its rows. The rows record the progress of the moves; the operations are in the journal.

use jiff::Timestamp;
use kilonova_ids::{HostName, ServerId};
use kilonova_store::{Migration, Row, Tx, params};

use super::servers::shape;
use crate::Error;

/// The tables.
pub const DRAINS: Migration = Migration {
    name: "compute-0820-host-drains",
    sql: "
CREATE TABLE host_drains (
    host TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    cold BIGINT NOT NULL,
    parallel BIGINT NOT NULL,
    total BIGINT NOT NULL,
    user_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    begun_at BIGINT NOT NULL,
    ended_at BIGINT
);
CREATE INDEX host_drains_running ON host_drains (state, host);
CREATE TABLE host_drain_moves (
    host TEXT NOT NULL,
    server_id TEXT NOT NULL,
    state TEXT NOT NULL,
    tries BIGINT NOT NULL,
    why TEXT,
    PRIMARY KEY (host, server_id)
);",
};

/// Adds the time of the next request after a refusal.
pub const PAUSES: Migration = Migration {
    name: "compute-0840-host-drain-pauses",
    sql: "ALTER TABLE host_drain_moves ADD COLUMN next_at BIGINT;",
};

kilonova_store::statements! {
    /// Adds the drain of a host, in place of an earlier one.
    BEGIN = "INSERT INTO host_drains (host, state, cold, parallel, total, user_id, project_id, request_id, begun_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
        ON CONFLICT (host) DO UPDATE SET state = excluded.state, cold = excluded.cold,
            parallel = excluded.parallel, total = excluded.total, user_id = excluded.user_id,
            project_id = excluded.project_id, request_id = excluded.request_id,
            begun_at = excluded.begun_at, ended_at = NULL";
    /// Ends a drain that is running.
    END = "UPDATE host_drains SET state = ?2, ended_at = ?3 WHERE host = ?1 AND state = ?4 AND request_id = ?5";
    /// The drain of a host.
    OF_HOST = "SELECT host, state, cold, parallel, total, user_id, project_id, request_id, begun_at, ended_at
        FROM host_drains WHERE host = ?1";
    /// The hosts whose drains are in a state.
    IN_STATE = "SELECT host FROM host_drains WHERE state = ?1 ORDER BY host";
    /// The moves of a drain.
    MOVES = "SELECT server_id, state, tries, why, next_at FROM host_drain_moves WHERE host = ?1
        ORDER BY server_id";
    /// Records a move.
    RECORD = "INSERT INTO host_drain_moves (host, server_id, state, tries, why, next_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (host, server_id) DO UPDATE SET state = excluded.state, tries = excluded.tries,
            why = excluded.why, next_at = excluded.next_at";
    /// Deletes the moves of a host.
    FORGET_MOVES = "DELETE FROM host_drain_moves WHERE host = ?1";
    /// Deletes the drain of a host.
    FORGET = "DELETE FROM host_drains WHERE host = ?1";
}

/// The state of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It requests moves, or waits for them.
    Running,
    /// No further server can move without an operator.
    Ended,
    /// An operator stopped it.
    Stopped,
}

impl State {
    const ALL: [Self; 3] = [Self::Running, Self::Ended, Self::Stopped];

    /// The state in its row and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ended => "ended",
            Self::Stopped => "stopped",
        }
    }

    fn parse(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|state| state.as_str() == text);
        known.ok_or_else(|| shape(format!("state of a drain: {text:?}")))
    }
}

/// A drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    /// The host.
    pub host: HostName,
    /// Its state.
    pub state: State,
    /// True to shut off, move and restart servers that cannot live-migrate.
    pub cold: bool,
    /// How many servers may move at the same time.
    pub parallel: i64,
    /// The number of servers on the host when it began.
    pub total: i64,
    /// The user who requested it.
    pub user: String,
    /// That user's project.
    pub project: String,
    /// The request that began it: `req-<uuid>`. It distinguishes successive drains of a host.
    pub request_id: String,
    /// When it began.
    pub begun_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// The progress of the move of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It was requested.
    Requested,
    /// It is not possible for now: the request was refused and is repeated, or an operation cannot be read.
    Refused(String),
    /// It failed, or was refused too often.
    Failed(String),
}

/// The move of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainMove {
    /// The server.
    pub server: ServerId,
    /// Its progress.
    pub progress: Progress,
    /// How often it was requested or refused.
    pub attempts: i64,
    /// When it is requested again, by the database's clock; `None` unless it was refused for now.
    pub next_at: Option<Timestamp>,
}

impl Progress {
    /// The reason for a refusal or a failure.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Requested => None,
            Self::Refused(why) | Self::Failed(why) => Some(why),
        }
    }
}

impl DrainMove {
    /// The state in its row and on the wire.
    pub fn state(&self) -> &'static str {
        match self.progress {
            Progress::Requested => "requested",
            Progress::Refused(_) => "refused",
            Progress::Failed(_) => "failed",
        }
    }

    /// The reason for a refusal or a failure.
    pub fn why(&self) -> Option<&str> {
        self.progress.why()
    }
}

fn drain(row: &Row) -> Result<Drain, Error> {
    Ok(Drain {
        host: row.host("host")?,
        state: State::parse(row.text("state")?)?,
        cold: row.bool("cold")?,
        parallel: row.int("parallel")?,
        total: row.int("total")?,
        user: row.string("user_id")?,
        project: row.string("project_id")?,
        request_id: row.string("request_id")?,
        begun_at: row.time("begun_at")?,
        ended_at: row.time_opt("ended_at")?,
    })
}

fn drain_move(row: &Row) -> Result<DrainMove, Error> {
    let why = || Ok::<_, Error>(row.string_opt("why")?.unwrap_or_default());
    let progress = match row.text("state")? {
        "requested" => Progress::Requested,
        "refused" => Progress::Refused(why()?),
        "failed" => Progress::Failed(why()?),
        other => return Err(shape(format!("state of a move of a drain: {other:?}"))),
    };
    // A controller of an earlier version changes `state` without `next_at`.
    let next_at = match progress {
        Progress::Refused(_) => row.time_opt("next_at")?,
        Progress::Requested | Progress::Failed(_) => None,
    };
    Ok(DrainMove { server: row.id("server_id")?, progress, attempts: row.int("tries")?, next_at })
}

/// Begins the drain of a host, and deletes an earlier one with its moves.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn begin(tx: &mut Tx<'_>, drain: &Drain) -> Result<(), Error> {
    tx.defer(FORGET_MOVES, params![&drain.host])?;
    tx.defer(
        BEGIN,
        params![
            &drain.host,
            drain.state.as_str(),
            drain.cold,
            drain.parallel,
            drain.total,
            &drain.user,
            &drain.project,
            &drain.request_id,
            drain.begun_at
        ],
    )?;
    Ok(())
}

/// Ends a drain, unless it has already ended or another drain of the host has begun. Returns true
/// if this call ended it.
pub fn end(tx: &mut Tx<'_>, drain: &Drain, state: State, now: Timestamp) -> Result<bool, Error> {
    let running = State::Running.as_str();
    let values = params![&drain.host, state.as_str(), now, running, &drain.request_id];
    Ok(tx.execute(END, values)? > 0)
}

/// The drain of a host.
pub fn of_host(tx: &mut Tx<'_>, host: &HostName) -> Result<Option<Drain>, Error> {
    tx.row(OF_HOST, params![host])?.as_ref().map(drain).transpose()
}

/// The hosts whose drains are running.
pub fn running(tx: &mut Tx<'_>) -> Result<Vec<HostName>, Error> {
    let rows = tx.rows(IN_STATE, params![State::Running.as_str()])?;
    rows.iter().map(|row| Ok(row.host("host")?)).collect()
}

/// The moves of a host's drain.
pub fn moves(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<DrainMove>, Error> {
    tx.rows(MOVES, params![host])?.iter().map(drain_move).collect()
}

/// Records a move of a host's drain.
pub fn record(tx: &mut Tx<'_>, host: &HostName, one: &DrainMove) -> Result<(), Error> {
    let values = params![host, one.server, one.state(), one.attempts, one.why(), one.next_at];
    tx.defer(RECORD, values)?;
    Ok(())
}

/// Deletes the drain of a host and its moves, when the host is enabled or deleted.
pub fn forget(tx: &mut Tx<'_>, host: &HostName) -> Result<(), Error> {
    tx.defer(FORGET_MOVES, params![host])?;
    tx.defer(FORGET, params![host])?;
    Ok(())
}
