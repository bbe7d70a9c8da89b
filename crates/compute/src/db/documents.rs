//! The documents for the nodes. A host's generation is a counter in its row: bumping it in the same
//! transaction orders the documents of a host as they were committed, on PostgreSQL too.

use kilonova_ids::ServerId;
use kilonova_node_api::{Batch, Desired, Document};
use kilonova_store::{Row, Tx, params};

use super::servers::shape;
use crate::Error;

kilonova_store::statements! {
    /// The next generation of a host.
    NEXT = "UPDATE hosts SET generation = generation + 1 WHERE host = ?1 RETURNING generation";
    /// The newest generation of a host.
    NEWEST = "SELECT generation FROM hosts WHERE host = ?1";
    /// What should be of a server on a host.
    PUT = "INSERT INTO documents (host, server_id, generation, body) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (host, server_id) DO UPDATE SET generation = excluded.generation, body = excluded.body";
    /// One.
    GET = "SELECT server_id, generation, body FROM documents WHERE host = ?1 AND server_id = ?2";
    /// All of a server.
    OF_SERVER = "SELECT server_id, generation, body, host FROM documents WHERE server_id = ?1
        ORDER BY host";
    /// Those newer than a generation.
    SINCE = "SELECT server_id, generation, body FROM documents WHERE host = ?1 AND generation > ?2
        ORDER BY generation";
    /// Nothing of the server is on the host any more.
    FORGET = "DELETE FROM documents WHERE host = ?1 AND server_id = ?2";
}

/// Writes what should be and returns the generation under which it is known.
///
/// # Errors
/// [`Error::Store`]; a host without a row is a bug.
pub fn put(tx: &mut Tx<'_>, host: &str, server: ServerId, desired: &Desired) -> Result<i64, Error> {
    let generation = next(tx, host)?;
    let body = serde_json::to_string(desired).map_err(|e| shape(e.to_string()))?;
    tx.execute(PUT, params![host, server, generation, body])?;
    Ok(generation)
}

/// The next generation of a host.
///
/// # Errors
/// [`Error::Store`]; a host without a row is a bug.
pub fn next(tx: &mut Tx<'_>, host: &str) -> Result<i64, Error> {
    let row = tx.row(NEXT, params![host])?.ok_or_else(|| shape(format!("no host {host}")))?;
    Ok(row.int(0)?)
}

/// What should be of a server on a host.
///
/// # Errors
/// The database's.
pub fn get(tx: &mut Tx<'_>, host: &str, server: ServerId) -> Result<Option<Document>, Error> {
    tx.row(GET, params![host, server])?.as_ref().map(read).transpose()
}

/// What should be of a server, by host.
///
/// # Errors
/// The database's.
pub fn of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<(String, Document)>, Error> {
    let rows = tx.rows(OF_SERVER, params![server])?;
    rows.iter().map(|row| Ok((row.string(3)?, read(row)?))).collect()
}

/// What changed since a generation; all of it for 0.
///
/// # Errors
/// The database's.
pub fn since(tx: &mut Tx<'_>, host: &str, since: i64) -> Result<Batch, Error> {
    let newest = tx.row(NEWEST, params![host])?.map_or(Ok(0), |row| row.int(0))?;
    let documents =
        tx.rows(SINCE, params![host, since])?.iter().map(read).collect::<Result<_, _>>()?;
    let questions = super::questions::open_since(tx, host, since)?;
    let orders = kilonova_accelerator::ledger::orders::since(tx, host, since)?;
    Ok(Batch { generation: newest, complete: since == 0, documents, orders, questions })
}

/// Forgets a document once nothing of the server is on the host.
///
/// # Errors
/// The database's.
pub fn forget(tx: &mut Tx<'_>, host: &str, server: ServerId) -> Result<(), Error> {
    tx.execute(FORGET, params![host, server])?;
    Ok(())
}

fn read(row: &Row) -> Result<Document, Error> {
    Ok(Document {
        server: row.id(0)?,
        generation: row.int(1)?,
        desired: serde_json::from_str(row.text(2)?).map_err(|e| shape(format!("document: {e}")))?,
    })
}
