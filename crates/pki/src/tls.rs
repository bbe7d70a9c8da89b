//! The TLS settings of both sides. One provider (`ring`), and no authority but the system's own.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

use crate::{CONTROL_PLANE, Error, Fingerprint, certificate};

/// A certificate with its key, as one proves oneself by it.
pub type Own = Arc<CertifiedKey>;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn broken(error: impl std::fmt::Display) -> Error {
    Error::unmade("the TLS settings", error)
}

fn roots(authority: &CertificateDer<'static>) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    let added = roots.add(authority.clone());
    added.map_err(|error| Error::unreadable("the authority's certificate", error))?;
    Ok(Arc::new(roots))
}

/// A certificate with its key, followed by the authority's, so that whoever joins sees it.
///
/// # Errors
/// When they cannot be read, or do not belong together.
pub fn own(pem: &str, key: &str, authority: &CertificateDer<'static>) -> Result<Own, Error> {
    let chain = vec![certificate::der(pem)?, authority.clone()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| Error::unreadable("the key", error))?;
    let made = CertifiedKey::from_der(chain, key, &provider());
    Ok(Arc::new(made.map_err(|error| Error::unreadable("certificate and key", error))?))
}

/// The control plane's side. Who shows a certificate has to show one of the authority; who shows none
/// is let in to join, and whoever answers must let it do nothing else.
///
/// # Errors
/// When the authority's certificate is none.
pub fn server(
    authority: &CertificateDer<'static>,
    shown: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, Error> {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(authority)?, provider())
        .allow_unauthenticated()
        .build()
        .map_err(broken)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(broken)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(shown);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// A host's side, with its certificate.
///
/// # Errors
/// When a text is not what it should be.
pub fn certified(authority: &str, pem: &str, key: &str) -> Result<ClientConfig, Error> {
    let authority = certificate::der(authority)?;
    let chain = vec![certificate::der(pem)?];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| Error::unreadable("the key", error))?;
    let by = By::Authority(verifier(&authority)?);
    builder(OfControlPlane::new(by))?.with_client_auth_cert(chain, key).map_err(broken)
}

/// A host's side before it has a certificate: it believes the authority with that fingerprint.
///
/// # Errors
/// None on a sane system.
pub fn joining(authority: Fingerprint) -> Result<ClientConfig, Error> {
    Ok(builder(OfControlPlane::new(By::Fingerprint(authority)))?.with_no_client_auth())
}

/// A host's side without a certificate of its own, which knows the authority.
///
/// # Errors
/// When the authority's certificate is none.
pub fn trusting(authority: &str) -> Result<ClientConfig, Error> {
    let by = By::Authority(verifier(&certificate::der(authority)?)?);
    Ok(builder(OfControlPlane::new(by))?.with_no_client_auth())
}

/// A client of the users' port: it believes whoever one of these authorities (PEM) certifies under the
/// name that was dialled.
///
/// # Errors
/// When the text holds no certificate, or one that cannot be an authority's.
pub fn of_users(authorities: &str) -> Result<ClientConfig, Error> {
    let unreadable = |why: String| Error::unreadable("the authorities' certificates", why);
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unreadable("there is none".into()));
    }
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(broken)?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// Settings of a client that will use no TLS; whoever it meets there is not believed.
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

fn verifier(authority: &CertificateDer<'static>) -> Result<Arc<WebPkiServerVerifier>, Error> {
    WebPkiServerVerifier::builder_with_provider(roots(authority)?, provider())
        .build()
        .map_err(broken)
}

fn control_plane() -> Result<ServerName<'static>, rustls::Error> {
    ServerName::try_from(CONTROL_PLANE)
        .map_err(|_| rustls::Error::General("the control plane has no name".into()))
}

/// Which authority the control plane is believed by.
#[derive(Debug)]
enum By {
    /// One that is known.
    Authority(Arc<WebPkiServerVerifier>),
    /// The one with a fingerprint, which the control plane shows.
    Fingerprint(Fingerprint),
}

/// Believes the control plane by the name that its certificate alone has, whatever address was
/// dialled.
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
            // General is the one error that is told in our words.
            return Err(rustls::Error::General(format!(
                "the control plane there is of another authority than the token names \
                 ({fingerprint}); check the URL, or make a new token there"
            )));
        };
        verifier(&authority.clone().into_owned())
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
