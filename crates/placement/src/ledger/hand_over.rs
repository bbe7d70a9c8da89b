//! Moves all allocations of one consumer to another: when a server moves, its migration takes over
//! the old claim; a revert returns it to the server.
//!
//! No amount changes, so no provider changes and nothing is published.

use kilonova_ids::ConsumerId;
use kilonova_store::Tx;
use kilonova_wire::time;

use crate::Error;
use crate::db::consumers;

/// Moves all allocations to a consumer that has none yet. Returns whether there were any.
///
/// # Errors
/// [`Error::ConsumerExists`] if `to` has allocations already; otherwise store errors only.
pub fn hand_over(
    tx: &mut Tx<'_>,
    from: ConsumerId,
    to: ConsumerId,
    consumer_type: &str,
) -> Result<bool, Error> {
    if !consumers::insert_successor(tx, from, to, consumer_type, time::now())? {
        return match consumers::get(tx, from)? {
            None => Ok(false),
            Some(_) => Err(Error::ConsumerExists(to)),
        };
    }
    consumers::move_allocations(tx, from, to)?;
    consumers::delete(tx, from)?;
    Ok(true)
}
