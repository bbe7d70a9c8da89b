//! Faults that a test injects into the simulated kernel at run time: a file
//! `<host>/sysfs/<address>/<attribute>` in the state directory replaces the attribute's content,
//! and a directory there makes the attribute unreadable. `driver` contains the name of the bound
//! driver; an empty file means that no driver is bound.
//!
//! Almost every host has no faults, and a scan of eight cards reads a hundred attributes. So a scan looks for the
//! directory once, when it lists the functions, and does not look for a file of each attribute if it is missing.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a scan may rely on the directory being missing. Longer than a scan of some cards takes; later reads look for
/// the files.
const SCAN: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(super) struct Faults {
    /// The directory of the faults; `None` for a sysfs in memory.
    folder: Option<PathBuf>,
    /// When the last scan began, if the directory was missing then.
    missing_at: Mutex<Option<Instant>>,
}

impl Faults {
    pub(super) fn below(folder: PathBuf) -> Self {
        Self { folder: Some(folder), missing_at: Mutex::default() }
    }

    /// Begins a scan.
    pub(super) fn begin_scan(&self) {
        let Some(folder) = &self.folder else { return };
        let is_missing = folder.symlink_metadata().is_err_and(|error| is_absent(&error));
        let missing_at = is_missing.then(Instant::now);
        *self.missing_at.lock().unwrap_or_else(PoisonError::into_inner) = missing_at;
    }

    /// True if a scan that has just begun found no faults.
    fn are_missing(&self) -> bool {
        let missing_at = *self.missing_at.lock().unwrap_or_else(PoisonError::into_inner);
        missing_at.is_some_and(|at| at.elapsed() < SCAN)
    }

    /// The injected content at the path, if any.
    pub(super) fn content(&self, path: &str) -> Option<io::Result<Vec<u8>>> {
        let below = path.strip_prefix("bus/pci/devices/")?;
        let folder = self.folder.as_ref().filter(|_| !self.are_missing())?;
        match std::fs::read(folder.join(below)) {
            Err(error) if is_absent(&error) => None,
            read => Some(read),
        }
    }

    /// The injected target of the driver link, if any.
    pub(super) fn driver(&self, path: &str) -> Option<io::Result<String>> {
        let content = path.strip_suffix("/driver").and_then(|_| self.content(path))?;
        Some(content.and_then(|name| match String::from_utf8_lossy(&name).trim() {
            "" => Err(ErrorKind::NotFound.into()),
            name => Ok(format!("bus/pci/drivers/{name}")),
        }))
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_seen_by_the_next_scan_and_by_later_reads() {
        let state = tempfile::tempdir().expect("a temporary directory is created");
        let faults = Faults::below(state.path().join("sysfs"));
        let path = "bus/pci/devices/0000:84:00.0/config";
        let read = || faults.content(path).map(|content| content.expect("the file is readable"));
        faults.begin_scan();
        assert_eq!(read(), None);
        let card = state.path().join("sysfs/0000:84:00.0");
        std::fs::create_dir_all(&card).expect("the directory is created");
        std::fs::write(card.join("config"), [0xff]).expect("the file is written");
        faults.begin_scan();
        assert_eq!(read(), Some(vec![0xff]), "by the next scan");
        std::fs::remove_dir_all(state.path().join("sysfs")).expect("the directory is removed");
        faults.begin_scan();
        assert_eq!(read(), None);
        std::fs::create_dir_all(&card).expect("the directory is created");
        std::fs::write(card.join("config"), [0xfe]).expect("the file is written");
        std::thread::sleep(SCAN);
        assert_eq!(read(), Some(vec![0xfe]), "by a read without a scan");
    }
}
