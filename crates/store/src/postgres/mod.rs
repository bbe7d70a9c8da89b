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
//!
//! A transaction whose connection is lost before its commit has changed nothing and runs again on
//! another connection.

mod connection;
mod lanes;
mod pool;
mod session;
mod types;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kilonova_threads::Pool as Threads;

use connection::Connection;
pub(crate) use lanes::Lane;
use lanes::Lanes;
use pool::Pool;
pub(crate) use session::Session;

use crate::work::{Failure, Outcome, Work};
use crate::{Error, Tx};

/// How long a transaction is retried after conflicts before the caller gets its conflict.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a transaction looks for a usable connection before the caller is told that the database
/// is unavailable.
const UNREACHABLE: Duration = Duration::from_secs(5);
/// The pause before the first retry; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
/// The maximum pause between retries.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// The pause after a connection was lost or refused.
const RECONNECT: Duration = Duration::from_millis(200);
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
        let threads = Threads::new("postgresql", CONNECTIONS)
            .map_err(|e| Error::Open(format!("cannot start the threads of PostgreSQL: {e}")))?;
        let pool = Pool::new(config.clone(), CONNECTIONS);
        let first = pool.clone();
        let opened = threads.run(move || first.take().map(|connection| first.put(connection)));
        match opened.await {
            Ok(Ok(())) => Ok(Self { pool, threads, lanes: Lanes::new() }),
            Ok(Err(error)) => Err(Error::Open(error.to_string())),
            Err(error) => Err(Error::Open(error.to_string())),
        }
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
            let pool = self.pool.clone();
            let run = move || {
                let ended = match pool.take() {
                    Ok(connection) => once(&pool, connection, read_only, &mut work),
                    Err(error) => Ended::Lost(error.into()),
                };
                (ended, work)
            };
            let (ended, same_work) = self.threads.run(run).await.map_err(|error| {
                Error::Other(format!("the transaction was rolled back: {error}"))
            })?;
            work = same_work;
            drop(held);
            let (error, met, patience) = match ended {
                Ended::Done(answer) => return answer,
                Ended::Conflict(error, met) => (error, met, PATIENCE),
                Ended::Doubtful(error) if doubted => return Err(error),
                Ended::Doubtful(error) => {
                    doubted = true;
                    (error, None, PATIENCE)
                }
                Ended::Lost(error) => {
                    pause = RECONNECT;
                    (error, None, UNREACHABLE)
                }
            };
            if begun.elapsed() > patience {
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
    /// There was no connection, or it was lost before the commit: nothing was changed.
    Lost(Failure),
}

/// Runs the transaction once, on a thread that may block. A usable connection returns to the pool; a
/// panic of the work drops it, which rolls the transaction back.
fn once(pool: &Pool, mut connection: Connection, read_only: bool, work: &mut Work) -> Ended {
    connection.begin(read_only);
    let mut tx = Tx::postgres(Session::new(&mut connection));
    let outcome = work(&mut tx);
    let (retry, doubt, met, lost) = (tx.retry, tx.doubt, tx.met, tx.lost.is_some());
    let hooks = std::mem::take(&mut tx.hooks);
    drop(tx);
    let ended = match outcome {
        // Its outcome is unknown only if the connection is lost during a commit of changes.
        Ok(value) => match connection.commit(read_only) {
            Ok(()) => {
                hooks.into_iter().for_each(|hook| hook());
                Ended::Done(Ok(value))
            }
            Err(error @ Error::Retry(_)) => Ended::Conflict(error.into(), None),
            Err(error) => {
                connection.abandon();
                Ended::Done(Err(error.into()))
            }
        },
        Err(error) if lost || !connection.is_usable() => {
            connection.abandon();
            Ended::Lost(error)
        }
        Err(error) => {
            connection.roll_back();
            if retry {
                Ended::Conflict(error, met)
            } else if doubt {
                Ended::Doubtful(error)
            } else {
                Ended::Done(Err(error))
            }
        }
    };
    pool.put(connection);
    ended
}
