//! Empties the outbox: after a bind has committed, Nova is notified when it is reachable. An event
//! may be delivered twice, and is delivered at least once if Nova is reachable within a day.

use kilonova_store::Store;
use kilonova_wire::time::now_micros;

use crate::Error;
use crate::db::events::{self, EventRow};
use crate::nova::{Event, Nova, NovaError};

const SECOND: i64 = 1_000_000;
/// Longer than the timeout of one delivery.
const LEASE: i64 = 90 * SECOND;
const LONGEST_PAUSE: i64 = 60;
/// Nova itself waits five minutes.
const GIVE_UP: i64 = 24 * 3600 * SECOND;

/// The results of the due events, by bind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Binds of which Nova was notified.
    pub delivered: usize,
    /// Binds to retry.
    pub retried: usize,
    /// Binds given up.
    pub given_up: usize,
}

/// Delivers the due events.
///
/// # Errors
/// Store errors only; Nova's errors are in the result.
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
        let again = match nova.deliver(&batch.iter().map(event).collect::<Vec<_>>()).await {
            Ok(()) => {
                done.delivered += 1;
                None
            }
            Err(NovaError::Temporary(why)) if now - first.created_at < GIVE_UP => {
                tracing::warn!(server = %first.server, why, "cannot deliver the bind event to Nova; will retry");
                done.retried += 1;
                let pause = 1_i64.checked_shl(first.attempts as u32 - 1).unwrap_or(LONGEST_PAUSE);
                Some(now_micros() + pause.clamp(1, LONGEST_PAUSE) * SECOND)
            }
            Err(NovaError::Temporary(why) | NovaError::Permanent(why)) => {
                tracing::error!(server = %first.server, why, "cannot deliver the bind event to Nova; giving up");
                done.given_up += 1;
                None
            }
        };
        let batch = first.batch.clone();
        store
            .write(move |tx| match again {
                None => events::delete_batch(tx, &batch).map_err(Error::from),
                Some(at) => events::delay(tx, &batch, at).map_err(Error::from),
            })
            .await?;
    }
    Ok(done)
}

fn event(row: &EventRow) -> Event {
    Event { server: row.server, arq: row.arq, status: row.status }
}
