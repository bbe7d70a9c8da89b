//! Retries operations that have not advanced for a while.
//!
//! A host that failed to remove a guest is sent a new generation of the same document. Deletions (soft ones too) and
//! moves that wait for a host that is down continue without it. Queued live migrations start when
//! their source has room. If a live migration does not advance, its hosts are sent another request to
//! locate the guest. If a revert does not advance, its source is asked again whether it has the guest; the revert ends if
//! the source is down.

use jiff::SignedDuration;
use kilonova_compute_db::{documents, queue, stuck};
use kilonova_node_api::Desired;
use kilonova_store::Tx;
use kilonova_wire::time;

use crate::{Compute, Error, flows};

/// The time between two attempts.
const RETRY_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// Retries each operation that has not advanced, and starts queued live migrations.
///
/// # Errors
/// Store errors only.
pub async fn run(compute: Compute) -> Result<(), Error> {
    let before = time::before(time::now(), RETRY_INTERVAL);
    for server in compute.store.read(move |tx| stuck::awaited(tx, before)).await? {
        let compute_ = compute.explaining();
        let own = compute_.clone();
        let write = move |tx: &mut Tx<'_>| flows::abandon_dest(tx, &compute_, server, time::now());
        own.write(write).await?;
    }
    for server in compute.store.read(move |tx| stuck::leaving(tx, before)).await? {
        let compute_ = compute.explaining();
        let own = compute_.clone();
        let write = move |tx: &mut Tx<'_>| flows::locate_guest(tx, &compute_, server, time::now());
        own.write(write).await?;
    }
    for server in compute.store.read(move |tx| stuck::asked(tx, before)).await? {
        let compute_ = compute.explaining();
        let own = compute_.clone();
        let write = move |tx: &mut Tx<'_>| {
            flows::ask_source_again(tx, &compute_, server, before, time::now())
        };
        own.write(write).await?;
    }
    for host in compute.store.read(queue::hosts).await? {
        let compute_ = compute.explaining();
        let own = compute_.clone();
        let write = move |tx: &mut Tx<'_>| flows::start_queued(tx, &compute_, &host, time::now());
        own.write(write).await?;
    }
    for server in compute.store.read(move |tx| stuck::soft_deleting(tx, before)).await? {
        let compute_ = compute.explaining();
        let own = compute_.clone();
        let write =
            move |tx: &mut Tx<'_>| flows::delete_without_hosts(tx, &compute_, server, time::now());
        own.write(write).await?;
    }
    let stuck = compute.store.read(move |tx| stuck::clearing(tx, before)).await?;
    for (host, server) in stuck {
        let compute_ = compute.explaining();
        let own = compute_.clone();
        own.write(move |tx| {
            let now = time::now();
            if !stuck::touch(tx, server, before, now)? {
                return Ok(());
            }
            if flows::delete_without_hosts(tx, &compute_, server, now)?
                || compute_.host_is_lost(tx, &host, now)?
            {
                return Ok(());
            }
            Ok(documents::put(tx, &compute_, &host, server, &Desired::Absent)?)
        })
        .await?;
    }
    Ok(())
}
