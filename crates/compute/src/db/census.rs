//! How many servers there are, for operators' graphs. It only counts.

use kilonova_store::{Row, Tx, params};

use crate::Error;

kilonova_store::statements! {
    /// Servers by what they are.
    SERVERS = "SELECT vm_state, COUNT(*) FROM servers GROUP BY vm_state ORDER BY vm_state";
}

/// Servers by `vm_state`.
///
/// # Errors
/// The database's.
pub fn servers(tx: &mut Tx<'_>) -> Result<Vec<(String, i64)>, Error> {
    let count = |row: &Row| Ok::<_, kilonova_store::Error>((row.string(0)?, row.int(1)?));
    Ok(tx.rows(SERVERS, params![])?.iter().map(count).collect::<Result<_, _>>()?)
}
