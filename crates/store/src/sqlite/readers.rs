//! The reader connections: few, opened when first needed and kept.
//!
//! The readers' threads are as many as the connections, so there is always one for a thread. More of
//! them would read no faster, and each has a page cache of its own.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rusqlite::Connection;

use super::pragma;
use crate::Error;

/// Connections at most.
pub(super) const MOST: usize = 8;

pub(super) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), idle: Mutex::new(Vec::new()) }
    }

    pub(super) fn take(&self) -> Result<Connection, Error> {
        if let Some(connection) = self.lock().pop() {
            return Ok(connection);
        }
        // The database was opened at the start: what keeps it from being opened once more (files,
        // memory) may pass.
        let connection = pragma::connect(&self.path).map_err(|error| match error {
            Error::Open(why) => Error::Unavailable(why),
            other => other,
        })?;
        pragma::read_only(&connection)?;
        Ok(connection)
    }

    pub(super) fn give(&self, connection: Connection) {
        self.lock().push(connection);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
