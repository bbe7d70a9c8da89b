//! Processes parked handles and new orders periodically. If there are none, which is usual, it writes
//! nothing.

use crate::ledger::orders::{self, Processed};
use crate::{Error, State};

/// Processes all pending work.
///
/// # Errors
/// Store errors only.
pub async fn process_pending(state: &State) -> Result<Processed, Error> {
    if !state.store.read(orders::has_pending).await? {
        return Ok(Processed::default());
    }
    let (world, nodes) = (state.world.clone(), state.nodes.clone());
    state.store.write(move |tx| orders::process_pending(tx, &world, nodes.as_deref())).await
}
