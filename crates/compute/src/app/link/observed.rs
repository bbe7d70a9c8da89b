//! Reports from the nodes: one transaction for a batch.

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
                flows::observe(tx, &compute_, &host, observation, now)?;
            }
            Ok(())
        })
        .await
        .map_err(unavailable)
}
