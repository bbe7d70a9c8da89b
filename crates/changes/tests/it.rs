//! The log on both databases, and its follower.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use kilonova_changes::{
    Applied, Behind, Entry, Followed, Follower, MIGRATIONS, POSTGRES_STATEMENTS, STATEMENTS,
    Subscriber, Topic, append, append_tree, prune,
};
use kilonova_store::{Error, Store, params};

const ROOT: &str = "11111111-1111-4111-8111-111111111111";

/// Records the entries, and fails on request.
#[derive(Default)]
struct Recorder {
    got: Mutex<Vec<Entry>>,
    fails: AtomicBool,
    reloads: AtomicUsize,
    complete_reloads: AtomicUsize,
}

impl Recorder {
    fn take(&self) -> Vec<(Topic, String, i64)> {
        let got = std::mem::take(&mut *self.got.lock().expect("no panic"));
        got.into_iter().map(|entry| (entry.topic, entry.subject, entry.number)).collect()
    }
}

impl Subscriber for Recorder {
    fn apply<'a>(&'a self, entries: &'a [Entry]) -> Applied<'a> {
        Box::pin(async move {
            if self.fails.load(Ordering::SeqCst) {
                return Err("not now".into());
            }
            self.got.lock().expect("no panic").extend_from_slice(entries);
            Ok(())
        })
    }

    fn reload(&self) -> Applied<'_> {
        self.reloads.fetch_add(1, Ordering::SeqCst);
        let fails = self.fails.load(Ordering::SeqCst);
        Box::pin(std::future::ready(if fails { Err("not now".into()) } else { Ok(()) }))
    }

    fn reloaded(&self) {
        self.complete_reloads.fetch_add(1, Ordering::SeqCst);
    }
}

async fn follower(store: &Store) -> (Follower, Arc<Recorder>) {
    let mut follower = Follower::open(store).await.expect("the log is read");
    let recorder = Arc::new(Recorder::default());
    follower.subscribe(Arc::clone(&recorder) as _);
    (follower, recorder)
}

async fn tree(store: &Store) {
    let write = store.write(|tx| append_tree(tx, ROOT, Timestamp::now()));
    write.await.expect("the entry is appended");
}

async fn document(store: &Store, host: &'static str, generation: i64) {
    let write = store.write(move |tx| append(tx, Topic::Documents, host, generation));
    write.await.expect("the entry is appended");
}

async fn execute(store: &Store, sql: &str) {
    let sql = sql.to_owned();
    let write = store.write(move |tx| tx.execute(&sql, params![]).map(drop));
    write.await.expect("the statement succeeds");
}

#[tokio::test]
async fn every_statement_is_accepted() {
    for (name, store, _guard) in kilonova_testkit::stores(&[]).await {
        assert_eq!(store.refused(STATEMENTS).await, Vec::<String>::new(), "{name}");
        if name == "postgresql" {
            assert_eq!(store.refused(POSTGRES_STATEMENTS).await, Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn a_subscriber_gets_each_entry_until_it_has_applied_it() {
    for (name, store, _guard) in kilonova_testkit::stores(&[]).await {
        tree(&store).await;
        let (mut follower, recorder) = follower(&store).await;
        follower.poll().await.expect("the poll succeeds");
        assert!(recorder.take().is_empty(), "{name}: earlier entries are loaded, not followed");
        tree(&store).await;
        recorder.fails.store(true, Ordering::SeqCst);
        follower.poll().await.expect_err("the subscriber fails");
        recorder.fails.store(false, Ordering::SeqCst);
        for expected in [vec![(Topic::Tree, ROOT.to_owned(), 0)], Vec::new()] {
            follower.poll().await.expect("the poll succeeds");
            assert_eq!(recorder.take(), expected, "{name}");
        }
        assert_eq!(follower.progress().applied(), 1);
    }
}

#[tokio::test]
async fn a_follower_that_missed_entries_reloads_once() {
    for (name, store, _guard) in kilonova_testkit::stores(&[]).await {
        let (mut follower, recorder) = follower(&store).await;
        tree(&store).await;
        while prune(&store, Timestamp::MAX).await.expect("old entries are deleted") {}
        tree(&store).await;
        recorder.fails.store(true, Ordering::SeqCst);
        follower.poll().await.expect_err("the subscriber fails");
        assert_eq!(recorder.complete_reloads.load(Ordering::SeqCst), 0, "{name}");
        recorder.fails.store(false, Ordering::SeqCst);
        assert_eq!(
            follower.poll().await.expect("the poll succeeds"),
            Followed::Everything(Behind::Deleted)
        );
        follower.poll().await.expect("the poll succeeds");
        assert_eq!(recorder.reloads.load(Ordering::SeqCst), 2, "{name}");
        assert_eq!(recorder.complete_reloads.load(Ordering::SeqCst), 1, "{name}");
    }
}

/// A newer controller appends topics that this one does not know; an older one interprets every
/// entry as one of a tree.
#[tokio::test]
async fn controllers_of_other_builds_append_and_read() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[]).await else { return };
    let (mut follower, recorder) = follower(&store).await;
    let future = "INSERT INTO change_log (root_id, topic, transaction_id, at) VALUES ('', 'future',
        CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT), 0)";
    execute(&store, future).await;
    document(&store, "h1", 7).await;
    let old = format!(
        "INSERT INTO change_log (root_id, transaction_id, at) VALUES ('{ROOT}',
        CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT), 0)"
    );
    execute(&store, &old).await;
    follower.poll().await.expect("the poll succeeds");
    let expected = [(Topic::Documents, "h1".to_owned(), 7), (Topic::Tree, ROOT.to_owned(), 0)];
    assert_eq!(recorder.take(), expected);
    let roots = "SELECT root_id FROM change_log WHERE topic = 'documents'";
    let read = store.read(move |tx| tx.row(roots, params![])?.expect("a row").string(0));
    let root = read.await.expect("the query succeeds");
    assert!(root.parse::<uuid::Uuid>().expect("an older build reads it").is_nil());
}

/// An entry of a transaction that began before others and commits after them is not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_late_commit_is_followed() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[]).await else { return };
    let (mut follower, recorder) = follower(&store).await;
    let (open, close) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let slow = {
        let (store, open, close) = (store.clone(), Arc::clone(&open), Arc::clone(&close));
        tokio::spawn(async move {
            store
                .write(move |tx| {
                    append(tx, Topic::Host, "slow", 0)?;
                    tx.row("SELECT 1", params![])?;
                    open.store(true, Ordering::SeqCst);
                    while !close.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                    Ok::<_, Error>(())
                })
                .await
        })
    };
    while !open.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    document(&store, "quick", 1).await;
    follower.poll().await.expect("the poll succeeds");
    assert_eq!(recorder.take(), [(Topic::Documents, "quick".to_owned(), 1)]);
    close.store(true, Ordering::SeqCst);
    slow.await.expect("no panic").expect("it commits");
    follower.poll().await.expect("the poll succeeds");
    assert_eq!(recorder.take(), [(Topic::Host, "slow".to_owned(), 0)]);
}

/// A failing subscriber does not keep entries from the others.
#[tokio::test]
async fn every_subscriber_gets_the_entries() {
    for (name, store, _guard) in kilonova_testkit::stores(&[]).await {
        let (mut follower, first) = follower(&store).await;
        let second = Arc::new(Recorder::default());
        follower.subscribe(Arc::clone(&second) as _);
        first.fails.store(true, Ordering::SeqCst);
        tree(&store).await;
        let error = follower.poll().await.expect_err("the first one fails");
        assert_eq!(error.to_string(), "not now");
        assert_eq!(second.take().len(), 1, "{name}");
        first.fails.store(false, Ordering::SeqCst);
        follower.poll().await.expect("the poll succeeds");
        assert_eq!((first.take().len(), second.take().len()), (1, 1), "{name}");
    }
}

/// Deletes every entry that is older than a second after 1970.
async fn prune_oldest(store: &Store) {
    let old = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(1);
    while prune(store, old).await.expect("old entries are deleted") {}
}

/// While a transaction is held open, a poll reads each new entry once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_held_transaction_costs_nothing() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[]).await else { return };
    let (mut follower, recorder) = follower(&store).await;
    let (open, close) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let held = {
        let (store, open, close) = (store.clone(), Arc::clone(&open), Arc::clone(&close));
        tokio::spawn(async move {
            store
                .write(move |tx| {
                    append(tx, Topic::Host, "held", 0)?;
                    tx.row("SELECT 1", params![])?;
                    open.store(true, Ordering::SeqCst);
                    while !close.load(Ordering::SeqCst) {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    Ok::<_, Error>(())
                })
                .await
        })
    };
    while !open.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    // Together the inserts exceed the maximum of one poll.
    for _ in 0..3 {
        let many = "INSERT INTO change_log (root_id, topic, subject, number, transaction_id, at)
            SELECT '', 'documents', 'h', n, CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT), 0
            FROM generate_series(1, 20000) n";
        execute(&store, many).await;
        let Followed::Entries(entries) = follower.poll().await.expect("the poll succeeds") else {
            panic!("only new entries count towards the maximum");
        };
        assert_eq!(entries.len(), 20_000);
    }
    recorder.take();
    close.store(true, Ordering::SeqCst);
    held.await.expect("no panic").expect("it commits");
    follower.poll().await.expect("the poll succeeds");
    assert_eq!(recorder.take(), [(Topic::Host, "held".to_owned(), 0)]);
    assert_eq!(recorder.reloads.load(Ordering::SeqCst), 0);
}

/// A dump of another server, whose transactions had greater ids, was restored into this one.
#[tokio::test]
async fn positions_of_another_server_are_replaced() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[]).await else { return };
    let foreign = "INSERT INTO change_log (root_id, topic, subject, transaction_id, at)
        VALUES ('', 'host', 'foreign', 9000000000000000, 0)";
    execute(&store, foreign).await;
    execute(&store, "UPDATE change_log_start SET position = 8000000000000000").await;
    let (mut follower, recorder) = follower(&store).await;
    for generation in 1..3 {
        document(&store, "h", generation).await;
        follower.poll().await.expect("the poll succeeds");
        assert_eq!(recorder.take(), [(Topic::Documents, "h".to_owned(), generation)]);
    }
    prune_oldest(&store).await;
    document(&store, "h", 3).await;
    assert!(matches!(follower.poll().await.expect("it succeeds"), Followed::Entries(_)));
    assert_eq!(recorder.take(), [(Topic::Documents, "h".to_owned(), 3)]);
    let start = "SELECT position FROM change_log_start";
    let read = store.read(move |tx| tx.row(start, params![])?.expect("a row").int(0));
    assert!(read.await.expect("the query succeeds") < 8_000_000_000_000_000);
}

/// Restored tables count as another log, and so do those of a restarted server: memory may be ahead
/// of them.
#[tokio::test]
async fn a_restored_log_is_loaded_once() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[]).await else { return };
    let (mut follower, recorder) = follower(&store).await;
    follower.poll().await.expect("the poll succeeds");
    execute(&store, "ALTER TABLE change_log_start RENAME TO earlier").await;
    execute(&store, "CREATE TABLE change_log_start AS SELECT * FROM earlier").await;
    let expected = Followed::Everything(Behind::Server);
    assert_eq!(follower.poll().await.expect("the poll succeeds"), expected);
    document(&store, "h", 1).await;
    follower.poll().await.expect("the poll succeeds");
    assert_eq!(recorder.take(), [(Topic::Documents, "h".to_owned(), 1)]);
    assert_eq!(recorder.reloads.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_poll_waits_for_postgresql_once() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[]).await else { return };
    let meter = kilonova_store::testing::Meter::counting();
    let metered = store.with_meter(meter.clone());
    let (mut follower, _) = follower(&metered).await;
    meter.take_round_trips();
    for _ in 0..3 {
        document(&store, "h", 1).await;
        follower.poll().await.expect("the poll succeeds");
        assert_eq!(meter.take_round_trips(), 1);
    }
}

/// The tables of the last build without topics, with one entry.
#[tokio::test]
async fn the_log_of_an_earlier_build_is_taken_over() {
    for (name, store, _guard) in kilonova_testkit::stores(&[]).await {
        let serial = match name {
            "postgresql" => "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
            _ => "INTEGER PRIMARY KEY AUTOINCREMENT",
        };
        for sql in [
            "DROP TABLE change_log",
            "DROP TABLE change_log_start",
            "DELETE FROM schema_migrations",
            &format!(
                "CREATE TABLE change_log (seq {serial}, root_id TEXT NOT NULL,
                transaction_id BIGINT NOT NULL, at BIGINT NOT NULL)"
            ),
            "CREATE INDEX change_log_transaction ON change_log (transaction_id)
                WHERE transaction_id > 0",
            "CREATE TABLE change_log_start (position BIGINT NOT NULL)",
            "INSERT INTO change_log_start (position) VALUES (5)",
            &format!(
                "INSERT INTO change_log (root_id, transaction_id, at) VALUES ('{ROOT}', 1, 1)"
            ),
        ] {
            execute(&store, sql).await;
        }
        store.migrate(MIGRATIONS).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let sql = "SELECT l.topic, s.position FROM change_log l, change_log_start s";
        let rows = store.read(move |tx| {
            let rows = tx.rows(sql, params![])?;
            rows.iter()
                .map(|row| Ok((row.string(0)?, row.int(1)?)))
                .collect::<Result<Vec<_>, Error>>()
        });
        let rows = rows.await.expect("the query succeeds");
        assert_eq!(rows, [("tree".to_owned(), 5)], "{name}");
    }
}
