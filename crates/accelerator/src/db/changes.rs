//! Rows of `handle_changes`: the assignments and releases of handles, with their initiators. Written
//! from the handles' rows, after a handle is assigned and before it is freed.

use jiff::Timestamp;
use kilonova_ids::{ArqId, ConsumerId, HostName, ServerId};
use kilonova_store::{Error, Row, Tx, params, statements};
use uuid::Uuid;

use crate::states::{AttachType, OwnerChange};

/// The initiator of a change, for the record. The service's own changes have neither field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actor {
    /// The user's id.
    pub user_id: Option<String>,
    /// `req-<uuid>`.
    pub request_id: Option<String>,
}

/// A change of a handle's owner.
#[derive(Debug, Clone)]
pub(crate) struct ChangeRow {
    pub id: i64,
    pub at: Timestamp,
    pub change: OwnerChange,
    pub handle: String,
    pub attach_type: AttachType,
    pub address: String,
    pub mdev_type: String,
    pub host: HostName,
    pub provider: String,
    pub arq: String,
    pub server: Option<String>,
    pub project_id: String,
    pub user_id: Option<String>,
    pub request_id: Option<String>,
}

/// The filters of a list.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChangeFilter {
    pub server: Option<ServerId>,
    pub handle: Option<Uuid>,
    pub host: Option<HostName>,
    /// Only changes before this one.
    pub before: Option<i64>,
}

/// The columns of a [`ChangeRow`] except its id.
macro_rules! columns {
    () => {
        "at, change, handle_id, attach_type, address, mdev_type, host, provider_id, arq_id, \
         server_id, project_id, user_id, request_id"
    };
}

/// Records a change of owner for the handles of requests that meet a condition.
macro_rules! record {
    ($change:literal, $condition:literal) => {
        concat!(
            "INSERT INTO handle_changes (",
            columns!(),
            ") SELECT CAST(?1 AS BIGINT), '",
            $change,
            "', h.uuid, h.attach_type, h.address, h.mdev_type, a.host, a.provider_id, a.uuid,
            a.server_id, a.project_id, CAST(?2 AS TEXT), CAST(?3 AS TEXT)
            FROM arqs a JOIN attach_handles h ON h.arq_id = a.uuid ",
            $condition
        )
    };
}

statements! {
    /// Records that handles were assigned to a consumer's requests, from an ordinal on.
    TAKEN_BY_CONSUMER = record!("taken",
        "WHERE a.consumer_id = ?4 AND a.ordinal >= ?5 ORDER BY a.ordinal");
    /// Records that the handle of a request was assigned.
    TAKEN_BY_ARQ = record!("taken", "WHERE a.uuid = ?4");
    /// Records that the handles of a consumer are about to be freed.
    FREED_BY_CONSUMER = record!("freed", "WHERE a.consumer_id = ?4 ORDER BY a.ordinal");
    /// Records that the handle of a request is about to be freed.
    FREED_BY_ARQ = record!("freed", "WHERE a.uuid = ?4");
    /// The changes of a server, newest first.
    LIST_OF_SERVER = concat!(
        "SELECT id, ",
        columns!(),
        " FROM handle_changes
        WHERE server_id = ?1
          AND (CAST(?2 AS TEXT) IS NULL OR handle_id = ?2)
          AND (CAST(?3 AS TEXT) IS NULL OR host = ?3)
          AND (CAST(?4 AS BIGINT) IS NULL OR id < ?4) ORDER BY id DESC LIMIT ?5"
    );
    /// All changes, newest first.
    LIST = concat!(
        "SELECT id, ",
        columns!(),
        " FROM handle_changes
        WHERE (CAST(?1 AS TEXT) IS NULL OR handle_id = ?1)
          AND (CAST(?2 AS TEXT) IS NULL OR host = ?2)
          AND (CAST(?3 AS BIGINT) IS NULL OR id < ?3) ORDER BY id DESC LIMIT ?4"
    );
    /// Deletes changes older than a time.
    FORGET = "DELETE FROM handle_changes WHERE at < ?1";
}

fn read(row: &Row) -> Result<ChangeRow, Error> {
    Ok(ChangeRow {
        id: row.int("id")?,
        at: row.time("at")?,
        change: OwnerChange::read(row, "change")?,
        handle: row.string("handle_id")?,
        attach_type: AttachType::read(row, "attach_type")?,
        address: row.string("address")?,
        mdev_type: row.string("mdev_type")?,
        host: row.host("host")?,
        provider: row.string("provider_id")?,
        arq: row.string("arq_id")?,
        server: row.string_opt("server_id")?,
        project_id: row.string("project_id")?,
        user_id: row.string_opt("user_id")?,
        request_id: row.string_opt("request_id")?,
    })
}

pub(crate) fn list(
    tx: &mut Tx<'_>,
    filter: &ChangeFilter,
    limit: i64,
) -> Result<Vec<ChangeRow>, Error> {
    let handle = filter.handle.map(|uuid| uuid.to_string());
    let (host, before) = (filter.host.clone(), filter.before);
    let rows = match filter.server {
        Some(server) => tx.rows(LIST_OF_SERVER, params![server, handle, host, before, limit])?,
        None => tx.rows(LIST, params![handle, host, before, limit])?,
    };
    rows.iter().map(read).collect()
}

pub(crate) fn taken_by_consumer(
    tx: &mut Tx<'_>,
    actor: &Actor,
    consumer: ConsumerId,
    from: i64,
    now: Timestamp,
) -> Result<(), Error> {
    let (user, request) = (actor.user_id.clone(), actor.request_id.clone());
    tx.defer(TAKEN_BY_CONSUMER, params![now, user, request, consumer, from])?;
    Ok(())
}

pub(crate) fn freed_by_consumer(
    tx: &mut Tx<'_>,
    actor: &Actor,
    consumer: ConsumerId,
    now: Timestamp,
) -> Result<(), Error> {
    let (user, request) = (actor.user_id.clone(), actor.request_id.clone());
    tx.defer(FREED_BY_CONSUMER, params![now, user, request, consumer])?;
    Ok(())
}

pub(crate) fn taken_by_arq(
    tx: &mut Tx<'_>,
    actor: &Actor,
    arq: ArqId,
    now: Timestamp,
) -> Result<(), Error> {
    let (user, request) = (actor.user_id.clone(), actor.request_id.clone());
    tx.defer(TAKEN_BY_ARQ, params![now, user, request, arq])?;
    Ok(())
}

pub(crate) fn freed_by_arq(
    tx: &mut Tx<'_>,
    actor: &Actor,
    arq: ArqId,
    now: Timestamp,
) -> Result<(), Error> {
    let (user, request) = (actor.user_id.clone(), actor.request_id.clone());
    tx.defer(FREED_BY_ARQ, params![now, user, request, arq])?;
    Ok(())
}

/// Deletes changes older than a time; returns their number.
pub(crate) fn forget(tx: &mut Tx<'_>, before: Timestamp) -> Result<u64, Error> {
    tx.execute(FORGET, params![before])
}
