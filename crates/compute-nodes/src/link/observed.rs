//! Observations from hosts: one transaction per batch.

use kilonova_compute_app::{Compute, Error, batch, flows};
use kilonova_compute_db::fleet;
use kilonova_ids::HostName;
use kilonova_node_api::{Observation, Refusal};
use kilonova_wire::time;

use super::unavailable;

pub(super) async fn observed(
    compute: &Compute,
    host: &HostName,
    epoch: i64,
    observations: Vec<Observation>,
) -> Result<(), Refusal> {
    if let Some(entry) = compute.fleet.by_name(host) {
        entry.record_seen(time::now());
    }
    let (compute_, row, host) = (compute.explaining(), host.to_string(), host.to_owned());
    let compute = compute_.clone();
    compute
        .write_on(&[&row], move |tx| {
            fleet::expect_epoch(tx, &host)?;
            if let Some(first) = observations.first() {
                flows::expect(tx, &host, first)?;
            }
            batch::check_session(&host, fleet::epoch(tx, &host)?, epoch)?;
            let now = time::now();
            for (position, observation) in observations.iter().enumerate() {
                if position > 0 {
                    flows::expect(tx, &host, observation)?;
                }
                match flows::observe(tx, &compute_, &host, observation, now) {
                    // The operation is read before anything is written, so the transaction is
                    // still clean. An unreadable operation of one server must not block the
                    // observations of the others.
                    Err(error @ Error::Unreadable { server, .. })
                        if server == observation.server =>
                    {
                        tracing::error!(%host, "report ignored: {error}; run kilonova doctor");
                    }
                    applied => applied?,
                }
            }
            Ok(())
        })
        .await
        .map_err(unavailable)
}
