//! The long poll for documents.

use std::time::Duration;

use kilonova_accelerator::ledger as devices;
use kilonova_node_api::{Batch, Refusal};
use kilonova_store::Tx;
use kilonova_wire::time::now_micros;

use super::unavailable;
use crate::db::{documents, fleet};
use crate::{Compute, Error};

/// How long a node's poll waits. The poll is also a sign of life, so this is well below the time
/// after which a silent host counts as down.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) async fn desired(
    compute: &Compute,
    host: &str,
    epoch: i64,
    since: i64,
) -> Result<Batch, Refusal> {
    let entry = compute
        .fleet
        .by_name(host)
        .ok_or_else(|| Refusal::Rejected(format!("host {host} has not registered")))?;
    let check = || {
        entry.seen(now_micros());
        if entry.epoch() == epoch {
            return Ok(());
        }
        tracing::warn!(
            host,
            epoch,
            newest = entry.epoch(),
            "an earlier agent of this host still asked, and is told to stop; if this comes again, two \
             agents run as this host: stop one of them"
        );
        Err(Refusal::Fenced)
    };
    check()?;
    if since > entry.answered() {
        Box::pin(given_up(compute, host, epoch, since)).await?;
        entry.has_answered(since);
    }
    let mut newest = entry.newest();
    if since > 0 && *newest.borrow() <= since {
        let news = newest.wait_for(|generation| *generation > since);
        if tokio::time::timeout(PATIENCE, news).await.is_err() {
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
    // Boxed, because a thousand hosts wait above and few read.
    let read = compute.store.read(move |tx| documents::since(tx, &name, since));
    Box::pin(read).await.map_err(unavailable)
}

/// A node that requests the documents after a generation has seen that generation: handles that
/// external instances released until then become free. Usually there are none, and nothing is
/// written.
async fn given_up(compute: &Compute, host: &str, epoch: i64, since: i64) -> Result<(), Refusal> {
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
