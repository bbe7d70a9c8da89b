//! The record of what `serve --dev` created, so that deleted resources are not created again.

use kilonova_store::{Error, Migration, Tx, params, statements};

/// The schema migrations in order.
pub const MIGRATIONS: &[Migration] = &[Migration {
    name: "dev-1-seeds",
    sql: "CREATE TABLE dev_seeds (name TEXT NOT NULL PRIMARY KEY);",
}];

statements! {
    /// All names.
    ALL = "SELECT name FROM dev_seeds ORDER BY name";
    /// Records a name.
    NOTE = "INSERT INTO dev_seeds (name) VALUES (?1) ON CONFLICT (name) DO NOTHING";
}

pub(super) fn all(tx: &mut Tx<'_>) -> Result<Vec<String>, Error> {
    tx.rows(ALL, params![])?.iter().map(|row| row.string("name")).collect()
}

pub(super) fn note(tx: &mut Tx<'_>, name: &str) -> Result<(), Error> {
    tx.execute(NOTE, params![name]).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_statements_run_on_each_database() {
        for (_, store, _guard) in kilonova_testkit::stores(&[MIGRATIONS]).await {
            assert_eq!(STATEMENTS.len(), 2, "the rest of this test runs both");
            for _ in 0..2 {
                store.write(|tx| note(tx, "a")).await.expect("the note is written");
            }
            assert_eq!(store.read(all).await.expect("the file is read"), ["a"]);
        }
    }
}
