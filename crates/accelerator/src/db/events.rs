//! Rows of `nova_events`: the outbox of events for an external Nova.

use jiff::Timestamp;
use kilonova_ids::{ArqId, ServerId};
use kilonova_store::{Error, Tx, params, statements};

use crate::states::EventStatus;

/// An event that waits for delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventRow {
    pub id: i64,
    /// Events of one bind are delivered together.
    pub batch: String,
    pub server: ServerId,
    pub arq: ArqId,
    pub status: EventStatus,
    /// Deliveries started, including this one.
    pub attempts: i64,
    pub created_at: Timestamp,
}

statements! {
    /// Inserts an event, due immediately.
    INSERT = "INSERT INTO nova_events (batch, server_id, arq_id, status, attempts, due_at,
        created_at) VALUES (?1, ?2, ?3, 'completed', 0, ?4, ?4)";
    /// True if any event is due.
    DUE = "SELECT id FROM nova_events WHERE due_at <= ?1 LIMIT 1";
    /// Takes due events, and makes them due again later in case this process dies.
    TAKE = "UPDATE nova_events SET attempts = attempts + 1, due_at = ?2
        WHERE due_at <= ?1 AND batch IN
            (SELECT batch FROM nova_events WHERE due_at <= ?1 ORDER BY due_at, id LIMIT 100)
        RETURNING id, batch, server_id, arq_id, status, attempts, created_at";
    /// Sets the time of the next attempt.
    DELAY = "UPDATE nova_events SET due_at = ?2 WHERE batch = ?1";
    /// Deletes events that were delivered or abandoned.
    DELETE_BATCH = "DELETE FROM nova_events WHERE batch = ?1";
    /// Moves an event to a batch of its own, and defers it until its result is known.
    DEFER = "UPDATE nova_events SET due_at = 9000000000000000000, batch = ?2 WHERE arq_id = ?1";
    /// Makes a deferred event due with its result.
    COMPLETE = "UPDATE nova_events SET status = ?2, due_at = ?3, created_at = ?3 WHERE arq_id = ?1";
    /// Deletes the events of a request.
    DELETE_OF_ARQ = "DELETE FROM nova_events WHERE arq_id = ?1";
}

pub(crate) fn insert(
    tx: &mut Tx<'_>,
    batch: &str,
    server: ServerId,
    arq: ArqId,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(INSERT, params![batch, server, arq, now])?;
    Ok(())
}

/// Sets the time of the next attempt.
pub(crate) fn delay(tx: &mut Tx<'_>, batch: &str, until: Timestamp) -> Result<(), Error> {
    tx.defer(DELAY, params![batch, until])?;
    Ok(())
}

/// Deletes events that were delivered or abandoned.
pub(crate) fn delete_batch(tx: &mut Tx<'_>, batch: &str) -> Result<(), Error> {
    tx.defer(DELETE_BATCH, params![batch])?;
    Ok(())
}

/// Moves the event of a request to a batch of its own, and defers it until the result is known.
pub(crate) fn defer(tx: &mut Tx<'_>, arq: ArqId) -> Result<(), Error> {
    tx.defer(DEFER, params![arq, arq])?;
    Ok(())
}

/// Makes the deferred event of a request due with its result.
pub(crate) fn complete(
    tx: &mut Tx<'_>,
    arq: ArqId,
    status: EventStatus,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(COMPLETE, params![arq, status, now])?;
    Ok(())
}

/// Deletes the events of a request.
pub(crate) fn delete_of_arq(tx: &mut Tx<'_>, arq: ArqId) -> Result<(), Error> {
    tx.defer(DELETE_OF_ARQ, params![arq])?;
    Ok(())
}

/// True if any event is due.
pub(crate) fn any_due(tx: &mut Tx<'_>, now: Timestamp) -> Result<bool, Error> {
    Ok(tx.row(DUE, params![now])?.is_some())
}

/// Takes the due events, oldest first. They are due again at `again`.
pub(crate) fn take(
    tx: &mut Tx<'_>,
    now: Timestamp,
    again: Timestamp,
) -> Result<Vec<EventRow>, Error> {
    let mut taken: Vec<EventRow> = tx
        .rows(TAKE, params![now, again])?
        .iter()
        .map(|row| {
            Ok(EventRow {
                id: row.int("id")?,
                batch: row.string("batch")?,
                server: row.id("server_id")?,
                arq: row.id("arq_id")?,
                status: EventStatus::read(row, "status")?,
                attempts: row.int("attempts")?,
                created_at: row.time("created_at")?,
            })
        })
        .collect::<Result<_, Error>>()?;
    taken.sort_by_key(|row| row.id);
    Ok(taken)
}
