//! Copies a whole database into an empty one of the same or of the other database system.
//!
//! The tables, their keys and their references come from the databases' catalogs, so a table of a
//! new migration is copied without a change here. Until [`Copy::complete`] the target is marked as
//! incomplete, and [`Store::migrate`] and [`Store::applied`] refuse it: an interrupted copy is
//! never used.
//!
//! The rows of a table are read in pages, each in a transaction of its own. The caller must prevent
//! writes to the source meanwhile. [`Copy::verify`] rereads both sides.
//!
//! This module must never change the source.

mod catalog;
mod rows;

use crate::{Error, Migration, Store, migrate, params};
use catalog::Table;

/// Tables of the store itself. Their rows describe only the database that contains them.
const OWN: [&str; 2] = ["schema_migrations", "store_commits"];

/// Number of other connections with this connection's `application_name`.
const OTHERS: &str = "SELECT COUNT(*) AS number FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND application_name = current_setting('application_name')
    AND COALESCE(backend_type, 'client backend') = 'client backend'";

/// A copied table, which is equal on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedTable {
    /// Its name.
    pub name: String,
    /// Number of rows.
    pub rows: u64,
    /// The sum of the digests of the rows; their order does not matter.
    pub checksum: u128,
}

/// A copy in progress.
pub struct Copy {
    from: Store,
    to: Store,
    /// In the order of their references: a table comes after those that it refers to.
    tables: Vec<Table>,
    /// Tables whose rows are not copied.
    anew: Vec<Table>,
    /// Rows of the source when the copy began.
    rows: u64,
}

fn refuse<T>(why: impl Into<String>) -> Result<T, Error> {
    Err(Error::Copy(why.into()))
}

impl Copy {
    /// Checks both databases, and changes nothing.
    ///
    /// # Errors
    /// [`Error::Copy`] if the source does not have the schema of these migrations or the target is not empty;
    /// store errors.
    pub async fn check(from: &Store, to: &Store, migrations: &[Migration]) -> Result<(), Error> {
        let there = from.read(catalog::read).await?;
        if !there.iter().any(|table| table.name == OWN[0]) {
            return refuse(
                "the source is not a database of Kilonova: it has no table schema_migrations",
            );
        }
        check_schema(&from.applied().await?, migrations)?;
        let taken = to.read(catalog::read).await?;
        if taken.iter().any(|table| table.name == OWN[0]) {
            // Returns an error if the target is an incomplete copy.
            to.applied().await?;
        }
        if let Some(table) = taken.iter().find(|table| table.name != OWN[1]) {
            return refuse(format!(
                "the target is not empty: it has the table {}. Name a new database: createdb, or a path \
                 without a file",
                table.name
            ));
        }
        Ok(())
    }

    /// Marks the target, which [`Copy::check`] found empty, as incomplete, and creates its tables.
    /// `anew` names the tables that are not copied: they keep the rows that the migrations create.
    ///
    /// # Errors
    /// [`Error::Copy`] if the source has other tables or columns; store errors.
    pub async fn begin(
        from: &Store,
        to: &Store,
        migrations: &[Migration],
        anew: &[&str],
    ) -> Result<Self, Error> {
        let there = from.read(catalog::read).await?;
        migrate::mark_incomplete(to).await?;
        migrate::run_on_incomplete_copy(to, migrations).await?;
        let here = to.read(catalog::read).await?;
        compare(&there, &here)?;
        let here = here.into_iter().filter(|table| !OWN.contains(&table.name.as_str())).collect();
        let (anew, tables): (Vec<_>, Vec<_>) = catalog::order(here)?
            .into_iter()
            .partition(|table| anew.contains(&table.name.as_str()));
        rows::delete_all(to, &tables).await?;
        let mut rows = 0;
        for table in &tables {
            rows += rows::count(from, table).await?;
        }
        Ok(Self { from: from.clone(), to: to.clone(), tables, anew, rows })
    }

    /// Number of rows to copy.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The tables whose rows are not copied.
    pub fn begun_anew(&self) -> impl Iterator<Item = &str> {
        self.anew.iter().map(|table| table.name.as_str())
    }

    /// Copies all rows, and the counters of generated keys. `done` is called with the number of rows of each page.
    ///
    /// # Errors
    /// Store errors, with the table.
    pub async fn run(&self, mut done: impl FnMut(u64)) -> Result<(), Error> {
        for table in &self.tables {
            rows::copy(&self.from, &self.to, table, &mut done).await.map_err(|e| of(table, &e))?;
        }
        for table in self.tables.iter().chain(&self.anew) {
            rows::copy_counter(&self.from, &self.to, table).await.map_err(|e| of(table, &e))?;
        }
        Ok(())
    }

    /// Reads all rows of both sides and compares them. `done` is called with the number of rows of each page of either
    /// side.
    ///
    /// # Errors
    /// [`Error::Copy`] if a table differs, and store errors.
    pub async fn verify(&self, mut done: impl FnMut(u64)) -> Result<Vec<CopiedTable>, Error> {
        let mut copied = Vec::with_capacity(self.tables.len());
        for table in &self.tables {
            let there = rows::sum(&self.from, table, &mut done).await.map_err(|e| of(table, &e))?;
            let here = rows::sum(&self.to, table, &mut done).await.map_err(|e| of(table, &e))?;
            if there != here {
                return refuse(format!(
                    "the table {} differs: {} rows with the checksum {:032x} in the source, {} rows with \
                     {:032x} in the target. Stop whatever writes to the source, and begin again with an \
                     empty target",
                    table.name, there.rows, there.checksum, here.rows, here.checksum
                ));
            }
            copied.push(here);
        }
        Ok(copied)
    }

    /// Removes the mark, after which the target may be used.
    ///
    /// # Errors
    /// Store errors only; the target then stays incomplete.
    pub async fn complete(self) -> Result<(), Error> {
        migrate::mark_complete(&self.to).await
    }
}

/// The number of other connections to the database with this connection's `application_name`; zero on
/// SQLite, where connections have no names.
///
/// # Errors
/// Store errors only.
pub async fn other_users(store: &Store) -> Result<i64, Error> {
    store
        .read(|tx| {
            if !tx.is_postgres() {
                return Ok(0);
            }
            tx.row(OTHERS, params![])?.map_or(Ok(0), |row| row.int("number"))
        })
        .await
}

fn of(table: &Table, error: &Error) -> Error {
    Error::Copy(format!("table {}: {error}", table.name))
}

fn check_schema(applied: &[String], migrations: &[Migration]) -> Result<(), Error> {
    let missing = migrations.iter().find(|one| !applied.iter().any(|name| name == one.name));
    if let Some(missing) = missing {
        return refuse(format!(
            "the schema of the source belongs to an older version (it lacks {}): start kilonova serve of \
             this version on it once, and stop it",
            missing.name
        ));
    }
    let newer = applied.iter().find(|name| !migrations.iter().any(|one| one.name == name.as_str()));
    if let Some(newer) = newer {
        return refuse(format!(
            "the schema of the source belongs to a newer version (it has {newer}): use the program of that \
             version"
        ));
    }
    Ok(())
}

/// Checks that both sides have the same tables with the same columns.
fn compare(there: &[Table], here: &[Table]) -> Result<(), Error> {
    let is_own = |name: &str| OWN.contains(&name);
    for table in there.iter().filter(|table| !is_own(&table.name)) {
        let Some(same) = here.iter().find(|other| other.name == table.name) else {
            return refuse(format!(
                "the source has the table {}, which this program does not know: move it elsewhere",
                table.name
            ));
        };
        if !table.has_columns_of(same) {
            return refuse(format!("the columns of the table {} differ in the source", table.name));
        }
    }
    let missing = here.iter().filter(|table| !is_own(&table.name));
    match missing.into_iter().find(|table| !there.iter().any(|other| other.name == table.name)) {
        Some(table) => refuse(format!("the source lacks the table {}", table.name)),
        None => Ok(()),
    }
}
