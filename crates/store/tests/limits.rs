//! The limits of transactions on PostgreSQL: a caller waits a bounded time for a connection, a lock
//! and a statement, then gets a temporary error, and the connection stays usable. The tests run
//! where `KILONOVA_TEST_POSTGRES` names a server.

use std::time::{Duration, Instant};

use kilonova_store::{DatabaseUrl, Error, Migration, Options, Severity, Store, Tx, params};

const TABLE: Migration =
    Migration { name: "t-1", sql: "CREATE TABLE t (id TEXT PRIMARY KEY, n BIGINT NOT NULL);" };
const LATER: Migration = Migration { name: "t-2", sql: "ALTER TABLE t ADD COLUMN more TEXT;" };
const ADD: &str = "INSERT INTO t (id, n) VALUES (?1, 0)";
const UPDATE: &str = "UPDATE t SET n = n + 1 WHERE id = ?1";

/// Short, to keep the tests fast.
const SHORT: Duration = Duration::from_millis(300);
/// Far longer than `SHORT`, far shorter than the usual limits.
const BOUND: Duration = Duration::from_secs(4);

/// A store on a new database with a row.
async fn store(options: &Options) -> Option<(Store, DatabaseUrl)> {
    let Some(url) = kilonova_testkit::fresh_postgres().await else {
        kilonova_testkit::skip("the test needs PostgreSQL");
        return None;
    };
    let store = Store::open_with(&url, options).await.expect("it opens");
    store.migrate(&[TABLE]).await.expect("the migration succeeds");
    store.write(|tx| tx.defer(ADD, params!["a"])).await.expect("the row is added");
    Some((store, url))
}

/// A session without the limits of a store, with an open transaction that has run this statement.
async fn holding(url: &DatabaseUrl, sql: &str) -> tokio_postgres::Client {
    let DatabaseUrl::Postgres(url) = url else { panic!("it is PostgreSQL") };
    let mut config = crate::postgres::server();
    config.dbname(url.database().expect("a name"));
    let connected = config.connect(tokio_postgres::NoTls).await;
    let (client, connection) = connected.expect("the server answers");
    tokio::spawn(async move { drop(connection.await) });
    client.batch_execute(&format!("BEGIN; {sql}")).await.expect(sql);
    client
}

fn update(tx: &mut Tx<'_>) -> Result<(), Error> {
    tx.execute(UPDATE, params!["a"]).map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_waits_for_a_connection_no_longer_than_pool_timeout() {
    let options = Options { max_pool_size: 2, pool_timeout: SHORT, ..Options::default() };
    let Some((store, _url)) = store(&options).await else { return };
    let (held, holds) = std::sync::mpsc::channel();
    let (go, waits) = tokio::sync::watch::channel(false);
    let here = tokio::runtime::Handle::current();
    let holders: Vec<_> = (0..2)
        .map(|_| {
            let (store, held, waits) = (store.clone(), held.clone(), waits.clone());
            let here = here.clone();
            tokio::spawn(async move {
                let work = move |tx: &mut Tx<'_>| {
                    tx.row("SELECT 1 AS one", params![])?;
                    held.send(()).expect("the test waits");
                    let mut waits = waits.clone();
                    here.block_on(async { waits.wait_for(|go| *go).await.map(drop) })
                        .expect("the test continues");
                    Ok::<_, Error>(())
                };
                store.read(work).await
            })
        })
        .collect();
    for _ in &holders {
        holds.recv_timeout(Duration::from_secs(20)).expect("each holder has a connection");
    }
    let begun = Instant::now();
    let callers: Vec<_> = (0..20)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                match number % 2 {
                    0 => store.write(update).await,
                    _ => store.read(|tx| tx.row(UPDATE, params!["a"]).map(drop)).await,
                }
            })
        })
        .collect();
    for caller in callers {
        let refused = caller.await.expect("no panic").expect_err("no connection is free");
        assert_eq!(refused.severity(), Severity::Temporary, "{refused}");
        assert!(
            refused.to_string().contains("no connection became free within 300ms"),
            "{refused}"
        );
    }
    assert!(begun.elapsed() >= SHORT && begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    go.send_replace(true);
    for holder in holders {
        holder.await.expect("no panic").expect("it reads");
    }
    store.write(update).await.expect("a connection is free again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_waits_for_a_lock_no_longer_than_lock_timeout() {
    let options = Options { max_pool_size: 1, lock_timeout: SHORT, ..Options::default() };
    let Some((store, url)) = store(&options).await else { return };
    let holder = holding(&url, "UPDATE t SET n = 5 WHERE id = 'a'").await;
    for deferred in [false, true] {
        let begun = Instant::now();
        let refused = match deferred {
            false => store.write(update).await,
            true => store.write(|tx| tx.defer(UPDATE, params!["a"])).await,
        };
        let refused = refused.expect_err("the row is locked");
        assert!(matches!(refused, Error::TooSlow(_)), "{refused:?}");
        assert_eq!(refused.severity(), Severity::Temporary, "{refused}");
        assert!(begun.elapsed() >= SHORT && begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    }
    holder.batch_execute("ROLLBACK").await.expect("the lock is released");
    store.write(update).await.expect("the connection is usable");
    let row = store.read(|tx| tx.row("SELECT n FROM t", params![])).await.expect("it is readable");
    assert_eq!(
        row.expect("one row").int("n").expect("a number"),
        1,
        "the refused transactions changed nothing"
    );
}

/// Two transactions lock the same rows in opposite orders. The server would notice this deadlock only after an hour;
/// both transactions commit because they give up their locks first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_wait_for_each_other_give_up_their_locks() {
    let Some((first, url)) = store(&Options::default()).await else { return };
    let DatabaseUrl::Postgres(postgres) = &url else { panic!("it is PostgreSQL") };
    let name = postgres.database().expect("a name");
    let late = format!("ALTER DATABASE {name} SET deadlock_timeout = '1h'; COMMIT");
    holding(&url, &late).await;
    first.write(|tx| tx.defer(ADD, params!["b"])).await.expect("the row is added");
    // New sessions have the setting.
    let options = Options { lock_timeout: Duration::from_secs(60), ..Options::default() };
    let store = Store::open_with(&url, &options).await.expect("it opens");
    let both = std::sync::Arc::new(std::sync::Barrier::new(2));
    let writers = [["a", "b"], ["b", "a"]].map(|rows| {
        let (store, both) = (store.clone(), both.clone());
        let mut has_met = false;
        tokio::spawn(async move {
            let work = move |tx: &mut Tx<'_>| {
                tx.execute(UPDATE, params![rows[0]])?;
                if !std::mem::replace(&mut has_met, true) {
                    both.wait();
                }
                tx.execute(UPDATE, params![rows[1]]).map(drop)
            };
            store.write(work).await
        })
    });
    for writer in writers {
        writer.await.expect("no panic").expect("it commits");
    }
    let sum = "SELECT CAST(SUM(n) AS BIGINT) AS n FROM t";
    let row = store.read(move |tx| tx.row(sum, params![])).await.expect("it is readable");
    assert_eq!(row.expect("one row").int("n").expect("a number"), 4);
}

/// A migration of another controller has locked the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_and_the_first_use_of_a_statement_wait_for_a_migration() {
    let Some((store, url)) = store(&Options::default()).await else { return };
    let migration = holding(&url, "LOCK TABLE t IN ACCESS EXCLUSIVE MODE").await;
    let (one, other) = (store.clone(), store.clone());
    let read = tokio::spawn(async move {
        one.read(|tx| tx.row("SELECT n FROM t WHERE id = 'a'", params![])).await
    });
    let write = tokio::spawn(async move { other.write(update).await });
    tokio::time::sleep(SHORT).await;
    assert!(!read.is_finished() && !write.is_finished(), "they wait");
    migration.batch_execute("COMMIT").await.expect("the migration ends");
    assert!(read.await.expect("no panic").expect("it reads").is_some());
    write.await.expect("no panic").expect("it writes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_runs_no_longer_than_statement_timeout() {
    let options = Options { max_pool_size: 1, statement_timeout: SHORT, ..Options::default() };
    let Some((store, _url)) = store(&options).await else { return };
    let slow = "SELECT 1 AS one FROM pg_sleep(60)";
    let begun = Instant::now();
    let read = store.read(move |tx| tx.row(slow, params![])).await.expect_err("it is too slow");
    let write = store
        .write(move |tx| {
            update(tx)?;
            tx.row(slow, params![])
        })
        .await
        .expect_err("it is too slow");
    for refused in [read, write] {
        assert!(matches!(refused, Error::TooSlow(_)), "{refused:?}");
        assert_eq!(refused.severity(), Severity::Temporary, "{refused}");
    }
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    let row = store.read(|tx| tx.row("SELECT n FROM t", params![])).await.expect("it is usable");
    assert_eq!(row.expect("one row").int("n").expect("a number"), 0);
}

/// A second controller starts while the first one runs a long migration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_waits_for_another_one_for_as_long_as_it_takes() {
    let options = Options {
        lock_timeout: SHORT,
        statement_timeout: SHORT,
        answer_timeout: SHORT * 2,
        ..Options::default()
    };
    let Some((store, url)) = store(&options).await else { return };
    let lock = "LOCK TABLE schema_migrations IN SHARE ROW EXCLUSIVE MODE";
    let first = holding(&url, lock).await;
    let second = tokio::spawn({
        let store = store.clone();
        async move { store.migrate(&[TABLE, LATER]).await }
    });
    tokio::time::sleep(SHORT * 5).await;
    assert!(!second.is_finished(), "it waits");
    first.batch_execute("COMMIT").await.expect("the first ends");
    second.await.expect("no panic").expect("the second migration succeeds");
    assert_eq!(store.applied().await.expect("they are recorded"), ["t-1", "t-2"]);
    // The limits of the next transaction are the usual ones.
    let _holder = holding(&url, "UPDATE t SET n = 5 WHERE id = 'a'").await;
    let refused = store.write(update).await.expect_err("the row is locked");
    assert!(matches!(refused, Error::TooSlow(_)), "{refused:?}");
}
