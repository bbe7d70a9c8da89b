//! Attempts and failures of work that shares a transaction on SQLite: each is undone alone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;

use kilonova_store::{DatabaseUrl, Error, Migration, Store, System, Tx, params};

const TABLE: &[Migration] =
    &[Migration { name: "attempts", sql: "CREATE TABLE things (id TEXT PRIMARY KEY)" }];
const ADD: &str = "INSERT INTO things (id) VALUES (?1)";
const ALL: &str = "SELECT id FROM things ORDER BY id";

fn add(tx: &mut Tx<'_>, id: &str) -> Result<(), Error> {
    tx.execute(ADD, params![id]).map(drop)
}

fn refused() -> Error {
    Error::Other("refused".into())
}

async fn stored(store: &Store) -> String {
    let rows = store.read(|tx| tx.rows(ALL, params![])).await.expect("the table is readable");
    rows.iter().map(|row| row.string("id").expect("an id")).collect()
}

/// Adds a row before, in and after attempts, of which `fails` fails.
fn try_two(tx: &mut Tx<'_>, names: [&str; 4], hooks: &Arc<AtomicUsize>) -> Result<(), Error> {
    let hook = |tx: &mut Tx<'_>| {
        let hooks = Arc::clone(hooks);
        tx.on_commit(move || {
            hooks.fetch_add(1, Ordering::SeqCst);
        });
    };
    let [before, first, second, after] = names;
    add(tx, before)?;
    let tried = tx.attempt(|tx| {
        add(tx, first)?;
        hook(tx);
        Err::<(), Error>(refused())
    });
    if tried.is_err() {
        tx.attempt(|tx| {
            add(tx, second)?;
            hook(tx);
            Ok::<(), Error>(())
        })?;
    }
    add(tx, after)
}

#[tokio::test]
async fn work_goes_on_after_a_failed_attempt() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        let (runs, hooks) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, hooked) = (Arc::clone(&runs), Arc::clone(&hooks));
        let work = move |tx: &mut Tx<'_>| {
            counted.fetch_add(1, Ordering::SeqCst);
            try_two(tx, ["a", "b", "c", "d"], &hooked)
        };
        store.write(work).await.expect("the second attempt succeeds");
        assert_eq!(stored(&store).await, "acd", "{name}");
        assert_eq!(hooks.load(Ordering::SeqCst), 1, "{name}: the hook of the second attempt ran");
        // SQLite has no savepoint in the first run.
        let expected = if store.system() == System::Sqlite { 2 } else { 1 };
        assert_eq!(runs.load(Ordering::SeqCst), expected, "{name}");
    }
}

/// Counters of failures are not part of the transaction, so each failure must count in one run only.
#[tokio::test]
async fn a_failure_of_an_attempt_counts_once() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        let failures = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&failures);
        let work = move |tx: &mut Tx<'_>| {
            assert!(!tx.repeats_failures(), "no attempt is open");
            let tried = tx.attempt(|tx| {
                if !tx.repeats_failures() {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
                Err::<(), Error>(refused())
            });
            tried.or_else(|_| add(tx, "a"))
        };
        store.write(work).await.expect("the work goes on");
        let seen = (stored(&store).await, failures.load(Ordering::SeqCst));
        assert_eq!(seen, ("a".into(), 1), "{name}");
    }
}

#[tokio::test]
async fn an_attempt_that_succeeds_costs_one_run() {
    for (name, store, _guard) in kilonova_testkit::stores(&[TABLE]).await {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let work = move |tx: &mut Tx<'_>| {
            counted.fetch_add(1, Ordering::SeqCst);
            tx.attempt(|tx| tx.attempt(|tx| add(tx, "a")))
        };
        store.write(work).await.expect("it commits");
        assert_eq!((stored(&store).await, runs.load(Ordering::SeqCst)), ("a".into(), 1), "{name}");
    }
}

/// The ways in which work ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Succeeds,
    Fails,
    Panics,
    FailsInAttempt,
    GoesOnAfterAttempt,
}

fn end(tx: &mut Tx<'_>, way: Way, number: usize) -> Result<(), Error> {
    let name = |part: &str| format!("{number}{part} ");
    add(tx, &name("a"))?;
    match way {
        Way::Succeeds => tx.attempt(|tx| add(tx, &name("b"))),
        Way::Fails => Err(refused()),
        Way::Panics => panic!("work of a test panics"),
        Way::FailsInAttempt => tx.attempt(|tx| {
            add(tx, &name("b"))?;
            Err(refused())
        }),
        Way::GoesOnAfterAttempt => {
            let hooks = Arc::new(AtomicUsize::new(0));
            let names = [name("b"), name("c"), name("d"), name("e")];
            try_two(tx, names.each_ref().map(String::as_str), &hooks)
        }
    }
}

/// The rows that remain.
fn remains(way: Way, number: usize) -> String {
    let parts: &[&str] = match way {
        Way::Succeeds => &["a", "b"],
        Way::Fails | Way::Panics | Way::FailsInAttempt => &[],
        Way::GoesOnAfterAttempt => &["a", "b", "d", "e"],
    };
    parts.iter().map(|part| format!("{number}{part} ")).collect()
}

/// Every order of two ways, followed by work that succeeds. The three share a transaction with work before them that
/// succeeds; or that work fails, so that the first of the three begins its transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_of_one_group_is_undone_alone() {
    let ways =
        [Way::Succeeds, Way::Fails, Way::Panics, Way::FailsInAttempt, Way::GoesOnAfterAttempt];
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let orders = ways.into_iter().flat_map(|first| ways.map(|second| [first, second]));
    for [first, second] in orders {
        for gate_succeeds in [true, false] {
            let url = DatabaseUrl::Sqlite(
                directory.path().join(format!("{first:?}{second:?}{gate_succeeds}.db")),
            );
            let store = Store::open(&url).await.expect("the store opens");
            store.migrate(TABLE).await.expect("the migration succeeds");
            let (go, wait) = mpsc::channel::<()>();
            let (begun, has_begun) = tokio::sync::oneshot::channel();
            let mut begun = Some(begun);
            let gate = store.clone();
            let gate = tokio::spawn(async move {
                let hold = move |_: &mut Tx<'_>| {
                    let _ = begun.take().map(|begun| begun.send(()));
                    let _ = wait.recv();
                    if gate_succeeds { Ok(()) } else { Err(refused()) }
                };
                gate.write(hold).await
            });
            has_begun.await.expect("the first transaction runs");
            let order = [first, second, Way::Succeeds];
            let mut works = Vec::new();
            for (number, way) in order.into_iter().enumerate() {
                works.push(Box::pin(store.write(move |tx| end(tx, way, number))));
            }
            // The first poll queues the work.
            std::future::poll_fn(|context| {
                works.iter_mut().for_each(|work| assert!(work.as_mut().poll(context).is_pending()));
                Poll::Ready(())
            })
            .await;
            drop(go);
            let gate = gate.await.expect("it does not panic");
            assert_eq!(gate.is_ok(), gate_succeeds);
            let mut expected = String::new();
            for ((number, way), work) in order.into_iter().enumerate().zip(works) {
                let succeeds = matches!(way, Way::Succeeds | Way::GoesOnAfterAttempt);
                assert_eq!(work.await.is_ok(), succeeds, "{order:?}: {number}");
                expected += &remains(way, number);
            }
            assert_eq!(stored(&store).await, expected, "{order:?}");
        }
    }
}
