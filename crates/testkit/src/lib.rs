//! Shared by the tests of several crates: empty databases on both stores, and other services of a cloud.
//!
//! PostgreSQL is used if `KILONOVA_TEST_POSTGRES` is a libpq URL of a server that allows creating databases; `make test`
//! starts one. Each call gets databases of its own, copied from templates: creating a hundred tables takes half the time
//! of a small test, and so does writing the rows with which all tests of a program begin ([`seeded_stores`]). A thousand
//! databases of 12 MB would fill a disk, so each test may drop those of tests that have ended. The SQLite templates stay
//! in the folder of temporary files (2 MB each).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

pub mod audit;
pub mod cinder;
pub mod cluster;
pub mod glance;
pub mod http;
pub mod neutron;
mod share;
mod skip;

use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kilonova_store::{DatabaseUrl, Migration, Options, Store};

pub use share::{Share, shared};
pub use skip::{skip, skip_part};

/// Keeps the SQLite file alive as long as the test.
pub struct Guard {
    directory: Option<tempfile::TempDir>,
}

impl Guard {
    /// The SQLite file.
    pub fn file(&self) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.path().join(FILE))
    }
}

/// The name of the SQLite file.
const FILE: &str = "kilonova.db";

/// Prints the log of the code under test with a failure: warnings and errors, or the levels in `RUST_LOG`. A second
/// call has no effect.
pub fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
}

/// A migrated, empty store on each available database, with its name for messages. The change log,
/// to which every service appends, is part of it.
///
/// # Panics
/// Panics if a store cannot be created.
pub async fn stores(migrations: &[&[Migration]]) -> Vec<(&'static str, Store, Guard)> {
    copies(&Template::of(migrations, None), async |_| {}).await
}

/// [`stores`], with the rows that `seed` writes: the first test of a program that calls this function runs `seed`, and
/// all others get a copy. A program has one seed for each set of migrations. The ids that it stores are constants,
/// because other processes do not see it run.
///
/// # Panics
/// Panics if a store cannot be created.
pub async fn seeded_stores(
    migrations: &[&[Migration]],
    seed: impl AsyncFn(Store),
) -> Vec<(&'static str, Store, Guard)> {
    copies(&Template::of(migrations, Some(&program())), seed).await
}

async fn copies(
    template: &Template,
    seed: impl AsyncFn(Store),
) -> Vec<(&'static str, Store, Guard)> {
    let mut stores = Vec::new();
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let file = directory.path().join(FILE);
    std::fs::copy(template_file(template, &seed).await, &file).expect("the template is copied");
    let store = Store::open(&DatabaseUrl::Sqlite(file)).await.expect("SQLite opens");
    stores.push(("sqlite", store, Guard { directory: Some(directory) }));
    if let Some(server) = Server::of_environment().await {
        let url = server.copy(template, &seed).await;
        let store = Store::open_with(&url, &patient()).await.expect("PostgreSQL opens");
        stores.push(("postgresql", store, Guard { directory: None }));
    }
    stores
}

/// The content of a database that tests copy.
struct Template {
    migrations: Vec<Migration>,
    /// Differs between sets of migrations, and between programs with a seed.
    key: u64,
    /// The build of the program that the seed belongs to; empty without a seed.
    build: String,
}

impl Template {
    /// The template with these migrations and the seed of a program: its path and its build.
    fn of(migrations: &[&[Migration]], program: Option<&(PathBuf, String)>) -> Self {
        let log = std::iter::once(&kilonova_changes::MIGRATIONS);
        let lists = log.chain(migrations).flat_map(|list| list.iter());
        let migrations: Vec<Migration> = lists.copied().collect();
        let mut digest = std::hash::DefaultHasher::new();
        for migration in &migrations {
            (migration.name, migration.sql).hash(&mut digest);
        }
        if let Some((path, _)) = program {
            path.hash(&mut digest);
        }
        let build = program.map(|(_, build)| build.clone()).unwrap_or_default();
        Self { migrations, key: digest.finish(), build }
    }

    /// Writes it into an empty database.
    async fn write(&self, url: &DatabaseUrl, seed: &impl AsyncFn(Store)) {
        let store = Store::open(url).await.expect("the database opens");
        store.migrate(&self.migrations).await.expect("the migrations succeed");
        seed(store).await;
    }
}

/// The path of this program, and a text that differs between its builds.
fn program() -> (PathBuf, String) {
    let path = std::env::current_exe().expect("this program has a path");
    let facts = std::fs::metadata(&path).expect("this program is a file");
    let built = facts.modified().expect("files have a time");
    let built = built.duration_since(std::time::UNIX_EPOCH).expect("the time is after 1970");
    (path, format!("{:x}-{:x}", built.as_nanos(), facts.len()))
}

/// The SQLite file with the content of a template, which the first caller creates. A file that has this name is
/// complete.
async fn template_file(template: &Template, seed: &impl AsyncFn(Store)) -> PathBuf {
    let folder = std::env::temp_dir();
    let prefix = format!("kilonova-template-{:016x}-", template.key);
    let file = folder.join(format!("{prefix}{}.db", template.build));
    if file.exists() {
        return file;
    }
    // Tests that start concurrently each create one; the last one remains.
    let part = tempfile::tempdir_in(&folder).expect("a temporary directory is created");
    let written = part.path().join(FILE);
    template.write(&DatabaseUrl::Sqlite(written.clone()), seed).await;
    // The last connection, which closes slightly later than the store, moves the write-ahead log into the file. If two
    // close at the same time, each may leave it to the other, so another connection is opened and closed.
    let log = part.path().join(format!("{FILE}-wal"));
    for look in 1..1000 {
        if !log.exists() {
            std::fs::rename(&written, &file).expect("the written file is renamed");
            remove_earlier(&folder, &prefix, &file);
            return file;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        if look % 50 == 0 {
            let url = DatabaseUrl::Sqlite(written.clone());
            drop(Store::open(&url).await.expect("SQLite opens"));
        }
    }
    panic!("{} is not closed", written.display());
}

/// Removes the files of earlier builds of a program.
fn remove_earlier(folder: &Path, prefix: &str, newest: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_earlier = entry.file_name().to_string_lossy().starts_with(prefix);
        if is_earlier && entry.path() != newest {
            // A concurrent test may have removed it.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Limits that a stalled disk of a shared machine does not reach: a test that exceeds them has found a transaction that
/// never ends. Tests of the limits themselves set their own.
fn patient() -> Options {
    Options {
        pool_timeout: Duration::from_secs(120),
        statement_timeout: Duration::from_secs(90),
        lock_timeout: Duration::from_secs(60),
        answer_timeout: Duration::from_secs(100),
        ..Options::default()
    }
}

/// The migrated, empty store on PostgreSQL, for tests that need a second writer, which SQLite does not have. Without a
/// server, skips the test ([`skip()`]) and returns `None`.
///
/// # Panics
/// As [`stores`].
pub async fn postgres_store(migrations: &[&[Migration]]) -> Option<(Store, Guard)> {
    let mut stores = stores(migrations).await;
    match stores.pop() {
        Some(("postgresql", store, guard)) => Some((store, guard)),
        _ => {
            skip("the test needs PostgreSQL; KILONOVA_TEST_POSTGRES names no server");
            None
        }
    }
}

/// A new, empty PostgreSQL database, when a server is named in the environment.
///
/// # Panics
/// Panics if the server refuses.
pub async fn fresh_postgres() -> Option<DatabaseUrl> {
    let server = Server::of_environment().await?;
    let name = fresh_name();
    server.run(&format!("CREATE DATABASE {name}")).await;
    Some(server.database(&name))
}

/// A name that no other test uses. It contains the id of the process that uses the database, so that other tests can
/// detect that the process has ended.
fn fresh_name() -> String {
    format!("kn_{}_{}", std::process::id(), uuid::Uuid::new_v4().simple())
}

/// True if the process of a test database has ended; false for a name that is not from
/// [`fresh_name`].
fn is_abandoned(database: &str) -> bool {
    let process = database.strip_prefix("kn_").and_then(|rest| rest.split_once('_'));
    process.is_some_and(|(process, _)| {
        process.parse::<u32>().is_ok() && !std::path::Path::new("/proc").join(process).exists()
    })
}

/// The number of abandoned databases that one test drops together: each drop is a checkpoint.
const ABANDONED: usize = 32;

/// The PostgreSQL server of the environment.
struct Server {
    config: tokio_postgres::Config,
    client: tokio_postgres::Client,
}

impl Server {
    async fn of_environment() -> Option<Self> {
        let Ok(url) = std::env::var("KILONOVA_TEST_POSTGRES") else {
            skip_part("PostgreSQL; KILONOVA_TEST_POSTGRES names no server (SQLite was used)");
            return None;
        };
        let config: tokio_postgres::Config =
            url.parse().expect("KILONOVA_TEST_POSTGRES is a libpq URL");
        let (client, connection) =
            config.connect(tokio_postgres::NoTls).await.expect("PostgreSQL answers");
        tokio::spawn(async move { drop(connection.await) });
        let server = Self { config, client };
        server.drop_abandoned().await;
        Some(server)
    }

    /// Drops the databases of tests that have ended, if there are many. PostgreSQL refuses to drop a database that
    /// still has connections; a later test drops it.
    async fn drop_abandoned(&self) {
        let all = "SELECT datname FROM pg_database WHERE datname LIKE 'kn\\_%'";
        let rows = self.client.query(all, &[]).await.expect(all);
        let names = rows.iter().map(|row| row.get::<_, String>(0));
        let abandoned: Vec<String> = names.filter(|name| is_abandoned(name)).collect();
        if abandoned.len() < ABANDONED {
            return;
        }
        // No template has the key 0. One test sweeps; the others continue.
        let first = "SELECT pg_try_advisory_lock(0)";
        if !self.client.query_one(first, &[]).await.expect(first).get::<_, bool>(0) {
            return;
        }
        for name in abandoned {
            let statement = format!("DROP DATABASE IF EXISTS {name}");
            drop(self.client.batch_execute(&statement).await);
        }
        self.run("SELECT pg_advisory_unlock(0)").await;
    }

    fn database(&self, name: &str) -> DatabaseUrl {
        let mut config = self.config.clone();
        config.dbname(name);
        DatabaseUrl::Postgres(Box::new(config.into()))
    }

    async fn run(&self, statement: &str) {
        self.client.batch_execute(statement).await.expect(statement);
    }

    /// A new database with the content of a template.
    async fn copy(&self, template: &Template, seed: &impl AsyncFn(Store)) -> DatabaseUrl {
        let of = format!("kt_{:016x}", template.key);
        let key = template.key.cast_signed();
        let name = fresh_name();
        loop {
            // Copies may run concurrently with each other, but not with the creation of the template.
            self.run(&format!("SELECT pg_advisory_lock_shared({key})")).await;
            let is_there = self.has(&of, &template.build).await;
            if is_there {
                self.run(&format!("CREATE DATABASE {name} TEMPLATE {of} STRATEGY FILE_COPY")).await;
            }
            self.run(&format!("SELECT pg_advisory_unlock_shared({key})")).await;
            if is_there {
                return self.database(&name);
            }
            self.run(&format!("SELECT pg_advisory_lock({key})")).await;
            if !self.has(&of, &template.build).await {
                self.create(template, &of, seed).await;
            }
            self.run(&format!("SELECT pg_advisory_unlock({key})")).await;
        }
    }

    /// True if there is a database of this name with the seed of this build.
    async fn has(&self, name: &str, build: &str) -> bool {
        let sql = "SELECT COALESCE(shobj_description(oid, 'pg_database'), '') FROM pg_database
            WHERE datname = $1";
        let found = self.client.query_opt(sql, &[&name]).await.expect(sql);
        found.is_some_and(|row| row.get::<_, String>(0) == build)
    }

    /// Creates a template, replacing that of an earlier build. The caller holds its lock.
    async fn create(&self, template: &Template, name: &str, seed: &impl AsyncFn(Store)) {
        let part = fresh_name();
        self.run(&format!("CREATE DATABASE {part}")).await;
        template.write(&self.database(&part), seed).await;
        // The store's connections close slightly later than the store.
        let open = "SELECT 1 FROM pg_stat_activity WHERE datname = $1";
        while !self.client.query(open, &[&part]).await.expect(open).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.run(&format!("COMMENT ON DATABASE {part} IS '{}'", template.build)).await;
        self.run(&format!("DROP DATABASE IF EXISTS {name}")).await;
        self.run(&format!("ALTER DATABASE {part} RENAME TO {name}")).await;
    }
}
