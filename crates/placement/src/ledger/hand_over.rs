//! What one consumer holds becomes another's, as it is: a server that moves leaves its old place to
//! its migration, and takes it back when the move is undone.
//!
//! Nothing is taken or given back, so no provider changes and the world is not told.

use kilonova_ids::ConsumerId;
use kilonova_store::{Tx, params};
use kilonova_wire::time::now_micros;

use crate::Error;
use crate::db::consumers;

/// Hands everything over to a consumer that holds nothing yet, and says whether there was something.
///
/// # Errors
/// [`Error::ConsumerExists`] when the other one holds something; else only of the store.
pub fn hand_over(
    tx: &mut Tx<'_>,
    from: ConsumerId,
    to: ConsumerId,
    consumer_type: &str,
) -> Result<bool, Error> {
    if consumers::get(tx, from)?.is_none() {
        return Ok(false);
    }
    let heir = params![from, to, consumer_type, now_micros()];
    if tx.execute(consumers::INSERT_HEIR, heir)? == 0 {
        return Err(Error::ConsumerExists(to));
    }
    tx.execute(consumers::HAND_OVER, params![from, to])?;
    tx.execute(consumers::DELETE, params![from])?;
    Ok(true)
}
