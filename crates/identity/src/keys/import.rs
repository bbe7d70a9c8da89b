//! The key repository of earlier versions, in Keystone's layout: one file per key, named by a
//! number.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fernet::Fernet;
use zeroize::Zeroizing;

use super::{FIRST, STAGED};
use crate::Error;

/// Maximum size of a key file in bytes.
const MOST: u64 = 1024;

/// A key with its number.
pub(super) type Numbered = (i64, Zeroizing<Vec<u8>>);

/// The keys of a repository in the order of their numbers; empty if the repository does not exist.
pub(super) fn read(repository: &Path) -> Result<Vec<Numbered>, Error> {
    let entries = match fs::read_dir(repository) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(wrong(repository, &format!("cannot be listed: {error}"))),
    };
    let mut keys = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| wrong(repository, &format!("cannot be listed: {e}")))?;
        let number = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        if let Some(number) = number {
            keys.push((i64::from(number), key(&entry.path())?));
        }
    }
    keys.sort_by_key(|(number, _)| *number);
    Ok(keys)
}

/// Adds the keys that a rotation needs: a staged key and a primary key. A lone key 0 has been the
/// signing key, so it becomes the primary key.
pub(super) fn complete(mut keys: Vec<Numbered>) -> Vec<Numbered> {
    if let [(number, _)] = keys.as_mut_slice()
        && *number == STAGED
    {
        *number = FIRST;
    }
    if !keys.iter().any(|(number, _)| *number > STAGED) {
        keys.push((FIRST, new()));
    }
    if !keys.iter().any(|(number, _)| *number == STAGED) {
        keys.push((STAGED, new()));
    }
    keys.sort_by_key(|(number, _)| *number);
    keys
}

/// A new key.
pub(super) fn new() -> Zeroizing<Vec<u8>> {
    Zeroizing::new(Fernet::generate_key().into_bytes())
}

fn key(path: &Path) -> Result<Zeroizing<Vec<u8>>, Error> {
    let unread = |e: std::io::Error| wrong(path, &format!("cannot be read: {e}"));
    let file = fs::File::open(path).map_err(unread)?;
    if file.metadata().map_err(unread)?.permissions().mode() & 0o077 != 0 {
        return Err(wrong(
            path,
            &format!("is accessible to others: run `chmod 600 {}`", path.display()),
        ));
    }
    let mut text = Zeroizing::new(String::new());
    file.take(MOST).read_to_string(&mut text).map_err(unread)?;
    match Fernet::new(text.trim()) {
        Some(_) => Ok(Zeroizing::new(text.trim().as_bytes().to_vec())),
        None => Err(wrong(path, "contains no Fernet key (32 bytes in URL-safe base64)")),
    }
}

fn wrong(path: &Path, why: &str) -> Error {
    Error::Keys(format!("the token key repository {} {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(keys: &[Numbered]) -> Vec<i64> {
        keys.iter().map(|(number, _)| *number).collect()
    }

    #[test]
    fn a_repository_is_completed_for_rotation() {
        assert_eq!(numbers(&complete(Vec::new())), [0, 1]);
        let lone = new();
        let completed = complete(vec![(0, lone.clone())]);
        assert_eq!(numbers(&completed), [0, 1]);
        assert!(completed[1].1 == lone && completed[0].1 != lone, "the lone key still signs");
        assert_eq!(numbers(&complete(vec![(1, new())])), [0, 1]);
        assert_eq!(numbers(&complete(vec![(0, new()), (4, new()), (5, new())])), [0, 4, 5]);
        assert_eq!(numbers(&complete(vec![(4, new()), (5, new())])), [0, 4, 5]);
    }
}
