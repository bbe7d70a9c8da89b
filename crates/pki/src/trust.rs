//! The authorities that the controller trusts. They change at run time when an operator rotates
//! the authority; each handshake is verified with the authorities trusted at that moment. TLS does
//! not verify a resumed session again, so the request handler compares the issuer with the trusted
//! authorities at each request.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};

use crate::Error;
use crate::tls::{broken, provider, roots};

/// The trusted authorities.
#[derive(Debug)]
pub struct Trust(RwLock<Arc<dyn ClientCertVerifier>>);

impl Trust {
    /// Trusts these authorities.
    ///
    /// # Errors
    /// If there is none, or one is invalid.
    pub fn new(authorities: &[CertificateDer<'static>]) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self(RwLock::new(verifier(authorities)?))))
    }

    /// From now on, trusts only these authorities.
    ///
    /// # Errors
    /// If there is none, or one is invalid; nothing changes then.
    pub fn set(&self, authorities: &[CertificateDer<'static>]) -> Result<(), Error> {
        let new = verifier(authorities)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    fn current(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn verifier(authorities: &[CertificateDer<'static>]) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(authorities)?, provider())
        .allow_unauthenticated()
        .build()
        .map_err(broken)?;
    Ok(verifier)
}

impl ClientCertVerifier for Trust {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Empty: a host has one certificate and always presents it.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.current().verify_client_cert(certificate, chain, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.current().verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.current().verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().supported_verify_schemes()
    }
}
