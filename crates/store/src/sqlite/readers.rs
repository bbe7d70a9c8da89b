//! Idle reader connections. The number open is bounded by the runtime's blocking threads; a few
//! are kept.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rusqlite::Connection;

use super::pragma;
use crate::Error;

const KEPT: usize = 8;

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
        let connection = pragma::connect(&self.path)?;
        pragma::read_only(&connection)?;
        Ok(connection)
    }

    pub(super) fn give(&self, connection: Connection) {
        let mut idle = self.lock();
        if idle.len() < KEPT {
            idle.push(connection);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
