//! The connections of a process.
//!
//! A connection belongs to one transaction at a time. The pool keeps the idle ones, and hands out
//! the most recently used first, so that a process with little load uses few. The number of threads
//! that run transactions limits the number of connections.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::connection::Connection;
use super::dial::Refused;
use super::url::PostgresUrl;
use crate::{Error, Options};

#[derive(Clone)]
pub(super) struct Pool(Arc<Inner>);

struct Inner {
    url: PostgresUrl,
    options: Options,
    idle: Mutex<Vec<Connection>>,
    /// The host that accepted the latest connection.
    host: AtomicUsize,
    /// Why the last attempt to connect failed; `None` if it succeeded.
    outage: Mutex<Option<String>>,
    /// Held by the one thread that connects during an outage.
    attempt: Mutex<()>,
}

impl Pool {
    /// An empty pool.
    pub(super) fn new(url: PostgresUrl, options: Options) -> Self {
        let (host, outage, attempt) = Default::default();
        let idle = Mutex::new(Vec::with_capacity(options.max_pool_size));
        Self(Arc::new(Inner { url, options, idle, host, outage, attempt }))
    }

    /// Takes an idle connection, or opens a new one. Blocks while connecting.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if no server can be reached.
    pub(super) fn take(&self) -> Result<Connection, Error> {
        let idle = locked(&self.0.idle).pop();
        idle.map_or_else(|| self.connect().map_err(|refused| Error::Unavailable(refused.why)), Ok)
    }

    /// Opens a connection. During an outage only one thread at a time connects, and the others are
    /// refused immediately: a server that hangs must not occupy every thread, and a server that
    /// starts must not receive all attempts at the same time.
    pub(super) fn connect(&self) -> Result<Connection, Refused> {
        let Inner { url, options, host, outage, attempt, .. } = &*self.0;
        let known = locked(outage).clone();
        let _alone = match (known, attempt.try_lock()) {
            (None, _) => None,
            (Some(_), Ok(guard)) => Some(guard),
            (Some(_), Err(TryLockError::Poisoned(poisoned))) => Some(poisoned.into_inner()),
            (Some(why), Err(TryLockError::WouldBlock)) => {
                return Err(Refused { why, is_temporary: true });
            }
        };
        let opened = Connection::open(url, options, host);
        let before = {
            let now = opened.as_ref().err().map(|refused| refused.why.clone());
            std::mem::replace(&mut *locked(outage), now)
        };
        match (&opened, before) {
            (Err(refused), None) => tracing::warn!("{}; trying again", refused.why),
            (Ok(_), Some(_)) => tracing::info!("PostgreSQL accepts connections again"),
            (Err(_), Some(_)) | (Ok(_), None) => {}
        }
        opened
    }

    /// Returns a connection to the pool. Closes an unusable one together with the idle ones, because
    /// the cause, such as a restart of the server, affects them too. Closes an old one alone.
    pub(super) fn put(&self, connection: Connection) {
        let limit = self.0.options.connection_recycle_time;
        let closed = if !connection.is_usable() {
            std::mem::take(&mut *locked(&self.0.idle))
        } else if limit.is_some_and(|limit| connection.age() > limit) {
            Vec::new()
        } else {
            locked(&self.0.idle).push(connection);
            return;
        };
        drop((closed, connection));
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
