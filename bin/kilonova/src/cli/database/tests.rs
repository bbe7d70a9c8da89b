//! A copy has every row of every table that the migrations create, between both systems. The rows
//! are generated from the catalog, so a new table is tested without a change here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by a panic"
)]

use std::path::{Path, PathBuf};

use kilonova_flow::lease;
use kilonova_store::copy::Copy;
use kilonova_store::{DatabaseUrl, Error, Store, params};
use rusqlite::Connection;
use rusqlite::types::Value;

use crate::serve::migrations;

/// The tables whose rows are not copied. Add a table only if its rows are worthless after a move of
/// the cloud.
const UNCOPIED_TABLES: [&str; 3] = ["change_log", "change_log_start", "leases"];
/// Rows of a table; more than a page in those with [`MANY`].
const FEW: i64 = 3;
const MANY: i64 = 2003;

fn strings(database: &Connection, sql: &str) -> Vec<String> {
    let mut statement = database.prepare(sql).expect(sql);
    let rows = statement.query_map([], |row| row.get(0)).expect(sql);
    rows.map(|row| row.expect(sql)).collect()
}

fn tables(database: &Connection) -> Vec<String> {
    strings(
        database,
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
         AND name <> 'schema_migrations' ORDER BY name",
    )
}

struct Column {
    name: String,
    kind: String,
    is_key: bool,
    is_required: bool,
    refers: Option<(String, String)>,
}

fn columns(database: &Connection, table: &str) -> Vec<Column> {
    let sql = format!(
        "SELECT c.name, c.type, c.pk, c.\"notnull\", r.\"table\", r.\"to\" FROM pragma_table_info('{table}') c
         LEFT JOIN pragma_foreign_key_list('{table}') r ON r.\"from\" = c.name ORDER BY c.cid"
    );
    let mut statement = database.prepare(&sql).expect("the catalog is read");
    let read = |row: &rusqlite::Row<'_>| {
        let parent: Option<String> = row.get(4)?;
        Ok(Column {
            name: row.get(0)?,
            kind: row.get(1)?,
            is_key: row.get::<_, i64>(2)? > 0,
            is_required: row.get::<_, i64>(3)? != 0,
            refers: parent.zip(row.get(5)?),
        })
    };
    let rows = statement.query_map([], read).expect("the catalog is read");
    rows.map(|row| row.expect("the catalog is read")).collect()
}

/// The value of a column in the row with a number. A referring column has the value of the
/// referenced column in the row with the same number; in a table that refers to itself, the next
/// row, so that references lead forward.
fn value(database: &Connection, table: &str, column: &Column, number: i64, count: i64) -> Value {
    if let Some((parent, to)) = &column.refers {
        let number = if parent != table {
            number % FEW
        } else if number + 1 < count {
            number + 1
        } else {
            return Value::Null;
        };
        let there = columns(database, parent);
        let there = there.iter().find(|one| one.name == *to).expect("the parent has the column");
        return value(database, parent, there, number, FEW);
    }
    if !column.is_required && !column.is_key && number == 1 {
        return Value::Null;
    }
    match column.kind.as_str() {
        "DOUBLE PRECISION" => Value::Real(number as f64 + 0.1),
        "INTEGER" => Value::Integer(number + 5),
        "BIGINT" if number == 2 && !column.is_key => Value::Integer(i64::MAX),
        "BIGINT" => Value::Integer(number),
        "TEXT" => Value::Text(format!("{}.{} {number} 'ü' \"\u{1f5a5}\"\n", table, column.name)),
        other => panic!("{table}.{} has the type {other}", column.name),
    }
}

/// Fills every table, and advances the counters beyond the rows.
fn fill(file: &Path) {
    let database = Connection::open(file).expect("the database opens");
    database.execute_batch("PRAGMA foreign_keys = OFF; BEGIN").expect("it begins");
    let many = ["operation_events", "provider_traits", "identity_trusts"];
    for table in tables(&database) {
        let columns = columns(&database, &table);
        let count = if many.contains(&table.as_str()) { MANY } else { FEW };
        database.execute(&format!("DELETE FROM {table}"), []).expect("the table is emptied");
        let names: Vec<String> = columns.iter().map(|one| format!("\"{}\"", one.name)).collect();
        let places = vec!["?"; names.len()].join(", ");
        let sql = format!("INSERT INTO {table} ({}) VALUES ({places})", names.join(", "));
        let mut statement = database.prepare(&sql).expect("the statement is valid");
        for number in 0..count {
            let values = columns.iter().map(|one| value(&database, &table, one, number, count));
            let values: Vec<Value> = values.collect();
            let inserted = statement.execute(rusqlite::params_from_iter(values));
            inserted.unwrap_or_else(|error| panic!("{table}, row {number}: {error}"));
        }
    }
    database
        .execute_batch("UPDATE sqlite_sequence SET seq = seq + 70; COMMIT")
        .expect("it commits");
    let broken = strings(&database, "SELECT \"table\" FROM pragma_foreign_key_check");
    assert!(broken.is_empty(), "{broken:?}");
}

/// The rows of a table, in the order of their values.
fn rows(database: &Connection, table: &str) -> Vec<String> {
    let names: Vec<String> =
        columns(database, table).iter().map(|one| format!("\"{}\"", one.name)).collect();
    let parts: Vec<String> = names.iter().map(|name| format!("quote({name})")).collect();
    let mut rows = strings(database, &format!("SELECT {} FROM {table}", parts.join(" || '|' || ")));
    rows.sort();
    rows
}

fn same(one: &Path, other: &Path) {
    let (one, other) =
        (Connection::open(one).expect("it opens"), Connection::open(other).expect("it opens"));
    let names = tables(&one);
    assert_eq!(names, tables(&other));
    assert!(names.len() > 80, "{names:?}");
    for table in names.iter().filter(|name| !UNCOPIED_TABLES.contains(&name.as_str())) {
        let (here, there) = (rows(&one, table), rows(&other, table));
        assert!(here.len() >= FEW as usize, "{table} was not filled");
        assert!(here == there, "{table}: {} rows and {}", here.len(), there.len());
    }
    assert!(rows(&other, "change_log").is_empty() && rows(&other, "leases").is_empty());
    assert_eq!(rows(&other, "change_log_start"), ["0"], "the log starts like a new one");
    let counters = "SELECT name || ' ' || seq FROM sqlite_sequence ORDER BY name";
    assert_eq!(strings(&one, counters), strings(&other, counters));
}

async fn store(url: &DatabaseUrl) -> Store {
    Store::open(url).await.expect("the store opens")
}

async fn filled(folder: &Path) -> (PathBuf, Store) {
    let file = folder.join("source.db");
    let source = store(&DatabaseUrl::Sqlite(file.clone())).await;
    source.migrate(&migrations()).await.expect("the migrations succeed");
    fill(&file);
    (file, source)
}

async fn begin(from: &Store, to: &Store) -> Result<Copy, Error> {
    Copy::check(from, to, &migrations()).await?;
    let uncopied_tables = [kilonova_changes::LOG, lease::TABLES].concat();
    assert_eq!(uncopied_tables, UNCOPIED_TABLES);
    Copy::begin(from, to, &migrations(), &uncopied_tables).await
}

async fn copy(from: &Store, to: &Store) {
    let copy = begin(from, to).await.expect("the copy begins");
    let mut seen = 0;
    copy.run(|rows| seen += rows).await.expect("the rows are copied");
    assert_eq!(seen, copy.rows());
    let tables = copy.verify(|_| {}).await.expect("both sides are the same");
    assert_eq!(tables.iter().map(|table| table.rows).sum::<u64>(), seen);
    copy.complete().await.expect("the mark is removed");
    to.migrate(&migrations()).await.expect("the copy is usable");
}

#[tokio::test]
async fn every_row_of_every_table_arrives() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let (file, source) = filled(folder.path()).await;
    let second = folder.path().join("second.db");
    copy(&source, &store(&DatabaseUrl::Sqlite(second.clone())).await).await;
    same(&file, &second);
    let Some(url) = kilonova_testkit::fresh_postgres().await else { return };
    let postgres = store(&url).await;
    copy(&source, &postgres).await;
    let third = folder.path().join("third.db");
    copy(&postgres, &store(&DatabaseUrl::Sqlite(third.clone())).await).await;
    same(&file, &third);
}

#[tokio::test]
async fn a_copy_that_is_not_complete_is_refused_everywhere() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let (_, source) = filled(folder.path()).await;
    let target = store(&DatabaseUrl::Sqlite(folder.path().join("target.db"))).await;
    let begun = begin(&source, &target).await.expect("the copy begins");
    begun.run(|_| {}).await.expect("the rows are copied");
    drop(begun);
    for refused in [
        target.migrate(&migrations()).await,
        target.applied().await.map(drop),
        Copy::check(&source, &target, &migrations()).await,
    ] {
        let error = refused.expect_err("it is incomplete");
        assert!(matches!(error, Error::Copy(_)), "{error}");
        assert!(error.to_string().contains("incomplete copy"), "{error}");
    }
}

#[tokio::test]
async fn a_row_that_differs_is_found() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let (_, source) = filled(folder.path()).await;
    for (number, (change, table)) in [
        ("UPDATE flavors SET rxtx_factor = 7 WHERE rxtx_factor > 2", "flavors"),
        ("DELETE FROM operation_events WHERE seq = 1500", "operation_events"),
        ("UPDATE keypairs SET name = 'other' WHERE name LIKE '% 2 %'", "keypairs"),
    ]
    .into_iter()
    .enumerate()
    {
        let file = folder.path().join(format!("target{number}.db"));
        let target = store(&DatabaseUrl::Sqlite(file)).await;
        let copy = begin(&source, &target).await.expect("the copy begins");
        copy.run(|_| {}).await.expect("the rows are copied");
        let changed = target.write(move |tx| tx.execute(change, params![])).await;
        assert_eq!(changed.expect(change), 1, "{change}");
        let error = copy.verify(|_| {}).await.expect_err(change).to_string();
        assert!(error.contains(&format!("table {table}")), "{change}: {error}");
    }
}

#[tokio::test]
async fn databases_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let (_, source) = filled(folder.path()).await;
    let target = store(&DatabaseUrl::Sqlite(folder.path().join("target.db"))).await;
    let check = async || {
        let refused = Copy::check(&source, &target, &migrations()).await;
        refused.expect_err("it is refused").to_string()
    };
    let run = async |store: &Store, sql: &'static str| {
        store.write(move |tx| tx.execute(sql, params![]).map(drop)).await.expect(sql);
    };
    let add = "INSERT INTO schema_migrations (name, position) VALUES ('later-0001-x', 9000)";
    run(&source, add).await;
    assert!(check().await.contains("newer version (it has later-0001-x)"));
    run(
        &source,
        "DELETE FROM schema_migrations WHERE name IN ('later-0001-x', 'flow-0003-leases')",
    )
    .await;
    assert!(check().await.contains("older version (it lacks flow-0003-leases)"));
    let back = "INSERT INTO schema_migrations (name, position) VALUES ('flow-0003-leases', 9000)";
    run(&source, back).await;
    run(&target, "CREATE TABLE mine (id BIGINT PRIMARY KEY)").await;
    assert!(check().await.contains("not empty: it has the table mine"));
    let empty = store(&DatabaseUrl::Sqlite(folder.path().join("empty.db"))).await;
    let error = Copy::check(&empty, &target, &migrations()).await.expect_err("it is empty");
    assert!(error.to_string().contains("not a database of Kilonova"), "{error}");
    run(&target, "DROP TABLE mine").await;
    run(&source, "CREATE TABLE strange (id BIGINT PRIMARY KEY)").await;
    let error = begin(&source, &target).await.err().expect("it is refused").to_string();
    assert!(error.contains("has the table strange"), "{error}");
}
