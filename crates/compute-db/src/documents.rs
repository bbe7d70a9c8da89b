//! The documents for the agents. A host's generation is a counter in its row: incrementing it in the
//! same transaction orders the documents of a host by commit, on PostgreSQL too.

use std::collections::BTreeSet;

use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{Desired, Document};
use kilonova_store::{Row, Tx, Value, listed, params};

use super::servers::shape;
use crate::Error;

/// Selects [`Document`]s with their host.
macro_rules! select {
    () => {
        "SELECT host, server_id, generation, body FROM documents"
    };
}

kilonova_store::statements! {
    /// The hosts that have documents of these servers.
    HOSTS_OF = "SELECT DISTINCT host FROM documents WHERE server_id IN ({})";
    /// Increments the generation of a host.
    NEXT = "UPDATE hosts SET generation = generation + 1 WHERE host = ?1 RETURNING generation";
    /// The newest generation of a host, and whether it has unanswered questions since another
    /// generation.
    NEWEST = "SELECT generation, filtered, EXISTS (SELECT 1 FROM questions q
        WHERE q.host = ?1 AND q.generation > ?2 AND q.answer IS NULL) AS asked FROM hosts WHERE host = ?1";
    /// Increments the generation of a host and requests its guests' security groups with it.
    FILTER = "UPDATE hosts SET generation = generation + 1, filtered = generation + 1
        WHERE host = ?1 RETURNING generation";
    /// Writes the document of a server on a host.
    PUT = "INSERT INTO documents (host, server_id, generation, body) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (host, server_id) DO UPDATE SET generation = excluded.generation, body = excluded.body";
    /// One document.
    GET = concat!(select!(), " WHERE host = ?1 AND server_id = ?2");
    /// All documents of a server.
    OF_SERVER = concat!(select!(), " WHERE server_id = ?1 ORDER BY host");
    /// The servers with a document on a host.
    SERVERS_ON = "SELECT server_id FROM documents WHERE host = ?1 ORDER BY server_id";
    /// The documents newer than a generation.
    SINCE = concat!(select!(), " WHERE host = ?1 AND generation > ?2 ORDER BY generation");
    /// Deletes the document of a server.
    FORGET = "DELETE FROM documents WHERE host = ?1 AND server_id = ?2";
}

/// Wakes hosts that wait for documents.
pub trait Wake {
    /// Wakes the host's long poll once the generation is durable.
    fn wake_on_commit(&self, tx: &mut Tx<'_>, host: &HostName, generation: i64);
}

/// Writes the desired state of a server on a host, and wakes the host on commit.
///
/// # Errors
/// [`Error::Store`]; a host without a row is a bug.
pub fn put(
    tx: &mut Tx<'_>,
    wake: &impl Wake,
    host: &HostName,
    server: ServerId,
    desired: &Desired,
) -> Result<(), Error> {
    let generation = next(tx, host)?;
    let body = serde_json::to_string(desired).map_err(|e| shape(e.to_string()))?;
    tx.execute(PUT, params![host, server, generation, body])?;
    wake.wake_on_commit(tx, host, generation);
    Ok(())
}

/// Increments and returns the generation of a host; `None` if the host has no row.
///
/// # Errors
/// Store errors only.
pub fn next_of(tx: &mut Tx<'_>, host: &HostName) -> Result<Option<i64>, kilonova_store::Error> {
    tx.row(NEXT, params![host])?.map(|row| row.int("generation")).transpose()
}

/// Like [`next_of`], for a host that has a row.
///
/// # Errors
/// [`Error::Store`]; a host without a row is a bug.
pub fn next(tx: &mut Tx<'_>, host: &HostName) -> Result<i64, Error> {
    next_of(tx, host)?.ok_or_else(|| shape(format!("no host {host}")))
}

/// The document of a server on a host.
///
/// # Errors
/// Store errors only.
pub fn get(tx: &mut Tx<'_>, host: &HostName, server: ServerId) -> Result<Option<Document>, Error> {
    tx.row(GET, params![host, server])?.as_ref().map(read).transpose()
}

/// The documents of a server, by host.
///
/// # Errors
/// Store errors only.
pub fn of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<(HostName, Document)>, Error> {
    let rows = tx.rows(OF_SERVER, params![server])?;
    rows.iter().map(|row| Ok((row.host("host")?, read(row)?))).collect()
}

/// The servers with a document on a host.
///
/// # Errors
/// Store errors only.
pub fn servers_on(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<ServerId>, Error> {
    let rows = tx.rows(SERVERS_ON, params![host])?;
    Ok(rows.iter().map(|row| row.id("server_id")).collect::<Result<_, kilonova_store::Error>>()?)
}

/// The newest generation of a host.
#[derive(Debug, Clone, Copy)]
pub struct Newest {
    /// The generation.
    pub generation: i64,
    /// The generation with which its guests' security groups were last requested.
    pub filtered: i64,
    /// True if the host may have questions to answer since the given generation.
    pub asked: bool,
}

/// The newest generation of a host, compared with one that it has.
///
/// # Errors
/// Store errors only.
pub fn newest(tx: &mut Tx<'_>, host: &HostName, since: i64) -> Result<Newest, Error> {
    Ok(match tx.row(NEWEST, params![host, since])? {
        Some(row) => Newest {
            generation: row.int("generation")?,
            filtered: row.int("filtered")?,
            asked: row.bool("asked")?,
        },
        None => Newest { generation: 0, filtered: 0, asked: true },
    })
}

/// The documents since a generation; all for 0.
///
/// # Errors
/// Store errors only.
pub fn since(tx: &mut Tx<'_>, host: &HostName, since: i64) -> Result<Vec<Document>, Error> {
    tx.rows(SINCE, params![host, since])?.iter().map(read).collect()
}

/// Sends the host its guests' security groups with its next generation, and wakes it on commit.
///
/// # Errors
/// Store errors only.
pub fn filter(tx: &mut Tx<'_>, wake: &impl Wake, host: &HostName) -> Result<(), Error> {
    if let Some(row) = tx.row(FILTER, params![host])? {
        wake.wake_on_commit(tx, host, row.int("generation")?);
    }
    Ok(())
}

/// The hosts that have documents of one of these servers.
///
/// # Errors
/// Store errors only.
pub fn hosts_of(
    tx: &mut Tx<'_>,
    servers: &BTreeSet<ServerId>,
) -> Result<BTreeSet<HostName>, Error> {
    let servers: Vec<&ServerId> = servers.iter().collect();
    let mut hosts = BTreeSet::new();
    for some in servers.chunks(100) {
        let sql = listed(HOSTS_OF, some.len());
        let values: Vec<Value> = some.iter().map(|id| Value::from(**id)).collect();
        for row in tx.rows(&sql, &values)? {
            hosts.insert(row.host("host")?);
        }
    }
    Ok(hosts)
}

/// Deletes a document once nothing of the server is on the host.
///
/// # Errors
/// Store errors only.
pub fn forget(tx: &mut Tx<'_>, host: &HostName, server: ServerId) -> Result<(), Error> {
    tx.execute(FORGET, params![host, server])?;
    Ok(())
}

fn read(row: &Row) -> Result<Document, Error> {
    Ok(Document {
        server: row.id("server_id")?,
        generation: row.int("generation")?,
        desired: serde_json::from_str(row.text("body")?)
            .map_err(|e| shape(format!("document: {e}")))?,
    })
}
