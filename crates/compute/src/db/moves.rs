//! Migrations as they are kept. The uuid of one is also that of its consumer in both ledgers.

use kilonova_ids::{ConsumerId, ServerId};
use kilonova_node_api::{Domain, Progress};
use kilonova_store::{Row, Tx, params};

use super::servers::{FlavorOf, VmState, from_text, shape, to_text};
use crate::Error;

kilonova_store::statements! {
    /// A new row.
    INSERT = "INSERT INTO moves (id, server_id, open_server, kind, status, source_host, was,
        old_flavor, new_flavor, old_domain, user_id, project_id, created_at, updated_at, most_vcpus,
        most_memory)
        VALUES (?1, ?2, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12, ?13, ?14)";
    /// The one that can still be undone.
    OPEN_OF = "SELECT number, id, server_id, open_server, kind, status, source_host, dest_host,
        held_on, was, old_flavor, new_flavor, old_domain, progress, user_id, project_id, created_at,
        updated_at FROM moves WHERE open_server = ?1";
    /// Those of a server, oldest first.
    OF_SERVER = "SELECT number, id, server_id, open_server, kind, status, source_host, dest_host,
        held_on, was, old_flavor, new_flavor, old_domain, progress, user_id, project_id, created_at,
        updated_at FROM moves WHERE server_id = ?1 ORDER BY number";
    /// Those whose consumer holds something on a host.
    HELD_ON = "SELECT number, id, server_id, open_server, kind, status, source_host, dest_host,
        held_on, was, old_flavor, new_flavor, old_domain, progress, user_id, project_id, created_at,
        updated_at FROM moves WHERE server_id = ?1 AND held_on = ?2 ORDER BY number";
    /// The servers whose moves hold something on a host.
    SERVERS_HELD_ON = "SELECT DISTINCT server_id FROM moves WHERE held_on = ?1 ORDER BY server_id";
    /// A page, newest first, older than a number.
    PAGE = "SELECT number, id, server_id, open_server, kind, status, source_host, dest_host,
        held_on, was, old_flavor, new_flavor, old_domain, progress, user_id, project_id, created_at,
        updated_at FROM moves WHERE number < ?1 ORDER BY number DESC LIMIT ?2";
    /// The number of one.
    NUMBER_OF = "SELECT number FROM moves WHERE id = ?1";
    /// Resizes that wait for their confirmation since a moment.
    UNCONFIRMED = "SELECT server_id FROM moves WHERE open_server IS NOT NULL AND status = 'finished'
        AND updated_at <= ?1 ORDER BY updated_at LIMIT 200";
    /// How far it is; over when nothing can be undone any more.
    SET_STATUS = "UPDATE moves SET status = ?2, updated_at = ?3,
        open_server = CASE WHEN CAST(?4 AS BIGINT) = 1 THEN NULL ELSE open_server END WHERE id = ?1";
    /// Where it goes.
    SET_DEST = "UPDATE moves SET dest_host = ?2, updated_at = ?3 WHERE id = ?1";
    /// Where its consumer holds something.
    SET_HELD = "UPDATE moves SET held_on = ?2 WHERE id = ?1";
    /// How much of the memory has gone over.
    SET_PROGRESS = "UPDATE moves SET progress = ?2, updated_at = ?3 WHERE id = ?1";
}

/// Why a server moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// To another size.
    Resize,
    /// To another host, shut off.
    Cold,
    /// To another host, running.
    Live,
    /// Away from a host that is down.
    Evacuation,
}

const KINDS: &[(Kind, &str)] = &[
    (Kind::Resize, "resize"),
    (Kind::Cold, "migration"),
    (Kind::Live, "live-migration"),
    (Kind::Evacuation, "evacuation"),
];

impl Kind {
    /// Nova's spelling of a migration's type.
    pub fn as_str(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("migration", |(_, text)| text)
    }

    fn parse(text: &str) -> Self {
        KINDS.iter().find(|(_, name)| *name == text).map_or(Self::Cold, |(kind, _)| *kind)
    }
}

/// A move to add.
#[derive(Debug, Clone)]
pub struct NewMove {
    /// Its consumer.
    pub id: ConsumerId,
    /// Whose.
    pub server: ServerId,
    /// Why.
    pub kind: Kind,
    /// The first status.
    pub status: &'static str,
    /// From where.
    pub source: String,
    /// The server's state before.
    pub was: VmState,
    /// Flavor before.
    pub old_flavor: FlavorOf,
    /// Flavor afterwards.
    pub new_flavor: FlavorOf,
    /// The guest before.
    pub old_domain: Domain,
    /// Who asked.
    pub user_id: String,
    /// Whose server it is.
    pub project_id: String,
}

/// A move.
#[derive(Debug, Clone)]
pub struct Move {
    /// The number that clients call it by.
    pub number: i64,
    /// Its uuid, and that of its consumer.
    pub id: ConsumerId,
    /// Whose.
    pub server: ServerId,
    /// Whether it can still be undone.
    pub open: bool,
    /// Why.
    pub kind: Kind,
    /// Nova's status.
    pub status: String,
    /// From where.
    pub source: String,
    /// Where to, once there is a place.
    pub dest: Option<String>,
    /// Where its consumer holds something.
    pub held_on: Option<String>,
    /// The server's state before.
    pub was: VmState,
    /// Flavor before.
    pub old_flavor: FlavorOf,
    /// Flavor afterwards.
    pub new_flavor: FlavorOf,
    /// The guest before.
    pub old_domain: Domain,
    /// How far a live migration is.
    pub progress: Option<Progress>,
    /// Who asked.
    pub user_id: String,
    /// Whose server it is.
    pub project_id: String,
    /// Microseconds since 1970.
    pub created_at: i64,
    /// Microseconds since 1970.
    pub updated_at: i64,
}

impl Move {
    /// Whether it stays on its host.
    pub fn same_host(&self) -> bool {
        self.dest.as_deref() == Some(self.source.as_str())
    }
}

/// Adds one, which is open.
///
/// # Errors
/// The database's; so for all functions here.
pub fn insert(tx: &mut Tx<'_>, new: &NewMove, now: i64) -> Result<(), Error> {
    let params = params![
        new.id,
        new.server,
        new.kind.as_str(),
        new.status,
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
    tx.execute(INSERT, params)?;
    Ok(())
}

/// The move of a server that can still be undone.
pub fn open_of(tx: &mut Tx<'_>, server: ServerId) -> Result<Option<Move>, Error> {
    tx.row(OPEN_OF, params![server])?.as_ref().map(read).transpose()
}

/// All moves of a server, oldest first.
pub fn of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<Move>, Error> {
    tx.rows(OF_SERVER, params![server])?.iter().map(read).collect()
}

/// The moves of a server whose consumers hold something on a host, or have left it dirty there.
pub fn held_on(tx: &mut Tx<'_>, server: ServerId, host: &str) -> Result<Vec<Move>, Error> {
    tx.rows(HELD_ON, params![server, host])?.iter().map(read).collect()
}

/// The servers whose moves hold something on a host.
pub fn servers_held_on(tx: &mut Tx<'_>, host: &str) -> Result<Vec<ServerId>, Error> {
    let rows = tx.rows(SERVERS_HELD_ON, params![host])?;
    Ok(rows.iter().map(|row| row.id(0)).collect::<Result<_, kilonova_store::Error>>()?)
}

/// Up to `limit` moves older than a number, newest first.
pub fn page(tx: &mut Tx<'_>, before: i64, limit: i64) -> Result<Vec<Move>, Error> {
    tx.rows(PAGE, params![before, limit])?.iter().map(read).collect()
}

/// The number of a move.
pub fn number_of(tx: &mut Tx<'_>, id: ConsumerId) -> Result<Option<i64>, Error> {
    Ok(tx.row(NUMBER_OF, params![id])?.map(|row| row.int(0)).transpose()?)
}

/// Servers whose move waits to be confirmed since `before`.
pub fn unconfirmed(tx: &mut Tx<'_>, before: i64) -> Result<Vec<ServerId>, Error> {
    let rows = tx.rows(UNCONFIRMED, params![before])?;
    Ok(rows.iter().map(|row| row.id(0)).collect::<Result<_, kilonova_store::Error>>()?)
}

/// Says how far it is.
pub fn set_status(tx: &mut Tx<'_>, id: ConsumerId, status: &str, now: i64) -> Result<(), Error> {
    tx.execute(SET_STATUS, params![id, status, now, 0_i64])?;
    Ok(())
}

/// Says how it ended.
pub fn close(tx: &mut Tx<'_>, id: ConsumerId, status: &str, now: i64) -> Result<(), Error> {
    tx.execute(SET_STATUS, params![id, status, now, 1_i64])?;
    Ok(())
}

/// Says where it goes.
pub fn set_dest(tx: &mut Tx<'_>, id: ConsumerId, host: &str, now: i64) -> Result<(), Error> {
    tx.execute(SET_DEST, params![id, host, now])?;
    Ok(())
}

/// Says where its consumer holds something.
pub fn set_held(tx: &mut Tx<'_>, id: ConsumerId, host: Option<&str>) -> Result<(), Error> {
    tx.execute(SET_HELD, params![id, host])?;
    Ok(())
}

/// Says how much has gone over.
pub fn set_progress(
    tx: &mut Tx<'_>,
    id: ConsumerId,
    progress: &Progress,
    now: i64,
) -> Result<(), Error> {
    tx.execute(SET_PROGRESS, params![id, to_text(progress)?, now])?;
    Ok(())
}

fn read(row: &Row) -> Result<Move, Error> {
    Ok(Move {
        number: row.int(0)?,
        id: row.id(1)?,
        server: row.id(2)?,
        open: row.text_opt(3)?.is_some(),
        kind: Kind::parse(row.text(4)?),
        status: row.string(5)?,
        source: row.string(6)?,
        dest: row.string_opt(7)?,
        held_on: row.string_opt(8)?,
        was: VmState::parse(row.text(9)?),
        old_flavor: from_text(row.text(10)?)?,
        new_flavor: from_text(row.text(11)?)?,
        old_domain: serde_json::from_str(row.text(12)?)
            .map_err(|error| shape(format!("domain of a move: {error}")))?,
        progress: row.text_opt(13)?.map(from_text).transpose()?,
        user_id: row.string(14)?,
        project_id: row.string(15)?,
        created_at: row.int(16)?,
        updated_at: row.int(17)?,
    })
}
