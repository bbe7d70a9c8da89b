//! `[seal]`: the source of the sealing keys of the cloud's secrets; and `[fernet_tokens]`.

use std::path::{Path, PathBuf};

use kilonova_seal::KeySource;

use super::File;
use crate::failure::Failure;

const GROUP: &str = "seal";
/// The name of the key file in the state directory.
pub const KEY_FILE: &str = "seal.key";
/// Keystone's default of `max_active_keys`.
const ACTIVE_KEYS: usize = 3;

/// The operator's options about keys. `Debug` does not show the command, which may contain a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct SealOptions {
    /// `[seal] key_file`; relative to the configuration file.
    pub key_file: Option<PathBuf>,
    /// `[seal] key_command`.
    pub key_command: Option<String>,
    /// Maximum number of token keys (`[fernet_tokens] max_active_keys`).
    pub active_keys: usize,
}

impl std::fmt::Debug for SealOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealOptions")
            .field("key_file", &self.key_file)
            .field("key_command", &self.key_command.as_ref().map(|_| "…"))
            .field("active_keys", &self.active_keys)
            .finish()
    }
}

impl SealOptions {
    /// The origin of the sealing keys.
    pub fn source(&self, state_dir: &Path) -> KeySource {
        match (&self.key_command, &self.key_file) {
            (Some(command), _) => KeySource::Command(command.clone()),
            (None, Some(file)) => KeySource::File(file.clone()),
            (None, None) => KeySource::Default(state_dir.join(KEY_FILE)),
        }
    }
}

pub(super) fn read(file: &File) -> Result<SealOptions, Failure> {
    let key_file = file.path(GROUP, "key_file").map(|path| match file.folder() {
        Some(folder) => folder.join(path),
        None => path,
    });
    let key_command = file.get(GROUP, "key_command").map(str::to_owned);
    if key_file.is_some() && key_command.is_some() {
        return Err(file.wrong(GROUP, "key_command", "set either key_file or key_command"));
    }
    let keys =
        file.parse::<usize>("fernet_tokens", "max_active_keys", "an integer of at least 2")?;
    if keys.is_some_and(|keys| keys < 2) {
        return Err(file.wrong("fernet_tokens", "max_active_keys", "it must be at least 2"));
    }
    Ok(SealOptions { key_file, key_command, active_keys: keys.unwrap_or(ACTIVE_KEYS) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_from_one_place() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("k.conf");
        let options = |text: &str| {
            std::fs::write(&path, text).expect("the file is written");
            File::read(&path, crate::config::KNOWN)
                .and_then(|file| read(&file))
                .map_err(|failure| failure.to_string())
        };
        let state = Path::new("/state");
        let usual = options("").expect("the file is valid");
        assert_eq!(usual.source(state), KeySource::Default("/state/seal.key".into()));
        assert_eq!(usual.active_keys, 3);
        let file = options("[seal]\nkey_file = k\n").expect("the file is valid");
        assert_eq!(file.source(state), KeySource::File(folder.path().join("k")));
        let command = options("[seal]\nkey_command = vault read -field=key kv/kilonova\n");
        let command = command.expect("the file is valid");
        assert!(!format!("{command:?} {:?}", command.source(state)).contains("vault"));
        let command = command.source(state);
        assert_eq!(command, KeySource::Command("vault read -field=key kv/kilonova".into()));
        for (wrong, line) in [
            ("[seal]\nkey_file = k\nkey_command = x\n", 3),
            ("[fernet_tokens]\nmax_active_keys = 1\n", 2),
        ] {
            let said = options(wrong).expect_err(wrong);
            assert!(said.contains(&format!("k.conf:{line}: ")), "{said}");
        }
    }
}
