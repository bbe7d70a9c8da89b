//! The long poll for documents.

use std::time::Duration;

use kilonova_accelerator::ledger as devices;
use kilonova_compute_app::{Compute, Error, batch};
use kilonova_compute_db::fleet;
use kilonova_ids::HostName;
use kilonova_node_api::{Batch, Refusal};
use kilonova_store::Tx;
use kilonova_wire::time;

use super::unavailable;

/// Maximum time that a poll waits. Polls also show that the host is alive, so this is well below the
/// time after which a silent host counts as down.
const MAX_WAIT: Duration = Duration::from_secs(20);

pub(super) async fn desired(
    compute: &Compute,
    host: &HostName,
    epoch: i64,
    since: i64,
) -> Result<Batch, Refusal> {
    let entry = compute
        .fleet
        .by_name(host)
        .ok_or_else(|| Refusal::Rejected(format!("host {host} has not registered")))?;
    let check = || {
        entry.seen(time::now());
        if entry.epoch() == epoch {
            return Ok(());
        }
        tracing::warn!(
            %host,
            epoch,
            newest = entry.epoch(),
            "fenced an earlier agent of this host; if this repeats, two agents run as this host: stop \
             one of them"
        );
        Err(Refusal::Fenced)
    };
    check()?;
    if since > entry.answered() {
        Box::pin(acknowledge(compute, host, epoch, since)).await?;
        entry.has_answered(since);
    }
    let mut newest = entry.newest();
    if since > 0 && *newest.borrow() <= since {
        let newer = newest.wait_for(|generation| *generation > since);
        if tokio::time::timeout(MAX_WAIT, newer).await.is_err() {
            check()?;
            return Ok(Batch {
                generation: since,
                complete: false,
                documents: Vec::new(),
                orders: Vec::new(),
                questions: Vec::new(),
                filters: None,
            });
        }
        check()?;
    }
    let name = host.to_owned();
    // Boxed to keep the waiting futures small: thousands of hosts wait above, and few read.
    let read = compute.store.read(move |tx| batch::since(tx, &name, since));
    Box::pin(read).await.map_err(unavailable)
}

/// Frees the handles that waited for the host to acknowledge a generation. A request for the
/// documents after a generation acknowledges it. Usually no handle waits, and nothing is written.
async fn acknowledge(
    compute: &Compute,
    host: &HostName,
    epoch: i64,
    since: i64,
) -> Result<(), Refusal> {
    let name = host.to_owned();
    let awaited = move |tx: &mut Tx<'_>| {
        devices::awaits_acknowledgement(tx, &name, since).map_err(Error::from)
    };
    if !compute.store.read(awaited).await.map_err(unavailable)? {
        return Ok(());
    }
    let (name, world) = (host.to_owned(), compute.world.clone());
    let work = move |tx: &mut Tx<'_>| {
        if fleet::epoch(tx, &name)? != Some(epoch) {
            return Err(Error::Fenced);
        }
        Ok(devices::acknowledge(tx, &world, &name, since)?)
    };
    compute.store.write(work).await.map_err(unavailable)
}
