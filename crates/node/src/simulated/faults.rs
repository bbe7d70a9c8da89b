//! Faults that a test puts into the pretended kernel while the host runs: a file
//! `<host>/sysfs/<address>/<attribute>` in the state folder is what the attribute reads, and a folder
//! there is an attribute that cannot be read. `driver` holds the name of the driver that is bound,
//! nothing for none.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// Where the faults are; nowhere for a host that keeps nothing.
#[derive(Debug, Default)]
pub(super) struct Faults(Option<PathBuf>);

impl Faults {
    pub(super) fn below(folder: PathBuf) -> Self {
        Self(Some(folder))
    }

    /// What is said to be at the path, `None` where nothing is.
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

    /// Where the link to the driver leads.
    pub(super) fn driver(&self, path: &str) -> Option<io::Result<String>> {
        let content = path.strip_suffix("/driver").and_then(|_| self.content(path))?;
        Some(content.and_then(|name| match String::from_utf8_lossy(&name).trim() {
            "" => Err(ErrorKind::NotFound.into()),
            name => Ok(format!("bus/pci/drivers/{name}")),
        }))
    }
}
