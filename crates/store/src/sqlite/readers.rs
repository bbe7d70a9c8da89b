//! The reader connections: few, opened when first needed and kept.
//!
//! Who finds all of them taken waits without holding a thread. More of them would read no faster,
//! and each has a page cache of its own.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::pragma;
use crate::Error;

const MOST: usize = 8;

pub(super) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    free: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(path: &Path) -> Self {
        let free = Arc::new(Semaphore::new(MOST));
        Self { path: path.to_owned(), idle: Mutex::new(Vec::new()), free }
    }

    /// Waits until a connection may be taken, and until the returned value is dropped.
    pub(super) async fn turn(&self) -> Result<OwnedSemaphorePermit, Error> {
        let turn = Arc::clone(&self.free).acquire_owned().await;
        turn.map_err(|_| Error::Other("the database is closed".into()))
    }

    pub(super) fn take(&self) -> Result<Connection, Error> {
        if let Some(connection) = self.lock().pop() {
            return Ok(connection);
        }
        let connection = pragma::connect(&self.path)?;
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
