//! What nodes say of orders: one transaction for a batch.

use kilonova_node_api::{Carried, Refusal};
use kilonova_wire::time::now_micros;

use super::unavailable;
use crate::db::fleet;
use crate::{Compute, Error};

pub(super) async fn carried_out(
    compute: &Compute,
    host: &str,
    epoch: i64,
    carried: Vec<Carried>,
) -> Result<(), Refusal> {
    if let Some(entry) = compute.fleet.by_name(host) {
        entry.seen(now_micros());
    }
    let host = host.to_owned();
    compute
        .store
        .write(move |tx| {
            if fleet::epoch(tx, &host)? != Some(epoch) {
                return Err(Error::Fenced);
            }
            for one in &carried {
                tracing::warn!(host, order = %one.order, "a node speaks of an order that is not open");
            }
            Ok(())
        })
        .await
        .map_err(unavailable)
}
