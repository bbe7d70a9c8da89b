//! The origin of a controller's sealing keys: the key file in its state directory, or a key file or
//! a command that the operator configures.
//!
//! Only the owner may read a key file; one with wider permissions is refused with the command to
//! correct it.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use zeroize::Zeroizing;

use crate::{Error, Keyring, SealKey, command};

/// Maximum size in bytes of a key file or of a command's output.
pub(crate) const MOST: usize = 16 * 1024;
/// The time limit of a command.
const LIMIT: Duration = Duration::from_secs(30);

/// The origin of a controller's sealing keys. `Debug` does not show a command, which may contain a
/// secret.
#[derive(Clone, PartialEq, Eq)]
pub enum KeySource {
    /// The file in the state directory. The first start of a cloud creates it.
    Default(PathBuf),
    /// A file of the operator.
    File(PathBuf),
    /// A command that prints the keys.
    Command(String),
}

impl std::fmt::Debug for KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default(path) => f.debug_tuple("Default").field(path).finish(),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Command(_) => f.write_str("Command(…)"),
        }
    }
}

impl KeySource {
    /// The origin as messages name it. A command may contain a secret, so it is not shown.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Default(path) | Self::File(path) => format!("the key file {}", path.display()),
            Self::Command(_) => "the output of [seal] key_command".to_owned(),
        }
    }

    /// Reads the keys; `None` if the file does not exist. Blocks.
    pub(crate) fn read(&self) -> Result<Option<Keyring>, Error> {
        let place = self.place();
        let bytes = match self {
            Self::Default(path) | Self::File(path) => read_private(path)?,
            Self::Command(text) => Some(command::output(text, LIMIT).map_err(|why| {
                Error::Key(format!("[seal] key_command {why}; it must print the sealing key"))
            })?),
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let text = std::str::from_utf8(&bytes)
            .map(|text| Zeroizing::new(text.to_owned()))
            .map_err(|_| Error::Key(format!("{place} is not text")))?;
        Keyring::parse(&text, &place).map(Some)
    }

    /// The advice for a missing key file.
    pub(crate) fn missing(&self) -> Error {
        Error::Key(match self {
            Self::Default(path) => format!(
                "the secrets of this cloud are sealed, and {} does not exist: copy it from a \
                 controller of this cloud, with mode 0600, or name another key file with [seal] key_file",
                path.display()
            ),
            Self::File(path) => format!(
                "[seal] key_file {path} does not exist: copy it from a controller of this cloud; \
                 for a new cloud run `(umask 077; openssl rand -base64 32 > {path})`, and copy it \
                 to \
                 the other controllers",
                path = path.display()
            ),
            Self::Command(_) => "[seal] key_command printed nothing".to_owned(),
        })
    }

    /// Creates the key file with its first key, unless it exists. Blocks.
    pub(crate) fn create(&self, key: &SealKey) -> Result<bool, Error> {
        let Self::Default(path) = self else { return Err(self.missing()) };
        create(path, &file_text(None, key))
            .map_err(|error| Error::Key(format!("cannot create {}: {error}", path.display())))
    }

    /// Removes the key file that [`Self::create`] created, because the cloud uses another key.
    /// Blocks.
    pub(crate) fn discard(&self) {
        if let Self::Default(path) = self
            && let Err(error) = fs::remove_file(path)
        {
            tracing::warn!(%error, "cannot remove the unused key file {}", path.display());
        }
    }

    /// Appends a key to the key file, which is replaced atomically. Blocks.
    ///
    /// # Errors
    /// If the keys come from a command, or the file cannot be written.
    pub fn append(&self, key: &SealKey) -> Result<(), Error> {
        let path = match self {
            Self::Default(path) | Self::File(path) => path,
            Self::Command(_) => {
                return Err(Error::Key(
                    "the sealing keys come from [seal] key_command: add a line with the new key, such \
                     as `openssl rand -base64 32` prints, to its output"
                        .to_owned(),
                ));
            }
        };
        let Some(bytes) = read_private(path)? else { return Err(self.missing()) };
        let before = Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned());
        replace(path, &file_text(Some(&before), key))
            .map_err(|error| Error::Key(format!("cannot write {}: {error}", path.display())))
    }
}

fn file_text(before: Option<&str>, key: &SealKey) -> Zeroizing<String> {
    const HEAD: &str = "# Sealing keys of a Kilonova cloud: they open the secrets in its database. Every \
                        controller\n# needs this file. Keep a copy apart from backups of the database.\n";
    let mut text = Zeroizing::new(String::with_capacity(MOST));
    text.push_str(before.unwrap_or(HEAD));
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&key.line());
    text.push('\n');
    text
}

/// The content of a file that only its owner may read; `None` if there is none. The permissions are
/// checked on the opened file, so that replacing the file in between has no effect.
fn read_private(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
    let shown = path.display();
    let unread =
        |error: std::io::Error| Error::Key(format!("cannot read the key file {shown}: {error}"));
    let file = match OpenOptions::new().read(true).custom_flags(NON_BLOCKING).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unread(error)),
    };
    let found = file.metadata().map_err(unread)?;
    if !found.is_file() {
        return Err(Error::Key(format!("the key file {shown} is not a regular file")));
    }
    let mode = found.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(Error::Key(format!(
            "other users have access to the key file {shown} (mode {mode:04o}): run `chmod 600 \
             {shown}`"
        )));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(MOST + 1));
    file.take(MOST as u64 + 1).read_to_end(&mut bytes).map_err(unread)?;
    if bytes.len() > MOST {
        return Err(Error::Key(format!("the key file {shown} has more than {MOST} bytes")));
    }
    Ok(Some(bytes))
}

/// Opening a FIFO must not wait for its writer.
const NON_BLOCKING: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

/// Writes a new file next to `path`; it gets the owner of `path` if that exists, so that the
/// service can read a file written by root.
fn draft(path: &Path, text: &str) -> std::io::Result<PathBuf> {
    let draft = path.with_extension(format!("new-{}", std::process::id()));
    // A draft that exists is never opened: it may be a link to a file that must not change.
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options.create_new(true).write(true).mode(0o600).open(&draft)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    if let Ok(found) = fs::metadata(path) {
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (found.uid(), found.gid()) {
            fchown(&file, Some(found.uid()), Some(found.gid()))?;
        }
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(draft)
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Creates the file atomically. Returns false if it exists.
fn create(path: &Path, text: &str) -> std::io::Result<bool> {
    let draft = draft(path, text)?;
    let linked = match fs::hard_link(&draft, path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    };
    fs::remove_file(&draft)?;
    sync_folder(path)?;
    linked
}

fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let draft = draft(path, text)?;
    fs::rename(&draft, path)?;
    sync_folder(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the mode is set");
    }

    #[test]
    fn a_key_file_is_private_and_grows_by_lines() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("seal.key");
        let source = KeySource::Default(path.clone());
        assert!(source.read().expect("there is none").is_none());
        let (a, b) = (SealKey::generate().expect("a key"), SealKey::generate().expect("a key"));
        assert!(source.create(&a).expect("it is created"));
        assert!(!source.create(&b).expect("it exists"));
        let mode = fs::metadata(&path).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        source.append(&b).expect("it is written");
        let mode = fs::metadata(&path).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let ring = source.read().expect("it is read").expect("it exists");
        assert_eq!(ring.ids().collect::<Vec<_>>(), [a.id(), b.id()]);
        assert_eq!(fs::read_dir(folder.path()).expect("it is listed").count(), 1);
        for wide in [0o640, 0o604, 0o620] {
            set(&path, wide);
            let said = source.read().expect_err("it is refused").to_string();
            assert!(said.contains(&format!("`chmod 600 {}`", path.display())), "{said}");
        }
    }

    #[test]
    fn unusable_key_files_are_refused() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("k");
        let source = KeySource::File(path.clone());
        let refused = |words: &str| {
            let said = source.read().expect_err(words).to_string();
            assert!(said.contains(words), "{said}");
        };
        for (bytes, words) in [
            (&b"\xff\xfe"[..], "is not text"),
            (b"", "contains no sealing key"),
            (b"x", "line 1 of the key file"),
            (&[b'\n'; MOST + 1], "more than"),
        ] {
            fs::write(&path, bytes).expect("the file is written");
            set(&path, 0o600);
            refused(words);
        }
        fs::remove_file(&path).expect("the file is removed");
        fs::create_dir(&path).expect("the directory is created");
        refused("is not a regular file");
        let said = KeySource::File(folder.path().join("none")).missing().to_string();
        assert!(said.contains("openssl rand -base64 32"), "{said}");
    }

    #[test]
    fn a_command_prints_keys() {
        let key = SealKey::generate().expect("a key");
        let source = KeySource::Command(format!("echo {}", *key.line()));
        let ring = source.read().expect("it is read").expect("it has keys");
        assert_eq!(ring.ids().collect::<Vec<_>>(), [key.id()]);
        assert!(!ring.place().contains(key.line().as_str()));
        assert_eq!(format!("{source:?}"), "Command(…)");
        for (command, words) in [
            ("echo hunter2", "line 1 of the output of [seal] key_command"),
            ("true", "contains no sealing key"),
            ("false", "key_command ended with"),
        ] {
            let said = KeySource::Command(command.into()).read().expect_err(words).to_string();
            assert!(said.contains(words) && !said.contains("hunter2"), "{said}");
        }
        assert!(source.append(&key).expect_err("it is a command").to_string().contains("line"));
    }
}
