//! The state directory: one owner at a time; keys and credentials are readable only by the owner.

mod secret;

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
pub use secret::same;

use crate::Failure;

/// The permissions of group and others.
const OTHERS: u32 = 0o077;

/// An owned state directory, released when the process ends.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: File,
}

impl StateDir {
    /// Checks that the directory is free. Changes nothing, so that a later refusal leaves no trace.
    ///
    /// # Errors
    /// If a running process owns it.
    pub fn check_free(path: &Path) -> Result<(), Failure> {
        match File::open(path.join("lock")) {
            Ok(lock) => lock_of(path, &lock),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(cannot(path, &error)),
        }
    }

    /// True if a running process owns the directory.
    pub fn is_owned(path: &Path) -> bool {
        let lock = File::open(path.join("lock"));
        lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(std::fs::TryLockError::WouldBlock)))
    }

    /// Checks that only the owner can access the directory. Changes nothing. An empty directory
    /// passes, as [`Self::make_private`] protects it.
    ///
    /// # Errors
    /// If it is not a directory; if others have access, with the command to fix it.
    pub fn check_private(path: &Path) -> Result<(), Failure> {
        let found = match std::fs::metadata(path) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(cannot(path, &error)),
        };
        if !found.is_dir() {
            return Err(cannot(path, &std::io::ErrorKind::NotADirectory.into()));
        }
        let mode = found.permissions().mode() & 0o7777;
        let empty = || std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        if mode & OTHERS == 0 || empty() {
            return Ok(());
        }
        let shown = path.display();
        Err(Failure::Refused(format!(
            "other users have access to the state directory {shown} (mode {mode:04o}), which \
             contains keys and passwords: run `chmod 700 {shown}`, or name another directory with \
             --state-dir"
        )))
    }

    /// Restricts the directory and its files to their owner, and also files that this process
    /// creates later.
    ///
    /// # Errors
    /// If the directory belongs to another user.
    pub fn make_private(&self) -> Result<(), Failure> {
        rustix::process::umask(Mode::from_raw_mode(OTHERS));
        let close = |path: &Path, mode: u32| {
            let found = std::fs::metadata(path)?.permissions().mode();
            if found & OTHERS != 0 {
                std::fs::set_permissions(path, Permissions::from_mode(mode))?;
            }
            Ok(())
        };
        close(&self.path, 0o700).map_err(|e| cannot(&self.path, &e))?;
        for entry in std::fs::read_dir(&self.path).map_err(|e| cannot(&self.path, &e))?.flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                close(&path, 0o600).map_err(|e| cannot(&path, &e))?;
            }
        }
        Ok(())
    }

    /// Takes ownership of the directory, creating it if necessary.
    ///
    /// # Errors
    /// If a running process owns it, or it cannot be created.
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

    /// A path in the directory.
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

/// Writes a file atomically that only the owner can read.
///
/// # Errors
/// A file system error.
pub fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    write_owned(path, text, None)
}

/// Like [`write_secret`], for a command that root may run on the state directory of a service: the
/// file gets the owner of the directory, so that the service can read it.
///
/// # Errors
/// A file system error.
pub fn write_service_secret(directory: &Path, name: &str, text: &str) -> std::io::Result<()> {
    let found = std::fs::metadata(directory)?;
    write_owned(&directory.join(name), text, Some((found.uid(), found.gid())))
}

fn write_owned(path: &Path, text: &str, owner: Option<(u32, u32)>) -> std::io::Result<()> {
    use std::io::Write;
    let draft = path.with_extension("new");
    // A draft that exists is never opened: it may be a link to a file that must not change.
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&draft)?;
    if let Some((user, group)) = owner {
        // Only root may give a file away. A service writes its own files, whatever the group of its directory.
        let own = file.metadata()?;
        if own.uid() == 0 && (own.uid(), own.gid()) != (user, group) {
            fchown(&file, Some(user), Some(group))?;
        }
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&draft, path)?;
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("the file exists").permissions().mode() & 0o7777
    }

    fn set(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode))
            .expect("the file attributes are set");
    }

    #[test]
    fn a_directory_open_to_others_is_refused_unless_empty() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("state");
        assert!(StateDir::check_private(&path).is_ok(), "the directory does not exist yet");
        std::fs::create_dir(&path).expect("the directory is created");
        set(&path, 0o755);
        assert!(StateDir::check_private(&path).is_ok(), "it is empty");
        std::fs::write(path.join("clouds.yaml"), "x").expect("the file is written");
        for (wide, fine) in [(0o755, false), (0o750, false), (0o711, false), (0o700, true)] {
            set(&path, wide);
            let checked = StateDir::check_private(&path);
            assert_eq!(checked.is_ok(), fine, "{wide:o}");
            if let Err(refusal) = checked {
                let message = refusal.to_string();
                assert!(message.contains(&format!("chmod 700 {}", path.display())), "{message}");
            }
        }
    }

    /// As root, the directory of the test belongs to another user, as a service's does.
    #[test]
    fn a_services_secret_belongs_to_the_owner_of_its_directory() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let (path, linked) = (folder.path().join("state"), folder.path().join("linked"));
        std::fs::create_dir(&path).expect("the directory is created");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), Some(65_533)).expect("root may do that");
        }
        std::fs::write(&linked, "x").expect("the file is written");
        std::os::unix::fs::symlink(&linked, path.join("openrc.new")).expect("the link is created");
        write_service_secret(&path, "openrc", "secret").expect("the file is written");
        let found = |path: &Path| std::fs::symlink_metadata(path).expect("the file exists");
        let (directory, file) = (found(&path), found(&path.join("openrc")));
        assert!(file.is_file());
        assert_eq!((file.uid(), file.gid()), (directory.uid(), directory.gid()));
        assert_eq!(mode(&path.join("openrc")), 0o600);
        assert_eq!(std::fs::read_to_string(&linked).expect("the file is read"), "x");
        assert_eq!(found(&linked).uid(), rustix::process::geteuid().as_raw());
    }

    #[test]
    fn a_file_is_not_to_be_made_private() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("state");
        std::fs::write(&path, "a file with another purpose").expect("the file is written");
        set(&path, 0o644);
        let refusal = StateDir::check_private(&path).expect_err("it is not a directory");
        let message = refusal.to_string();
        assert!(message.contains("not a directory") && !message.contains("chmod"), "{message}");
    }

    #[test]
    fn its_files_are_restricted_to_the_owner() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("state");
        std::fs::create_dir(&path).expect("the directory is created");
        let old = path.join("kilonova.db");
        std::fs::write(&old, "x").expect("the file is written");
        set(&path, 0o755);
        set(&old, 0o644);
        let directory = StateDir::take(&path).expect("the lock is free");
        directory.make_private().expect("the directory belongs to this user");
        std::fs::write(path.join("new"), "x").expect("the file is written");
        assert_eq!([&path, &old, &path.join("new")].map(|one| mode(one)), [0o700, 0o600, 0o600]);
    }
}
