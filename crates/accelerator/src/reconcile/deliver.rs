//! Emptying the outbox: a bind has committed, and Nova is told when it can be reached. An event may
//! arrive twice, never not at all while Nova is there within a day.

use kilonova_store::{Store, params};
use kilonova_wire::time::now_micros;

use crate::Error;
use crate::db::events::{self, EventRow};
use crate::nova::{Event, Nova, Trouble};

const SECOND: i64 = 1_000_000;
/// Longer than one delivery may take.
const LEASE: i64 = 90 * SECOND;
const LONGEST_PAUSE: i64 = 60;
/// Nova itself waits five minutes.
const GIVE_UP: i64 = 24 * 3600 * SECOND;

/// What came of the binds whose events were due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Binds that Nova has been told of.
    pub told: usize,
    /// Binds to be tried again.
    pub later: usize,
    /// Binds given up.
    pub given_up: usize,
}

/// Delivers what is due.
///
/// # Errors
/// Only the store's; Nova's refusals are in what is returned.
pub async fn deliver(store: &Store, nova: &dyn Nova) -> Result<Delivered, Error> {
    let now = now_micros();
    let due = store.read(move |tx| events::any_due(tx, now).map_err(Error::from)).await?;
    if !due {
        return Ok(Delivered::default());
    }
    let mut rows =
        store.write(move |tx| events::take(tx, now, now + LEASE).map_err(Error::from)).await?;
    rows.sort_by(|a, b| (&a.batch, a.id).cmp(&(&b.batch, b.id)));
    let mut done = Delivered::default();
    for batch in rows.chunk_by(|a, b| a.batch == b.batch) {
        let Some(first) = batch.first() else { continue };
        let again = match nova.tell(&batch.iter().map(event).collect::<Vec<_>>()).await {
            Ok(()) => {
                done.told += 1;
                None
            }
            Err(Trouble::Later(why)) if now - first.created_at < GIVE_UP => {
                tracing::warn!(server = %first.server, why, "Nova is told of a bind later");
                done.later += 1;
                let pause = 1_i64.checked_shl(first.attempts as u32 - 1).unwrap_or(LONGEST_PAUSE);
                Some(now_micros() + pause.clamp(1, LONGEST_PAUSE) * SECOND)
            }
            Err(Trouble::Later(why) | Trouble::Never(why)) => {
                tracing::error!(server = %first.server, why, "Nova is not told of a bind");
                done.given_up += 1;
                None
            }
        };
        let batch = first.batch.clone();
        store
            .write(move |tx| match again {
                None => tx.execute(events::DONE, params![&batch]).map_err(Error::from),
                Some(at) => tx.execute(events::LATER, params![&batch, at]).map_err(Error::from),
            })
            .await?;
    }
    Ok(done)
}

fn event(row: &EventRow) -> Event {
    Event { server: row.server, arq: row.arq, status: row.status.clone() }
}
