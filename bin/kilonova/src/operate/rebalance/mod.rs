//! Rebalancing: the plan as a page, and its moves, one after the other.
//!
//! ```text
//!   plan ─► request a move ─► until it has ended and its source is clean ─► the next move ─► what fits now
//! ```
//!
//! All state is in the cloud: each move is an ordinary live migration, which continues without this command. The
//! controllers decide the plan and the limits.

mod page;
mod report;
mod run;

use serde_json::Value;

pub use page::page;
pub use run::apply;

use crate::cloud::{Compute, ComputeError};
use crate::operate::text;

/// The plan for a flavor, or for the cost of the hosts.
///
/// # Errors
/// [`ComputeError`].
pub async fn query(compute: &Compute, flavor: Option<&str>) -> Result<Value, ComputeError> {
    let path = flavor.map_or_else(
        || "/kilonova/rebalance".to_owned(),
        |flavor| format!("/kilonova/rebalance?flavor={}", text::segment(flavor)),
    );
    Ok(compute.get(&path).await?["rebalance"].take())
}
