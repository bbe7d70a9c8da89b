//! Faults that a test injects into the simulated kernel at run time: a file
//! `<host>/sysfs/<address>/<attribute>` in the state directory replaces the attribute's content,
//! and a directory there makes the attribute unreadable. `driver` contains the name of the bound
//! driver; an empty file means that no driver is bound.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// The directory of the faults; `None` for a sysfs in memory.
#[derive(Debug, Default)]
pub(super) struct Faults(Option<PathBuf>);

impl Faults {
    pub(super) fn below(folder: PathBuf) -> Self {
        Self(Some(folder))
    }

    /// The injected content at the path, if any.
    pub(super) fn content(&self, path: &str) -> Option<io::Result<Vec<u8>>> {
        let below = path.strip_prefix("bus/pci/devices/")?;
        match std::fs::read(self.0.as_ref()?.join(below)) {
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                None
            }
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
