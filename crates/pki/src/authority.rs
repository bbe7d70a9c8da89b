//! The authority: one key that signs the certificates of hosts and the controller.

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use kilonova_ids::HostName;
use rand::Rng as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::request::{check_host, named};
use crate::{CONTROL_PLANE, Certificate, Error, Fingerprint, certificate};

/// Certificates are backdated by a day, because clocks differ.
const BEFORE: SignedDuration = SignedDuration::from_hours(24);
const AUTHORITY_VALID: SignedDuration = SignedDuration::from_hours(20 * 365 * 24);
const SERVER_VALID: SignedDuration = SignedDuration::from_hours(397 * 24);

/// The content of a host's certificate.
#[derive(Debug, Clone)]
pub struct HostCertificateParams<'a> {
    /// Its name.
    pub host: &'a HostName,
    /// Its addresses.
    pub addresses: &'a [IpAddr],
    /// Validity.
    pub valid: SignedDuration,
}

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({})", self.fingerprint())
    }
}

impl Authority {
    /// Creates an authority. Returns its certificate and key, both PEM.
    ///
    /// # Errors
    /// If the system provides no randomness.
    pub fn make(now: Timestamp) -> Result<(String, String), Error> {
        let failed = |why: rcgen::Error| Error::unmade("the authority", why);
        let key = KeyPair::generate().map_err(failed)?;
        let serial = serial();
        let mark: String = serial.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let mut params = CertificateParams::default();
        params.distinguished_name = named(&format!("Kilonova authority {mark}"));
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        (params.not_before, params.not_after) = validity(now, AUTHORITY_VALID)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let made = params.self_signed(&key).map_err(failed)?;
        Ok((made.pem(), key.serialize_pem()))
    }

    /// Loads an existing authority.
    ///
    /// # Errors
    /// If certificate and key do not belong together.
    pub fn load(certificate: &str, key: &str) -> Result<Self, Error> {
        let wrong = |why: rcgen::Error| Error::unreadable("the authority", why);
        let key = KeyPair::from_pem(key).map_err(wrong)?;
        let der = certificate::der(certificate)?;
        let mine = certificate::public_key(&der)? == key.public_key_raw();
        if !mine {
            return Err(Error::unreadable(
                "the authority",
                "its key belongs to another certificate",
            ));
        }
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(wrong)?;
        Ok(Self { issuer, certificate: der, pem: certificate.to_owned() })
    }

    pub(crate) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    /// Its certificate, PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Its certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Its distinguished name, which no other authority has.
    ///
    /// # Errors
    /// None for an authority that was loaded.
    pub fn name(&self) -> Result<String, Error> {
        certificate::subject(&self.certificate)
    }

    /// The fingerprint of its certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// Signs a CSR. Returns the certificate (PEM) and its content. Only the key of the CSR is used.
    ///
    /// # Errors
    /// An invalid CSR or host name.
    pub fn sign(
        &self,
        csr: &str,
        content: &HostCertificateParams<'_>,
        now: Timestamp,
    ) -> Result<(String, Certificate), Error> {
        check_host(content.host)?;
        let request = CertificateSigningRequestParams::from_pem(csr)
            .map_err(|error| Error::unreadable("the request", error))?;
        let mut params = leaf(content.host, now, content.valid)?;
        params.subject_alt_names.push(name(content.host)?);
        let addresses = content.addresses.iter().copied().map(SanType::IpAddress);
        params.subject_alt_names.extend(addresses);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let made = params
            .signed_by(&request.public_key, &self.issuer)
            .map_err(|error| Error::unmade("a certificate", error))?;
        let issued = certificate::read_der(made.der())?;
        Ok((made.pem(), issued))
    }

    /// Issues a certificate for the controller with a new key, both PEM. `names` are host names
    /// or addresses for clients other than hosts.
    ///
    /// # Errors
    /// An invalid name.
    pub fn control_plane(
        &self,
        names: &[String],
        now: Timestamp,
    ) -> Result<(String, String), Error> {
        let failed = |why: rcgen::Error| Error::unmade("the controller's certificate", why);
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = leaf(CONTROL_PLANE, now, SERVER_VALID)?;
        params.subject_alt_names.push(name(CONTROL_PLANE)?);
        for one in names {
            let san = match one.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => name(one)?,
            };
            params.subject_alt_names.push(san);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let made = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok((made.pem(), key.serialize_pem()))
    }
}

fn leaf(of: &str, now: Timestamp, valid: SignedDuration) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(of);
    params.serial_number = Some(SerialNumber::from_slice(&serial()));
    (params.not_before, params.not_after) = validity(now, valid)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn name(name: &str) -> Result<SanType, Error> {
    let text = name.to_owned().try_into();
    text.map(SanType::DnsName).map_err(|_| Error::Host(name.to_owned()))
}

/// Sixteen random bytes as a positive number.
fn serial() -> [u8; 16] {
    let mut bytes = [0; 16];
    rand::rng().fill_bytes(&mut bytes);
    bytes[0] = bytes[0] & 0x3f | 0x40;
    bytes
}

/// The limits of a certificate's validity.
fn validity(
    now: Timestamp,
    valid: SignedDuration,
) -> Result<(OffsetDateTime, OffsetDateTime), Error> {
    let wrong = |error: jiff::Error| Error::unmade("a certificate", error);
    let begin = now.checked_sub(BEFORE).map_err(wrong)?;
    let end = now.checked_add(valid).map_err(wrong)?;
    Ok((at(begin)?, at(end)?))
}

/// A time in the type of the X.509 library, to the second.
pub(crate) fn at(time: Timestamp) -> Result<OffsetDateTime, Error> {
    OffsetDateTime::from_unix_timestamp(time.as_microsecond().div_euclid(1_000_000))
        .map_err(|error| Error::unmade("a certificate", error))
}
