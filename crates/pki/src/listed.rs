//! Verifies servers by a list of certificates that an operator names (`cafile`, `--cacert`), with the
//! rules of OpenSSL and so of upstream's clients: a certificate of the list may be that of an
//! authority, or that of the server itself.

use std::sync::Arc;

use rustls::CertificateError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, SignatureScheme};

use crate::Error;
use crate::tls::{broken, provider, roots};

/// A verifier that trusts these certificates. A server must present a current certificate for the
/// requested name, which is one of the list or is signed by one of it. If it has extended key usages,
/// that of a server is one of them.
///
/// # Errors
/// An empty list, or an invalid certificate.
pub fn of_listed(
    certificates: Vec<CertificateDer<'static>>,
) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let roots = roots(&certificates)?;
    let chains = WebPkiServerVerifier::builder_with_provider(roots, provider());
    Ok(Arc::new(Listed { certificates, chains: chains.build().map_err(broken)? }))
}

#[derive(Debug)]
struct Listed {
    certificates: Vec<CertificateDer<'static>>,
    chains: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Listed {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if !self.certificates.iter().any(|one| one == certificate) {
            return self.chains.verify_server_cert(certificate, chain, name, ocsp, now);
        }
        // `openssl req -x509` marks a self-signed certificate as an authority, which cannot be the
        // server's certificate of a chain. A certificate of the list needs no chain.
        is_current_server(certificate, now)?;
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

fn is_current_server(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), rustls::Error> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|_| rustls::Error::from(CertificateError::BadEncoding))?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = parsed.validity();
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    let usage = parsed
        .extended_key_usage()
        .map_err(|_| rustls::Error::from(CertificateError::BadEncoding))?;
    if usage.is_some_and(|usage| !usage.value.server_auth) {
        return Err(CertificateError::InvalidPurpose.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair};

    use super::*;

    fn self_signed(is_ca: IsCa) -> CertificateDer<'static> {
        self_signed_for(is_ca, Vec::new())
    }

    fn self_signed_for(
        is_ca: IsCa,
        purposes: Vec<ExtendedKeyUsagePurpose>,
    ) -> CertificateDer<'static> {
        let mut params =
            CertificateParams::new(vec!["cloud.example".to_owned()]).expect("the name is valid");
        params.is_ca = is_ca;
        params.extended_key_usages = purposes;
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2027, 1, 1);
        let key = KeyPair::generate().expect("the key is generated");
        params.self_signed(&key).expect("the certificate is signed").der().clone()
    }

    /// As OpenSSL's check of the purpose (crypto/x509/v3_purp.c, `check_purpose_ssl_server`).
    #[test]
    fn a_listed_certificate_is_one_of_a_server() {
        use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        for (purposes, is_accepted) in [
            (vec![], true),
            (vec![ServerAuth], true),
            (vec![ClientAuth, ServerAuth], true),
            (vec![ClientAuth], false),
        ] {
            let own = self_signed_for(IsCa::NoCa, purposes.clone());
            let verifier = of_listed(vec![own.clone()]).expect("the list is valid");
            let name = ServerName::try_from("cloud.example").expect("the name is valid");
            let now = UnixTime::since_unix_epoch(Duration::from_secs(1_780_000_000));
            let checked = verifier.verify_server_cert(&own, &[], &name, &[], now);
            assert_eq!(checked.is_ok(), is_accepted, "{purposes:?}: {checked:?}");
        }
    }

    #[test]
    fn a_listed_certificate_needs_no_chain_but_a_name_and_a_time() {
        let (current, later) = (1_780_000_000, 1_800_000_000);
        for is_ca in [IsCa::NoCa, IsCa::Ca(BasicConstraints::Unconstrained)] {
            let own = self_signed(is_ca);
            let verifier = of_listed(vec![own.clone()]).expect("the list is valid");
            let check = |certificate: &CertificateDer<'_>, name: &'static str, at: u64| {
                let name = ServerName::try_from(name).expect("the name is valid");
                let now = UnixTime::since_unix_epoch(Duration::from_secs(at));
                verifier.verify_server_cert(certificate, &[], &name, &[], now)
            };
            check(&own, "cloud.example", current).expect("it is accepted");
            let error = check(&own, "other.example", current).expect_err("another name");
            assert!(error.to_string().contains("not valid for name"), "{error}");
            let error = check(&own, "cloud.example", later).expect_err("it has expired");
            assert_eq!(error, CertificateError::Expired.into());
            let error = check(&own, "cloud.example", 0).expect_err("it is not valid yet");
            assert_eq!(error, CertificateError::NotValidYet.into());
            let other = self_signed(is_ca);
            assert!(check(&other, "cloud.example", current).is_err(), "it is not in the list");
        }
        assert!(of_listed(Vec::new()).is_err(), "an empty list trusts nobody");
    }
}
