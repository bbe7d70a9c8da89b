//! Counts of servers, for operators' metrics. Read-only.

use kilonova_store::{Row, Tx, params};

use crate::Error;

kilonova_store::statements! {
    /// Servers by state.
    SERVERS = "SELECT vm_state, COUNT(*) FROM servers GROUP BY vm_state ORDER BY vm_state";
}

/// Servers by `vm_state`.
///
/// # Errors
/// Store errors only.
pub fn servers(tx: &mut Tx<'_>) -> Result<Vec<(String, i64)>, Error> {
    let count = |row: &Row| Ok::<_, kilonova_store::Error>((row.string(0)?, row.int(1)?));
    Ok(tx.rows(SERVERS, params![])?.iter().map(count).collect::<Result<_, _>>()?)
}
