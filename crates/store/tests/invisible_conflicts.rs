//! A key violated by a row that the transaction could not see.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kilonova_store::{Error, Migration, params};

const TABLE: &[Migration] =
    &[Migration { name: "doubt", sql: "CREATE TABLE things (id TEXT PRIMARY KEY)" }];
const FIND: &str = "SELECT id FROM things WHERE id = ?1";
const ADD: &str = "INSERT INTO things (id) VALUES (?1)";

/// Reads first and inserts the missing row; another transaction inserts it in between. The caller
/// finds the row, instead of getting a key violation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_run_sees_a_concurrent_row() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[TABLE]).await else {
        return;
    };
    let runs = Arc::new(AtomicU32::new(0));
    let (other, counted) = (store.clone(), Arc::clone(&runs));
    let here = tokio::runtime::Handle::current();
    let seen: Result<&str, Error> = store
        .write(move |tx| {
            let run = counted.fetch_add(1, Ordering::SeqCst);
            if tx.row(FIND, params!["a"])?.is_some() {
                return Ok("it is there");
            }
            if run == 0 {
                here.block_on(other.write(|tx| tx.execute(ADD, params!["a"])))?;
            }
            tx.execute(ADD, params!["a"])?;
            Ok("added")
        })
        .await;
    assert_eq!(seen.expect("the second run succeeds"), "it is there");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

/// A violation without a concurrent transaction is reported after the second run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_constraint_violation_is_reported() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        let notified: Result<(), Error> = store
            .write(|tx| {
                tx.execute(ADD, params!["a"])?;
                tx.execute(ADD, params!["a"])?;
                Ok(())
            })
            .await;
        assert!(matches!(notified, Err(Error::Unique(_))), "{name}: {notified:?}");
    }
}
