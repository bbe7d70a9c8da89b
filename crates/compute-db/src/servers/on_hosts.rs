//! The servers of many hosts by name, for operators. Read-only.

use kilonova_ids::{HostName, ServerId};
use kilonova_store::{Row, Tx, Value};

use crate::Error;

kilonova_store::statements! {
    /// The servers on some hosts.
    ON_HOSTS = "SELECT id, host, name, project_id FROM servers WHERE host IN ({})";
}

/// A server on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Its id.
    pub id: ServerId,
    /// Its host.
    pub host: HostName,
    /// Its name.
    pub name: String,
    /// Its project.
    pub project: String,
}

/// The servers on those hosts, in no particular order.
///
/// # Errors
/// Store errors only.
pub fn on_hosts(tx: &mut Tx<'_>, hosts: &[HostName]) -> Result<Vec<Placed>, Error> {
    let hosts: Vec<Value> = hosts.iter().map(Value::from).collect();
    let asked = tx.ask_list(ON_HOSTS, &hosts)?;
    let read = |row: &Row| {
        Ok(Placed {
            id: row.id("id")?,
            host: row.host("host")?,
            name: row.string("name")?,
            project: row.string("project_id")?,
        })
    };
    tx.answers(asked)?.iter().map(read).collect()
}
