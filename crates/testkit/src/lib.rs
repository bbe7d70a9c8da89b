//! What the tests of several crates share: fresh databases on both stores.
//!
//! PostgreSQL is used when `KILONOVA_TEST_POSTGRES` holds a libpq URL of a server where databases
//! may be created; `make test` starts one. Each call gets a database of its own.

use kilonova_store::{DatabaseUrl, Migration, Store};

/// Keeps the SQLite file alive as long as the test.
pub struct Guard {
    _directory: Option<tempfile::TempDir>,
}

/// Shows the log of the code under test beside a failure: warnings and errors, or what `RUST_LOG`
/// asks for. The second call does nothing.
pub fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
}

/// A migrated, empty store on each database at hand, with its name for messages.
///
/// # Panics
/// When a store cannot be made: the test cannot go on.
pub async fn stores(migrations: &[&[Migration]]) -> Vec<(&'static str, Store, Guard)> {
    let all: Vec<Migration> = migrations.iter().flat_map(|m| m.iter().copied()).collect();
    let mut stores = Vec::new();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let url = DatabaseUrl::Sqlite(directory.path().join("kilonova.db"));
    let store = Store::open(&url).await.expect("SQLite opens");
    store.migrate(&all).await.expect("migrations on SQLite");
    stores.push(("sqlite", store, Guard { _directory: Some(directory) }));
    if let Some(url) = fresh_postgres().await {
        let store = Store::open(&url).await.expect("PostgreSQL opens");
        store.migrate(&all).await.expect("migrations on PostgreSQL");
        stores.push(("postgresql", store, Guard { _directory: None }));
    }
    stores
}

/// A new, empty PostgreSQL database, when a server is named in the environment.
///
/// # Panics
/// When the server is named but refuses.
pub async fn fresh_postgres() -> Option<DatabaseUrl> {
    let server = std::env::var("KILONOVA_TEST_POSTGRES").ok()?;
    let mut config: tokio_postgres::Config = server.parse().expect("a libpq URL");
    let (client, connection) =
        config.connect(tokio_postgres::NoTls).await.expect("PostgreSQL answers");
    tokio::spawn(async move { drop(connection.await) });
    let name = format!("kn_{}", uuid::Uuid::new_v4().simple());
    client.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("CREATE DATABASE");
    config.dbname(&name);
    Some(DatabaseUrl::Postgres(Box::new(config)))
}
