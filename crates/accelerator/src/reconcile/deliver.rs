//! Delivers the outbox: notifies an external Nova of each committed bind. If Nova is unreachable, delivery is
//! retried for a day. Nova may get an event twice.

use jiff::SignedDuration;
use kilonova_store::Store;
use kilonova_wire::time;

use crate::Error;
use crate::db::events::{self, EventRow};
use crate::nova::{Event, Nova, NovaError};

/// Delay before a taken event is due again; longer than the timeout of one delivery.
const LEASE: SignedDuration = SignedDuration::from_secs(90);
/// Maximum delay between two attempts, in seconds.
const LONGEST_PAUSE: i64 = 60;
/// How long a failed delivery is retried; Nova itself waits five minutes.
const GIVE_UP: SignedDuration = SignedDuration::from_hours(24);

/// The number of binds by the result of their delivery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Delivered to Nova.
    pub delivered: usize,
    /// To be retried.
    pub retried: usize,
    /// Abandoned.
    pub given_up: usize,
}

/// Delivers the due events.
///
/// # Errors
/// Store errors only; Nova's errors are logged, and counted in the result.
pub async fn deliver(store: &Store, nova: &dyn Nova) -> Result<Delivered, Error> {
    let now = time::now();
    let due = store.read(move |tx| events::any_due(tx, now).map_err(Error::from)).await?;
    if !due {
        return Ok(Delivered::default());
    }
    let again = time::after(now, LEASE);
    let mut rows = store.write(move |tx| events::take(tx, now, again).map_err(Error::from)).await?;
    rows.sort_by(|a, b| (&a.batch, a.id).cmp(&(&b.batch, b.id)));
    let mut done = Delivered::default();
    for batch in rows.chunk_by(|a, b| a.batch == b.batch) {
        let Some(first) = batch.first() else { continue };
        let again = match nova.deliver(&batch.iter().map(event).collect::<Vec<_>>()).await {
            Ok(()) => {
                done.delivered += 1;
                None
            }
            Err(NovaError::Temporary(why)) if now.duration_since(first.created_at) < GIVE_UP => {
                tracing::warn!(server = %first.server, why, "cannot deliver the bind event to Nova; will retry");
                done.retried += 1;
                let pause = 1_i64.checked_shl(first.attempts as u32 - 1).unwrap_or(LONGEST_PAUSE);
                let pause = SignedDuration::from_secs(pause.clamp(1, LONGEST_PAUSE));
                Some(time::after(time::now(), pause))
            }
            Err(NovaError::Temporary(why) | NovaError::Permanent(why)) => {
                tracing::error!(server = %first.server, why, "cannot deliver the bind event to Nova; giving up: check [nova], and rebuild the instance if its build has failed");
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
