//! Work that shares a transaction and its commit, and is isolated from the other work of its group.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::time::Duration;

use kilonova_store::testing::Meter;
use kilonova_store::{DatabaseUrl, Error, Migration, Options, Severity, Store, Tx, params};

/// The rows that transactions write together.
pub(crate) const COUNTERS: Migration = Migration {
    name: "group-1",
    sql: "CREATE TABLE c (id TEXT PRIMARY KEY, n BIGINT NOT NULL);
        INSERT INTO c (id, n) VALUES ('a', 0);
        INSERT INTO c (id, n) VALUES ('b', 0);",
};
const TABLE: Migration = Migration {
    name: "group-2",
    sql: "CREATE TABLE t (n BIGINT NOT NULL, CONSTRAINT t_n UNIQUE (n));",
};

const COUNT: &str = "UPDATE c SET n = n + 1 WHERE id = ?1";
const INSERT: &str = "INSERT INTO t (n) VALUES (?1)";
const TRANSACTION: &str = "SELECT CAST(pg_current_xact_id() AS TEXT) AS number";

pub(crate) type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// Work on the row `a`.
pub(crate) fn together<T: Send + 'static>(
    store: &Store,
    work: impl FnMut(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
) -> Answer<T> {
    let store = store.clone();
    Box::pin(async move { store.write_together("a", "", ["a"], work).await })
}

/// A transaction on the row `a` that does not end before [`Held::end`].
pub(crate) struct Held {
    end: mpsc::Sender<()>,
    ended: tokio::task::JoinHandle<Result<(), Error>>,
}

impl Held {
    pub(crate) async fn begin(store: &Store) -> Self {
        let (end, ends) = mpsc::channel();
        let (begun, begins) = tokio::sync::oneshot::channel();
        let mut begun = Some(begun);
        let work = together(store, move |tx| {
            tx.execute(COUNT, params!["a"])?;
            if let Some(begun) = begun.take() {
                begun.send(()).expect("the test waits");
                ends.recv().expect("the test ends the transaction");
            }
            Ok(())
        });
        let ended = tokio::spawn(work);
        begins.await.expect("the transaction begins");
        Self { end, ended }
    }

    pub(crate) async fn end(self) {
        self.end.send(()).expect("the transaction waits");
        self.ended.await.expect("it does not panic").expect("it commits");
    }
}

/// Makes all of them wait for the held transaction.
pub(crate) async fn wait<T>(answers: &mut [Answer<T>]) {
    std::future::poll_fn(|context| {
        for answer in &mut *answers {
            assert!(answer.as_mut().poll(context).is_pending(), "the row is held");
        }
        Poll::Ready(())
    })
    .await;
}

async fn number(store: &Store, sql: &'static str) -> i64 {
    let row = store.read(move |tx| tx.row(sql, params![])).await.expect("it is readable");
    row.expect("there is a row").int("number").expect("a number")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Well,
    /// It returns an error of its own after it has written.
    Refuses,
    /// A statement fails while its work waits for it.
    Violates,
    /// A statement fails after the work has ended.
    ViolatesLater,
    Panics,
}

/// Every kind of failure among work that succeeds: no work gets the error of other work, and only
/// the work that succeeded has effects and runs its hooks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fails_alone() {
    use Kind::{Panics, Refuses, Violates, ViolatesLater, Well};
    for (name, store, _guard) in kilonova_testkit::stores(&[&[COUNTERS, TABLE]]).await {
        store.write(|tx| tx.defer(INSERT, params![-1])).await.expect("a row to collide with");
        let (mut counted, mut inserted) = (0, 1);
        for kinds in [
            &[Well, Well, Well][..],
            &[Refuses, Well, Refuses, Well],
            &[Refuses, Refuses],
            &[Well, Violates, Well],
            &[Well, ViolatesLater, Well, Refuses],
            &[Panics, Well, Panics, Well],
            &[Well; 40],
        ] {
            let held = Held::begin(&store).await;
            counted += 1;
            let hooks: Arc<Mutex<Vec<usize>>> = Arc::default();
            let works = kinds.iter().copied().enumerate().map(|(place, kind)| {
                let hooks = Arc::clone(&hooks);
                let n = inserted + place as i64;
                together(&store, move |tx| {
                    tx.defer(INSERT, params![n])?;
                    let hooks = Arc::clone(&hooks);
                    tx.on_commit(move || hooks.lock().expect("not poisoned").push(place));
                    match kind {
                        Well => tx.execute(COUNT, params!["a"]).map(drop),
                        Refuses => {
                            tx.execute(COUNT, params!["a"])?;
                            Err(Error::Shape("refused".into()))
                        }
                        Violates => tx.execute(INSERT, params![-1]).map(drop),
                        ViolatesLater => tx.defer(INSERT, params![-1]),
                        Panics => panic!("on purpose"),
                    }
                })
            });
            let mut works: Vec<_> = works.collect();
            wait(&mut works).await;
            held.end().await;
            let mut succeeded = Vec::new();
            for (place, (kind, work)) in kinds.iter().zip(works).enumerate() {
                let answer = work.await;
                let what = format!("{name}, {kinds:?}, {place}: {answer:?}");
                match (kind, answer) {
                    (Well, Ok(())) => succeeded.push(place),
                    (Refuses, Err(Error::Shape(text))) => assert_eq!(text, "refused", "{what}"),
                    (Violates | ViolatesLater, Err(Error::Unique(_))) => {}
                    (Panics, Err(Error::Other(text))) => {
                        assert!(text.contains("rolled back"), "{what}");
                    }
                    _ => panic!("{what}"),
                }
            }
            counted += succeeded.len() as i64;
            let mut hooks = std::mem::take(&mut *hooks.lock().expect("not poisoned"));
            hooks.sort_unstable();
            assert_eq!(hooks, succeeded, "{name}, {kinds:?}");
            let total = number(&store, "SELECT n AS number FROM c WHERE id = 'a'").await;
            assert_eq!(total, counted, "{name}, {kinds:?}");
            for place in succeeded {
                let n = inserted + place as i64;
                let row = store.read(move |tx| tx.row("SELECT n FROM t WHERE n = ?1", params![n]));
                assert!(row.await.expect("it is readable").is_some(), "{name}, {kinds:?}: {n}");
            }
            inserted += kinds.len() as i64;
        }
        let rows = number(&store, "SELECT COUNT(*) AS number FROM t").await;
        assert_eq!(rows, 1 + 3 + 2 + 2 + 2 + 2 + 40, "{name}");
    }
}

/// Work that is refused because of an earlier write of its group is answered when others can read that write. Otherwise,
/// callers that repeat such work would keep the group's transaction open until they give up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_returned_after_the_commit() {
    for (name, store, _guard) in kilonova_testkit::stores(&[&[COUNTERS]]).await {
        let held = Held::begin(&store).await;
        let counts = together(&store, |tx| tx.execute(COUNT, params!["a"]).map(|_| true));
        let refused = together(&store, |_| Err(Error::Shape("it was counted".into())));
        let (tell, told) = mpsc::channel();
        let last =
            together(&store, move |_| Ok(told.recv_timeout(Duration::from_millis(300)).is_err()));
        let mut works = [counts, refused, last];
        wait(&mut works).await;
        let [counts, refused, last] = works;
        let (held, last) = (tokio::spawn(held.end()), tokio::spawn(last));
        refused.await.expect_err("it is refused");
        // The transaction has ended, so nothing receives this.
        let _ = tell.send(());
        held.await.expect("it commits");
        let is_late = last.await.expect("it does not panic").expect("it commits");
        assert!(is_late, "{name}: the refusal was returned before the commit");
        assert!(counts.await.expect("it commits"), "{name}");
        assert_eq!(number(&store, "SELECT n AS number FROM c WHERE id = 'a'").await, 2, "{name}");
    }
}

/// Waiting work runs in the next transaction, in the order of its arrival, and work that arrives alone does not wait
/// for other work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_waits_shares_a_transaction() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[&[COUNTERS, TABLE]]).await
    else {
        return;
    };
    let meter = Meter::counting();
    let store = store.with_meter(meter.clone());
    let order: Arc<Mutex<Vec<usize>>> = Arc::default();
    let work = |place: usize| {
        let order = Arc::clone(&order);
        together(&store, move |tx| {
            let number = tx.row(TRANSACTION, params![])?.expect("a row").string("number")?;
            tx.defer(COUNT, params!["a"])?;
            let order = Arc::clone(&order);
            tx.on_commit(move || order.lock().expect("not poisoned").push(place));
            Ok(number)
        })
    };
    let held = Held::begin(&store).await;
    let mut works: Vec<_> = (0..20).map(work).collect();
    wait(&mut works).await;
    meter.take_round_trips();
    held.end().await;
    // The query and the commit of the held transaction.
    let held_trips = 2;
    let mut numbers = Vec::new();
    for work in works {
        numbers.push(work.await.expect("it succeeds"));
    }
    assert_eq!(*order.lock().expect("not poisoned"), (0..20).collect::<Vec<_>>());
    numbers.dedup();
    assert_eq!(numbers.len(), 2, "16 and 4 share a transaction: {numbers:?}");
    // Each job has one query, and each transaction one commit.
    assert!(meter.take_round_trips() <= held_trips + 20 + 2);
    work(20).await.expect("it succeeds");
    assert_eq!(meter.take_round_trips(), 2, "a query and a commit, as for any transaction");
}

/// A conflict with another writer runs the whole group again, and counts nothing twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_repeats_all() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[&[COUNTERS, TABLE]]).await
    else {
        return;
    };
    let runs = Arc::new(AtomicUsize::new(0));
    let here = tokio::runtime::Handle::current();
    let held = Held::begin(&store).await;
    let mut works: Vec<_> = (0..3)
        .map(|place| {
            let (runs, other, here) = (Arc::clone(&runs), store.clone(), here.clone());
            together(&store, move |tx| {
                tx.execute(COUNT, params!["a"])?;
                if place == 1 && runs.fetch_add(1, Ordering::Relaxed) == 0 {
                    let conflict = other.write(|tx| tx.defer(COUNT, params!["b"]));
                    here.block_on(conflict).expect("the row is free");
                }
                if place > 0 {
                    tx.execute(COUNT, params!["b"])?;
                }
                Ok(())
            })
        })
        .collect();
    wait(&mut works).await;
    held.end().await;
    for work in works {
        work.await.expect("it runs again");
    }
    assert!(runs.load(Ordering::Relaxed) > 1, "there was a conflict");
    assert_eq!(number(&store, "SELECT n AS number FROM c WHERE id = 'a'").await, 4);
    assert_eq!(number(&store, "SELECT n AS number FROM c WHERE id = 'b'").await, 3);
}

/// Another transaction has locked one row that a group needs, and requests a row that the group has locked. It gets
/// that row: the group gives up its rows, and its work runs in separate transactions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_does_not_hold_the_rows_of_some_while_it_waits_for_others() {
    let Some(DatabaseUrl::Postgres(made)) = kilonova_testkit::fresh_postgres().await else {
        return kilonova_testkit::skip("the test needs PostgreSQL");
    };
    let mut config = crate::postgres::server();
    config.dbname(made.database().expect("a name"));
    let store = Store::open(&DatabaseUrl::Postgres(made)).await.expect("it opens");
    store.migrate(&[COUNTERS]).await.expect("the migration succeeds");
    let (other, connection) = config.connect(tokio_postgres::NoTls).await.expect("it connects");
    tokio::spawn(async move { drop(connection.await) });
    let held = Held::begin(&store).await;
    // The other transaction must not be ended as the victim of a deadlock.
    let begin = "SET deadlock_timeout = '1h'; BEGIN; UPDATE c SET n = n + 1 WHERE id = 'b'";
    other.batch_execute(begin).await.expect("the row b is free");
    let (waits, mut waited) = tokio::sync::mpsc::unbounded_channel();
    let mut works = vec![
        together(&store, |tx| tx.execute(COUNT, params!["a"])),
        together(&store, move |tx| {
            waits.send(()).expect("the test listens");
            tx.attempt(|tx| tx.execute(COUNT, params!["b"]))
        }),
    ];
    wait(&mut works).await;
    held.end().await;
    waited.recv().await.expect("the group runs");
    let both = "UPDATE c SET n = n + 1 WHERE id = 'a'; COMMIT";
    other.batch_execute(both).await.expect("the group gives up its rows");
    for work in works {
        assert_eq!(work.await.expect("it runs"), 1);
    }
    assert_eq!(number(&store, "SELECT n AS number FROM c WHERE id = 'a'").await, 3);
    assert_eq!(number(&store, "SELECT n AS number FROM c WHERE id = 'b'").await, 2);
}

/// Work that has not begun ends when its caller stops waiting, and when the wait times out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_without_a_waiting_caller_does_not_run() {
    let Some(url) = kilonova_testkit::fresh_postgres().await else {
        return kilonova_testkit::skip("the test needs PostgreSQL");
    };
    let options = Options { pool_timeout: Duration::from_millis(300), ..Options::default() };
    let store = Store::open_with(&url, &options).await.expect("it opens");
    store.migrate(&[COUNTERS]).await.expect("the migration succeeds");
    let held = Held::begin(&store).await;
    let runs = Arc::new(AtomicUsize::new(0));
    let work = || {
        let runs = Arc::clone(&runs);
        together(&store, move |tx| {
            runs.fetch_add(1, Ordering::Relaxed);
            tx.execute(COUNT, params!["a"])
        })
    };
    let mut works = vec![work(), work()];
    wait(&mut works).await;
    drop(works.pop());
    let late = works.pop().expect("it waits").await.expect_err("its wait has timed out");
    assert_eq!(late.severity(), Severity::Temporary, "{late}");
    assert!(late.to_string().contains("no connection became free within"), "{late}");
    held.end().await;
    assert_eq!(work().await.expect("the row is free"), 1);
    assert_eq!(runs.load(Ordering::Relaxed), 1, "only the last one runs");
}
