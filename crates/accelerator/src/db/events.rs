//! Rows of `nova_events`: the outbox of what a Nova of somebody else is to be told.

use kilonova_ids::{ArqId, ServerId};
use kilonova_store::{Error, Tx, params, statements};

/// An event that waits for its delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventRow {
    pub id: i64,
    /// Those of one request travel together.
    pub batch: String,
    pub server: ServerId,
    pub arq: ArqId,
    pub status: String,
    /// Deliveries begun, this one counted.
    pub attempts: i64,
    pub created_at: i64,
}

statements! {
    /// A new event, due at once.
    INSERT = "INSERT INTO nova_events (batch, server_id, arq_id, status, attempts, due_at,
        created_at) VALUES (?1, ?2, ?3, 'completed', 0, ?4, ?4)";
    /// Whether anything is due.
    DUE = "SELECT id FROM nova_events WHERE due_at <= ?1 LIMIT 1";
    /// Takes what is due, and makes it due again later in case this process dies on the way.
    TAKE = "UPDATE nova_events SET attempts = attempts + 1, due_at = ?2
        WHERE due_at <= ?1 AND batch IN
            (SELECT batch FROM nova_events WHERE due_at <= ?1 ORDER BY due_at, id LIMIT 100)
        RETURNING id, batch, server_id, arq_id, status, attempts, created_at";
    /// Another try at a moment.
    LATER = "UPDATE nova_events SET due_at = ?2 WHERE batch = ?1";
    /// Delivered, or given up.
    DONE = "DELETE FROM nova_events WHERE batch = ?1";
    /// What it tells of is not so yet; until then it waits apart from its batch.
    HOLD = "UPDATE nova_events SET due_at = 9000000000000000000, batch = ?2 WHERE arq_id = ?1";
    /// It is so now, or will not be.
    RIPE = "UPDATE nova_events SET status = ?2, due_at = ?3, created_at = ?3 WHERE arq_id = ?1";
    /// Nobody waits for it any more.
    DROP_OF_ARQ = "DELETE FROM nova_events WHERE arq_id = ?1";
}

pub(crate) fn insert(
    tx: &mut Tx<'_>,
    batch: &str,
    server: ServerId,
    arq: ArqId,
    now: i64,
) -> Result<(), Error> {
    tx.execute(INSERT, params![batch, server, arq, now])?;
    Ok(())
}

/// Whether anything is due.
pub(crate) fn any_due(tx: &mut Tx<'_>, now: i64) -> Result<bool, Error> {
    Ok(tx.row(DUE, params![now])?.is_some())
}

/// What is due, oldest first.
pub(crate) fn take(tx: &mut Tx<'_>, now: i64, again: i64) -> Result<Vec<EventRow>, Error> {
    let mut taken: Vec<EventRow> = tx
        .rows(TAKE, params![now, again])?
        .iter()
        .map(|row| {
            Ok(EventRow {
                id: row.int(0)?,
                batch: row.string(1)?,
                server: row.id(2)?,
                arq: row.id(3)?,
                status: row.string(4)?,
                attempts: row.int(5)?,
                created_at: row.int(6)?,
            })
        })
        .collect::<Result<_, Error>>()?;
    taken.sort_by_key(|row| row.id);
    Ok(taken)
}
