//! The content of a certificate.

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::{Error, Fingerprint};

/// The owner and validity of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The common name: the host.
    pub name: String,
    /// Serial number, hexadecimal.
    pub serial: String,
    /// The distinguished name of its authority.
    pub issuer: String,
    /// Start of validity.
    pub not_before: Timestamp,
    /// End of validity. A time after the year 9999 becomes the maximum of [`Timestamp`].
    pub not_after: Timestamp,
}

impl Certificate {
    /// When to renew: after two thirds of its validity.
    pub fn renew_at(&self) -> Timestamp {
        let third = self.not_after.duration_since(self.not_before).checked_div(3);
        self.not_after.checked_sub(third.unwrap_or_default()).unwrap_or(self.not_after)
    }

    /// True if it has expired.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        now > self.not_after
    }
}

/// Parses the first certificate of a PEM text.
///
/// # Errors
/// If there is none.
pub fn read(pem: &str) -> Result<Certificate, Error> {
    read_der(&der(pem)?)
}

/// Parses a certificate.
///
/// # Errors
/// If it is invalid.
pub fn read_der(der: &[u8]) -> Result<Certificate, Error> {
    let wrong = |why: &dyn std::fmt::Display| Error::unreadable("the certificate", why);
    let (_, parsed) = X509Certificate::from_der(der).map_err(|error| wrong(&error))?;
    let name = parsed.subject().iter_common_name().next();
    let name = name.and_then(|name| name.as_str().ok());
    let at = |seconds: i64| {
        let limit = if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Timestamp::from_second(seconds).unwrap_or(limit)
    };
    Ok(Certificate {
        name: name.ok_or_else(|| wrong(&"it has no common name"))?.to_owned(),
        issuer: parsed.issuer().to_string(),
        serial: parsed.raw_serial().iter().map(|byte| format!("{byte:02x}")).collect(),
        not_before: at(parsed.validity().not_before.timestamp()),
        not_after: at(parsed.validity().not_after.timestamp()),
    })
}

/// The fingerprint of the first certificate in a PEM text.
///
/// # Errors
/// If there is none.
pub fn fingerprint(pem: &str) -> Result<Fingerprint, Error> {
    Ok(Fingerprint::of(&der(pem)?))
}

/// The certificates of a PEM text, at least one.
///
/// # Errors
/// If one is invalid, or there is none.
pub fn all_der(pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let wrong = |why: &dyn std::fmt::Display| Error::unreadable("the certificates", why);
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(&error))?;
    if all.is_empty() { Err(wrong(&"there is none")) } else { Ok(all) }
}

/// True if the authority with a fingerprint, one of `authorities` (PEM), issued the certificate.
///
/// # Errors
/// An invalid certificate.
pub fn is_issued_by(
    certificate: &str,
    authorities: &str,
    fingerprint: &str,
) -> Result<bool, Error> {
    let issuer = read(certificate)?.issuer;
    for authority in all_der(authorities)? {
        if Fingerprint::of(&authority).to_string() == fingerprint {
            return Ok(subject(&authority)? == issuer);
        }
    }
    Ok(false)
}

/// The distinguished name of a certificate's owner.
pub(crate) fn subject(der: &[u8]) -> Result<String, Error> {
    let (_, parsed) = X509Certificate::from_der(der)
        .map_err(|error| Error::unreadable("the certificate", error))?;
    Ok(parsed.subject().to_string())
}

pub(crate) fn der(pem: &str) -> Result<CertificateDer<'static>, Error> {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| Error::unreadable("the certificate", error))
}

pub(crate) fn public_key(der: &[u8]) -> Result<Vec<u8>, Error> {
    let (_, parsed) = X509Certificate::from_der(der)
        .map_err(|error| Error::unreadable("the certificate", error))?;
    Ok(parsed.public_key().subject_public_key.data.to_vec())
}
