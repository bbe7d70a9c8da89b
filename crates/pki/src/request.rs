//! A host's key, and what it asks to have signed.

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

use crate::{CONTROL_PLANE, Error};

/// As long as the common name of a certificate may be.
const LONGEST: usize = 64;

/// A new key and the request for its certificate.
pub struct Request {
    /// The key, PEM. It leaves its host never.
    pub key: String,
    /// The request, PEM.
    pub csr: String,
}

impl Request {
    /// For a host. What the certificate says of it is the authority's choice.
    ///
    /// # Errors
    /// A host name that cannot be in a certificate.
    pub fn new(host: &str) -> Result<Self, Error> {
        check_host(host)?;
        let failed = |why: rcgen::Error| Error::unmade("a request", why);
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = named(host);
        let csr = params.serialize_request(&key).and_then(|request| request.pem());
        Ok(Self { key: key.serialize_pem(), csr: csr.map_err(failed)? })
    }
}

/// Whether a host of that name can have a certificate.
///
/// # Errors
/// When it cannot.
pub fn check_host(host: &str) -> Result<(), Error> {
    let fits = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_');
    let edges = host.starts_with(['.', '-']) || host.ends_with(['.', '-']);
    let reserved = host.eq_ignore_ascii_case(CONTROL_PLANE);
    let length = (1..=LONGEST).contains(&host.len());
    if !length || edges || reserved || host.contains("..") || !host.bytes().all(fits) {
        return Err(Error::Host(host.chars().take(80).collect()));
    }
    Ok(())
}

pub(crate) fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_names() {
        for fine in ["gpu-1", "gpu_1.rack.example", "l1n1", "A"] {
            assert_eq!(check_host(fine), Ok(()), "{fine}");
        }
        let long = "h".repeat(65);
        for wrong in ["", ".a", "a-", "a..b", "a b", "a/b", "ü", CONTROL_PLANE, &long] {
            assert_eq!(check_host(wrong), Err(Error::Host(wrong.into())), "{wrong}");
        }
    }
}
