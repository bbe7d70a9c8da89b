//! SQLite plans without statistics, even after `ANALYZE` has run in the database.

use kilonova_store::{DatabaseUrl, Error, Migration, Store};

const ROWS: Migration = Migration {
    name: "test-001-rows",
    sql: "CREATE TABLE rows_ (id BIGINT PRIMARY KEY); INSERT INTO rows_ (id) VALUES (1), (2), (3);",
};

#[tokio::test]
async fn statistics_of_analyze_are_dropped() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let path = directory.path().join("analyzed.db");
    let url = DatabaseUrl::Sqlite(path.clone());
    Store::open(&url)
        .await
        .expect("the store opens")
        .migrate(&[ROWS])
        .await
        .expect("the migration succeeds");
    let other = rusqlite::Connection::open(&path).expect("the file opens");
    other.execute_batch("ANALYZE").expect("ANALYZE succeeds");
    let has = "SELECT COUNT(*) FROM sqlite_master WHERE name LIKE 'sqlite_stat%'";
    let count = |connection: &rusqlite::Connection| {
        connection.query_row(has, [], |row| row.get::<_, i64>(0)).expect("the query succeeds")
    };
    assert!(count(&other) > 0, "ANALYZE leaves statistics");
    let store = Store::open(&url).await.expect("the store opens again");
    assert_eq!(count(&other), 0);
    let rows = store.read(|tx| tx.rows("SELECT id FROM rows_", &[])).await;
    assert_eq!(
        rows.map_err(|error: Error| error.to_string()).expect("the rows are readable").len(),
        3
    );
}
