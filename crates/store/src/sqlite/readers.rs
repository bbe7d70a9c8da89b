//! The reader connections: few, opened on demand, and closed after some idle time.
//!
//! There are as many reader threads as connections, so a thread never waits for one. More
//! connections would not read faster, and each needs some megabytes for its own page cache, schema
//! and prepared statements. A quiet process needs one or two.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::pragma;
use crate::Error;

/// Maximum number of connections.
pub(super) const MAX_READERS: usize = 8;

/// A connection that has been idle for this long is closed when another one becomes idle.
const MAX_IDLE: Duration = Duration::from_secs(5);

pub(super) struct Readers {
    path: PathBuf,
    /// The idle connections with the time of their last use, in ascending order.
    idle: Mutex<Vec<(Connection, Instant)>>,
    /// [`MAX_IDLE`], except in tests.
    limit: Duration,
}

impl Readers {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), idle: Mutex::new(Vec::new()), limit: MAX_IDLE }
    }

    pub(super) fn take(&self) -> Result<Connection, Error> {
        if let Some((connection, _)) = self.lock().pop() {
            return Ok(connection);
        }
        // The database was opened at the start, so a failure to open another connection (too many
        // open files, no memory) may be temporary.
        let connection = pragma::connect(&self.path).map_err(|error| match error {
            Error::Open(why) => Error::Unavailable(why),
            other => other,
        })?;
        pragma::set_read_only(&connection)?;
        Ok(connection)
    }

    pub(super) fn give(&self, connection: Connection) {
        let mut idle = self.lock();
        let long = idle.first().is_some_and(|(_, since)| since.elapsed() >= self.limit);
        let unneeded = long.then(|| idle.remove(0));
        idle.push((connection, Instant::now()));
        drop(idle);
        // Closes the connection after releasing the lock: closing takes longer than a small read.
        drop(unneeded);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Connection, Instant)>> {
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(limit: Duration) -> usize {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let readers = Readers { limit, ..Readers::new(&folder.path().join("kilonova.db")) };
        let taken: Vec<Connection> =
            (0..3).map(|_| readers.take().expect("a reader opens")).collect();
        taken.into_iter().for_each(|reader| readers.give(reader));
        readers.lock().len()
    }

    #[test]
    fn readers_that_are_not_needed_are_closed() {
        assert_eq!(kept(Duration::from_secs(60)), 3);
        assert_eq!(kept(Duration::ZERO), 1);
    }
}
