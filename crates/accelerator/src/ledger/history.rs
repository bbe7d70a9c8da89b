//! The past and present devices of a server and its migrations, for explanations. Read-only.

use kilonova_ids::{ConsumerId, ServerId};
use kilonova_store::Tx;

use crate::Error;
use crate::db::history::{self, HandleChange, HeldAccelerator, LeftHandle};

/// The accelerator requests of a server and of its migrations.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn accelerators_of(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<HeldAccelerator>, Error> {
    Ok(history::accelerators_of(tx, server)?)
}

/// The handles that a consumer left dirty.
pub fn dirty_handles_of(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<Vec<LeftHandle>, Error> {
    Ok(history::dirty_handles_of(tx, consumer)?)
}

/// The handle changes of a server, newest first.
pub fn handle_history(
    tx: &mut Tx<'_>,
    server: ServerId,
    limit: i64,
) -> Result<Vec<HandleChange>, Error> {
    Ok(history::changes_of(tx, server, limit)?)
}
