//! The time since the last heartbeat of a host, by its row and the database's clock. All
//! controllers agree on it, while a controller's memory is current only for the hosts that poll it.

use jiff::SignedDuration;
use kilonova_ids::HostName;
use kilonova_store::{Tx, params};

use crate::Error;

kilonova_store::statements! {
    /// The last heartbeat of a host.
    LAST_SEEN = "SELECT last_seen, forced_down FROM hosts WHERE host = ?1";
}

/// How long a host has not reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// True if an operator forced it down.
    pub forced_down: bool,
    /// The time since its last heartbeat that a controller has stored.
    pub since: SignedDuration,
}

/// How long a host has not reported, if it has ever registered.
///
/// # Errors
/// Store errors only.
pub fn of(tx: &mut Tx<'_>, host: &HostName) -> Result<Option<Silence>, Error> {
    let Some(row) = tx.row(LAST_SEEN, params![host])? else { return Ok(None) };
    let (seen, forced_down) = (row.time("last_seen")?, row.bool("forced_down")?);
    let since = tx.database_time()?.duration_since(seen);
    Ok(Some(Silence { forced_down, since }))
}
