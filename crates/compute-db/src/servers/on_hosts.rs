//! The names and the counts of the servers on many hosts, for operators. Read-only.

use std::collections::HashMap;

use kilonova_ids::{HostName, ServerId};
use kilonova_store::{Asked, Row, Tx, Value};

use crate::Error;

kilonova_store::statements! {
    /// The names of the servers on some hosts.
    NAMES = "SELECT id, name FROM servers WHERE host IN ({})";
    /// The number of servers on some hosts.
    COUNTS = "SELECT host, COUNT(*) AS count FROM servers WHERE host IN ({}) GROUP BY host";
}

fn ask(tx: &mut Tx<'_>, statement: &'static str, hosts: &[HostName]) -> Result<Vec<Asked>, Error> {
    let hosts: Vec<Value> = hosts.iter().map(Value::from).collect();
    Ok(tx.ask_list(statement, &hosts)?)
}

/// The names of the servers on these hosts.
///
/// # Errors
/// Store errors only; also for the function below.
pub fn names(tx: &mut Tx<'_>, hosts: &[HostName]) -> Result<HashMap<ServerId, String>, Error> {
    let asked = ask(tx, NAMES, hosts)?;
    let read = |row: &Row| Ok((row.id("id")?, row.string("name")?));
    tx.answers(asked)?.iter().map(read).collect()
}

/// The number of servers on each of these hosts. A host without servers is absent.
pub fn counts(tx: &mut Tx<'_>, hosts: &[HostName]) -> Result<HashMap<HostName, usize>, Error> {
    let asked = ask(tx, COUNTS, hosts)?;
    let read = |row: &Row| {
        let count = usize::try_from(row.int("count")?).unwrap_or_default();
        Ok((row.host("host")?, count))
    };
    tx.answers(asked)?.iter().map(read).collect()
}
