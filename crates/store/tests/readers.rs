//! A reader of SQLite that cannot be opened: for a while, as far as anybody can tell.

use kilonova_store::{DatabaseUrl, Error, Migration, Store, Trouble, params};

const TABLE: &[Migration] = &[Migration { name: "t-1", sql: "CREATE TABLE t (n BIGINT);" }];

#[tokio::test]
async fn a_reader_that_cannot_be_opened_is_trouble_that_passes() {
    let folder = tempfile::tempdir().expect("a folder");
    let (here, away) = (folder.path().join("here"), folder.path().join("away"));
    std::fs::create_dir(&here).expect("a folder");
    let url = DatabaseUrl::Sqlite(here.join("kilonova.db"));
    let store = Store::open(&url).await.expect("opens");
    store.migrate(TABLE).await.expect("migrates");
    // Each of these takes a reader while the first still has the one that is open.
    let count = |store: Store| async move {
        store.read(|tx| Ok::<_, Error>(tx.rows("SELECT n FROM t", params![])?.len())).await
    };
    let (held, wait) = (store.clone(), std::sync::Arc::new(std::sync::Barrier::new(2)));
    let inside = wait.clone();
    let first = tokio::spawn(async move {
        held.read(move |_| {
            inside.wait();
            inside.wait();
            Ok::<_, Error>(())
        })
        .await
    });
    tokio::task::spawn_blocking({
        let wait = wait.clone();
        move || wait.wait()
    })
    .await
    .expect("the first has its reader");
    std::fs::rename(&here, &away).expect("moves");
    let refused = count(store.clone()).await.expect_err("the file is not where it was");
    assert_eq!(refused.trouble(), Trouble::Passing, "{refused}");
    assert!(refused.to_string().contains("cannot open the database"), "{refused}");
    std::fs::rename(&away, &here).expect("moves back");
    assert_eq!(count(store).await.expect("readable again"), 0);
    wait.wait();
    first.await.expect("no panic").expect("the first ends well");
}
