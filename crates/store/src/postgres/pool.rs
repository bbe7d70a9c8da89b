//! The connections of a process.
//!
//! A connection belongs to one transaction at a time. The pool keeps the idle ones, the most recently
//! used first, so that a quiet process uses few. The threads that run transactions limit their number.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::connection::Connection;
use crate::Error;

/// How long a statement or a connection attempt may take before the connection is given up.
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(super) struct Pool(Arc<Inner>);

struct Inner {
    config: tokio_postgres::Config,
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    /// An empty pool; it keeps up to `size` idle connections.
    pub(super) fn new(config: tokio_postgres::Config, size: usize) -> Self {
        Self(Arc::new(Inner { config, idle: Mutex::new(Vec::with_capacity(size)) }))
    }

    /// An idle connection, or a new one. Blocks while it connects.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the server cannot be reached.
    pub(super) fn take(&self) -> Result<Connection, Error> {
        let idle = self.idle().pop();
        idle.map_or_else(|| Connection::open(&self.0.config, LIMIT), Ok)
    }

    /// Returns a connection. One that is not usable is closed, and the idle ones with it: what broke
    /// it, such as a restart of the server, broke them too.
    pub(super) fn put(&self, connection: Connection) {
        if connection.is_usable() {
            self.idle().push(connection);
        } else {
            drop(std::mem::take(&mut *self.idle()));
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
