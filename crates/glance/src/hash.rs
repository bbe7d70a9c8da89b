//! The hashes with which Glance describes the bytes of an image: `os_hash_algo` and `os_hash_value`, or
//! `checksum` of older images.

use md5::Md5;
use sha2::{Digest as _, Sha256, Sha384, Sha512};

/// The hash that the bytes of an image must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The name of the algorithm, as in `hashlib`.
    pub algorithm: String,
    /// The value in hex.
    pub value: String,
}

impl Expected {
    /// A digest to check the bytes; `None` if the algorithm is not supported.
    pub fn digest(&self) -> Option<Digest> {
        Digest::of(&self.algorithm)
    }
}

/// A hash in progress.
#[derive(Clone)]
pub enum Digest {
    /// `sha512`, Glance's default.
    Sha512(Box<Sha512>),
    /// `sha384`.
    Sha384(Box<Sha384>),
    /// `sha256`.
    Sha256(Box<Sha256>),
    /// `md5`: `checksum`.
    Md5(Box<Md5>),
}

impl Digest {
    /// The algorithm of a name; `None` for one that is not supported.
    pub fn of(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "sha512" => Some(Self::Sha512(Box::default())),
            "sha384" => Some(Self::Sha384(Box::default())),
            "sha256" => Some(Self::Sha256(Box::default())),
            "md5" => Some(Self::Md5(Box::default())),
            _ => None,
        }
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha512(hash) => hash.update(bytes),
            Self::Sha384(hash) => hash.update(bytes),
            Self::Sha256(hash) => hash.update(bytes),
            Self::Md5(hash) => hash.update(bytes),
        }
    }

    /// The value in hex.
    pub fn finish(self) -> String {
        match self {
            Self::Sha512(hash) => hex(&hash.finalize()),
            Self::Sha384(hash) => hex(&hash.finalize()),
            Self::Sha256(hash) => hex(&hash.finalize()),
            Self::Md5(hash) => hex(&hash.finalize()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_hashlib() {
        for (name, value) in [
            ("md5", "900150983cd24fb0d6963f7d28e17f72"),
            ("SHA256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ] {
            let mut digest = Digest::of(name).expect("the algorithm is supported");
            digest.update(b"a");
            digest.update(b"bc");
            assert_eq!(digest.finish(), value);
        }
        assert!(Digest::of("blake2b").is_none());
    }
}
