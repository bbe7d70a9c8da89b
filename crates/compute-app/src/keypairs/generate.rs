//! New key pairs, for requests without a public key (before 2.92).
//!
//! The private half is only in the response: it must never be stored or logged. Keys are Ed25519
//! and P-256, not RSA as in Nova: see docs/compatibility.md. Generating one takes microseconds, so
//! no separate thread is needed.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kilonova_wire::Refusal;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, OtherNameValue, SanType,
};
use ssh_key::private::Ed25519Keypair;
use ssh_key::{LineEnding, PrivateKey};

use super::{Kind, pkcs12, ssh, x509};

/// The comment of a public key.
const COMMENT: &str = "Generated-by-Kilonova";
/// Validity of a certificate in days.
const DAYS: i64 = 3650;
/// `userPrincipalName`, by which Windows maps a certificate to a user.
const UPN: &[u64] = &[1, 3, 6, 1, 4, 1, 311, 20, 2, 3];

/// A new key pair.
pub struct Generated {
    /// For the user only: an OpenSSH private key, or a PKCS #12 file in base64 without a password.
    pub private_key: String,
    /// The public key or certificate.
    pub public_key: String,
    /// Its fingerprint.
    pub fingerprint: String,
}

impl fmt::Debug for Generated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Generated({})", self.fingerprint)
    }
}

/// Generates a key pair for a user.
///
/// # Errors
/// 500 if a library fails to encode the key.
pub fn generate(kind: Kind, user_id: &str) -> Result<Generated, Refusal> {
    match kind {
        Kind::Ssh => key(),
        Kind::X509 => certificate(user_id),
    }
}

fn key() -> Result<Generated, Refusal> {
    let pair = Ed25519Keypair::from_seed(&rand::random());
    let key = PrivateKey::new(pair.into(), COMMENT).map_err(Refusal::internal)?;
    let private_key = key.to_openssh(LineEnding::LF).map_err(Refusal::internal)?.to_string();
    let public_key = key.public_key().to_openssh().map_err(Refusal::internal)?;
    let fingerprint = ssh::fingerprint(&public_key)?;
    Ok(Generated { private_key, public_key, fingerprint })
}

/// A certificate for logging in to Windows (WinRM).
fn certificate(user_id: &str) -> Result<Generated, Refusal> {
    let key = rcgen::KeyPair::generate().map_err(Refusal::internal)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user_id);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let upn = OtherNameValue::Utf8String(format!("{user_id}@localhost"));
    params.subject_alt_names = vec![SanType::OtherName((UPN.to_vec(), upn))];
    let now = time::OffsetDateTime::now_utc();
    (params.not_before, params.not_after) = (now, now + time::Duration::days(DAYS));
    let certificate = params.self_signed(&key).map_err(Refusal::internal)?;
    let file = pkcs12::file(certificate.der(), &key.serialize_der(), &rand::random());
    let public_key = certificate.pem();
    let fingerprint = x509::fingerprint(&public_key)?;
    Ok(Generated { private_key: STANDARD.encode(file), public_key, fingerprint })
}
