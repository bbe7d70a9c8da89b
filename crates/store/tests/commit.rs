//! Connections that are lost during a `COMMIT`: the outcome is looked up and reported to the
//! caller. The tests run where `KILONOVA_TEST_POSTGRES` names a server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kilonova_store::{DatabaseUrl, Error, Migration, Options, Severity, Store, Tx, params};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::config::Host;

/// The table has no key, so that a transaction that runs twice is detected.
const TABLE: Migration = Migration { name: "t-1", sql: "CREATE TABLE t (n BIGINT NOT NULL);" };

const INSERT: &str = "INSERT INTO t (n) VALUES (?1)";

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The moment at which a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// `COMMIT` never reaches the server.
    Before,
    /// The server has committed, but the answer does not arrive.
    After,
    /// `COMMIT` is in transit.
    InFlight,
    /// `COMMIT` reaches the server when the test allows it, long after the connection was lost.
    Late,
    /// As `After`, and the server is unreachable until the test allows connections.
    Gone,
    /// As `Gone`, but the server accepts connections and never answers.
    Silent,
    /// As `After`, but the connection is lost only when the test cuts it.
    Held,
}

/// Forwards connections to the server, and cuts the next one that commits.
struct Proxy {
    port: u16,
    armed: Arc<Mutex<Option<Cut>>>,
    /// The rest of a `Late` or `Held` connection.
    late: mpsc::Receiver<oneshot::Sender<()>>,
    open: tokio::sync::watch::Sender<Door>,
}

/// How the proxy treats new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    /// It forwards them.
    Open,
    /// It closes them.
    Closed,
    /// It keeps them open and never answers.
    Silent,
}

impl Proxy {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("the listener has an address").port();
        let armed: Arc<Mutex<Option<Cut>>> = Arc::default();
        let (held, late) = mpsc::channel(1);
        let (open, is_open) = tokio::sync::watch::channel(Door::Open);
        let (cuts, opens) = (Arc::clone(&armed), open.clone());
        tokio::spawn(async move {
            let mut silent = Vec::new();
            while let Ok((client, _)) = listener.accept().await {
                let door = *is_open.borrow();
                match door {
                    Door::Open => {
                        let (cuts, held) = (Arc::clone(&cuts), held.clone());
                        tokio::spawn(forward(client, cuts, held, opens.clone()));
                    }
                    Door::Closed => drop(client),
                    Door::Silent => silent.push(client),
                }
            }
        });
        Self { port, armed, late, open }
    }

    fn cut(&self, cut: Cut) {
        *self.armed.lock().expect("the lock is not poisoned") = Some(cut);
    }
}

async fn connect() -> Box<dyn Stream> {
    let server = crate::postgres::server();
    let number = server.get_ports().first().copied().unwrap_or(5432);
    match server.get_hosts().first().expect("the server has a host") {
        Host::Unix(folder) => {
            let socket = folder.join(format!(".s.PGSQL.{number}"));
            Box::new(tokio::net::UnixStream::connect(socket).await.expect("it listens"))
        }
        Host::Tcp(name) => {
            let name = (name.as_str(), number);
            Box::new(tokio::net::TcpStream::connect(name).await.expect("it listens"))
        }
    }
}

/// The end of the first occurrence of `part`.
fn after(bytes: &[u8], part: &[u8]) -> Option<usize> {
    let at = bytes.windows(part.len()).position(|window| window == part)?;
    Some(at + part.len())
}

/// True for a message that commits a write: it has the mark. The `COMMIT` of a read has none, and may still be in
/// transit when the next transaction begins.
fn commits(bytes: &[u8]) -> bool {
    after(bytes, b"EXECUTE store_commits").is_some()
}

/// True once the answers show that the insertion was committed. The answer to the `COMMIT` of an earlier read may
/// precede them.
fn committed(answers: &[u8]) -> bool {
    let inserted = after(answers, b"INSERT");
    inserted.and_then(|at| after(&answers[at..], b"COMMIT")).is_some()
}

async fn forward(
    mut client: tokio::net::TcpStream,
    armed: Arc<Mutex<Option<Cut>>>,
    held: mpsc::Sender<oneshot::Sender<()>>,
    open: tokio::sync::watch::Sender<Door>,
) {
    let mut server = connect().await;
    let (mut asked, mut answered) = (vec![0; 65536], vec![0; 65536]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(length @ 1..) = read else { return };
                let bytes = asked.get(..length).expect("it was read");
                let cut = match commits(bytes) {
                    true => armed.lock().expect("the lock is not poisoned").take(),
                    false => None,
                };
                match cut {
                    None => server.write_all(bytes).await.expect("it is forwarded"),
                    Some(Cut::Before) => return,
                    Some(Cut::InFlight) => {
                        let _ = server.write_all(bytes).await;
                        return;
                    }
                    Some(cut @ (Cut::After | Cut::Gone | Cut::Silent | Cut::Held)) => {
                        server.write_all(bytes).await.expect("it is forwarded");
                        let mut seen = Vec::new();
                        while !committed(&seen) {
                            let length = server.read(&mut answered).await.expect("it answers");
                            seen.extend_from_slice(answered.get(..length).expect("it was read"));
                        }
                        match cut {
                            Cut::Gone => drop(open.send_replace(Door::Closed)),
                            Cut::Silent => drop(open.send_replace(Door::Silent)),
                            _ => {}
                        }
                        if cut == Cut::Held {
                            let (go, went) = oneshot::channel();
                            held.send(go).await.expect("the test waits");
                            let _ = went.await;
                        }
                        return;
                    }
                    Some(Cut::Late) => {
                        drop(client);
                        let (go, went) = oneshot::channel();
                        held.send(go).await.expect("the test waits");
                        let _ = went.await;
                        let _ = server.write_all(bytes).await;
                        let _ = server.shutdown().await;
                        // Until the server has ended the session.
                        while matches!(server.read(&mut answered).await, Ok(1..)) {}
                        held.send(oneshot::channel().0).await.expect("the test waits");
                        return;
                    }
                }
            }
            read = server.read(&mut answered) => {
                let Ok(length @ 1..) = read else { return };
                let bytes = answered.get(..length).expect("it was read");
                if client.write_all(bytes).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// A store behind a proxy.
async fn store(options: &Options) -> Option<(Store, Proxy)> {
    let Some(DatabaseUrl::Postgres(made)) = kilonova_testkit::fresh_postgres().await else {
        return None;
    };
    let (server, proxy) = (crate::postgres::server(), Proxy::start().await);
    let mut through = tokio_postgres::Config::new();
    through.host("127.0.0.1").port(proxy.port).ssl_mode(tokio_postgres::config::SslMode::Disable);
    through.user(server.get_user().expect("a user")).dbname(made.database().expect("a name"));
    if let Some(password) = server.get_password() {
        through.password(password);
    }
    let url = DatabaseUrl::Postgres(Box::new(through.into()));
    let store = Store::open_with(&url, options).await.expect("it opens");
    store.migrate(&[TABLE]).await.expect("the migration succeeds");
    Some((store, proxy))
}

async fn count(store: &Store) -> i64 {
    let sql = "SELECT COUNT(*) AS number FROM t";
    let row = store.read(move |tx| tx.row(sql, params![])).await.expect("the table is readable");
    row.expect("a count is one row").int("number").expect("it is a number")
}

/// How often the work and its hook have run.
#[derive(Default)]
struct Counts {
    runs: AtomicUsize,
    hooks: AtomicUsize,
}

impl Counts {
    fn seen(&self) -> (usize, usize) {
        (self.runs.load(Ordering::SeqCst), self.hooks.load(Ordering::SeqCst))
    }
}

/// Inserts a row, with an answer before the commit or together with it.
async fn insert(store: &Store, deferred: bool, counts: &Arc<Counts>) -> Result<(), Error> {
    let counts = Arc::clone(counts);
    let work = move |tx: &mut Tx<'_>| {
        counts.runs.fetch_add(1, Ordering::SeqCst);
        let hooked = Arc::clone(&counts);
        tx.on_commit(move || {
            hooked.hooks.fetch_add(1, Ordering::SeqCst);
        });
        if deferred {
            tx.defer(INSERT, params![1])
        } else {
            tx.execute(INSERT, params![1]).map(drop)
        }
    };
    store.write(work).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_outcome_of_a_commit_without_an_answer_is_looked_up() {
    let Some((store, mut proxy)) = store(&Options::default()).await else { return };
    let mut rows = 0;
    for deferred in [false, true] {
        // The statement is prepared beforehand, so that a deferred transaction is a single message.
        insert(&store, deferred, &Arc::default()).await.expect("nothing is cut");
        rows += 1;
        for cut in [Cut::Before, Cut::After, Cut::InFlight, Cut::Late] {
            let counts = Arc::<Counts>::default();
            proxy.cut(cut);
            insert(&store, deferred, &counts).await.expect("the transaction commits");
            rows += 1;
            let (runs, hooks) = counts.seen();
            match cut {
                Cut::Before | Cut::Late => assert_eq!(runs, 2, "{cut:?}: it runs again"),
                Cut::After | Cut::Gone | Cut::Silent | Cut::Held => {
                    assert_eq!(runs, 1, "{cut:?}: it was committed");
                }
                Cut::InFlight => assert!(runs == 1 || runs == 2, "{cut:?}"),
            }
            assert_eq!(hooks, 1, "{cut:?}, deferred: {deferred}");
            if cut == Cut::Late {
                let go = proxy.late.recv().await.expect("the connection was held");
                go.send(()).expect("the proxy waits");
                proxy.late.recv().await.expect("the server has ended the session");
            }
            assert_eq!(count(&store).await, rows, "{cut:?}, deferred: {deferred}");
        }
    }
}

/// All work of a group gets the actual outcome of the shared commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_whose_commit_has_no_answer_is_looked_up() {
    let Some((store, proxy)) = store(&Options::default()).await else { return };
    store.migrate(&[crate::group::COUNTERS]).await.expect("the migration succeeds");
    let mut rows = 0;
    for cut in [Cut::Before, Cut::After, Cut::InFlight] {
        let counts = Arc::<Counts>::default();
        let held = crate::group::Held::begin(&store).await;
        let mut works: Vec<_> = (0..3)
            .map(|place| {
                let (counts, armed) = (Arc::clone(&counts), Arc::clone(&proxy.armed));
                crate::group::together(&store, move |tx| {
                    if counts.runs.fetch_add(1, Ordering::SeqCst) == 0 {
                        *armed.lock().expect("the lock is not poisoned") = Some(cut);
                    }
                    let hooked = Arc::clone(&counts);
                    tx.on_commit(move || {
                        hooked.hooks.fetch_add(1, Ordering::SeqCst);
                    });
                    tx.defer(INSERT, params![place])
                })
            })
            .collect();
        crate::group::wait(&mut works).await;
        held.end().await;
        for work in works {
            work.await.expect("the transaction commits");
        }
        rows += 3;
        assert_eq!((counts.seen().1, count(&store).await), (3, rows), "{cut:?}");
        match (cut, counts.seen().0) {
            (Cut::Before, 6) | (Cut::After, 3) | (Cut::InFlight, 3 | 6) => {}
            (_, runs) => panic!("{cut:?}: {runs} runs"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_cannot_be_looked_up_is_not_invented() {
    let short = Options {
        statement_timeout: Duration::from_secs(1),
        answer_timeout: Duration::from_secs(2),
        ..Options::default()
    };
    let Some((store, proxy)) = store(&short).await else { return };
    let counts = Arc::<Counts>::default();
    proxy.cut(Cut::Gone);
    let error = insert(&store, false, &counts).await.expect_err("the outcome is unknown");
    assert_eq!(error.severity(), Severity::Temporary, "{error}");
    assert!(error.to_string().contains("not known whether"), "{error}");
    assert_eq!(counts.seen(), (1, 0));
    // Once the server is reachable again, the hook runs.
    proxy.open.send_replace(Door::Open);
    while counts.seen().1 == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((counts.seen(), count(&store).await), ((1, 1), 1));
}

/// A look-up that hangs occupies a connection, as a transaction does: other callers wait for a connection no longer
/// than their limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_up_takes_its_turn_for_a_connection() {
    let one = Options {
        max_pool_size: 1,
        pool_timeout: Duration::from_millis(300),
        statement_timeout: Duration::from_secs(1),
        answer_timeout: Duration::from_secs(2),
        ..Options::default()
    };
    let Some((store, proxy)) = store(&one).await else { return };
    let counts = Arc::<Counts>::default();
    proxy.cut(Cut::Silent);
    insert(&store, false, &counts).await.expect_err("the outcome is unknown");
    // The look-up waits until its attempt to connect has taken `connect_timeout`.
    let begun = std::time::Instant::now();
    let refused = insert(&store, false, &counts).await.expect_err("there is no connection");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}: {refused}", begun.elapsed());
    assert_eq!(refused.severity(), Severity::Temporary, "{refused}");
    assert!(refused.to_string().contains("no connection became free"), "{refused}");
    proxy.open.send_replace(Door::Open);
    while counts.seen().1 == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the hook does not run");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((counts.seen(), count(&store).await), ((1, 1), 1));
}

/// A request is cancelled while its transaction commits: the hooks run nevertheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hooks_of_a_commit_run_although_its_caller_has_gone() {
    // The look-up waits for the only connection, as a transaction does.
    let one = Options { max_pool_size: 1, ..Options::default() };
    let Some((store, mut proxy)) = store(&one).await else { return };
    let counts = Arc::<Counts>::default();
    proxy.cut(Cut::Held);
    let (caller, counted) = (store.clone(), Arc::clone(&counts));
    let caller = tokio::spawn(async move { insert(&caller, false, &counted).await });
    let lose = proxy.late.recv().await.expect("the server has committed");
    caller.abort();
    assert!(caller.await.expect_err("the caller has stopped waiting").is_cancelled());
    lose.send(()).expect("the proxy waits");
    let begun = std::time::Instant::now();
    while counts.seen().1 == 0 {
        assert!(begun.elapsed().as_secs() < 20, "the hook does not run");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((counts.seen(), count(&store).await), ((1, 1), 1));
}

#[tokio::test]
async fn a_process_leaves_no_rows_behind() {
    let Some((store, _guard)) = kilonova_testkit::postgres_store(&[&[TABLE]]).await else { return };
    let rows = |text: &'static str| {
        store.read(move |tx| {
            let row = tx.row(text, params![])?;
            row.ok_or_else(|| Error::Shape("no count".into()))?.int("number")
        })
    };
    let old = "SELECT COUNT(*) AS number FROM store_commits WHERE used < now() - INTERVAL '1 day'";
    let age = "UPDATE store_commits SET used = now() - INTERVAL '2 days'";
    store.write(move |tx| tx.execute(age, params![])).await.expect("the rows are old");
    assert!(rows(old).await.expect("the table is readable") > 0);
    // Another process has locked them; a new connection does not wait.
    let mut config = crate::postgres::server();
    let name = "SELECT CAST(current_database() AS TEXT) AS name";
    let name = store.read(move |tx| tx.row(name, params![])).await.expect("it is readable");
    let name = name.expect("there is a row").string("name").expect("it is a text");
    config.dbname(&name);
    let (busy, connection) = config.connect(tokio_postgres::NoTls).await.expect("it connects");
    tokio::spawn(connection);
    busy.batch_execute("BEGIN; SELECT 1 FROM store_commits FOR UPDATE")
        .await
        .expect("they are locked");
    let url = DatabaseUrl::Postgres(Box::new(config.into()));
    let first = Store::open(&url).await.expect("it opens");
    first.write(|tx| tx.execute(INSERT, params![2])).await.expect("it writes");
    assert!(rows(old).await.expect("the table is readable") > 0);
    busy.batch_execute("ROLLBACK").await.expect("the locks are released");
    // A new connection of another process deletes them.
    let other = Store::open(&url).await.expect("it opens");
    other.write(|tx| tx.execute(INSERT, params![1])).await.expect("it writes");
    assert_eq!(rows(old).await.expect("the table is readable"), 0);
}
