//! Schema migrations: applied once, in order, each in its own transaction.
//!
//! The SQL uses the subset common to both databases, and the token `{serial}` for an auto-incremented
//! integer key.
//!
//! A migration *expands* the schema: programs that lack it keep working, so that two versions can
//! run side by side. A later version *contracts* it: it removes the parts that no supported program
//! uses any more. A contracting migration is recognized by its name
//! (`<service>-<number>-contract-<what>`), and the name is recorded: a program that does not know
//! the migration refuses the database.

use crate::{Error, Store, Tx, params};

/// One schema change of a service.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// Unique name, `<service>-<number>-<what>`, or `<service>-<number>-contract-<what>`.
    pub name: &'static str,
    /// DDL; statements end with semicolons.
    pub sql: &'static str,
}

impl Migration {
    /// True if the migration with this name contracts the schema.
    pub fn contracts(name: &str) -> bool {
        name.split('-').any(|part| part == "contract")
    }
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    name TEXT PRIMARY KEY, position BIGINT NOT NULL)";
const HAS_TABLE_SQLITE: &str =
    "SELECT 1 AS found FROM sqlite_master WHERE type = 'table' AND name = 'schema_migrations'";
const HAS_TABLE_PG: &str = "SELECT 1 AS found WHERE to_regclass('schema_migrations') IS NOT NULL";
const APPLIED: &str = "SELECT name FROM schema_migrations ORDER BY position";
const IS_APPLIED: &str = "SELECT 1 AS found FROM schema_migrations WHERE name = ?1";
const RECORD: &str = "INSERT INTO schema_migrations (name, position)
    SELECT ?1, COALESCE(MAX(position) + 1, 0) FROM schema_migrations";
/// Waits until no other program is migrating. It runs before the transaction has a snapshot, so the
/// transaction sees the other program's changes.
const PG_ALONE: &str = "LOCK TABLE schema_migrations IN SHARE ROW EXCLUSIVE MODE";

/// The mark of an incomplete copy, stored among the names of migrations. Earlier builds take it for an unknown
/// contracting migration, and therefore refuse the database too.
const INCOMPLETE: &str = "incomplete-copy-contract";
const UNMARK: &str = "DELETE FROM schema_migrations WHERE name = ?1";

pub(crate) async fn run(store: &Store, migrations: &[Migration]) -> Result<(), Error> {
    store
        .write(|tx| {
            tx.lift_time_limits();
            tx.batch(TABLE)
        })
        .await?;
    let applied = applied(store).await?;
    run_after(store, migrations, applied).await
}

/// Like [`run`], for a database that is marked as an incomplete copy.
pub(crate) async fn run_on_incomplete_copy(
    store: &Store,
    migrations: &[Migration],
) -> Result<(), Error> {
    let mut applied = names(store).await?;
    applied.retain(|name| name != INCOMPLETE);
    run_after(store, migrations, applied).await
}

/// Marks a database as an incomplete copy.
pub(crate) async fn mark_incomplete(store: &Store) -> Result<(), Error> {
    store
        .write(|tx| {
            tx.batch(TABLE)?;
            tx.execute(RECORD, params![INCOMPLETE]).map(drop)
        })
        .await
}

/// Removes the mark of an incomplete copy.
pub(crate) async fn mark_complete(store: &Store) -> Result<(), Error> {
    store.write(|tx| tx.execute(UNMARK, params![INCOMPLETE]).map(drop)).await
}

async fn run_after(
    store: &Store,
    migrations: &[Migration],
    applied: Vec<String>,
) -> Result<(), Error> {
    let newer = || applied.iter().filter(|name| !migrations.iter().any(|m| m.name == *name));
    if let Some(contracting) = newer().find(|name| Migration::contracts(name)) {
        return Err(Error::Migration {
            name: contracting.clone(),
            reason: "a newer version has removed parts that this program needs; upgrade this \
                program"
                .into(),
        });
    }
    if let Some(last) = newer().next_back() {
        tracing::info!(
            last,
            "the schema belongs to a newer version, and this program works with it"
        );
    }
    for migration in migrations.iter().filter(|m| !applied.iter().any(|name| name == m.name)) {
        let migration = *migration;
        store.write(move |tx| apply(tx, migration)).await.map_err(|error: Error| match error {
            // The file needs repair, not the migration.
            Error::Damaged(text) => Error::Damaged(text),
            error => Error::Migration { name: migration.name.into(), reason: error.to_string() },
        })?;
    }
    Ok(())
}

pub(crate) async fn applied(store: &Store) -> Result<Vec<String>, Error> {
    let names = names(store).await?;
    if names.iter().any(|name| name == INCOMPLETE) {
        return Err(Error::Copy(
            "the database is an incomplete copy: drop it (or delete the file) and run kilonova database copy \
             again"
                .into(),
        ));
    }
    Ok(names)
}

pub(crate) async fn is_new(store: &Store) -> Result<bool, Error> {
    store
        .read(|tx| {
            let table = if tx.is_postgres() { HAS_TABLE_PG } else { HAS_TABLE_SQLITE };
            Ok(tx.row(table, params![])?.is_none() || tx.rows(APPLIED, params![])?.is_empty())
        })
        .await
}

async fn names(store: &Store) -> Result<Vec<String>, Error> {
    store
        .read(|tx| tx.rows(APPLIED, params![])?.iter().map(|row| row.string("name")).collect())
        .await
}

fn apply(tx: &mut Tx<'_>, migration: Migration) -> Result<(), Error> {
    tx.lift_time_limits();
    let serial = if tx.is_postgres() {
        tx.batch(PG_ALONE)?;
        "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"
    } else {
        "INTEGER PRIMARY KEY AUTOINCREMENT"
    };
    if tx.row(IS_APPLIED, params![migration.name])?.is_some() {
        return Ok(());
    }
    tx.batch(&migration.sql.replace("{serial}", serial))?;
    tx.execute(RECORD, params![migration.name])?;
    Ok(())
}
