//! What one consumer holds becomes another's: the requests stay bound to the handles that they are
//! bound to, and to the server whose guest has them.

use kilonova_ids::ConsumerId;
use kilonova_store::{Tx, params};
use kilonova_wire::time::now_micros;

use crate::Error;
use crate::db::arqs;

/// Hands all requests of a consumer over to one that has none yet.
///
/// # Errors
/// Only the store's.
pub fn hand_over(tx: &mut Tx<'_>, from: ConsumerId, to: ConsumerId) -> Result<(), Error> {
    tx.execute(arqs::HAND_OVER, params![from, to, now_micros()])?;
    Ok(())
}
