//! The state directory: one owner at a time, keys and credentials readable by the owner alone.

mod secret;

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub use secret::same;

use crate::Failure;

/// An owned state directory; released when the process ends, however it ends.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: File,
}

impl StateDir {
    /// Whether the directory could be taken; changes nothing, so that what is refused later leaves
    /// no trace.
    ///
    /// # Errors
    /// When a running process owns it.
    pub fn check_free(path: &Path) -> Result<(), Failure> {
        match File::open(path.join("lock")) {
            Ok(lock) => lock_of(path, &lock),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(cannot(path, &error)),
        }
    }

    /// Takes the directory, making it if need be.
    ///
    /// # Errors
    /// When a running process owns it, or it cannot be made.
    pub fn take(path: &Path) -> Result<Self, Failure> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|e| cannot(path, &e))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(|e| cannot(path, &e))?;
        lock_of(path, &lock)?;
        Ok(Self { path: path.to_owned(), _lock: lock })
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

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Refused(format!("cannot use the state directory {}: {error}", path.display()))
}

fn lock_of(path: &Path, lock: &File) -> Result<(), Failure> {
    match lock.try_lock() {
        Ok(()) => Ok(()),
        Err(std::fs::TryLockError::WouldBlock) => Err(Failure::Refused(format!(
            "the state directory {} is owned by a running instance; stop that one or name another \
             directory with --state-dir",
            path.display()
        ))),
        Err(std::fs::TryLockError::Error(error)) => Err(cannot(path, &error)),
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
