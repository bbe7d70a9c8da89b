//! Lost connections to PostgreSQL. The tests run where `KILONOVA_TEST_POSTGRES` names a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kilonova_store::{DatabaseUrl, Error, Migration, Options, Severity, Store, Tx, params};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const TABLE: Migration = Migration {
    name: "t-1",
    sql: "CREATE TABLE t (n BIGINT NOT NULL, CONSTRAINT t_n UNIQUE (n));",
};

fn insert(tx: &mut Tx<'_>, n: i64) -> Result<(), Error> {
    tx.execute("INSERT INTO t (n) VALUES (?1)", params![n]).map(drop)
}

fn count(tx: &mut Tx<'_>) -> Result<i64, Error> {
    let row = tx.row("SELECT COUNT(*) AS number FROM t", params![])?;
    row.expect("a count is one row").int("number")
}

/// Ends every other connection to this database, as a restart of the server does.
async fn cut(store: &Store) {
    let others = "SELECT pg_terminate_backend(pid) AS cut FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    store
        .read(move |tx| tx.rows(others, params![]).map(drop))
        .await
        .expect("the connections are ended");
}

#[tokio::test]
async fn a_transaction_whose_connection_is_lost_runs_again() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[&[TABLE]]).await else { return };
    let runs = Arc::new(AtomicUsize::new(0));
    let (cutter, counted) = (store.clone(), Arc::clone(&runs));
    let handle = tokio::runtime::Handle::current();
    store
        .write(move |tx| {
            insert(tx, 1)?;
            if counted.fetch_add(1, Ordering::Relaxed) == 0 {
                handle.block_on(cut(&cutter));
            }
            insert(tx, 2)
        })
        .await
        .expect("the transaction runs again on another connection");
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    assert_eq!(store.read(count).await.expect("the table is readable"), 2, "nothing is doubled");
}

#[tokio::test]
async fn idle_connections_that_were_lost_are_replaced() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[&[TABLE]]).await else { return };
    for n in 0..3 {
        cut(&store).await;
        store.write(move |tx| insert(tx, n)).await.expect("a new connection is opened");
        assert_eq!(store.read(count).await.expect("the table is readable"), n + 1);
    }
}

/// The driver logs every notice of the server, and each start of a controller would cause some.
#[tokio::test]
async fn the_server_sends_warnings_and_no_notices() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[&[TABLE]]).await else { return };
    let level = "SELECT current_setting('client_min_messages') AS level";
    let level = store
        .read(move |tx| tx.row(level, params![])?.expect("a setting is one row").string("level"))
        .await
        .expect("the setting is readable");
    assert_eq!(level, "warning");
}

#[tokio::test]
async fn a_failed_statement_cannot_be_committed() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[&[TABLE]]).await else { return };
    let hidden = store
        .write(|tx| {
            insert(tx, 1)?;
            let twice = insert(tx, 1);
            assert!(matches!(twice, Err(Error::Unique(_))), "{twice:?}");
            Ok::<_, Error>(())
        })
        .await;
    assert!(hidden.is_err(), "the server would roll back and report a success");
    assert_eq!(store.read(count).await.expect("the table is readable"), 0);
    let misspelt = store
        .write(|tx| {
            insert(tx, 1)?;
            assert!(tx.rows("SELECT n FROM nowhere", params![]).is_err());
            Ok::<_, Error>(())
        })
        .await;
    assert!(misspelt.is_err(), "a statement that cannot be prepared fails the transaction too");
    assert_eq!(store.read(count).await.expect("the table is readable"), 0);
    let tried = store
        .write(|tx| {
            insert(tx, 1)?;
            let twice = tx.attempt(|tx| insert(tx, 1));
            assert!(matches!(twice, Err(Error::Unique(_))), "{twice:?}");
            insert(tx, 2)
        })
        .await;
    tried.expect("a savepoint hides the failure");
    assert_eq!(store.read(count).await.expect("the table is readable"), 2);
}

#[tokio::test]
async fn a_panic_rolls_back() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[&[TABLE]]).await else { return };
    let broken = store
        .write(|tx| -> Result<(), Error> {
            insert(tx, 1)?;
            panic!("on purpose")
        })
        .await;
    assert!(broken.is_err());
    assert_eq!(store.read(count).await.expect("the table is readable"), 0);
}

/// A server that accepts connections and never answers.
async fn silent() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("the listener has an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut received = [0; 512];
                while matches!(stream.read(&mut received).await, Ok(1..)) {}
                let _ = stream.shutdown().await;
            });
        }
    });
    port
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_reported_in_time() {
    let port = silent().await;
    let url = format!("postgresql://kilonova@127.0.0.1:{port}/kilonova");
    let begun = std::time::Instant::now();
    let options = Options { max_retries: Some(0), ..Options::default() };
    let refused = Store::open_with(&url.parse().expect("the URL is valid"), &options).await.err();
    let refused = refused.expect("the server does not answer").to_string();
    assert!(refused.contains("cannot connect to PostgreSQL"), "{refused}");
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

/// The server of the tests.
pub(crate) fn server() -> tokio_postgres::Config {
    let url = std::env::var("KILONOVA_TEST_POSTGRES").expect("the server has an address");
    url.parse().expect("it is a libpq URL")
}

/// Forwards connections to the PostgreSQL of the tests, until the test closes them all.
struct Proxy {
    port: u16,
    open: tokio::sync::watch::Sender<bool>,
}

impl Proxy {
    async fn start(server: &tokio_postgres::Config) -> Self {
        let host = server.get_hosts().first().expect("the server has a host").clone();
        let number = server.get_ports().first().copied().unwrap_or(5432);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("the listener has an address").port();
        let (open, is_open) = tokio::sync::watch::channel(true);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut closed = is_open.clone();
                if *closed.borrow() {
                    let host = host.clone();
                    tokio::spawn(async move {
                        tokio::select! {
                            () = forward(client, host, number) => {}
                            _ = closed.wait_for(|open| !open) => {}
                        }
                    });
                }
            }
        });
        Self { port, open }
    }
}

async fn forward(mut client: tokio::net::TcpStream, host: tokio_postgres::config::Host, port: u16) {
    use tokio_postgres::config::Host;
    match host {
        Host::Unix(folder) => {
            let socket = folder.join(format!(".s.PGSQL.{port}"));
            let mut server = tokio::net::UnixStream::connect(socket).await.expect("it listens");
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        }
        Host::Tcp(name) => {
            let mut server =
                tokio::net::TcpStream::connect((name, port)).await.expect("it listens");
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_gone_is_used_again() {
    let Some(DatabaseUrl::Postgres(made)) = kilonova_testkit::fresh_postgres().await else {
        return;
    };
    let server = server();
    let proxy = Proxy::start(&server).await;
    let (user, name) = (server.get_user(), made.database());
    let mut through = tokio_postgres::Config::new();
    through.host("127.0.0.1").port(proxy.port);
    through.user(user.expect("a user")).dbname(name.expect("a database"));
    if let Some(password) = server.get_password() {
        through.password(password);
    }
    let through = DatabaseUrl::Postgres(Box::new(through.into()));
    let store = Store::open(&through).await.expect("it opens");
    store.migrate(&[TABLE]).await.expect("the migration succeeds");
    proxy.open.send_replace(false);
    let begun = std::time::Instant::now();
    let refused = store.read(count).await.expect_err("the server is gone");
    assert_eq!(refused.severity(), Severity::Temporary, "{refused}");
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    let waiting = store.clone();
    let write = tokio::spawn(async move { waiting.write(|tx| insert(tx, 1)).await });
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(!write.is_finished(), "the request waits for the server");
    proxy.open.send_replace(true);
    write.await.expect("the write does not panic").expect("the write succeeds after the pause");
    assert_eq!(store.read(count).await.expect("the table is readable"), 1);
}
