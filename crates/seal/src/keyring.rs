//! The sealing keys of a controller: one on each line of a key file or of a command's output, the
//! oldest first. Empty lines and lines that begin with `#` are ignored.
//!
//! The database names the key that seals. The others only open secrets: keys that do not seal yet,
//! and keys that sealed before a change of the sealing key.

use std::str::FromStr;

use zeroize::Zeroizing;

use crate::key::{self, KeyId, SealKey};
use crate::{Error, Sealed, Secret};

/// The sealing keys of a controller.
#[derive(Debug)]
pub struct Keyring {
    keys: Vec<SealKey>,
    place: String,
}

impl Keyring {
    /// Parses the keys; `place` is their origin, for messages.
    pub(crate) fn parse(text: &Zeroizing<String>, place: &str) -> Result<Self, Error> {
        let mut keys: Vec<SealKey> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = SealKey::from_str(line).map_err(|()| {
                Error::Key(format!(
                    "line {} of {place} is not a sealing key, 32 random bytes in base64, such as \
                     `openssl rand -base64 32` prints",
                    index + 1
                ))
            })?;
            keys.retain(|one| one.id() != key.id());
            keys.push(key);
        }
        if keys.is_empty() {
            return Err(Error::Key(format!("{place} contains no sealing key")));
        }
        Ok(Self { keys, place: place.to_owned() })
    }

    /// The ids of the keys, the oldest first.
    pub fn ids(&self) -> impl Iterator<Item = &KeyId> {
        self.keys.iter().map(SealKey::id)
    }

    /// The origin of the keys.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The key of the last line.
    pub(crate) fn newest(&self) -> Result<&SealKey, Error> {
        self.keys
            .last()
            .ok_or_else(|| Error::Key(format!("{} contains no sealing key", self.place)))
    }

    /// The key with an id.
    pub(crate) fn get(&self, id: &KeyId) -> Result<&SealKey, Error> {
        self.keys
            .iter()
            .find(|key| key.id() == id)
            .ok_or_else(|| Error::Unknown { id: id.clone(), place: self.place.clone() })
    }

    /// Opens a sealed secret.
    pub(crate) fn open(&self, sealed: &Sealed) -> Result<Secret, Error> {
        key::open(&sealed.place(), &sealed.text, |id| self.get(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Keyring, String> {
        Keyring::parse(&Zeroizing::new(text.to_owned()), "the key file k")
            .map_err(|e| e.to_string())
    }

    #[test]
    fn the_last_line_is_the_newest_key() {
        let (a, b) = (SealKey::generate().expect("a key"), SealKey::generate().expect("a key"));
        let ring = parsed(&format!("# old\n{}\n\n {} \n", *a.line(), *b.line())).expect("keys");
        assert_eq!(ring.ids().collect::<Vec<_>>(), [a.id(), b.id()]);
        assert_eq!(ring.newest().expect("a key").id(), b.id());
        let other = SealKey::generate().expect("a key");
        let said = ring.get(other.id()).expect_err("it is unknown").to_string();
        assert!(said.contains(other.id().as_str()) && said.contains("the key file k"), "{said}");
    }

    #[test]
    fn garbage_is_refused_without_being_shown() {
        for (text, words) in [
            ("", "contains no sealing key"),
            ("# x\n", "no sealing key"),
            ("\nhunter2\n", "line 2 of"),
        ] {
            let said = parsed(text).expect_err("it is refused");
            assert!(said.contains(words) && !said.contains("hunter2"), "{said}");
        }
    }
}
