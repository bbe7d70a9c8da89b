//! The long poll for documents.
//!
//! The host's row decides which session is valid. Memory only decides when to read the row: when the
//! session or the generation differs from the known one, or when there is something to send. An
//! answer without documents needs no read.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use kilonova_accelerator::ledger as devices;
use kilonova_compute_app::batch::Handed;
use kilonova_compute_app::{Compute, Error, batch};
use kilonova_compute_db::{documents, fleet};
use kilonova_compute_scheduler::fleet::{Host, Newest};
use kilonova_ids::HostName;
use kilonova_node_api::{Batch, Refusal};
use kilonova_store::Tx;
use kilonova_wire::time;
use tokio::time::{Instant, timeout_at};

use super::unavailable;

/// Maximum time that a poll waits. Polls also show that the host is alive, so this is well below the
/// time without a heartbeat after which a host is down.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// Polls without news end together at multiples of this, and the hosts' next requests arrive together. Otherwise
/// ten thousand hosts would wake the threads of the controller a thousand times per second.
const TOGETHER: Duration = Duration::from_millis(200);

/// When the first poll began.
static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The time at which a poll that begins at `now` ends if there is no news.
fn end_of_wait(begin: Instant, now: Instant) -> Instant {
    let end = now + MAX_WAIT;
    let past = end.saturating_duration_since(begin).as_nanos() % TOGETHER.as_nanos();
    end - Duration::from_nanos(u64::try_from(past).unwrap_or_default())
}

pub(super) async fn desired(
    compute: &Compute,
    host: &HostName,
    epoch: i64,
    since: i64,
) -> Result<Batch, Refusal> {
    // Before the database is read: a slow database must not delay the answer beyond the host's patience.
    let end = end_of_wait(*BEGIN, Instant::now());
    let entry = Box::pin(session(compute, host, epoch, since)).await?;
    if since > entry.acknowledged() {
        if since > entry.clear_up_to() {
            Box::pin(acknowledge(compute, host, epoch, since)).await?;
        }
        entry.record_acknowledged(since);
    }
    let mut newest = entry.newest();
    // A generation lower than the host's is news too: the database lost commits.
    let is_news = |newest: &Newest| newest.generation != since || newest.epoch != epoch;
    let is_waiting = since > 0 && !is_news(&newest.borrow());
    if is_waiting && timeout_at(end, newest.wait_for(is_news)).await.is_err() {
        entry.record_seen(time::now());
        return Ok(Batch {
            generation: since,
            complete: false,
            documents: Vec::new(),
            held: Vec::new(),
            orders: Vec::new(),
            questions: Vec::new(),
            consoles: Vec::new(),
            filters: None,
            routers: None,
            register: false,
        });
    }
    entry.record_seen(time::now());
    let known = *newest.borrow();
    let (name, networks) = (host.to_owned(), Arc::clone(&compute.networks));
    // Boxed to keep the waiting futures small: thousands of hosts wait above, and few reach this read.
    let read = compute.store.read(move |tx| batch::of_session(tx, &*networks, &name, epoch, since));
    let Handed { batch, is_clear } = Box::pin(read).await.map_err(unavailable)?;
    entry.correct(known, Newest { epoch, generation: batch.generation });
    if is_clear {
        entry.record_clear_up_to(batch.generation);
    }
    Ok(batch)
}

/// Checks the session of a host, and returns the host. Reads the row if memory does not know the host, the epoch or the
/// generation, because the host may have just contacted another controller.
async fn session(
    compute: &Compute,
    host: &HostName,
    epoch: i64,
    since: i64,
) -> Result<Arc<Host>, Refusal> {
    let known = compute.fleet.known(host);
    if let Some(entry) = known.host() {
        let newest = *entry.newest().borrow();
        if newest.epoch == epoch && newest.generation >= since {
            entry.record_seen(time::now());
            return Ok(Arc::clone(entry));
        }
    }
    let name = host.to_owned();
    let row = compute.store.read(move |tx| fleet::one(tx, &name)).await.map_err(unavailable)?;
    compute.fleet.apply_read(host, &known, row.as_ref());
    let found = row.as_ref().map(|row| row.version.epoch);
    batch::check_session(host, found, epoch).map_err(unavailable)?;
    let unknown = || Refusal::Rejected(format!("host {host} has not registered"));
    let entry = compute.fleet.by_name(host).ok_or_else(unknown)?;
    entry.record_seen(time::now());
    Ok(entry)
}

/// Frees the handles that waited for the host to acknowledge a generation. A request for the
/// documents after a generation acknowledges that generation, if the row had it. Usually no handle
/// waits, and nothing is written.
async fn acknowledge(
    compute: &Compute,
    host: &HostName,
    epoch: i64,
    since: i64,
) -> Result<(), Refusal> {
    let name = host.to_owned();
    let awaited = move |tx: &mut Tx<'_>| {
        documents::expect_newest(tx, &name, since)?;
        let awaited = devices::awaits_acknowledgement(tx, &name, since)?;
        batch::check_acknowledged(tx, &name, epoch, since)?;
        Ok::<_, Error>(awaited)
    };
    if !compute.store.read(awaited).await.map_err(unavailable)? {
        return Ok(());
    }
    let (row, name, world) = (host.to_string(), host.to_owned(), compute.world.clone());
    let work = move |tx: &mut Tx<'_>| {
        batch::check_acknowledged(tx, &name, epoch, since)?;
        Ok::<_, Error>(devices::acknowledge(tx, &world, &name, since)?)
    };
    compute.store.write_on([row], work).await.map_err(unavailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_of_a_while_end_together_and_not_late() {
        let begin = Instant::now();
        let mut ends = Vec::new();
        for millis in 0..1000 {
            let now = begin + Duration::from_millis(millis);
            let end = end_of_wait(begin, now);
            assert!(end <= now + MAX_WAIT, "later than {MAX_WAIT:?}");
            assert!(end > now + MAX_WAIT - TOGETHER, "earlier than necessary");
            ends.push(end);
        }
        ends.dedup();
        assert_eq!(ends.len(), 5, "ends within a second");
    }
}
