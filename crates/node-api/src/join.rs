//! The messages with which a host gets and renews its certificate.

use std::net::IpAddr;

use jiff::Timestamp;
use kilonova_ids::HostName;
use serde::{Deserialize, Serialize};

/// A host's request for its first certificate.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The secret of the join token from `kilonova node enroll`.
    pub secret: String,
    /// The host's name.
    pub host: HostName,
    /// The signing request.
    pub request: Renewal,
}

impl std::fmt::Debug for Join {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Join").field("host", &self.host).finish_non_exhaustive()
    }
}

/// A certificate signing request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// The CSR, PEM.
    pub csr: String,
    /// The host's addresses, for the certificate's subject alternative names.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
}

/// A signed certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// The certificate, PEM.
    pub certificate: String,
    /// The certificates of the authorities to trust, PEM. The first one has signed the controllers'
    /// certificates.
    pub authority: String,
}

/// The authorities that hosts must trust. While an operator rotates the authority, there are two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authorities {
    /// Their certificates, PEM. The first one has signed the controllers' certificates.
    pub authorities: String,
    /// The SHA-256 of the authority that signs hosts' certificates. A host renews a certificate
    /// that another authority has signed.
    pub signing: String,
}

/// The revoked certificates of hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocations {
    /// The CRL as the authority signed it, PEM.
    pub crl: String,
    /// A version that changes when the set of revoked certificates changes.
    pub mark: String,
    /// The time at which a host fetches the list again even if it is unchanged; microseconds since 1970 on the wire.
    #[serde(with = "jiff::fmt::serde::timestamp::microsecond::required")]
    pub renew_at: Timestamp,
    /// The hosts of the revoked certificates.
    pub revoked: Vec<RevokedHost>,
}

/// A revoked certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokedHost {
    /// Its serial number, hexadecimal.
    pub serial: String,
    /// The host to which it was issued.
    pub host: HostName,
}

/// The controller's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Microseconds since 1970 on the wire.
    #[serde(rename = "micros", with = "jiff::fmt::serde::timestamp::microsecond::required")]
    pub now: Timestamp,
}
