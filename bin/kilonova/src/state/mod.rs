//! The state directory: one owner at a time, keys and credentials readable by the owner alone.

mod credentials;

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub use credentials::Credentials;

use crate::failure::Failure;

/// An owned state directory; released when the process ends, however it ends.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: File,
}

impl StateDir {
    /// Takes the directory, making it if need be.
    ///
    /// # Errors
    /// When a running process owns it, or it cannot be made.
    pub fn take(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let cannot = |e: std::io::Error| {
            Failure::Refused(format!("cannot use the state directory {shown}: {e}"))
        };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(cannot)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(cannot)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(std::fs::TryLockError::WouldBlock) => Err(Failure::Refused(format!(
                "the state directory {shown} is owned by a running instance; stop that one or name \
                 another directory with --state-dir"
            ))),
            Err(std::fs::TryLockError::Error(e)) => Err(cannot(e)),
        }
    }

    /// A path inside.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Writes a file that only the owner can read, whole or not at all.
///
/// # Errors
/// The system's.
pub fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    let draft = path.with_extension("new");
    let mut file =
        OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&draft, path)?;
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}
