//! A reader of SQLite that cannot be opened counts as temporarily unavailable.

use kilonova_store::{DatabaseUrl, Error, Migration, Severity, Store, params};

const TABLE: &[Migration] = &[Migration { name: "t-1", sql: "CREATE TABLE t (n BIGINT);" }];

#[tokio::test]
async fn a_reader_that_cannot_be_opened_is_trouble_that_passes() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let (here, away) = (folder.path().join("here"), folder.path().join("away"));
    std::fs::create_dir(&here).expect("a temporary directory is created");
    let url = DatabaseUrl::Sqlite(here.join("kilonova.db"));
    let store = Store::open(&url).await.expect("the store opens");
    store.migrate(TABLE).await.expect("the migration succeeds");
    // Each of these needs a new reader, because the first still uses the open one.
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
    std::fs::rename(&here, &away).expect("the directory is renamed");
    let refused = count(store.clone()).await.expect_err("the file has moved");
    assert_eq!(refused.severity(), Severity::Temporary, "{refused}");
    assert!(refused.to_string().contains("cannot open the database"), "{refused}");
    std::fs::rename(&away, &here).expect("the directory is renamed back");
    assert_eq!(count(store).await.expect("the table is readable again"), 0);
    wait.wait();
    first.await.expect("the first reader does not panic").expect("the first read succeeds");
}
