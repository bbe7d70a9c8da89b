//! Join tokens: a secret for one use, and the fingerprint of the authority that the host must
//! trust.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::Rng as _;
use sha2::{Digest, Sha256};

use crate::{Error, Fingerprint};

const MARK: &str = "kn1";

/// A random secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Generates a secret.
    pub fn new() -> Self {
        let mut bytes = [0; 32];
        rand::rng().fill_bytes(&mut bytes);
        Self(bytes)
    }

    /// The hash that the database stores. It does not allow a host to join.
    pub fn hash(&self) -> String {
        Sha256::digest(self.0).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Default for Secret {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl FromStr for Secret {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| Error::Token)?;
        bytes.try_into().map(Self).map_err(|_| Error::Token)
    }
}

/// A join token: `kn1.SECRET.FINGERPRINT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Authenticates the host to the controller.
    pub secret: Secret,
    /// Authenticates the controller to the host.
    pub authority: Fingerprint,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK}.{}.{}", self.secret, self.authority)
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts: Vec<&str> = text.trim().split('.').collect();
        let [MARK, secret, authority] = parts[..] else { return Err(Error::Token) };
        let authority = authority.parse().map_err(|_| Error::Token)?;
        Ok(Self { secret: secret.parse()?, authority })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_a_round_trip() {
        let token = Token { secret: Secret::new(), authority: Fingerprint::of(b"x") };
        let text = token.to_string();
        assert_eq!(format!(" {text}\n").parse(), Ok(token.clone()));
        assert_ne!(Secret::new(), token.secret);
        assert_eq!(token.secret.hash().len(), 64);
        assert!(!text.contains(&token.secret.hash()));
        assert!(!format!("{token:?}").contains(&token.secret.to_string()));
        let short = text.rsplit_once('.').map_or("", |(head, _)| head).to_owned();
        for wrong in ["", "kn1..", &text[1..], &text[..text.len() - 1], &short] {
            assert_eq!(wrong.parse::<Token>(), Err(Error::Token), "{wrong}");
        }
    }
}
