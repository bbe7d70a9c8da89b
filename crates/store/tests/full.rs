//! A full disk, at every statement of a group of transactions: acknowledged transactions are
//! stored, failed ones are not, and no neighbour in the group is stored partially.

use std::sync::mpsc;
use std::time::Duration;

use kilonova_store::{DatabaseUrl, Error, Migration, Severity, Store, Tx, params};

const ROWS: Migration = Migration {
    name: "test-001-rows",
    sql: "CREATE TABLE parts (job BIGINT NOT NULL, part BIGINT NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (job, part));
        CREATE TABLE notes (id {serial}, job BIGINT NOT NULL, body TEXT NOT NULL);",
};
const PART: &str = "INSERT INTO parts (job, part, body) VALUES (?1, ?2, ?3)";
/// Several rows in one statement: SQLite keeps a journal for it, and rolls it back alone.
const PARTS: &str = "INSERT INTO parts (job, part, body)
    SELECT ?1, part + 100, ?2 FROM parts WHERE job = ?1";
const NOTE: &str = "INSERT INTO notes (job, body) VALUES (?1, ?2)";

/// Number of jobs in a group.
const JOBS: i64 = 12;
/// Number of parts of each job, before they are doubled.
const EACH: i64 = 3;

async fn pragma(store: &Store, sql: &'static str) -> i64 {
    let row = store.write(move |tx| tx.row(sql, &[])).await.expect(sql);
    row.expect("the pragma returns a row").int(0).expect("the value is a number")
}

/// A job of several statements. Every third ignores failures, and every fourth runs a part of its
/// work in a savepoint.
fn work(tx: &mut Tx<'_>, job: i64) -> Result<(), Error> {
    let body = "x".repeat(900);
    let careless = job % 3 == 0;
    for part in 0..EACH {
        let done = tx.execute(PART, params![job, part, &body]);
        if !careless {
            done?;
        }
    }
    if job % 4 == 0 {
        let tried = tx.attempt(|tx| tx.execute(PARTS, params![job, &body]));
        if tried.is_err() {
            tx.execute(NOTE, params![job, "no room for more"])?;
        }
    } else {
        tx.execute(PARTS, params![job, &body])?;
    }
    tx.execute(NOTE, params![job, &body])?;
    Ok(())
}

/// Runs all jobs as one group and returns their results.
async fn group(store: &Store) -> Vec<Result<(), Error>> {
    let (go, wait) = mpsc::channel::<()>();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let mut begun = Some(begun);
    let gate = {
        let store = store.clone();
        tokio::spawn(async move {
            let hold = move |_: &mut Tx<'_>| {
                let _ = begun.take().map(|begun| begun.send(()));
                let _ = wait.recv();
                Ok::<_, Error>(())
            };
            store.write(hold).await
        })
    };
    has_begun.await.expect("the gate transaction runs");
    let jobs: Vec<_> = (0..JOBS)
        .map(|job| {
            let store = store.clone();
            tokio::spawn(async move { store.write(move |tx| work(tx, job)).await })
        })
        .collect();
    // All of them are queued before the writer continues.
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    drop(go);
    drop(gate.await.expect("the gate does not panic"));
    let mut ended = Vec::new();
    for job in jobs {
        ended.push(job.await.expect("the job does not panic"));
    }
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_acknowledged_writes_exist() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let (mut full, mut shared, mut fine) = (0, 0, 0);
    for room in 0..45 {
        let url = DatabaseUrl::Sqlite(directory.path().join(format!("{room}.db")));
        let store = Store::open(&url).await.expect("the store opens");
        store.migrate(&[ROWS]).await.expect("the migration succeeds");
        let empty = pragma(&store, "PRAGMA page_count").await;
        let limit: &'static str = format!("PRAGMA max_page_count = {}", empty + room).leak();
        pragma(&store, limit).await;
        let ended = group(&store).await;
        for (job, outcome) in (0..).zip(&ended) {
            let (parts, notes) = rows_of(&store, job).await;
            let when =
                format!("{room} pages, job {job}, {outcome:?}: {parts} parts, {notes} notes");
            match outcome {
                Ok(()) => {
                    let is_whole = (parts, notes) == (2 * EACH, 1);
                    let is_without_more = job % 4 == 0 && (parts, notes) == (EACH, 2);
                    // A job that ignores failures has the parts that succeeded.
                    let is_careless = job % 3 == 0 && notes >= 1;
                    assert!(is_whole || is_without_more || is_careless, "{when}");
                    fine += 1;
                }
                Err(error) => {
                    assert_eq!((parts, notes), (0, 0), "{when}");
                    match error.severity() {
                        Severity::DiskFull => full += 1,
                        Severity::Temporary => shared += 1,
                        Severity::Permanent => panic!("{when}"),
                    }
                }
            }
        }
        // The limit is lifted, and the writer continues.
        pragma(&store, "PRAGMA max_page_count = 1000000").await;
        store.write(|tx| work(tx, JOBS)).await.expect("the write succeeds");
        assert_eq!(rows_of(&store, JOBS).await, (2 * EACH, 1));
    }
    assert!(full > 0 && shared > 0 && fine > 0, "{full} full, {shared} undone, {fine} fine");
}

async fn rows_of(store: &Store, job: i64) -> (i64, i64) {
    let count = move |tx: &mut Tx<'_>, sql: &str| {
        let row = tx.row(sql, params![job])?;
        row.expect("the count returns a row").int(0)
    };
    let read = store.read(move |tx| {
        let parts = count(tx, "SELECT COUNT(*) FROM parts WHERE job = ?1")?;
        Ok::<_, Error>((parts, count(tx, "SELECT COUNT(*) FROM notes WHERE job = ?1")?))
    });
    read.await.expect("the count succeeds")
}

/// Writes beyond the queue's limit are refused with an explanation, and every write is answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_a_temporary_error() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let url = DatabaseUrl::Sqlite(directory.path().join("queue.db"));
    let store = Store::open(&url).await.expect("the store opens");
    let (go, wait) = mpsc::channel::<()>();
    let (holding, held_now) = mpsc::channel::<()>();
    let hold = move |_: &mut Tx<'_>| {
        let _ = holding.send(());
        let _ = wait.recv();
        Ok::<_, Error>(())
    };
    let holder = store.clone();
    let held = tokio::spawn(async move { holder.write(hold).await });
    tokio::task::block_in_place(|| held_now.recv()).expect("the writer is blocked");
    let mut jobs = Vec::new();
    for _ in 0..5000 {
        let store = store.clone();
        jobs.push(tokio::spawn(async move { store.write(|_| Ok::<_, Error>(())).await }));
    }
    // While the writer is blocked, only refused writes end: those that do not fit into the queue.
    let refused = async {
        while jobs.iter().filter(|job| job.is_finished()).count() < 5000 - 4096 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), refused).await.expect("the queue is full");
    drop(go);
    held.await.expect("the blocking write does not panic").expect("the blocking write succeeds");
    let mut refused = 0;
    for job in jobs {
        if let Err(error) = job.await.expect("the job does not panic") {
            assert_eq!(error.severity(), Severity::Temporary, "{error}");
            refused += 1;
        }
    }
    assert_eq!(refused, 5000 - 4096);
}

/// Another process has locked the database: no write can begin, and every write is answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_cannot_begin_fails() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let path = directory.path().join("held.db");
    let store = Store::open(&DatabaseUrl::Sqlite(path.clone())).await.expect("the store opens");
    store.migrate(&[ROWS]).await.expect("the migration succeeds");
    store.write(|tx| tx.rows("PRAGMA busy_timeout = 50", &[])).await.expect("the timeout is set");
    let other = rusqlite::Connection::open(&path).expect("the file opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock is taken");
    let error = store.write(|tx| work(tx, 1)).await.expect_err("another process has the lock");
    assert_eq!(error.severity(), Severity::Temporary, "{error}");
    assert!(error.to_string().contains("locked"), "{error}");
    other.execute_batch("COMMIT").expect("the lock is released");
    drop(other);
    // The error is temporary: a client that retries succeeds.
    let served = async {
        while let Err(error) = store.write(|tx| work(tx, 1)).await {
            assert_eq!(error.severity(), Severity::Temporary, "{error}");
        }
    };
    tokio::time::timeout(Duration::from_secs(60), served).await.expect("the retry succeeds");
}
