//! How a host gets the certificate that it speaks with, and a new one in time.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A host that has no certificate asks for its first.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The secret of the token that `kilonova node enroll` made.
    pub secret: String,
    /// Its name.
    pub host: String,
    /// What it wants to have signed.
    pub request: Renewal,
}

impl std::fmt::Debug for Join {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Join").field("host", &self.host).finish_non_exhaustive()
    }
}

/// What a host wants to have signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// The certificate request, PEM.
    pub csr: String,
    /// The addresses by which other hosts call it.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
}

/// A certificate, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// The certificate, PEM.
    pub certificate: String,
    /// The certificate of the authority, PEM.
    pub authority: String,
}

/// The certificates that count no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocations {
    /// The list as the authority signed it, PEM.
    pub crl: String,
    /// Differs when other certificates are in the list.
    pub mark: String,
    /// When a host takes the list anew though nothing else is in it, microseconds since 1970.
    pub renew_at: i64,
    /// Whose certificates they are.
    pub revoked: Vec<RevokedHost>,
}

/// A certificate that counts no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokedHost {
    /// Its serial number, hexadecimal.
    pub serial: String,
    /// Whose it was.
    pub host: String,
}

/// What the control plane's clock shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Microseconds since 1970.
    pub micros: i64,
}
