//! The plan of every statement, on both databases, without statistics: no statement scans a growing
//! table, except for the listed ones.
//!
//! The test fails for an unlisted table, for an unlisted statement that scans, and for an exception
//! that is not needed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod lists;

use std::collections::BTreeSet;

use kilonova_store::{Migration, listed};
use kilonova_store_tests::{Walk, grow, tables, walks, walks_when_empty};
use lists::{SMALL, WALKS};

fn migrations() -> Vec<&'static [Migration]> {
    vec![
        kilonova_seal::MIGRATIONS,
        kilonova_identity::MIGRATIONS,
        kilonova_enroll::MIGRATIONS,
        kilonova_image::MIGRATIONS,
        kilonova_network::MIGRATIONS,
        kilonova_placement::MIGRATIONS,
        kilonova_accelerator::MIGRATIONS,
        kilonova_flow::MIGRATIONS,
        kilonova_compute_db::MIGRATIONS[0],
        kilonova_compute_db::MIGRATIONS[1],
    ]
}

/// Every statement by its name, `crate::module::NAME`. The audits' rules have their texts as names.
fn statements() -> Vec<(String, String)> {
    let lists = [
        kilonova_seal::statements(),
        kilonova_identity::statements(),
        kilonova_enroll::statements(),
        kilonova_image::statements(),
        kilonova_network::statements(),
        kilonova_placement::statements(),
        vec![kilonova_changes::STATEMENTS],
        kilonova_accelerator::statements(),
        vec![kilonova_flow::STATEMENTS, kilonova_flow::lease::STATEMENTS],
        kilonova_compute_db::statements(),
    ];
    let all = lists.iter().flatten().flat_map(|list| list.iter());
    let named = all.map(|(name, sql)| ((*name).to_owned(), listed(sql, 3)));
    let whole = named.chain(kilonova_compute_db::built_statements());
    let short = |name: String| match name.strip_prefix("kilonova_") {
        Some(rest) => rest.to_owned(),
        None => name,
    };
    whole.map(|(name, sql)| (short(name), sql)).collect()
}

/// The audits' rules read whole tables.
fn is_audit(name: &str) -> bool {
    name.contains(' ')
}

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_scans_a_growing_table() {
    let small: BTreeSet<&str> =
        SMALL.iter().flat_map(|(_, tables)| tables.iter().copied()).collect();
    let allowed: BTreeSet<(&str, &str)> =
        WALKS.iter().flat_map(|(_, walks)| walks.iter().copied()).collect();
    let statements = statements();
    assert!(statements.len() > 500, "only {} statements were found", statements.len());
    let mut used: BTreeSet<(String, String)> = BTreeSet::new();
    let mut databases = 0;
    let mut wrong: Vec<String> = Vec::new();
    for (database, store, _guard) in kilonova_testkit::stores(&migrations()).await {
        databases += 1;
        let tables = tables(&store).await.expect("the tables are listed");
        for name in small.iter().filter(|name| !tables.iter().any(|table| table == *name)) {
            wrong.push(format!("{name} is listed as small, but there is no such table"));
        }
        grow(&store).await.expect("the tables are filled");
        for (name, sql) in &statements {
            let walks = walks(&store, sql).await;
            let walks = walks.unwrap_or_else(|error| panic!("{database}: {name}: {error}\n{sql}"));
            for walk in walks.iter().filter(|walk| !small.contains(walk.table.as_str())) {
                let is_allowed = allowed.contains(&(name.as_str(), walk.table.as_str()))
                    || (is_audit(name) && !walk.step.contains("AUTOMATIC"));
                if !is_allowed {
                    wrong.push(format!("{database}: {name} scans {}: {}", walk.table, walk.step));
                }
                used.insert((name.clone(), walk.table.clone()));
            }
        }
    }
    let idle = allowed.iter().filter(|(name, table)| {
        databases > 1 && !used.contains(&((*name).to_owned(), (*table).to_owned()))
    });
    wrong.extend(idle.map(|(name, table)| format!("{name} no longer scans {table}")));
    assert!(wrong.is_empty(), "{} plans are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Indexes of the few rows that are open or special at a time. The planner prefers them on an empty database.
const OF_OPEN_ROWS: [&str; 4] =
    ["operations_open_kind", "moves_open_by_project", "devices_mixed", "servers_soft_deleted"];

/// A connection keeps the plans that it makes while the tables of a new cloud are empty.
#[tokio::test(flavor = "multi_thread")]
async fn no_plan_of_an_empty_database_scans_a_growing_table() {
    let small: BTreeSet<&str> =
        SMALL.iter().flat_map(|(_, tables)| tables.iter().copied()).collect();
    let allowed: BTreeSet<(&str, &str)> =
        WALKS.iter().flat_map(|(_, walks)| walks.iter().copied()).collect();
    let mut wrong: Vec<String> = Vec::new();
    for (database, store, _guard) in kilonova_testkit::stores(&migrations()).await {
        for (name, sql) in statements().iter().filter(|(name, _)| !is_audit(name)) {
            let walks = walks_when_empty(&store, sql).await;
            let walks = walks.unwrap_or_else(|error| panic!("{database}: {name}: {error}\n{sql}"));
            let grows = |walk: &&Walk| {
                let table = walk.table.as_str();
                !small.contains(table)
                    && !allowed.contains(&(name.as_str(), table))
                    && !OF_OPEN_ROWS.iter().any(|index| walk.step.contains(index))
            };
            let found = walks.iter().filter(grows);
            wrong.extend(
                found.map(|walk| format!("{database}: {name} scans {}: {}", walk.table, walk.step)),
            );
        }
    }
    assert!(wrong.is_empty(), "{} plans are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The assumption of the first test: SQLite plans by the schema, not by the content of the tables.
#[tokio::test]
async fn sqlite_plans_by_the_schema_alone() {
    let fill = "INSERT INTO consumers (id, generation, project_id, user_id, updated_at)
        WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 100000)
        SELECT 'c' || n, 1, 'p', 'u', 0 FROM n";
    let (_, store, _guard) = kilonova_testkit::stores(&migrations()).await.remove(0);
    let mut before = Vec::new();
    for (_, sql) in statements() {
        before.push(walks(&store, &sql).await.expect("the statement has a plan"));
    }
    store.write(move |tx| tx.execute(fill, &[])).await.expect("the table is filled");
    for ((name, sql), before) in statements().into_iter().zip(before) {
        assert_eq!(walks(&store, &sql).await.expect("the statement has a plan"), before, "{name}");
    }
}
