//! PostgreSQL: a bounded pool, `REPEATABLE READ`, and retries.
//!
//! Under `REPEATABLE READ` two transactions that write the same row cannot both commit; the later
//! one runs again ([`lanes`] keeps that rare). The ledger relies on this: a transaction that
//! changes dependent rows (a provider's allocations, a consumer's requests) also writes the row
//! they depend on.
//!
//! Keys are checked against committed rows, not against the snapshot: a transaction that found no
//! row and inserted one can violate a key. After such a failure the transaction runs once more, so
//! that the caller's own check finds the row and reports it.

mod lanes;
mod session;
mod types;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use kilonova_threads::Pool as Threads;
use tokio::runtime::Handle;
use tokio_postgres::{IsolationLevel, NoTls};

pub(crate) use lanes::Lane;
use lanes::Lanes;
pub(crate) use session::Session;

use crate::work::{Failure, Outcome, Work};
use crate::{Error, Tx};

/// How long a transaction is retried before the caller gets its conflict.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause before the first retry; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
/// The maximum pause between retries.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of connections.
const CONNECTIONS: usize = 16;

pub(crate) struct Postgres {
    pool: Pool,
    /// One thread per connection.
    threads: Threads,
    lanes: Lanes,
}

impl Postgres {
    pub(crate) async fn open(config: &tokio_postgres::Config) -> Result<Self, Error> {
        let manager = Manager::from_config(
            config.clone(),
            NoTls,
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let pool = Pool::builder(manager)
            .max_size(CONNECTIONS)
            .build()
            .map_err(|e| Error::Open(format!("cannot set up the PostgreSQL pool: {e}")))?;
        let client = pool
            .get()
            .await
            .map_err(|e| Error::Open(format!("cannot connect to PostgreSQL: {}", chain(&e))))?;
        drop(client);
        let threads = Threads::new("postgresql", CONNECTIONS)
            .map_err(|e| Error::Open(format!("cannot start the threads of PostgreSQL: {e}")))?;
        Ok(Self { pool, threads, lanes: Lanes::new() })
    }

    pub(crate) async fn write(&self, lanes: BTreeSet<Lane>, work: Work) -> Outcome {
        self.run(false, lanes, work).await
    }

    pub(crate) async fn read(&self, work: Work) -> Outcome {
        self.run(true, BTreeSet::new(), work).await
    }

    async fn run(&self, read_only: bool, mut lanes: BTreeSet<Lane>, mut work: Work) -> Outcome {
        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
        let mut doubted = false;
        loop {
            let held = self.lanes.take(&lanes).await;
            let client = self.pool.get().await.map_err(|e| {
                Error::Unavailable(format!("no PostgreSQL connection: {}", chain(&e)))
            })?;
            let handle = Handle::current();
            let run = move || {
                let ended = once(client, &handle, read_only, &mut work);
                (ended, work)
            };
            let (ended, same_work) = self.threads.run(run).await.map_err(|error| {
                Error::Other(format!("the transaction was rolled back: {error}"))
            })?;
            work = same_work;
            drop(held);
            let (error, met) = match ended {
                Ended::Done(answer) => return answer,
                Ended::Conflict(error, met) => (error, met),
                Ended::Doubtful(error) if doubted => return Err(error),
                Ended::Doubtful(error) => {
                    doubted = true;
                    (error, None)
                }
            };
            if begun.elapsed() > PATIENCE {
                return Err(error);
            }
            lanes.extend(met);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

enum Ended {
    Done(Outcome),
    /// The transaction must run again; with the lane of the conflicting row, if known.
    Conflict(Failure, Option<Lane>),
    /// The transaction failed after a key violation: a newer snapshot may show the reason.
    Doubtful(Failure),
}

/// Runs the transaction once, on a thread that may block.
fn once(mut client: Object, handle: &Handle, read_only: bool, work: &mut Work) -> Ended {
    let begin = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(read_only)
        .start();
    let transaction = match handle.block_on(begin) {
        Ok(transaction) => transaction,
        Err(error) => return Ended::Done(Err(Error::from(error).into())),
    };
    let mut tx = Tx::postgres(Session::new(&transaction, handle));
    let outcome = work(&mut tx);
    let (retry, doubt, met) = (tx.retry, tx.doubt, tx.met);
    let hooks = std::mem::take(&mut tx.hooks);
    drop(tx);
    match outcome {
        Ok(value) => match handle.block_on(transaction.commit()).map_err(Error::from) {
            Ok(()) => {
                hooks.into_iter().for_each(|hook| hook());
                Ended::Done(Ok(value))
            }
            Err(error @ Error::Retry(_)) => Ended::Conflict(error.into(), None),
            Err(error) => Ended::Done(Err(error.into())),
        },
        Err(error) => match handle.block_on(transaction.rollback()) {
            Err(broken) => Ended::Done(Err(Error::from(broken).into())),
            Ok(()) if retry => Ended::Conflict(error, met),
            Ok(()) if doubt => Ended::Doubtful(error),
            Ok(()) => Ended::Done(Err(error)),
        },
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
