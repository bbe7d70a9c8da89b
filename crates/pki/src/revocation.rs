//! The list of revoked certificates, signed by the authority (X.509 CRL), for libvirt and QEMU.

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    CertificateRevocationListParams, KeyIdMethod, RevocationReason, RevokedCertParams, SerialNumber,
};

use crate::authority::at;
use crate::{Authority, Error};

/// How far the list is backdated. Clocks differ, and GnuTLS refuses every certificate while the
/// list is from the future.
const BEFORE: SignedDuration = SignedDuration::from_hours(1);

/// A revoked certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// Its serial number, hexadecimal.
    pub serial: String,
    /// When it was revoked.
    pub at: Timestamp,
}

impl Authority {
    /// The list, PEM, valid until `until`. After that, libvirt and QEMU refuse every certificate.
    ///
    /// # Errors
    /// An invalid serial number.
    pub fn revocations(
        &self,
        revoked: &[Revocation],
        now: Timestamp,
        until: Timestamp,
    ) -> Result<String, Error> {
        let failed = |why: rcgen::Error| Error::unmade("the list of revoked certificates", why);
        let mut certificates = Vec::with_capacity(revoked.len());
        for one in revoked {
            certificates.push(RevokedCertParams {
                serial_number: serial(&one.serial)?,
                revocation_time: at(one.at)?,
                reason_code: Some(RevocationReason::Unspecified),
                invalidity_date: None,
            });
        }
        let number = now.as_second().to_be_bytes();
        let first = number.iter().position(|byte| *byte != 0).unwrap_or(number.len() - 1);
        let list = CertificateRevocationListParams {
            this_update: at(now.checked_sub(BEFORE).unwrap_or(now))?,
            next_update: at(until)?,
            crl_number: SerialNumber::from_slice(&number[first..]),
            issuing_distribution_point: None,
            revoked_certs: certificates,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(self.issuer()).and_then(|made| made.pem()).map_err(failed)
    }
}

fn serial(text: &str) -> Result<SerialNumber, Error> {
    let wrong = || Error::unreadable("a serial number", format!("{text:?} is not hexadecimal"));
    let digits = text.as_bytes();
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return Err(wrong());
    }
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(text, 16).ok()
    };
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    bytes.map(SerialNumber::from).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use x509_parser::pem::parse_x509_pem;
    use x509_parser::prelude::FromDer;
    use x509_parser::revocation_list::CertificateRevocationList;

    use super::*;
    use crate::{HostCertificateParams, Request};

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
    const DAY: SignedDuration = SignedDuration::from_hours(24);

    #[test]
    fn the_list_has_the_revoked_certificates_and_its_validity() {
        let (pem, key) = Authority::make(NOW).expect("the authority is created");
        let authority = Authority::load(&pem, &key).expect("the authority is loaded");
        let host = kilonova_ids::HostName::verbatim("gpu-1");
        let request = Request::new(&host).expect("the request is valid");
        let content = HostCertificateParams { host: &host, addresses: &[], valid: DAY };
        let (_, given) =
            authority.sign(&request.csr, &content, NOW).expect("the certificate is signed");
        let revoked = [Revocation { serial: given.serial.clone(), at: NOW }];
        for list in [&revoked[..], &[]] {
            let crl = authority.revocations(list, NOW, NOW + DAY).expect("the list is signed");
            assert!(crl.starts_with("-----BEGIN X509 CRL-----"), "{crl}");
            let (_, block) = parse_x509_pem(crl.as_bytes()).expect("the text is PEM");
            let (_, read) =
                CertificateRevocationList::from_der(&block.contents).expect("the list is valid");
            let serials: Vec<String> = read
                .iter_revoked_certificates()
                .map(|one| one.raw_serial().iter().map(|b| format!("{b:02x}")).collect())
                .collect();
            assert_eq!(serials, list.iter().map(|one| one.serial.clone()).collect::<Vec<_>>());
            let until = read.next_update().expect("the list has an end").timestamp();
            assert_eq!(until, (NOW + DAY).as_second());
            assert!(read.last_update().timestamp() < NOW.as_second());
        }
        for wrong in ["", "0", "xy", "é"] {
            let one = [Revocation { serial: wrong.into(), at: NOW }];
            let message = authority
                .revocations(&one, NOW, NOW + DAY)
                .expect_err("an invalid serial number is refused");
            assert!(message.to_string().contains("is not hexadecimal"), "{message}");
        }
    }
}
