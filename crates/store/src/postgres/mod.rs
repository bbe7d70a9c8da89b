//! PostgreSQL: a bounded pool, `REPEATABLE READ`, and retries.
//!
//! Under `REPEATABLE READ` two transactions that write the same row cannot both commit; the later
//! is run again. The ledger relies on this: whoever changes what hangs on a row (a provider's
//! allocations, a consumer's requests) writes that row too.

mod session;
mod types;

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use tokio_postgres::{IsolationLevel, NoTls};

pub(crate) use session::Session;

use crate::{Error, Tx};

/// Times a transaction is run before its conflict is given to the caller.
const ATTEMPTS: u32 = 40;
/// Connections at most.
const CONNECTIONS: usize = 16;

pub(crate) struct Postgres {
    pool: Pool,
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
        Ok(Self { pool })
    }

    pub(crate) async fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.run(false, work).await
    }

    pub(crate) async fn read<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.run(true, work).await
    }

    async fn run<T, E, F>(&self, read_only: bool, mut work: F) -> Result<T, E>
    where
        F: FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let mut client = self
            .pool
            .get()
            .await
            .map_err(|e| Error::Other(format!("no PostgreSQL connection: {}", chain(&e))))?;
        let handle = tokio::runtime::Handle::current();
        tokio::task::spawn_blocking(move || {
            let mut attempt = 0;
            loop {
                attempt += 1;
                let transaction = handle
                    .block_on(
                        client
                            .build_transaction()
                            .isolation_level(IsolationLevel::RepeatableRead)
                            .read_only(read_only)
                            .start(),
                    )
                    .map_err(Error::from)?;
                let mut tx = Tx::postgres(Session::new(&transaction, &handle));
                let outcome = work(&mut tx);
                let (retry, hooks) = (tx.retry, std::mem::take(&mut tx.hooks));
                drop(tx);
                let conflict = match outcome {
                    Ok(value) => match handle.block_on(transaction.commit()).map_err(Error::from) {
                        Ok(()) => {
                            hooks.into_iter().for_each(|hook| hook());
                            return Ok(value);
                        }
                        Err(error @ Error::Retry(_)) => error.into(),
                        Err(error) => return Err(error.into()),
                    },
                    Err(error) => {
                        handle.block_on(transaction.rollback()).map_err(Error::from)?;
                        if !retry {
                            return Err(error);
                        }
                        error
                    }
                };
                if attempt == ATTEMPTS {
                    return Err(conflict);
                }
                std::thread::sleep(Duration::from_micros(200 * u64::from(attempt)));
            }
        })
        .await
        .unwrap_or_else(|_| {
            Err(Error::Other("the transaction panicked and was rolled back".into()).into())
        })
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
