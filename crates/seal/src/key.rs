//! One sealing key: 32 random bytes, for AES-256-GCM.
//!
//! A sealed text is `kns1:KEY:DATA`. `kns1` is the version of the format, `KEY` the id of the
//! sealing key, and `DATA` the nonce, the encrypted secret and the tag, in URL-safe base64. The tag
//! also covers the kind and the number of the secret, so that a sealed text opens only at its own
//! place.
//!
//! Nonces are random. A cloud seals a few secrets per year, so a collision is practically
//! impossible.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::{Error, Secret};

const VERSION: &str = "kns1";
const BYTES: usize = 32;

/// The name of a sealing key: the beginning of a hash of it, which does not reveal it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(String);

impl KeyId {
    const DIGITS: usize = 16;

    fn of(bytes: &[u8; BYTES]) -> Self {
        let digest = Sha256::new().chain_update(b"kilonova sealing key\0").chain_update(bytes);
        let mut text: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        text.truncate(Self::DIGITS);
        Self(text)
    }

    /// The text of the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let fits = text.len() == Self::DIGITS
            && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        fits.then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A sealing key, overwritten when it is dropped.
pub struct SealKey {
    id: KeyId,
    bytes: Zeroizing<[u8; BYTES]>,
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealKey({})", self.id)
    }
}

impl SealKey {
    /// Generates a key.
    ///
    /// # Errors
    /// If the system provides no randomness.
    pub fn generate() -> Result<Self, Error> {
        let mut bytes = Zeroizing::new([0; BYTES]);
        random(&mut *bytes)?;
        Ok(Self { id: KeyId::of(&bytes), bytes })
    }

    /// Its id.
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// The key as a line of a key file.
    pub fn line(&self) -> Zeroizing<String> {
        Zeroizing::new(URL_SAFE.encode(*self.bytes))
    }

    /// Seals a secret for its place.
    ///
    /// # Errors
    /// If the system provides no randomness.
    pub fn seal(&self, place: &str, secret: &[u8]) -> Result<String, Error> {
        let mut nonce = [0; NONCE_LEN];
        random(&mut nonce)?;
        let mut data = Zeroizing::new(Vec::with_capacity(secret.len() + AES_256_GCM.tag_len()));
        data.extend_from_slice(secret);
        self.cipher()?
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(place.as_bytes()),
                &mut *data,
            )
            .map_err(|_| Error::Key(format!("cannot seal the secret {place}")))?;
        let data = URL_SAFE_NO_PAD.encode([&nonce[..], &data].concat());
        Ok(format!("{VERSION}:{}:{data}", self.id))
    }

    /// Opens a text that this key sealed for that place.
    ///
    /// # Errors
    /// [`Error::Damaged`] for any other text.
    pub fn unseal(&self, place: &str, text: &str) -> Result<Secret, Error> {
        let mut parts = text.splitn(3, ':');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(VERSION), Some(id), Some(data)) if id == self.id.as_str() => {
                self.open(place, data)
            }
            _ => Err(Error::Damaged(place.to_owned())),
        }
    }

    /// Opens the data of a text that this key sealed for that place.
    fn open(&self, place: &str, data: &str) -> Result<Secret, Error> {
        let damaged = || Error::Damaged(place.to_owned());
        let mut data = Zeroizing::new(URL_SAFE_NO_PAD.decode(data).map_err(|_| damaged())?);
        let (nonce, sealed) = data.split_first_chunk_mut::<NONCE_LEN>().ok_or_else(damaged)?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let aad = Aad::from(place.as_bytes());
        let secret = self.cipher()?.open_in_place(nonce, aad, sealed).map_err(|_| damaged())?;
        Ok(Secret::new(secret))
    }

    fn cipher(&self) -> Result<LessSafeKey, Error> {
        let key = UnboundKey::new(&AES_256_GCM, &*self.bytes);
        key.map(LessSafeKey::new)
            .map_err(|_| Error::Key("the sealing key has the wrong length".to_owned()))
    }
}

impl FromStr for SealKey {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let decoded = [URL_SAFE, STANDARD, URL_SAFE_NO_PAD, STANDARD_NO_PAD]
            .iter()
            .find_map(|form| form.decode(text).ok())
            .map(Zeroizing::new)
            .ok_or(())?;
        let bytes: [u8; BYTES] = decoded.as_slice().try_into().map_err(|_| ())?;
        let bytes = Zeroizing::new(bytes);
        // Refuses a key whose bytes are all equal, such as one from a file of zeros.
        if bytes.iter().all(|byte| *byte == bytes[0]) {
            return Err(());
        }
        Ok(Self { id: KeyId::of(&bytes), bytes })
    }
}

fn random(bytes: &mut [u8]) -> Result<(), Error> {
    SystemRandom::new()
        .fill(bytes)
        .map_err(|_| Error::Key("the system provides no random numbers".to_owned()))
}

/// The id of the key that sealed a text, and its data.
fn parts<'a>(place: &str, text: &'a str) -> Result<(KeyId, &'a str), Error> {
    let mut parts = text.splitn(3, ':');
    match (parts.next(), parts.next().and_then(KeyId::parse), parts.next()) {
        (Some(VERSION), Some(id), Some(data)) => Ok((id, data)),
        _ => Err(Error::Damaged(place.to_owned())),
    }
}

/// The id of the key that sealed a text.
pub(crate) fn sealed_with(place: &str, text: &str) -> Result<KeyId, Error> {
    parts(place, text).map(|(id, _)| id)
}

/// Opens a text with the key that it names.
pub(crate) fn open<'k>(
    place: &str,
    text: &str,
    key: impl FnOnce(&KeyId) -> Result<&'k SealKey, Error>,
) -> Result<Secret, Error> {
    let (id, data) = parts(place, text)?;
    key(&id)?.open(place, data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(key: &SealKey, place: &str, text: &str) -> Result<Secret, Error> {
        open(place, text, |id| {
            assert_eq!(id, key.id());
            Ok(key)
        })
    }

    #[test]
    fn a_secret_opens_at_its_place_only() {
        let key = SealKey::generate().expect("a key is generated");
        let text = key.seal("fernet/1", b"secret").expect("the secret is sealed");
        assert!(text.starts_with(&format!("kns1:{}:", key.id())), "{text}");
        assert!(!text.contains("secret") && !text.contains(key.line().as_str()));
        assert_eq!(*opened(&key, "fernet/1", &text).expect("it opens"), *b"secret");
        assert_ne!(text, key.seal("fernet/1", b"secret").expect("the secret is sealed"));
        for (place, text) in [
            ("fernet/2", text.clone()),
            ("fernet/1", text[..text.len() - 1].to_owned()),
            ("fernet/1", format!("{text}AAAA")),
            ("fernet/1", format!("kns1:{}:", key.id())),
            ("fernet/1", text.replace("kns1", "kns2")),
            ("fernet/1", "nothing".to_owned()),
        ] {
            let said = opened(&key, place, &text);
            assert!(matches!(said, Err(Error::Damaged(_))), "{place} {text}");
        }
        let other = SealKey::generate().expect("a key is generated");
        let forged = text.replace(key.id().as_str(), other.id().as_str());
        assert!(matches!(opened(&other, "fernet/1", &forged), Err(Error::Damaged(_))));
    }

    #[test]
    fn a_key_is_32_bytes_in_any_base64() {
        let key = SealKey::generate().expect("a key is generated");
        assert_eq!(key.line().parse::<SealKey>().expect("the line is read").id(), key.id());
        let standard = STANDARD.encode(*key.bytes);
        assert_eq!(standard.parse::<SealKey>().expect("the line is read").id(), key.id());
        let zeros = URL_SAFE.encode([0; 32]);
        for wrong in ["", "password", &key.line()[4..], &format!("{}AAAA", *key.line()), &zeros] {
            assert!(wrong.parse::<SealKey>().is_err(), "{wrong}");
        }
        assert_eq!(format!("{key:?}"), format!("SealKey({})", key.id()));
    }
}
