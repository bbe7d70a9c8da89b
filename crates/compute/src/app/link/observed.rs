//! Observations of the nodes: one transaction per batch.

use kilonova_node_api::{Observation, Refusal};
use kilonova_wire::time::now_micros;

use super::unavailable;
use crate::db::fleet;
use crate::{Compute, Error, flows};

pub(super) async fn observed(
    compute: &Compute,
    host: &str,
    epoch: i64,
    observations: Vec<Observation>,
) -> Result<(), Refusal> {
    if let Some(entry) = compute.fleet.by_name(host) {
        entry.seen(now_micros());
    }
    let (compute_, host) = (compute.explaining(), host.to_owned());
    let compute = compute_.clone();
    compute
        .write(move |tx| {
            if fleet::epoch(tx, &host)? != Some(epoch) {
                return Err(Error::Fenced);
            }
            let now = now_micros();
            for observation in &observations {
                match flows::observe(tx, &compute_, &host, observation, now) {
                    // The operation is read before anything is written. That one server's cannot be
                    // read must not stop the reports on the others.
                    Err(error @ Error::Unreadable { server, .. })
                        if server == observation.server =>
                    {
                        tracing::error!(host, "report ignored: {error}; run kilonova doctor");
                    }
                    applied => applied?,
                }
            }
            Ok(())
        })
        .await
        .map_err(unavailable)
}
