//! A host that could not destroy a guest is asked again after a while, by a new generation of the
//! same document. Deletions that wait for a host which is lost are ended without it, and moves go on
//! without it. Live migrations that wait for others go on when there is room for them; where a guest
//! has gone that left is asked again.

use kilonova_node_api::Desired;
use kilonova_store::Tx;
use kilonova_wire::time::now_micros;

use crate::db::{documents, queue, stuck};
use crate::{Compute, Error, flows};

/// Microseconds between two tries.
const PATIENCE: i64 = 10_000_000;

/// Goes over all of them once.
///
/// # Errors
/// The database's.
pub async fn run(compute: Compute) -> Result<(), Error> {
    let before = now_micros() - PATIENCE;
    for server in compute.store.read(move |tx| stuck::awaited(tx, before)).await? {
        let compute_ = compute.explaining();
        let own = compute_.clone();
        let write = move |tx: &mut Tx<'_>| flows::abandon_dest(tx, &compute_, server, now_micros());
        own.write(write).await?;
    }
    for server in compute.store.read(move |tx| stuck::leaving(tx, before)).await? {
        let compute_ = compute.explaining();
        let own = compute_.clone();
        let write = move |tx: &mut Tx<'_>| flows::locate_guest(tx, &compute_, server, now_micros());
        own.write(write).await?;
    }
    for host in compute.store.read(queue::hosts).await? {
        let compute_ = compute.explaining();
        let own = compute_.clone();
        let write = move |tx: &mut Tx<'_>| flows::start_queued(tx, &compute_, &host, now_micros());
        own.write(write).await?;
    }
    let stuck = compute.store.read(move |tx| stuck::clearing(tx, before)).await?;
    for (host, server) in stuck {
        let compute_ = compute.explaining();
        let own = compute_.clone();
        own.write(move |tx| {
            let now = now_micros();
            if !stuck::touch(tx, server, before, now)? {
                return Ok(());
            }
            if flows::delete_without_hosts(tx, &compute_, server, now)?
                || compute_.host_is_lost(&host, now)
            {
                return Ok(());
            }
            documents::put(tx, &compute_, &host, server, &Desired::Absent)
        })
        .await?;
    }
    Ok(())
}
