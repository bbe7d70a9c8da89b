//! Parked handles and orders that nobody was told of, looked after every now and then. Mostly there
//! is nothing, and nothing is written.

use crate::ledger::orders::{self, Tidied};
use crate::{Error, State};

/// Does what there is to do.
///
/// # Errors
/// Only the store's.
pub async fn tidy(state: &State) -> Result<Tidied, Error> {
    if !state.store.read(orders::needs_tidying).await? {
        return Ok(Tidied::default());
    }
    let (world, nodes) = (state.world.clone(), state.nodes.clone());
    state.store.write(move |tx| orders::tidy(tx, &world, nodes.as_deref())).await
}
