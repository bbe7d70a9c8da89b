//! The table of migrations. A migration and its consumer in both ledgers share one UUID.

use std::collections::HashMap;
use std::fmt;

use jiff::Timestamp;
use kilonova_ids::{ConsumerId, HostName, ServerId};
use kilonova_node_api::{Domain, Progress};
use kilonova_store::{Asked, Row, Tx, Value, params};
use serde::Serialize;

use super::servers::{FlavorOf, VmState, from_text, shape, to_text};
use crate::Error;

/// Selects [`Move`]s.
macro_rules! select {
    () => {
        "SELECT number, id, server_id, open_server, kind, status, source_host, dest_host,
        held_on, was, old_flavor, new_flavor, old_domain, progress, user_id, project_id, created_at,
        updated_at FROM moves"
    };
}

kilonova_store::statements! {
    /// Inserts a migration, unless the server has an open one.
    INSERT = "INSERT INTO moves (id, server_id, open_server, kind, status, source_host, was,
        old_flavor, new_flavor, old_domain, user_id, project_id, created_at, updated_at, most_vcpus,
        most_memory)
        VALUES (?1, ?2, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12, ?13, ?14)
        ON CONFLICT DO NOTHING";
    /// The open migration of a server: the one that can still be rolled back.
    OPEN_OF = concat!(select!(), " WHERE open_server = ?1");
    /// The open migrations of some servers.
    OPEN_OF_SOME = concat!(select!(), " WHERE open_server IN ({})");
    /// The progress of the open migrations of some servers.
    PROGRESS_OF_SOME = "SELECT server_id, progress FROM moves WHERE open_server IN ({})";
    /// All migrations of a server, oldest first.
    OF_SERVER = concat!(select!(), " WHERE server_id = ?1 ORDER BY number");
    /// The migrations of a server that hold claims on a host.
    HELD_ON = concat!(select!(), " WHERE server_id = ?1 AND held_on = ?2 ORDER BY number");
    /// The servers whose migrations hold claims on a host.
    SERVERS_HELD_ON = "SELECT DISTINCT server_id FROM moves WHERE held_on = ?1 ORDER BY server_id";
    /// A row if a server was evacuated from a host that has not removed the guest yet.
    EVACUATED_FROM = "SELECT number FROM moves WHERE held_on = ?1 AND source_host = ?1
        AND kind = 'evacuation' AND status = 'done' LIMIT 1";
    /// Completes the evacuations of a server from a host that has removed the guest, and from names that no host has:
    /// the machine may have another name now.
    COMPLETE_EVACUATIONS = "UPDATE moves SET status = 'completed', updated_at = ?3
        WHERE server_id = ?1 AND kind = 'evacuation' AND status = 'done'
        AND (source_host = ?2 OR NOT EXISTS (SELECT 1 FROM hosts h WHERE h.host = moves.source_host))";
    /// A page of migrations older than a number, newest first.
    PAGE = concat!(select!(), " WHERE number < ?1 ORDER BY number DESC LIMIT ?2");
    /// The number of a migration.
    NUMBER_OF = "SELECT number FROM moves WHERE id = ?1";
    /// Servers whose migration has waited for its confirmation since a time.
    UNCONFIRMED = "SELECT server_id FROM moves WHERE open_server IS NOT NULL AND status = 'finished'
        AND updated_at <= ?1 ORDER BY updated_at LIMIT 200";
    /// Sets the status; a closed migration can no longer be rolled back.
    SET_STATUS = "UPDATE moves SET status = ?2, updated_at = ?3,
        open_server = CASE WHEN CAST(?4 AS BIGINT) = 1 THEN NULL ELSE open_server END WHERE id = ?1";
    /// Sets the destination.
    SET_DEST = "UPDATE moves SET dest_host = ?2, updated_at = ?3 WHERE id = ?1";
    /// Sets the host where the migration holds claims.
    SET_HELD = "UPDATE moves SET held_on = ?2 WHERE id = ?1";
    /// Sets the progress of a live migration.
    SET_PROGRESS = "UPDATE moves SET progress = ?2, updated_at = ?3 WHERE id = ?1";
}

/// The kind of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// To another flavor.
    Resize,
    /// To another host, with the guest shut off.
    Cold,
    /// To another host, with the guest running.
    Live,
    /// From a host that is down.
    Evacuation,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Resize, Self::Cold, Self::Live, Self::Evacuation];

    /// The migration's type, as Nova spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resize => "resize",
            Self::Cold => "migration",
            Self::Live => "live-migration",
            Self::Evacuation => "evacuation",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        known.ok_or_else(|| shape(format!("kind of a migration: {text:?}")))
    }
}

/// The status of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "&'static str")]
pub enum Status {
    /// An evacuation is requested.
    Accepted,
    /// A cold move has no destination yet, or an evacuation has one.
    PreMigrating,
    /// A cold move is in progress.
    Migrating,
    /// A cold move waits for its confirmation.
    Finished,
    /// A cold move is confirmed.
    Confirmed,
    /// A cold move is being reverted.
    Reverting,
    /// A cold move is reverted.
    Reverted,
    /// An evacuated server is on its new host; the old one has not removed the guest yet.
    Done,
    /// A live migration waits for others.
    Queued,
    /// The destination of a live migration is preparing for the guest.
    Preparing,
    /// The source of a live migration sends the guest.
    Running,
    /// The destination of a live migration takes over the guest.
    PostMigrating,
    /// A live migration is over, or the old host of an evacuated server has removed the guest.
    Completed,
    /// A live migration was aborted, or the server deleted.
    Cancelled,
    /// A live migration failed during the transfer.
    Failed,
    /// A move failed.
    Error,
}

impl Status {
    const ALL: [Self; 16] = [
        Self::Accepted,
        Self::PreMigrating,
        Self::Migrating,
        Self::Finished,
        Self::Confirmed,
        Self::Reverting,
        Self::Reverted,
        Self::Done,
        Self::Queued,
        Self::Preparing,
        Self::Running,
        Self::PostMigrating,
        Self::Completed,
        Self::Cancelled,
        Self::Failed,
        Self::Error,
    ];

    /// The status, as Nova spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::PreMigrating => "pre-migrating",
            Self::Migrating => "migrating",
            Self::Finished => "finished",
            Self::Confirmed => "confirmed",
            Self::Reverting => "reverting",
            Self::Reverted => "reverted",
            Self::Done => "done",
            Self::Queued => "queued",
            Self::Preparing => "preparing",
            Self::Running => "running",
            Self::PostMigrating => "post-migrating",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Error => "error",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|status| status.as_str() == text);
        known.ok_or_else(|| shape(format!("status of a migration: {text:?}")))
    }
}

impl From<Status> for &'static str {
    fn from(status: Status) -> Self {
        status.as_str()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A migration to add.
#[derive(Debug, Clone)]
pub struct NewMove {
    /// Its consumer in both ledgers.
    pub id: ConsumerId,
    /// The server.
    pub server: ServerId,
    /// The kind.
    pub kind: Kind,
    /// The first status.
    pub status: Status,
    /// The source.
    pub source: HostName,
    /// The server's state before it.
    pub was: VmState,
    /// The flavor before it.
    pub old_flavor: FlavorOf,
    /// The flavor after it.
    pub new_flavor: FlavorOf,
    /// The guest's domain before it.
    pub old_domain: Domain,
    /// The user who requested it.
    pub user_id: String,
    /// The server's project.
    pub project_id: String,
}

/// A migration.
#[derive(Debug, Clone)]
pub struct Move {
    /// The number that clients use.
    pub number: i64,
    /// The UUID of the migration and of its consumer.
    pub id: ConsumerId,
    /// The server.
    pub server: ServerId,
    /// True if it can still be rolled back.
    pub open: bool,
    /// The kind.
    pub kind: Kind,
    /// The status.
    pub status: Status,
    /// The source.
    pub source: HostName,
    /// The destination, once there is one.
    pub dest: Option<HostName>,
    /// The host where it holds claims.
    pub held_on: Option<HostName>,
    /// The server's state before it.
    pub was: VmState,
    /// The flavor before it.
    pub old_flavor: FlavorOf,
    /// The flavor after it.
    pub new_flavor: FlavorOf,
    /// The guest's domain before it.
    pub old_domain: Domain,
    /// The progress of a live migration.
    pub progress: Option<Progress>,
    /// The user who requested it.
    pub user_id: String,
    /// The server's project.
    pub project_id: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl Move {
    /// True if source and destination are the same host.
    pub fn same_host(&self) -> bool {
        self.dest.as_deref() == Some(self.source.as_str())
    }
}

/// Inserts an open migration, unless the server has one.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn insert(tx: &mut Tx<'_>, new: &NewMove, now: Timestamp) -> Result<(), Error> {
    let params = params![
        new.id,
        new.server,
        new.kind.as_str(),
        new.status.as_str(),
        &new.source,
        new.was.as_str(),
        to_text(&new.old_flavor)?,
        to_text(&new.new_flavor)?,
        to_text(&new.old_domain)?,
        &new.user_id,
        &new.project_id,
        now,
        new.old_flavor.vcpus.max(new.new_flavor.vcpus),
        new.old_flavor.ram.max(new.new_flavor.ram)
    ];
    tx.defer(INSERT, params)?;
    Ok(())
}

/// Completes the evacuations of a server from a host, now that this host has removed the guest, and those from hosts
/// that were deleted. Needed only where the migration no longer holds claims there.
pub fn complete_evacuations(
    tx: &mut Tx<'_>,
    server: ServerId,
    source: &HostName,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(COMPLETE_EVACUATIONS, params![server, source, now])?;
    Ok(())
}

/// The open migration of a server.
pub fn open_of(tx: &mut Tx<'_>, server: ServerId) -> Result<Option<Move>, Error> {
    tx.row(OPEN_OF, params![server])?.as_ref().map(read).transpose()
}

/// Asks for the open migrations of some servers.
pub fn ask_open_of_some(tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<Vec<Asked>, Error> {
    let ids: Vec<Value> = servers.iter().map(|id| Value::from(*id)).collect();
    Ok(tx.ask_list(OPEN_OF_SOME, &ids)?)
}

/// The open migrations that [`ask_open_of_some`] asked for, by their servers.
pub fn found_open_of_some(
    tx: &mut Tx<'_>,
    asked: Vec<Asked>,
) -> Result<HashMap<ServerId, Move>, Error> {
    let read = |row: &Row| read(row).map(|one| (one.server, one));
    tx.answers(asked)?.iter().map(read).collect()
}

/// The progress of the open migrations of some servers. A migration that has reported none is absent.
pub fn progress_of_some(
    tx: &mut Tx<'_>,
    servers: &[ServerId],
) -> Result<HashMap<ServerId, Progress>, Error> {
    let ids: Vec<Value> = servers.iter().map(|id| Value::from(*id)).collect();
    let mut found = HashMap::new();
    tx.visit_list(PROGRESS_OF_SOME, &ids, |row| {
        if let Some(progress) = row.text_opt("progress")? {
            found.insert(row.id("server_id")?, from_text(progress)?);
        }
        Ok::<_, Error>(())
    })?;
    Ok(found)
}

/// Asks for [`open_of`].
pub fn ask_open_of(tx: &mut Tx<'_>, server: ServerId) -> Result<Asked, Error> {
    Ok(tx.ask(OPEN_OF, params![server])?)
}

/// The open migration that [`ask_open_of`] asked for.
pub fn found_open_of(tx: &mut Tx<'_>, asked: Asked) -> Result<Option<Move>, Error> {
    tx.answer_row(asked)?.as_ref().map(read).transpose()
}

/// All migrations of a server, oldest first.
pub fn of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<Move>, Error> {
    tx.rows(OF_SERVER, params![server])?.iter().map(read).collect()
}

/// Announces [`held_on`].
pub fn expect_held_on(tx: &mut Tx<'_>, server: ServerId, host: &HostName) -> Result<(), Error> {
    Ok(tx.expect(HELD_ON, params![server, host])?)
}

/// Announces [`open_of`].
pub fn expect_open_of(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    Ok(tx.expect(OPEN_OF, params![server])?)
}

/// The migrations of a server whose consumers have a claim on a host, or have left handles dirty
/// there.
pub fn held_on(tx: &mut Tx<'_>, server: ServerId, host: &HostName) -> Result<Vec<Move>, Error> {
    tx.rows(HELD_ON, params![server, host])?.iter().map(read).collect()
}

/// The servers whose migrations have a claim on a host.
pub fn servers_held_on(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<ServerId>, Error> {
    let rows = tx.rows(SERVERS_HELD_ON, params![host])?;
    Ok(rows.iter().map(|row| row.id("server_id")).collect::<Result<_, kilonova_store::Error>>()?)
}

/// True if a server was evacuated from a host that has not removed the guest yet.
pub fn any_evacuated_from(tx: &mut Tx<'_>, host: &HostName) -> Result<bool, Error> {
    Ok(tx.row(EVACUATED_FROM, params![host])?.is_some())
}

/// At most `limit` migrations before a number, newest first.
pub fn page(tx: &mut Tx<'_>, before: i64, limit: i64) -> Result<Vec<Move>, Error> {
    tx.rows(PAGE, params![before, limit])?.iter().map(read).collect()
}

/// The number of a migration.
pub fn number_of(tx: &mut Tx<'_>, id: ConsumerId) -> Result<Option<i64>, Error> {
    Ok(tx.row(NUMBER_OF, params![id])?.map(|row| row.int("number")).transpose()?)
}

/// Servers whose resize or cold migration has waited for its confirmation since `before`.
pub fn unconfirmed(tx: &mut Tx<'_>, before: Timestamp) -> Result<Vec<ServerId>, Error> {
    let rows = tx.rows(UNCONFIRMED, params![before])?;
    Ok(rows.iter().map(|row| row.id("server_id")).collect::<Result<_, kilonova_store::Error>>()?)
}

/// Sets the status.
pub fn set_status(
    tx: &mut Tx<'_>,
    id: ConsumerId,
    status: Status,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(SET_STATUS, params![id, status.as_str(), now, 0_i64])?;
    Ok(())
}

/// Sets the last status and closes the migration.
pub fn close(tx: &mut Tx<'_>, id: ConsumerId, status: Status, now: Timestamp) -> Result<(), Error> {
    tx.defer(SET_STATUS, params![id, status.as_str(), now, 1_i64])?;
    Ok(())
}

/// Sets the destination.
pub fn set_dest(
    tx: &mut Tx<'_>,
    id: ConsumerId,
    host: &HostName,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(SET_DEST, params![id, host, now])?;
    Ok(())
}

/// Sets the host of its consumer's claim.
pub fn set_held(tx: &mut Tx<'_>, id: ConsumerId, host: Option<&HostName>) -> Result<(), Error> {
    tx.defer(SET_HELD, params![id, host])?;
    Ok(())
}

/// Sets the progress.
pub fn set_progress(
    tx: &mut Tx<'_>,
    id: ConsumerId,
    progress: &Progress,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(SET_PROGRESS, params![id, to_text(progress)?, now])?;
    Ok(())
}

fn read(row: &Row) -> Result<Move, Error> {
    Ok(Move {
        number: row.int("number")?,
        id: row.id("id")?,
        server: row.id("server_id")?,
        open: row.text_opt("open_server")?.is_some(),
        kind: Kind::parse(row.text("kind")?)?,
        status: Status::parse(row.text("status")?)?,
        source: row.host("source_host")?,
        dest: row.host_opt("dest_host")?,
        held_on: row.host_opt("held_on")?,
        was: VmState::parse(row.text("was")?)?,
        old_flavor: from_text(row.text("old_flavor")?)?,
        new_flavor: from_text(row.text("new_flavor")?)?,
        old_domain: serde_json::from_str(row.text("old_domain")?)
            .map_err(|error| shape(format!("domain of a move: {error}")))?,
        progress: row.text_opt("progress")?.map(from_text).transpose()?,
        user_id: row.string("user_id")?,
        project_id: row.string("project_id")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}
