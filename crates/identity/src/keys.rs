//! The Fernet key repository, in the layout of Keystone's `key_repository`: one file per key, named
//! by a number. The key with the highest number signs; all are accepted. An operator rotates keys by
//! adding a file and restarting.
//!
//! Only the owner may read a key: a file with wider permissions is refused.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use fernet::{Fernet, MultiFernet};

use crate::Error;

/// Reads the repository. Creates it with one key if it is missing or empty.
pub(crate) fn open(directory: &Path) -> Result<MultiFernet, Error> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|e| wrong(directory, &format!("cannot be created: {e}")))?;
    tighten(directory)?;
    if numbers(directory)?.is_empty() {
        create(directory)?;
    }
    let mut names = numbers(directory)?;
    names.sort_unstable_by(|a, b| b.cmp(a));
    let keys = names
        .into_iter()
        .map(|name| read(&directory.join(name.to_string())))
        .collect::<Result<Vec<_>, _>>()?;
    if keys.is_empty() {
        return Err(wrong(directory, "contains no key"));
    }
    Ok(MultiFernet::new(keys))
}

fn wrong(path: &Path, why: &str) -> Error {
    Error::Keys(format!("the token key repository {} {why}", path.display()))
}

fn tighten(directory: &Path) -> Result<(), Error> {
    let metadata =
        fs::metadata(directory).map_err(|e| wrong(directory, &format!("cannot be read: {e}")))?;
    if metadata.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700))
        .map_err(|e| wrong(directory, &format!("is accessible to others, and chmod failed: {e}")))
}

fn numbers(directory: &Path) -> Result<Vec<u32>, Error> {
    let entries =
        fs::read_dir(directory).map_err(|e| wrong(directory, &format!("cannot be listed: {e}")))?;
    Ok(entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect())
}

/// Writes the key to a temporary file and links it to its name, so that processes that start at once
/// agree on one key and never read a partial file.
fn create(directory: &Path) -> Result<(), Error> {
    let temporary = directory.join(format!(".new-{}", uuid::Uuid::new_v4().simple()));
    let write = || -> std::io::Result<()> {
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(Fernet::generate_key().as_bytes())?;
        file.sync_all()?;
        match fs::hard_link(&temporary, directory.join("1")) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
            _ => fs::File::open(directory)?.sync_all(),
        }
    };
    let written = write();
    let removed = fs::remove_file(&temporary);
    written.and(removed).map_err(|e| wrong(directory, &format!("cannot store a new key: {e}")))
}

fn read(path: &Path) -> Result<Fernet, Error> {
    let metadata = fs::metadata(path).map_err(|e| wrong(path, &format!("cannot be read: {e}")))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(wrong(path, "is accessible to others; run chmod 600 on it"));
    }
    let text =
        fs::read_to_string(path).map_err(|e| wrong(path, &format!("cannot be read: {e}")))?;
    Fernet::new(text.trim())
        .ok_or_else(|| wrong(path, "contains no Fernet key (32 bytes in URL-safe base64)"))
}
