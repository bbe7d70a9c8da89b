//! A host's key and certificate signing request.

use kilonova_ids::HostName;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

use crate::{CONTROL_PLANE, Error};

/// Maximum length of a common name.
const LONGEST: usize = 64;

/// A new key and its CSR.
pub struct Request {
    /// The key, PEM. It never leaves its host.
    pub key: String,
    /// The CSR, PEM.
    pub csr: String,
}

impl Request {
    /// Creates a key and a CSR for a host. The authority decides the content of the certificate.
    ///
    /// # Errors
    /// An invalid host name.
    pub fn new(host: &HostName) -> Result<Self, Error> {
        check_host(host)?;
        let failed = |why: rcgen::Error| Error::unmade("a request", why);
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = named(host);
        let csr = params.serialize_request(&key).and_then(|request| request.pem());
        Ok(Self { key: key.serialize_pem(), csr: csr.map_err(failed)? })
    }
}

/// Checks that a host name can be in a certificate.
///
/// # Errors
/// If it cannot.
pub fn check_host(host: &HostName) -> Result<(), Error> {
    let fits = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_');
    let edges = host.starts_with(['.', '-']) || host.ends_with(['.', '-']);
    let reserved = host.eq_ignore_ascii_case(CONTROL_PLANE);
    let length = (1..=LONGEST).contains(&host.len());
    if !length || edges || reserved || host.contains("..") || !host.bytes().all(fits) {
        return Err(Error::Host(host.chars().take(80).collect()));
    }
    Ok(())
}

/// Checks that a host with this name may join: the name fits into a certificate, and it follows the
/// rules of [`HostName::parse_new`].
///
/// # Errors
/// If it may not.
pub fn check_new_host(host: &HostName) -> Result<(), Error> {
    check_host(host)?;
    let parsed = HostName::parse_new(host);
    parsed.map(drop).map_err(|why| Error::NewHost { name: host.to_string(), why })
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
    fn names_of_new_hosts_are_lower_case_and_not_addresses() {
        for fine in ["gpu-1", "gpu_1.rack.example", "l1n1", "4u-node", "10.rack", "0xcafe-1"] {
            assert_eq!(check_new_host(&HostName::verbatim(fine)), Ok(()), "{fine}");
        }
        for (wrong, why) in [
            ("EVIL", "lower case"),
            ("gpU-1", "lower case"),
            ("127.0.0.1", "looks like an address"),
            ("10.1", "looks like an address"),
            ("2130706433", "looks like an address"),
            ("0x7f.1", "looks like an address"),
            ("0x7f000001", "looks like an address"),
            ("localhost", "every machine has"),
            ("localhost.localdomain", "every machine has"),
            ("::1", "is not a valid host name"),
            ("a b", "is not a valid host name"),
        ] {
            let refusal = check_new_host(&HostName::verbatim(wrong)).expect_err(wrong).to_string();
            assert!(refusal.contains(why), "{refusal}");
        }
    }

    #[test]
    fn host_names_are_names() {
        for fine in ["gpu-1", "gpu_1.rack.example", "l1n1", "A"] {
            assert_eq!(check_host(&HostName::verbatim(fine)), Ok(()), "{fine}");
        }
        let long = "h".repeat(65);
        for wrong in ["", ".a", "a-", "a..b", "a b", "a/b", "ü", CONTROL_PLANE, &long] {
            let refusal = check_host(&HostName::verbatim(wrong));
            assert_eq!(refusal, Err(Error::Host(wrong.into())), "{wrong}");
        }
    }
}
