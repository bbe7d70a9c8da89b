//! Two processes that keep writing the same row: after their first conflict they take turns, and no transaction runs
//! twice. The tests run where `KILONOVA_TEST_POSTGRES` names a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kilonova_store::{DatabaseUrl, Error, Store, Tx, params};

use crate::group::{Answer, COUNTERS, Held, together, wait};

const COUNT: &str = "UPDATE c SET n = n + 1 WHERE id = ?1";

/// Two stores on one database, like those of two controllers.
async fn pair() -> Option<(Store, Store, DatabaseUrl)> {
    let Some(url) = kilonova_testkit::fresh_postgres().await else {
        kilonova_testkit::skip("the test needs PostgreSQL");
        return None;
    };
    let one = Store::open(&url).await.expect("the store opens");
    one.migrate(&[COUNTERS]).await.expect("the migration succeeds");
    Some((one, Store::open(&url).await.expect("the store opens"), url))
}

/// A write to the row; `runs` counts how often it runs.
fn counted(store: &Store, runs: &Arc<AtomicUsize>) -> Answer<()> {
    let runs = Arc::clone(runs);
    together(store, move |tx| {
        runs.fetch_add(1, Ordering::SeqCst);
        tx.execute(COUNT, params!["a"]).map(drop)
    })
}

/// Makes the stores conflict: the waiter's work waits for a transaction of the holder, which then commits, so the work
/// runs again.
async fn meet(holder: &Store, waiter: &Store) {
    let before = waiter.contention();
    let held = Held::begin(holder).await;
    let runs = Arc::new(AtomicUsize::new(0));
    let work = tokio::spawn(counted(waiter, &runs));
    while runs.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Its statement waits for the row, and does not give up yet.
    tokio::time::sleep(Duration::from_millis(30)).await;
    held.end().await;
    work.await.expect("the work does not panic").expect("the work succeeds");
    assert_eq!(runs.load(Ordering::SeqCst), 2, "the work conflicts once");
    assert_eq!(waiter.contention().conflicts, before.conflicts + 1);
}

async fn total(store: &Store) -> i64 {
    let read = |tx: &mut Tx<'_>| tx.row("SELECT n FROM c WHERE id = ?1", params!["a"]);
    let row = store.read(read).await.expect("the row is read").expect("there is a row");
    row.int("n").expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_have_met_take_turns() {
    let Some((one, other, _url)) = pair().await else { return };
    let alone = counted(&one, &Arc::default());
    alone.await.expect("the row is free");
    assert_eq!(one.contention().turns, 0, "a process without conflicts takes no turns");
    meet(&one, &other).await;
    meet(&other, &one).await;
    let met = (one.contention(), other.contention());
    // A single transaction and a group, of either process, wait for the turn of the other one and run once.
    for (holder, waiter) in [(&one, &other), (&other, &one)] {
        for size in [1, 8] {
            let held = Held::begin(holder).await;
            let runs = Arc::new(AtomicUsize::new(0));
            let mut works: Vec<_> = (0..size).map(|_| counted(waiter, &runs)).collect();
            wait(&mut works).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            held.end().await;
            for work in works {
                work.await.expect("the work gets its turn");
            }
            assert_eq!(runs.load(Ordering::SeqCst), size, "each runs once");
        }
    }
    let now = (one.contention(), other.contention());
    assert_eq!((now.0.conflicts, now.1.conflicts), (met.0.conflicts, met.1.conflicts));
    assert!(now.0.turns > met.0.turns && now.1.turns > met.1.turns, "{now:?}");
    assert_eq!((now.0.split, now.1.split), (0, 0), "no group gave up");
    assert_eq!(total(&one).await, 1 + 2 * 2 + 2 * (1 + 1 + 1 + 8));
}

/// A turn ends with its transaction, whatever the outcome.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_ends_with_its_transaction() {
    let Some((one, other, url)) = pair().await else { return };
    meet(&one, &other).await;
    meet(&other, &one).await;
    let refused = together::<()>(&one, |tx| {
        tx.execute(COUNT, params!["a"])?;
        Err(Error::Shape("refused".into()))
    });
    assert!(matches!(refused.await, Err(Error::Shape(_))));
    let violates =
        together(&one, |tx| tx.execute("INSERT INTO c (id, n) VALUES ('a', 0)", params![]));
    assert!(matches!(violates.await, Err(Error::Unique(_))));
    let later = together(&one, |tx| tx.defer("INSERT INTO c (id, n) VALUES ('a', 0)", params![]));
    assert!(matches!(later.await, Err(Error::Unique(_))));
    let unsendable = together(&one, |tx| {
        tx.defer("UPDATE c SET n = ?2 WHERE id = ?1", params!["a", "no number"])
    });
    assert!(unsendable.await.is_err(), "no later statement is sent, not even the end of the turn");
    let reads = together(&one, |tx| tx.rows("SELECT n FROM c", params![]));
    assert_eq!(reads.await.expect("the rows are read").len(), 2);
    let panics = together::<()>(&one, |_| panic!("on purpose"));
    assert!(panics.await.is_err());
    let well = together(&one, |tx| tx.execute(COUNT, params!["a"]));
    assert_eq!(well.await.expect("the update succeeds"), 1);
    assert!(one.contention().turns >= 8, "each took a turn");
    // The connections have released their locks or are closed; the last one may still be busy.
    let DatabaseUrl::Postgres(url) = &url else { panic!("the database is not PostgreSQL") };
    let mut config = crate::postgres::server();
    config.dbname(url.database().expect("a name"));
    let (client, connection) =
        config.connect(tokio_postgres::NoTls).await.expect("the client connects");
    tokio::spawn(async move { drop(connection.await) });
    let held = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let mut count: i64 = 1;
    for _ in 0..100 {
        count = client.query_one(held, &[]).await.expect("the locks are read").get(0);
        if count == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(count, 0, "no session holds a turn");
    let runs = Arc::new(AtomicUsize::new(0));
    counted(&other, &runs).await.expect("the turn is free");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// A transaction that waits too long for its turn continues without it, so a lock held by another program blocks
/// nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_does_not_come_refuses_nothing() {
    let Some((one, other, url)) = pair().await else { return };
    meet(&one, &other).await;
    let DatabaseUrl::Postgres(url) = &url else { panic!("the database is not PostgreSQL") };
    let mut config = crate::postgres::server();
    config.dbname(url.database().expect("a name"));
    let (client, connection) =
        config.connect(tokio_postgres::NoTls).await.expect("the client connects");
    tokio::spawn(async move { drop(connection.await) });
    let all = "SELECT COUNT(pg_advisory_lock(1265529973, lane)) FROM generate_series(0, 1023) lane";
    client.batch_execute(all).await.expect("the client gets all locks");
    let turns = other.contention().turns;
    let runs = Arc::new(AtomicUsize::new(0));
    counted(&other, &runs).await.expect("the work runs without a turn");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(other.contention().turns, turns + 1, "the turn was requested");
}
