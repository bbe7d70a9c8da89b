//! TLS to PostgreSQL: which server certificates are accepted, and which client certificate is sent.
//!
//! The files are read for each connection, so new certificates need no restart. rustls and its
//! connector implement the encryption of a connection, and the binding of SCRAM to it.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio_postgres_rustls_improved::MakeRustlsConnect;

use super::password::secret;
use super::url::{Mode, Root, Tls};

/// The connector for these settings.
///
/// # Errors
/// A file that cannot be used.
pub(super) fn connector(tls: &Tls) -> Result<MakeRustlsConnect, String> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Verifier {
        roots: tls.root.as_ref().map(roots).transpose()?,
        checks_name: tls.mode == Mode::VerifyFull,
        provider: Arc::clone(&provider),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("TLS cannot be set up: {e}"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match &tls.own {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = certificates("sslcert", cert)?;
            let wrong = |why: &dyn std::fmt::Display| format!("sslkey {}: {why}", key.display());
            let pem = secret(key).map_err(|e| wrong(&e))?;
            let private = PrivateKeyDer::from_pem_slice(&pem)
                .map_err(|e| wrong(&format!("it contains no unencrypted PEM key ({e})")))?;
            builder.with_client_auth_cert(chain, private).map_err(|e| {
                wrong(&format!("it is not the key of sslcert {}: {e}", cert.display()))
            })?
        }
    };
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(MakeRustlsConnect::new(config))
}

fn certificates(option: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{option} {}: {why}", file.display());
    let pem = std::fs::read(file).map_err(|e| wrong(&e))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let all = all.map_err(|e| wrong(&e))?;
    if all.is_empty() {
        return Err(wrong(&"it contains no PEM certificate"));
    }
    Ok(all)
}

fn roots(root: &Root) -> Result<Roots, String> {
    let all = match root {
        Root::File(file) => certificates("sslrootcert", file)?,
        Root::System => rustls_native_certs::load_native_certs().certs,
    };
    let mut store = RootCertStore::empty();
    let (usable, _) = store.add_parsable_certificates(all.iter().cloned());
    match root {
        Root::System if usable == 0 => {
            Err("sslrootcert=system: this machine has no usable certificate authorities; install \
                 ca-certificates"
                .into())
        }
        Root::File(file) if usable == 0 => {
            Err(format!("sslrootcert {}: no certificate in it can be used", file.display()))
        }
        Root::System | Root::File(_) => Ok(Roots { store, all }),
    }
}

#[derive(Debug)]
struct Roots {
    store: RootCertStore,
    all: Vec<CertificateDer<'static>>,
}

#[derive(Debug)]
struct Verifier {
    /// Without roots, any certificate is accepted.
    roots: Option<Roots>,
    checks_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(roots) = &self.roots else { return Ok(ServerCertVerified::assertion()) };
        let parsed = ParsedCertificate::try_from(certificate)?;
        if roots.all.iter().any(|one| one == certificate) {
            // `openssl req -x509` marks a self-signed server certificate as an authority, which
            // cannot be the server certificate of a chain. If `sslrootcert` contains the
            // certificate, it needs no chain.
            is_current(certificate, now)?;
        } else {
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(
                &parsed,
                &roots.store,
                chain,
                now,
                algorithms,
            )?;
        }
        if self.checks_name {
            verify_server_name(&parsed, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn is_current(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), rustls::Error> {
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
    Ok(())
}
