//! For tests alone: which tables a statement walks from end to end, as the databases plan it.
//!
//! It must never depend on statistics, as a new database has none and the plans have to be good there
//! too. SQLite without `ANALYZE` plans by the schema alone. PostgreSQL plans by costs: it is told that
//! each table has 100,000 rows, and to walk a table, or to join by hashing or merging, only where
//! no index can serve. So a walk that is left is one for which there is no index.

mod aliases;
mod postgres;
mod sqlite;

use kilonova_store::{Error, Store};

/// A table that a plan walks from end to end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Walk {
    /// The table.
    pub table: String,
    /// The step of the plan.
    pub step: String,
}

/// Prepares the database for [`walks`]: on PostgreSQL, its tables are filled and said to be large.
///
/// # Errors
/// The database's.
pub async fn grow(store: &Store) -> Result<(), Error> {
    match store.dialect() {
        "postgresql" => postgres::grow(store).await,
        _ => Ok(()),
    }
}

/// The tables that a statement walks.
///
/// # Errors
/// The database's, for a statement that it refuses.
pub async fn walks(store: &Store, sql: &str) -> Result<Vec<Walk>, Error> {
    let mut walks = match store.dialect() {
        "postgresql" => postgres::walks(store, sql).await?,
        _ => sqlite::walks(store, sql).await?,
    };
    walks.sort();
    walks.dedup();
    Ok(walks)
}

/// The tables of a database.
///
/// # Errors
/// The database's.
pub async fn tables(store: &Store) -> Result<Vec<String>, Error> {
    let sql = match store.dialect() {
        "postgresql" => "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1",
        _ => {
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
             ORDER BY 1"
        }
    };
    store.read(move |tx| tx.rows(sql, &[])?.iter().map(|row| row.string(0)).collect()).await
}

/// How many parameters a statement has.
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
