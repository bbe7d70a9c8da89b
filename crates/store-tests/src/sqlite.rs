//! `EXPLAIN QUERY PLAN`; see https://sqlite.org/eqp.html for its output.

use kilonova_store::{Error, Store, Value};

use crate::{Walk, aliases, parameters};

pub(crate) async fn walks(store: &Store, sql: &str) -> Result<Vec<Walk>, Error> {
    let names = aliases::of(sql, &crate::tables(store).await?);
    let explain = format!("EXPLAIN QUERY PLAN {sql}");
    let nothing = vec![Value::Null; parameters(sql)];
    let steps: Vec<String> = store
        .read(move |tx| {
            tx.rows(&explain, &nothing)?
                .iter()
                .map(|row| row.string("detail"))
                .collect::<Result<_, Error>>()
        })
        .await?;
    let walk = |step: String| {
        let mut words = step.split_whitespace();
        let (verb, name) = (words.next()?, words.next()?);
        // `SEARCH` without an index finds the maximum of a column.
        let is_walk = verb == "SCAN"
            || (verb == "SEARCH" && (!step.contains(" USING ") || step.contains(" AUTOMATIC ")));
        let table = names.get(name).cloned();
        is_walk.then_some(Walk { table: table?, step })
    };
    Ok(steps.into_iter().filter_map(walk).collect())
}
