//! Results of device orders, as hosts report them.

use kilonova_accelerator::ledger::orders;
use kilonova_compute_app::{Compute, Error, batch};
use kilonova_compute_db::fleet;
use kilonova_ids::HostName;
use kilonova_node_api::{OrderResult, Refusal};
use kilonova_wire::time;

use super::unavailable;

pub(super) async fn report_results(
    compute: &Compute,
    host: &HostName,
    epoch: i64,
    results: Vec<OrderResult>,
) -> Result<(), Refusal> {
    if let Some(entry) = compute.fleet.by_name(host) {
        entry.record_seen(time::now());
    }
    let (compute_, host) = (compute.clone(), host.to_owned());
    compute
        .store
        .write(move |tx| {
            batch::check_session(&host, fleet::epoch(tx, &host)?, epoch)?;
            for result in &results {
                if !orders::complete_order(tx, &compute_.world, &host, result)? {
                    tracing::debug!(%host, order = %result.order, "ignored a report on a device order that is not open");
                }
            }
            Ok::<_, Error>(())
        })
        .await
        .map_err(unavailable)
}
