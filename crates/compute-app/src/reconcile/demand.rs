//! Learns the expected requests from past ones, together with the other controllers.
//!
//! Each controller adds its own counts and reads the sum of all. A controller that dies loses its
//! latest counts, which only influence the choice among hosts that fit.

use kilonova_compute_db::demand;
use kilonova_compute_scheduler::packer::Request;

use crate::{Compute, Error};

/// Adds the requests since the last run to the stored counts, then reads the demand of all controllers.
pub async fn run(compute: Compute) -> Result<(), Error> {
    let pending = compute.packer.take_pending();
    let counted: Vec<(String, i64)> = pending
        .iter()
        .filter_map(|(request, weight)| {
            let key = serde_json::to_string(request).ok()?;
            Some((key, (weight * 1000.0).round() as i64))
        })
        .collect();
    if !counted.is_empty() {
        let written = compute.store.write(move |tx| Ok::<_, Error>(demand::count(tx, &counted)?));
        if let Err(error) = written.await {
            compute.packer.return_pending(pending);
            return Err(error);
        }
    }
    let rows = compute.store.read(|tx| Ok::<_, Error>(demand::all(tx)?)).await?;
    // Ignores keys that do not parse: a later version may have written them.
    let known = rows.into_iter().filter_map(|(key, weight)| {
        let request = serde_json::from_str::<Request>(&key).ok()?;
        Some((request, weight as f64 / 1000.0))
    });
    compute.packer.set_demand(known);
    Ok(())
}
