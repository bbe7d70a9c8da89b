//! How a connection is set up. `synchronous=FULL` in WAL mode means that an answered write is on
//! the disk.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::Error;

pub(super) fn connect(path: &Path) -> Result<Connection, Error> {
    let connection = Connection::open(path)
        .map_err(|e| Error::Open(format!("cannot open the database {}: {e}", path.display())))?;
    connection.set_prepared_statement_cache_capacity(512);
    // Without it SQLite looks at the bound values when it plans, and prepares a statement anew each
    // time that others are bound: the cache above would be for nothing.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.execute_batch(
        "PRAGMA foreign_keys=ON; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-8192;",
    )?;
    Ok(connection)
}

pub(super) fn durable(connection: &Connection) -> Result<(), Error> {
    connection.execute_batch("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;")?;
    forget_statistics(connection)
}

/// Drops what `ANALYZE` has left. By the statistics of a small cloud SQLite plans to walk tables, and
/// goes on when they have grown; without any it goes by the indexes, as the plans' test has seen.
fn forget_statistics(connection: &Connection) -> Result<(), Error> {
    let analyzed = "SELECT name FROM sqlite_master WHERE name LIKE 'sqlite\\_stat_' ESCAPE '\\'";
    let mut statement = connection.prepare(analyzed)?;
    let tables = statement.query_map([], |row| row.get::<_, String>(0))?;
    let tables = tables.collect::<Result<Vec<_>, _>>()?;
    drop(statement);
    for table in &tables {
        connection.execute_batch(&format!("DROP TABLE {table}"))?;
    }
    if !tables.is_empty() {
        tracing::info!("dropped the statistics that ANALYZE had left in the database");
    }
    Ok(())
}

pub(super) fn read_only(connection: &Connection) -> Result<(), Error> {
    // Pages that all readers want are in the system's cache; each needs few of its own.
    connection.execute_batch("PRAGMA query_only=ON; PRAGMA cache_size=-2048;")?;
    Ok(())
}
