//! The authority itself: one key that signs what hosts and the control plane prove themselves by.

use std::net::IpAddr;

use rand::Rng as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::request::{check_host, named};
use crate::{CONTROL_PLANE, Certificate, Error, Fingerprint, certificate};

const DAY: i64 = 24 * 3600 * 1_000_000;
/// What is signed counts from a day before: clocks differ.
const BEFORE: i64 = DAY;
const AUTHORITY_DAYS: i64 = 20 * 365;
const SERVER_DAYS: i64 = 397;

/// What a host is given a certificate for.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// Its name.
    pub host: &'a str,
    /// Its addresses.
    pub addresses: &'a [IpAddr],
    /// For how long, microseconds.
    pub valid: i64,
}

/// The authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

impl Authority {
    /// A new one: its certificate and its key, both PEM.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn make(now: i64) -> Result<(String, String), Error> {
        let failed = |why: rcgen::Error| Error::unmade("the authority", why);
        let key = KeyPair::generate().map_err(failed)?;
        let serial = serial();
        let mark: String = serial.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let mut params = CertificateParams::default();
        params.distinguished_name = named(&format!("Kilonova authority {mark}"));
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.not_before = at(now - BEFORE)?;
        params.not_after = at(now + AUTHORITY_DAYS * DAY)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let made = params.self_signed(&key).map_err(failed)?;
        Ok((made.pem(), key.serialize_pem()))
    }

    /// Takes up an authority that was made before.
    ///
    /// # Errors
    /// When certificate and key are not those of one authority.
    pub fn load(certificate: &str, key: &str) -> Result<Self, Error> {
        let wrong = |why: rcgen::Error| Error::unreadable("the authority", why);
        let key = KeyPair::from_pem(key).map_err(wrong)?;
        let der = certificate::der(certificate)?;
        let mine = certificate::public_key(&der)? == key.public_key_raw();
        if !mine {
            return Err(Error::unreadable("the authority", "its key is of another certificate"));
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

    /// What it is known by.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// A certificate for the key of a request, PEM, and what it says. Of what the request says, only
    /// the key counts.
    ///
    /// # Errors
    /// A request that is none, or a host that cannot be named.
    pub fn sign(
        &self,
        csr: &str,
        wanted: &Wanted<'_>,
        now: i64,
    ) -> Result<(String, Certificate), Error> {
        check_host(wanted.host)?;
        let request = CertificateSigningRequestParams::from_pem(csr)
            .map_err(|error| Error::unreadable("the request", error))?;
        let mut params = leaf(wanted.host, now, wanted.valid)?;
        params.subject_alt_names.push(name(wanted.host)?);
        let addresses = wanted.addresses.iter().copied().map(SanType::IpAddress);
        params.subject_alt_names.extend(addresses);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let made = params
            .signed_by(&request.public_key, &self.issuer)
            .map_err(|error| Error::unmade("a certificate", error))?;
        let said = certificate::read_der(made.der())?;
        Ok((made.pem(), said))
    }

    /// A certificate of the control plane with a new key: both PEM. `names` are host names or
    /// addresses by which others than hosts may call it.
    ///
    /// # Errors
    /// A name that is none.
    pub fn control_plane(&self, names: &[String], now: i64) -> Result<(String, String), Error> {
        let failed = |why: rcgen::Error| Error::unmade("the control plane's certificate", why);
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = leaf(CONTROL_PLANE, now, SERVER_DAYS * DAY)?;
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

fn leaf(of: &str, now: i64, valid: i64) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(of);
    params.serial_number = Some(SerialNumber::from_slice(&serial()));
    params.not_before = at(now - BEFORE)?;
    params.not_after = at(now + valid)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn name(name: &str) -> Result<SanType, Error> {
    let text = name.to_owned().try_into();
    text.map(SanType::DnsName).map_err(|_| Error::Host(name.to_owned()))
}

/// Sixteen bytes, positive.
fn serial() -> [u8; 16] {
    let mut bytes = [0; 16];
    rand::rng().fill_bytes(&mut bytes);
    bytes[0] = bytes[0] & 0x3f | 0x40;
    bytes
}

pub(crate) fn at(micros: i64) -> Result<OffsetDateTime, Error> {
    OffsetDateTime::from_unix_timestamp(micros.div_euclid(1_000_000))
        .map_err(|error| Error::unmade("a certificate", error))
}
