//! Leases on both stores.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use std::time::{Duration, Instant};

use kilonova_flow::{Lease, MIGRATIONS, lease};
use kilonova_store::{Error, Store, Tx};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);
/// The time limit for taking over an expired lease.
const SOON: Duration = Duration::from_secs(20);

async fn fenced(store: &Store, lease: &Lease) -> Result<(), Error> {
    let lease = lease.clone();
    store.write(move |tx| lease.fence(tx)).await
}

async fn take(store: &Store, lease: &Lease) {
    let begun = Instant::now();
    while !lease.renew(store).await.expect("the query succeeds") {
        assert!(begun.elapsed() < SOON, "the lease never expires");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn one_controller_holds_a_lease_until_it_gives_it_back() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[MIGRATIONS]).await else {
        return kilonova_testkit::skip("several controllers need PostgreSQL");
    };
    assert_eq!(store.refused(lease::POSTGRES_STATEMENTS).await, Vec::<String>::new());
    let (one, two) = (Lease::new("loops", "one", LONG), Lease::new("loops", "two", LONG));
    let other = Lease::new("others", "two", LONG);
    assert!(!one.is_held());
    for _ in 0..2 {
        assert!(one.renew(&store).await.expect("the lease is taken"));
        assert!(!two.renew(&store).await.expect("the query succeeds"));
    }
    assert!(other.renew(&store).await.expect("another lease is free"));
    assert!(one.is_held() && !two.is_held());
    fenced(&store, &one).await.expect("the holder may work");
    fenced(&store, &two).await.expect_err("no other process may work");
    one.release(&store).await.expect("the lease is released");
    fenced(&store, &one).await.expect_err("the lease is released");
    assert!(two.renew(&store).await.expect("the lease is free"));
    assert!(!one.renew(&store).await.expect("the query succeeds"));
    fenced(&store, &two).await.expect("the new holder may work");
}

/// A promoted standby may lack a takeover; the next one then gets the same epoch.
#[tokio::test]
async fn a_holder_whose_takeover_the_database_lost_is_fenced() {
    for (database, store, _guard) in kilonova_testkit::stores(&[MIGRATIONS]).await {
        let lost = Lease::new("loops", "one", LONG);
        take(&store, &lost).await;
        fenced(&store, &lost).await.expect("the holder may work");
        let change = |tx: &mut Tx<'_>| tx.execute("UPDATE leases SET holder = 'two'", &[]);
        store.write(change).await.expect("the row is changed");
        assert!(lost.is_held(), "{database}: it does not know yet");
        fenced(&store, &lost).await.expect_err("the other holder may work");
        lost.release(&store).await.expect("the statement succeeds");
        let other = Lease::new("loops", "two", LONG);
        assert!(other.renew(&store).await.expect("the query succeeds"));
        fenced(&store, &other).await.expect("its lease was not released");
    }
}

#[tokio::test]
async fn a_holder_that_was_stopped_is_fenced() {
    for (database, store, _guard) in kilonova_testkit::stores(&[MIGRATIONS]).await {
        assert_eq!(store.refused(lease::STATEMENTS).await, Vec::<String>::new(), "{database}");
        let stopped = Lease::new("loops", "one", Duration::from_millis(1));
        take(&store, &stopped).await;
        // Before a takeover, the holder's work passes the fence.
        fenced(&store, &stopped).await.expect("the holder may work");
        let next = Lease::new("loops", "two", LONG);
        take(&store, &next).await;
        let error =
            fenced(&store, &stopped).await.expect_err("the work of the old holder is refused");
        assert!(error.to_string().contains("another controller holds the lease loops"), "{error}");
        let guarded = store.guarded({
            let stopped = stopped.clone();
            move |tx| stopped.fence(tx)
        });
        let work = guarded.write(|tx| tx.execute("DELETE FROM operations", &[]));
        work.await.expect_err("a guarded handle refuses the work");
        if database == "postgresql" {
            assert!(!stopped.renew(&store).await.expect("the query succeeds"));
            assert!(!stopped.is_held());
        }
    }
}

/// Work that has passed the fence ends before a takeover.
#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_waits_for_fenced_work() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[MIGRATIONS]).await else {
        return kilonova_testkit::skip("several controllers need PostgreSQL");
    };
    let stopped = Lease::new("loops", "one", Duration::from_millis(1));
    take(&store, &stopped).await;
    let (inside, entered) = std::sync::mpsc::channel();
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let lease = stopped.clone();
    let work = tokio::spawn({
        let store = store.clone();
        async move {
            store
                .write(move |tx| {
                    lease.fence(tx)?;
                    inside.send(()).expect("the test waits");
                    finished.recv().expect("the test lets it finish");
                    Ok::<_, Error>(())
                })
                .await
        }
    });
    tokio::task::spawn_blocking(move || entered.recv()).await.unwrap().expect("the work begins");
    let next = Lease::new("loops", "two", LONG);
    let taking = tokio::spawn({
        let (store, next) = (store.clone(), next.clone());
        async move { take(&store, &next).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!next.is_held(), "the work locks the lease until its commit");
    finish.send(()).expect("the work waits");
    work.await.unwrap().expect("the work is committed");
    taking.await.unwrap();
    assert!(next.is_held());
}
