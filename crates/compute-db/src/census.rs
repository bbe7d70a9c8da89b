//! Counts of servers, for operators' metrics. Read-only.

use kilonova_store::{Row, Tx, params};

use super::servers::VmState;
use crate::Error;

kilonova_store::statements! {
    /// Servers by state.
    SERVERS = "SELECT vm_state, COUNT(*) AS count FROM servers GROUP BY vm_state ORDER BY vm_state";
}

/// Servers by `vm_state`.
///
/// # Errors
/// Store errors only.
pub fn servers(tx: &mut Tx<'_>) -> Result<Vec<(VmState, i64)>, Error> {
    let count = |row: &Row| Ok((VmState::parse(row.text("vm_state")?)?, row.int("count")?));
    tx.rows(SERVERS, params![])?.iter().map(count).collect()
}
