//! Counts servers for the operators' metrics. This module must never write.

use kilonova_store::{Row, Tx, params};

use super::servers::VmState;
use crate::Error;

kilonova_store::statements! {
    /// The number of servers by `vm_state`.
    SERVERS = "SELECT vm_state, COUNT(*) AS count FROM servers GROUP BY vm_state ORDER BY vm_state";
}

/// The number of servers by `vm_state`.
///
/// # Errors
/// Store errors only.
pub fn servers(tx: &mut Tx<'_>) -> Result<Vec<(VmState, i64)>, Error> {
    let count = |row: &Row| Ok((VmState::parse(row.text("vm_state")?)?, row.int("count")?));
    tx.rows(SERVERS, params![])?.iter().map(count).collect()
}
