//! Moves accelerator requests to another consumer. They stay bound to their handles and to the
//! server whose guest uses them.

use kilonova_ids::ConsumerId;
use kilonova_store::Tx;
use kilonova_wire::time;

use crate::Error;
use crate::db::arqs;

/// Moves all requests of a consumer to one that has none yet.
///
/// # Errors
/// Store errors only.
pub fn hand_over(tx: &mut Tx<'_>, from: ConsumerId, to: ConsumerId) -> Result<(), Error> {
    Ok(arqs::hand_over(tx, from, to, time::now())?)
}
