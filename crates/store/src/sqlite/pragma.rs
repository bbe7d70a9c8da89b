//! The setup of a connection. In WAL mode with `synchronous=FULL`, an acknowledged commit is on disk.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::Error;

pub(super) fn connect(path: &Path) -> Result<Connection, Error> {
    let connection = Connection::open(path)
        .map_err(|e| Error::Open(format!("cannot open the database {}: {e}", path.display())))?;
    connection.set_prepared_statement_cache_capacity(512);
    // Without this, SQLite plans with the bound values and prepares a statement again when they
    // change, which defeats the cache above.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    // The operating system caches the pages that all connections need, so each needs only a small cache of its own.
    connection.execute_batch(
        "PRAGMA foreign_keys=ON; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-2048;",
    )?;
    Ok(connection)
}

/// The number of pages in the WAL after which a commit checkpoints it: 32 MiB. With SQLite's default of 1000,
/// registering the hosts of a cloud would copy the same index pages repeatedly.
const CHECKPOINT_PAGES: u32 = 8192;

pub(super) fn set_durable(connection: &Connection) -> Result<(), Error> {
    connection.execute_batch(&format!(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES};"
    ))?;
    drop_statistics(connection)
}

/// Drops the statistics of `ANALYZE`. With statistics from a small cloud, SQLite plans to scan
/// tables, and keeps doing so after they have grown. Without statistics it uses the indexes, as the
/// test of the query plans verifies.
fn drop_statistics(connection: &Connection) -> Result<(), Error> {
    let analyzed = "SELECT name FROM sqlite_master WHERE name LIKE 'sqlite\\_stat_' ESCAPE '\\'";
    let mut statement = connection.prepare(analyzed)?;
    let tables = statement.query_map([], |row| row.get::<_, String>(0))?;
    let tables = tables.collect::<Result<Vec<_>, _>>()?;
    drop(statement);
    for table in &tables {
        connection.execute_batch(&format!("DROP TABLE {table}"))?;
    }
    if !tables.is_empty() {
        tracing::info!("dropped the statistics of ANALYZE from the database");
    }
    Ok(())
}

pub(super) fn set_read_only(connection: &Connection) -> Result<(), Error> {
    connection.execute_batch("PRAGMA query_only=ON;")?;
    Ok(())
}
