//! For tests only: the tables that a statement scans completely, according to the databases' plans.
//!
//! The plans must not depend on statistics, because a new database has none and its plans must be
//! good too. SQLite without `ANALYZE` plans only by the schema. PostgreSQL plans by costs: its
//! statistics are set so that each table has 100,000 rows, and that scans, hash joins and merge
//! joins are a last resort. Each remaining scan therefore lacks a suitable index.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod aliases;
mod postgres;
mod sqlite;

use kilonova_store::{Error, Store, System};

/// A table that a plan scans completely.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Walk {
    /// The table.
    pub table: String,
    /// The step of the plan.
    pub step: String,
}

/// Prepares the database for [`walks`]: on PostgreSQL, fills the tables and declares them large.
///
/// # Errors
/// Store errors only.
pub async fn grow(store: &Store) -> Result<(), Error> {
    match store.system() {
        System::Postgres => postgres::grow(store).await,
        System::Sqlite => Ok(()),
    }
}

/// The tables that a statement scans.
///
/// # Errors
/// Store errors, if the database refuses the statement.
pub async fn walks(store: &Store, sql: &str) -> Result<Vec<Walk>, Error> {
    let mut walks = match store.system() {
        System::Postgres => postgres::walks(store, sql).await?,
        System::Sqlite => sqlite::walks(store, sql).await?,
    };
    walks.sort();
    walks.dedup();
    Ok(walks)
}

/// The tables that a statement scans on an empty database, with the settings of the store's sessions: a connection
/// keeps the plan that it makes then.
///
/// # Errors
/// Store errors, if the database refuses the statement.
pub async fn walks_when_empty(store: &Store, sql: &str) -> Result<Vec<Walk>, Error> {
    let mut walks = match store.system() {
        System::Postgres => postgres::walks_with(store, sql, &[]).await?,
        System::Sqlite => sqlite::walks(store, sql).await?,
    };
    walks.sort();
    walks.dedup();
    Ok(walks)
}

/// The tables of a database.
///
/// # Errors
/// Store errors only.
pub async fn tables(store: &Store) -> Result<Vec<String>, Error> {
    let sql = match store.system() {
        System::Postgres => {
            "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
        }
        System::Sqlite => {
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
             ORDER BY 1"
        }
    };
    store.read(move |tx| tx.rows(sql, &[])?.iter().map(|row| row.string("name")).collect()).await
}

/// The number of parameters of a statement.
fn parameters(sql: &str) -> usize {
    let numbers = sql.split('?').skip(1).filter_map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    numbers.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_highest_parameter_counts() {
        assert_eq!(super::parameters("SELECT ?2, ?11, ?2"), 11);
        assert_eq!(super::parameters("SELECT 1"), 0);
    }
}
