//! Device orders: notifying a host, and the results that its node reports.

use kilonova_accelerator::Nodes;
use kilonova_accelerator::ledger::orders;
use kilonova_node_api::{OrderResult, Refusal};
use kilonova_store::{Tx, params};
use kilonova_wire::time::now_micros;

use super::unavailable;
use crate::db::documents::{self, Wake};
use crate::db::fleet;
use crate::{Compute, Error};

impl Nodes for Compute {
    fn next(&self, tx: &mut Tx<'_>, host: &str) -> Result<Option<i64>, kilonova_store::Error> {
        let Some(row) = tx.row(documents::NEXT, params![host])? else { return Ok(None) };
        let generation = row.int(0)?;
        self.wake_on_commit(tx, host, generation);
        Ok(Some(generation))
    }
}

pub(super) async fn carried_out(
    compute: &Compute,
    host: &str,
    epoch: i64,
    carried: Vec<OrderResult>,
) -> Result<(), Refusal> {
    if let Some(entry) = compute.fleet.by_name(host) {
        entry.seen(now_micros());
    }
    let (compute_, host) = (compute.clone(), host.to_owned());
    compute
        .store
        .write(move |tx| {
            if fleet::epoch(tx, &host)? != Some(epoch) {
                return Err(Error::Fenced);
            }
            for one in &carried {
                if !orders::carried_out(tx, &compute_.world, &host, one)? {
                    tracing::debug!(host, order = %one.order, "ignored a report on a device order that is not open");
                }
            }
            Ok(())
        })
        .await
        .map_err(unavailable)
}
