//! Runs audits: statements that return the rows that break a rule of a ledger, in a column
//! `broken`. Each service brings its own statements.

use kilonova_store::{Error, Store};

/// The rows that break a rule, each with the rule's name; empty when the ledger is consistent.
///
/// # Panics
/// When the database refuses a statement.
pub async fn broken(
    store: &Store,
    rules: &[&'static [(&'static str, &'static str)]],
) -> Vec<String> {
    let rules = rules.concat();
    let read = store.read(move |tx| {
        let mut broken = Vec::new();
        for (rule, sql) in &rules {
            for row in tx.rows(sql, &[])? {
                broken.push(format!("{rule}: {}", row.string("broken")?));
            }
        }
        Ok::<_, Error>(broken)
    });
    read.await.expect("the audit runs")
}
