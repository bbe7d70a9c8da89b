//! Statements that are sent with a later one: their order, their failures and their round trips.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kilonova_store::testing::Meter;
use kilonova_store::{Error, Migration, Row, Store, System, Tx, params};

const TABLE: &[Migration] = &[Migration {
    name: "deferred",
    sql: "CREATE TABLE things (id TEXT PRIMARY KEY, number BIGINT NOT NULL)",
}];
const ADD: &str = "INSERT INTO things (id, number) VALUES (?1, ?2)";
const UPDATE: &str = "UPDATE things SET number = number + 1 WHERE id = ?1";
const ALL: &str = "SELECT id, number FROM things ORDER BY id";
const ONE: &str = "SELECT number FROM things WHERE id = ?1";

fn ids(rows: &[Row]) -> String {
    rows.iter().map(|row| row.string("id").expect("an id")).collect()
}

async fn stored(store: &Store) -> String {
    let all = store.read(|tx| tx.rows(ALL, params![])).await;
    ids(&all.expect("the table is readable"))
}

fn add(tx: &mut Tx<'_>, id: &str) -> Result<(), Error> {
    tx.defer(ADD, params![id, 0])
}

#[tokio::test]
async fn deferred_statements_run_in_order() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        let seen = store
            .write(|tx| {
                add(tx, "a")?;
                tx.defer(UPDATE, params!["a"])?;
                let first = tx.ask(ONE, params!["a"])?;
                tx.defer(UPDATE, params!["a"])?;
                let second = tx.ask(ONE, params!["a"])?;
                add(tx, "b")?;
                // Answers may be taken in any order.
                let second = tx.answer(second)?;
                let first = tx.answer(first)?;
                add(tx, "c")?;
                Ok::<_, Error>((number(&first)?, number(&second)?))
            })
            .await;
        assert_eq!(seen.expect("the transaction commits"), (1, 2), "{name}");
        assert_eq!(stored(&store).await, "abc", "{name}");
    }
}

/// The number in the first row.
fn number(rows: &[Row]) -> Result<i64, Error> {
    rows.first().expect("one row").int("number")
}

#[tokio::test]
async fn a_transaction_waits_once_for_what_it_asks_and_once_for_its_commit() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[TABLE]).await else { return };
    let meter = Meter::listing();
    let metered = store.with_meter(meter.clone());
    for id in ["a", "b"] {
        meter.take_round_trips();
        meter.take_transactions();
        metered
            .write(move |tx| {
                add(tx, id)?;
                let kept = tx.attempt(|tx| tx.defer(UPDATE, params![id]));
                kept?;
                let asked = tx.ask(ONE, params![id])?;
                let all = tx.ask(ALL, params![])?;
                tx.answer(asked)?;
                tx.answer(all)?;
                tx.defer(UPDATE, params![id])
            })
            .await
            .expect("the transaction commits");
    }
    assert_eq!(meter.take_round_trips(), 2, "the first run also prepared the statements");
    let listed = meter.take_transactions();
    let trips: Vec<u64> = listed[0].statements.iter().map(|one| one.round_trip).collect();
    assert_eq!(trips, [1, 1, 1, 1, 2]);
    meter.take_round_trips();
    metered.write(|tx| add(tx, "c")).await.expect("the transaction commits");
    assert_eq!(meter.take_round_trips(), 1, "BEGIN, the statement and COMMIT travel together");
    metered.read(|tx| tx.rows(ALL, params![])).await.expect("the table is readable");
    assert_eq!(meter.take_round_trips(), 1, "a read does not wait for its COMMIT");
    metered.write(|_| Ok::<_, Error>(())).await.expect("an empty transaction commits");
    assert_eq!(meter.take_round_trips(), 0);
}

/// The failure of a deferred statement is that of the commit, and nothing is stored.
#[tokio::test]
async fn a_deferred_failure_fails_the_commit() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&runs);
        let twice = store
            .write(move |tx| {
                counted.fetch_add(1, Ordering::SeqCst);
                add(tx, "a")?;
                add(tx, "a")?;
                add(tx, "b")
            })
            .await;
        assert!(matches!(twice, Err(Error::Unique(_))), "{name}: {twice:?}");
        let expected = if store.system() == System::Sqlite { 1 } else { 2 };
        assert_eq!(runs.load(Ordering::SeqCst), expected, "a violated key is looked at again");
        assert_eq!(stored(&store).await, "", "{name}");
        // A parameter that cannot be sent stops the COMMIT too.
        let wrong = store
            .write(|tx| {
                add(tx, "a")?;
                tx.defer("UPDATE things SET number = 1 / ?1", params!["no number"])?;
                tx.defer(ADD, params!["b", "no number", "too many"])
            })
            .await;
        assert!(wrong.is_err(), "{name}");
        assert_eq!(stored(&store).await, "", "{name}");
        store.write(|tx| add(tx, "c")).await.expect("the connection is usable");
        assert_eq!(stored(&store).await, "c", "{name}");
    }
}

#[tokio::test]
async fn a_failed_attempt_drops_what_it_deferred() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        store
            .write(|tx| {
                add(tx, "a")?;
                for is_sent in [false, true] {
                    let failed = tx.attempt(|tx| {
                        add(tx, "b")?;
                        if is_sent {
                            tx.rows(ALL, params![])?;
                        }
                        add(tx, "c")?;
                        Err::<(), _>(Error::Other("on purpose".into()))
                    });
                    assert!(failed.is_err());
                    assert_eq!(ids(&tx.rows(ALL, params![])?), "a", "{is_sent}");
                }
                let violated = tx.attempt(|tx| {
                    add(tx, "a")?;
                    tx.rows(ALL, params![]).map(drop)
                });
                assert!(matches!(violated, Err(Error::Unique(_))), "{violated:?}");
                // A statement that is new to the connection, in a transaction that has failed.
                tx.execute("INSERT INTO things (id, number) VALUES (?1, 7)", params!["d"])?;
                tx.attempt(|tx| tx.attempt(|tx| add(tx, "e")))
            })
            .await
            .expect("savepoints hide the failures");
        assert_eq!(stored(&store).await, "ade", "{name}");
    }
}

/// A savepoint that began after a failed statement cannot hide its failure.
#[tokio::test]
async fn a_failure_from_before_an_attempt_fails_the_transaction() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        let hidden = store
            .write(|tx| {
                add(tx, "a")?;
                add(tx, "a")?;
                let attempt = tx.attempt(|tx| tx.rows(ALL, params![]).map(drop));
                assert!(attempt.is_err());
                add(tx, "b")
            })
            .await;
        assert!(hidden.is_err(), "{name}: {hidden:?}");
        assert_eq!(stored(&store).await, "", "{name}");
    }
}

/// Two transactions that increment a row with deferred statements alone: none is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deferred_conflict_runs_again() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        store.write(|tx| add(tx, "a")).await.expect("the row is added");
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move {
                    for _ in 0..25 {
                        let increment = store.write(|tx| tx.defer(UPDATE, params!["a"]));
                        increment.await.expect("conflicts are retried");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("the task ends");
        }
        let row = store.read(|tx| tx.row(ONE, params!["a"])).await.expect("the row is readable");
        let number = row.expect("the row is there").int("number").expect("a number");
        assert_eq!(number, 100, "{name}");
    }
}

#[tokio::test]
async fn an_announced_read_is_answered_unless_a_write_comes_first() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        let meter = Meter::listing();
        let metered = store.with_meter(meter.clone());
        for id in ["a", "b"] {
            meter.take_round_trips();
            metered
                .write(move |tx| {
                    add(tx, id)?;
                    tx.expect(ONE, params![id])?;
                    tx.expect(ALL, params![])?;
                    assert_eq!(number(&tx.rows(ONE, params![id])?)?, 0);
                    tx.defer(UPDATE, params![id])?;
                    assert_eq!(number(&tx.rows(ALL, params![])?)?, 1, "not the announced answer");
                    tx.expect(ONE, params!["nobody"])?;
                    assert_eq!(number(&tx.rows(ONE, params![id])?)?, 1, "other parameters");
                    assert!(tx.row(ONE, params!["nobody"])?.is_none());
                    Ok::<_, Error>(())
                })
                .await
                .expect("the transaction commits");
            metered.write(move |tx| tx.execute("DELETE FROM things", params![])).await.expect(id);
        }
        let expected = if store.system() == System::Sqlite { 0 } else { 6 };
        assert_eq!(meter.take_round_trips(), expected, "{name}");
    }
}

#[tokio::test]
async fn a_hook_gets_rows_that_come_with_the_commit() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        let meter = Meter::counting();
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        for id in ["a", "b"] {
            meter.take_round_trips();
            let seen = Arc::clone(&seen);
            store
                .with_meter(meter.clone())
                .write(move |tx| {
                    let returned = "INSERT INTO things (id, number) VALUES (?1, 1) RETURNING id";
                    let asked = tx.ask(returned, params![id])?;
                    let seen = Arc::clone(&seen);
                    tx.on_commit_with(asked, move |rows| {
                        seen.lock().expect("no panic").push(ids(&rows));
                    });
                    Ok::<_, Error>(())
                })
                .await
                .expect("the transaction commits");
        }
        assert_eq!(*seen.lock().expect("no panic"), ["a", "b"], "{name}");
        let expected = u64::from(store.system() != System::Sqlite);
        assert_eq!(meter.take_round_trips(), expected, "{name}");
    }
}
