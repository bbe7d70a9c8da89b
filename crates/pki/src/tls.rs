//! The TLS settings of both sides, with one crypto provider (`ring`) and only the cloud's
//! authorities.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ResolvesServerCert;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

use crate::{CONTROL_PLANE, Error, Fingerprint, Trust, certificate, of_listed};

/// A certificate with its key.
pub type Own = Arc<CertifiedKey>;

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(crate) fn broken(error: impl std::fmt::Display) -> Error {
    Error::unmade("the TLS settings", error)
}

pub(crate) fn roots(authorities: &[CertificateDer<'static>]) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        let added = roots.add(authority.clone());
        added.map_err(|error| Error::unreadable("the authority's certificate", error))?;
    }
    Ok(Arc::new(roots))
}

/// A certificate with its key, followed by the authority's certificate, which joining hosts check.
///
/// # Errors
/// If they are invalid or do not belong together.
pub fn own(pem: &str, key: &str, authority: &CertificateDer<'static>) -> Result<Own, Error> {
    let chain = vec![certificate::der(pem)?, authority.clone()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| Error::unreadable("the key", error))?;
    let made = CertifiedKey::from_der(chain, key, &provider());
    Ok(Arc::new(made.map_err(|error| Error::unreadable("certificate and key", error))?))
}

/// The controller's settings. A client certificate must be from an authority that is trusted at
/// that time. A client without one may connect in order to join; the request handler must allow it
/// nothing else.
///
/// # Errors
/// None on a sane system.
pub fn server(
    trusted: Arc<Trust>,
    shown: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(broken)?
        .with_client_cert_verifier(trusted)
        .with_cert_resolver(shown);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The settings of a host with a certificate. It trusts each of the authorities (PEM).
///
/// # Errors
/// If a text is invalid.
pub fn certified(authorities: &str, pem: &str, key: &str) -> Result<ClientConfig, Error> {
    let authorities = certificate::all_der(authorities)?;
    let chain = vec![certificate::der(pem)?];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| Error::unreadable("the key", error))?;
    let by = By::Authority(verifier(&authorities)?);
    builder(OfControlPlane::new(by))?.with_client_auth_cert(chain, key).map_err(broken)
}

/// The settings of a host that joins: it trusts the authority with that fingerprint.
///
/// # Errors
/// None on a sane system.
pub fn joining(authority: Fingerprint) -> Result<ClientConfig, Error> {
    Ok(builder(OfControlPlane::new(By::Fingerprint(authority)))?.with_no_client_auth())
}

/// The settings of a host without a certificate that trusts the authorities (PEM).
///
/// # Errors
/// If a certificate is invalid.
pub fn trusting(authorities: &str) -> Result<ClientConfig, Error> {
    let by = By::Authority(verifier(&certificate::all_der(authorities)?)?);
    Ok(builder(OfControlPlane::new(by))?.with_no_client_auth())
}

/// The settings of a client of the API port: the server's certificate must be valid for the
/// requested name, and one of these certificates (PEM) or signed by one of them.
///
/// # Errors
/// A text without a certificate, or with an invalid one.
pub fn of_users(authorities: &str) -> Result<ClientConfig, Error> {
    let unreadable = |why: String| Error::unreadable("the authorities' certificates", why);
    let listed = CertificateDer::pem_slice_iter(authorities.as_bytes());
    let listed: Vec<_> =
        listed.collect::<Result<_, _>>().map_err(|error| unreadable(error.to_string()))?;
    if listed.is_empty() {
        return Err(unreadable("there is none".into()));
    }
    Ok(builder(of_listed(listed)?)?.with_no_client_auth())
}

/// The settings of a client without TLS; it trusts no server.
///
/// # Errors
/// None on a sane system.
pub fn anonymous() -> Result<ClientConfig, Error> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(broken)?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth())
}

type Builder = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;

fn builder(verifier: Arc<dyn ServerCertVerifier>) -> Result<Builder, Error> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(broken)?
        .dangerous()
        .with_custom_certificate_verifier(verifier))
}

fn verifier(authorities: &[CertificateDer<'static>]) -> Result<Arc<WebPkiServerVerifier>, Error> {
    WebPkiServerVerifier::builder_with_provider(roots(authorities)?, provider())
        .build()
        .map_err(broken)
}

fn control_plane() -> Result<ServerName<'static>, rustls::Error> {
    ServerName::try_from(CONTROL_PLANE)
        .map_err(|_| rustls::Error::General("the controller has no name".into()))
}

/// The means of verifying the controller's authority.
#[derive(Debug)]
enum By {
    /// Known authorities.
    Authority(Arc<WebPkiServerVerifier>),
    /// The authority with this fingerprint, whose certificate the controller sends.
    Fingerprint(Fingerprint),
}

/// Verifies that the certificate has the name reserved for the controller, regardless of the
/// address used.
#[derive(Debug)]
struct OfControlPlane {
    by: By,
    supported: Arc<CryptoProvider>,
}

impl OfControlPlane {
    fn new(by: By) -> Arc<Self> {
        Arc::new(Self { by, supported: provider() })
    }
}

impl By {
    fn verifier(
        &self,
        chain: &[CertificateDer<'_>],
    ) -> Result<Arc<WebPkiServerVerifier>, rustls::Error> {
        let fingerprint = match self {
            Self::Authority(verifier) => return Ok(Arc::clone(verifier)),
            Self::Fingerprint(fingerprint) => fingerprint,
        };
        let authority = chain.iter().find(|one| Fingerprint::of(one) == *fingerprint);
        let Some(authority) = authority else {
            // `General` is the only error with a text of our own.
            return Err(rustls::Error::General(format!(
                "the controller's authority is not the one in the token ({fingerprint}); check \
                 the URL, or create a new token"
            )));
        };
        verifier(&[authority.clone().into_owned()])
            .map_err(|error| rustls::Error::General(error.to_string()))
    }
}

impl ServerCertVerifier for OfControlPlane {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verifier = self.by.verifier(chain)?;
        verifier.verify_server_cert(certificate, chain, &control_plane()?, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.supported.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.supported.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.supported.signature_verification_algorithms.supported_schemes()
    }
}
