//! Statements that are sent with a later one: their order, their failures and their round trips.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kilonova_store::testing::Meter;
use kilonova_store::{Error, Migration, Row, Severity, Store, System, Tx, params};

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
        assert_eq!(runs.load(Ordering::SeqCst), expected, "a key violation is retried once");
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

/// An attempt that fails undoes the attempts within it too, although their savepoints are not released
/// on the server yet.
#[tokio::test]
async fn a_failed_attempt_undoes_the_attempts_within_it() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        store
            .write(|tx| {
                let outer = tx.attempt(|tx| {
                    tx.execute(ADD, params!["a", 0])?;
                    tx.attempt(|tx| {
                        tx.execute(ADD, params!["b", 0])?;
                        add(tx, "c")
                    })?;
                    Err::<(), _>(Error::Other("on purpose".into()))
                });
                assert!(outer.is_err());
                assert_eq!(ids(&tx.rows(ALL, params![])?), "");
                add(tx, "d")
            })
            .await
            .expect("the savepoint hides the failure");
        assert_eq!(stored(&store).await, "d", "{name}");
    }
}

/// A statement that fails after its attempt has ended. No savepoint can undo it alone, so the
/// transaction cannot commit the rest, regardless of how it handles the error.
#[tokio::test]
async fn a_failure_from_an_ended_attempt_fails_the_transaction() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[TABLE]).await else { return };
    store.write(|tx| add(tx, "a")).await.expect("the row is added");
    // The attempt succeeds, and leaves a statement that violates a key or cannot be prepared.
    let ends = |tx: &mut Tx<'_>, is_misspelt: bool| {
        tx.attempt(|tx| {
            tx.execute(ADD, params!["b", 0])?;
            match is_misspelt {
                true => tx.defer("INSERT INTO nowhere (id) VALUES (1)", params![]),
                false => add(tx, "a"),
            }
        })
    };
    for is_misspelt in [false, true] {
        let in_an_outer_one = store
            .write(move |tx| {
                let outer = tx.attempt(|tx| {
                    tx.execute(ADD, params!["c", 0])?;
                    ends(tx, is_misspelt)?;
                    tx.rows(ALL, params![]).map(drop)
                });
                assert!(outer.is_err());
                assert!(tx.execute(ADD, params!["d", 0]).is_err(), "the transaction has ended");
                Ok::<_, Error>(())
            })
            .await;
        assert!(in_an_outer_one.is_err(), "{is_misspelt}");
        let before_another = store
            .write(move |tx| {
                ends(tx, is_misspelt)?;
                assert!(tx.attempt(|tx| tx.rows(ALL, params![])).is_err());
                Ok::<_, Error>(())
            })
            .await;
        assert!(before_another.is_err(), "{is_misspelt}");
        let after_a_hidden_failure = store
            .write(move |tx| {
                ends(tx, is_misspelt)?;
                assert!(tx.rows(ALL, params![]).is_err());
                assert!(tx.attempt(|tx| tx.rows(ALL, params![])).is_err());
                add(tx, "e")
            })
            .await;
        assert!(after_a_hidden_failure.is_err(), "{is_misspelt}");
        // A statement that cannot be prepared drops the queued statements before it.
        let dropped = store
            .write(move |tx| {
                tx.attempt(|tx| {
                    tx.execute(ADD, params!["b", 0])?;
                    add(tx, "c")
                })?;
                let attempt = tx.attempt(|tx| tx.rows("SELECT id FROM nowhere", params![]));
                assert!(attempt.is_err());
                Ok::<_, Error>(())
            })
            .await;
        assert!(dropped.is_err());
        assert_eq!(stored(&store).await, "a", "{is_misspelt}");
    }
}

/// An attempt that hides the failure of its own statement fails, and the transaction continues.
#[tokio::test]
async fn an_attempt_with_a_failed_statement_cannot_succeed() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[TABLE]).await else { return };
    store
        .write(|tx| {
            add(tx, "a")?;
            let hides = tx.attempt(|tx| {
                add(tx, "b")?;
                assert!(matches!(tx.execute(ADD, params!["a", 0]), Err(Error::Unique(_))));
                Ok::<_, Error>(())
            });
            assert!(hides.is_err());
            add(tx, "c")
        })
        .await
        .expect("the savepoint hides the failure");
    assert_eq!(stored(&store).await, "ac");
}

/// A conflict runs the transaction again, regardless of how the work handles the error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_that_the_work_hides_runs_again() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[TABLE]).await else { return };
    store.write(|tx| add(tx, "a")).await.expect("the row is added");
    for in_an_attempt in [false, true] {
        let runs = Arc::new(AtomicU32::new(0));
        let (other, counted) = (store.clone(), Arc::clone(&runs));
        let here = tokio::runtime::Handle::current();
        store
            .write(move |tx| {
                tx.row(ONE, params!["a"])?;
                if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                    here.block_on(other.write(|tx| tx.execute(UPDATE, params!["a"])))?;
                }
                let hidden = match in_an_attempt {
                    true => tx.attempt(|tx| {
                        let refused = tx.execute(UPDATE, params!["a"]).is_err();
                        // Like a candidate that has no room.
                        if refused { Err(Error::Other("no room".into())) } else { Ok(()) }
                    }),
                    false => tx.execute(UPDATE, params!["a"]).map(drop),
                };
                assert_eq!(hidden.is_err(), counted.load(Ordering::SeqCst) == 1);
                assert!(!matches!(hidden, Err(Error::Other(_))), "{hidden:?}");
                Ok::<_, Error>(())
            })
            .await
            .expect("the second run succeeds");
        assert_eq!(runs.load(Ordering::SeqCst), 2, "{in_an_attempt}");
    }
    let row = store.read(|tx| tx.row(ONE, params!["a"])).await.expect("the row is readable");
    assert_eq!(row.expect("the row is there").int("number").expect("a number"), 4);
}

/// A read sends its deferred statements, and those that its hooks wait for, at its end.
#[tokio::test]
async fn a_read_loses_no_statement() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        store.write(|tx| add(tx, "a")).await.expect("the row is added");
        let begun = std::time::Instant::now();
        let refused = store.read(|tx| add(tx, "b")).await.expect_err("a read cannot write");
        assert_eq!(refused.severity(), Severity::Permanent, "{name}: {refused}");
        assert!(begun.elapsed().as_secs() < 4, "{name}: it is not tried again");
        let misspelt = store.read(|tx| tx.defer("SELECT id FROM nowhere", params![])).await;
        assert!(misspelt.is_err(), "{name}");
        let seen = Arc::new(std::sync::Mutex::new(String::new()));
        let hooked = Arc::clone(&seen);
        let meter = Meter::counting();
        let metered = store.with_meter(meter.clone());
        let read = metered.read(move |tx| {
            let asked = tx.ask(ALL, params![])?;
            let hooked = Arc::clone(&hooked);
            tx.on_commit_with(asked, move |rows| {
                *hooked.lock().expect("no panic") = ids(&rows);
            });
            Ok::<_, Error>(())
        });
        read.await.expect("the table is readable");
        assert_eq!(*seen.lock().expect("no panic"), "a", "{name}");
        let expected = u64::from(store.system() != System::Sqlite);
        assert_eq!(meter.take_round_trips(), expected, "{name}");
    }
}

/// The number of transactions that were marked as committed.
async fn marked_commits(store: &Store) -> i64 {
    let sum = "SELECT CAST(SUM(number) AS BIGINT) AS number FROM store_commits";
    let row = store.read(move |tx| tx.row(sum, params![])).await.expect("the table is readable");
    row.expect("a sum is one row").int("number").expect("a number")
}

/// The mark of a commit is a write of its own, which a transaction that only reads does not need.
#[tokio::test]
async fn a_transaction_that_changed_nothing_is_not_marked() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[TABLE]).await else { return };
    let meter = Meter::counting();
    let metered = store.with_meter(meter.clone());
    metered.write(|tx| add(tx, "a")).await.expect("the row is added");
    let before = marked_commits(&store).await;
    assert!(before > 0, "a write is marked");
    let with = format!("WITH one AS ({ONE}) SELECT number FROM one");
    for sql in [ONE.to_owned(), format!("{ONE} FOR SHARE"), with] {
        meter.take_round_trips();
        let query = sql.clone();
        let read = metered.write(move |tx| tx.row(&query, params!["a"])).await;
        assert!(read.expect("it reads").is_some());
        assert_eq!(meter.take_round_trips(), 1, "{sql}: it does not wait for its COMMIT");
        let read =
            metered.read(move |tx| tx.row(&sql.replace(" FOR SHARE", ""), params!["a"])).await;
        assert!(read.expect("it reads").is_some());
        assert_eq!(meter.take_round_trips(), 1, "a read does not wait for its COMMIT");
    }
    let undone = metered.write(|tx| {
        tx.row(ONE, params!["a"])?;
        let attempt = tx.attempt(|tx| {
            add(tx, "b")?;
            Err::<(), _>(Error::Other("on purpose".into()))
        });
        assert!(attempt.is_err());
        Ok::<_, Error>(())
    });
    undone.await.expect("nothing was sent");
    metered.write(|_| Ok::<_, Error>(())).await.expect("an empty transaction commits");
    assert_eq!(marked_commits(&store).await, before);
    let unread = metered.read(|tx| {
        tx.expect(ONE, params!["a"])?;
        tx.rows("WITH all_ AS (SELECT id FROM things) SELECT id FROM all_", params![]).map(drop)
    });
    meter.take_round_trips();
    unread.await.expect("it reads");
    assert_eq!(meter.take_round_trips(), 1, "no work needs the announced answer");
    metered.write(|tx| tx.execute(UPDATE, params!["a"])).await.expect("it writes");
    metered.write(|tx| tx.defer(UPDATE, params!["a"])).await.expect("it writes");
    let asks = metered.write(|tx| {
        let asked = tx.ask("UPDATE things SET number = 9 RETURNING id", params![])?;
        drop(asked);
        Ok::<_, Error>(())
    });
    asks.await.expect("it writes");
    metered.write(|tx| tx.execute("CREATE SEQUENCE s", params![])).await.expect("it is created");
    let sets = metered.write(|tx| tx.row("SELECT setval('s', 7) AS last", params![])).await;
    assert!(sets.expect("a sequence changes by a SELECT").is_some());
    let with = "WITH new AS (INSERT INTO things (id, number) VALUES ('w', 9) RETURNING id)
        SELECT id FROM new";
    let adds = metered.write(move |tx| tx.row(with, params![])).await;
    assert!(adds.expect("a query that writes").is_some());
    assert_eq!(marked_commits(&store).await, before + 6);
    let row = store.read(|tx| tx.row(ONE, params!["a"])).await.expect("the row is readable");
    assert_eq!(row.expect("the row is there").int("number").expect("a number"), 9);
}

/// Two transactions that increment a row with only deferred statements: no increment is lost.
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
