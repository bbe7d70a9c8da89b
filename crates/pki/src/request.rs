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

/// Whether a host of that name may join. One machine has one spelling of its name: host names are the
/// same in upper and lower case, and an address in place of a name would be read as one by whoever
/// dials the host.
///
/// # Errors
/// When it may not.
pub fn check_new_host(host: &str) -> Result<(), Error> {
    check_host(host)?;
    let wrong = |why| Err(Error::NewHost { name: host.to_owned(), why });
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return wrong("write it in lower case");
    }
    // inet_aton reads one to four numbers as an address, also hexadecimal ones.
    let number = |label: &str| {
        let digits = label.strip_prefix("0x").unwrap_or(label);
        let radix = if digits.len() < label.len() { 16 } else { 10 };
        digits.chars().all(|digit| digit.is_digit(radix))
    };
    if host.split('.').all(number) {
        return wrong("it reads as an address; take the name of the machine");
    }
    if host.split('.').next() == Some("localhost") {
        return wrong("every machine calls itself that");
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
    fn new_hosts_have_one_spelling_and_no_address_for_a_name() {
        for fine in ["gpu-1", "gpu_1.rack.example", "l1n1", "4u-node", "10.rack", "0xcafe-1"] {
            assert_eq!(check_new_host(fine), Ok(()), "{fine}");
        }
        for (wrong, why) in [
            ("EVIL", "lower case"),
            ("gpU-1", "lower case"),
            ("127.0.0.1", "reads as an address"),
            ("10.1", "reads as an address"),
            ("2130706433", "reads as an address"),
            ("0x7f.1", "reads as an address"),
            ("0x7f000001", "reads as an address"),
            ("localhost", "calls itself"),
            ("localhost.localdomain", "calls itself"),
            ("::1", "is no host name"),
            ("a b", "is no host name"),
        ] {
            let said = check_new_host(wrong).expect_err(wrong).to_string();
            assert!(said.contains(why), "{said}");
        }
    }

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
