//! A host that could not destroy a guest is asked again after a while, by a new generation of the
//! same document.

use kilonova_node_api::Desired;
use kilonova_wire::time::now_micros;

use crate::db::{documents, stuck};
use crate::{Compute, Error};

/// Microseconds between two tries.
const PATIENCE: i64 = 10_000_000;

pub(super) async fn run(compute: Compute) -> Result<(), Error> {
    let before = now_micros() - PATIENCE;
    let stuck = compute.store.read(move |tx| stuck::clearing(tx, before)).await?;
    for (host, server) in stuck {
        let compute_ = compute.clone();
        compute
            .store
            .write(move |tx| {
                let now = now_micros();
                if !stuck::touch(tx, server, before, now)? {
                    return Ok(());
                }
                let generation = documents::put(tx, &host, server, &Desired::Absent)?;
                compute_.wake_on_commit(tx, &host, generation);
                Ok::<_, Error>(())
            })
            .await?;
    }
    Ok(())
}
