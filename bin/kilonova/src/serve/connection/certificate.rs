//! TLS for users: loads the certificate of `[api] cert` and `key`, and reloads it when the files change.
//!
//! Open connections keep the certificate of their handshake. An unusable new pair never replaces a
//! usable one.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustls::ServerConfig;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::config::TlsFiles;
use crate::failure::Failure;

/// The interval between checks of the files.
const LOOK: Duration = Duration::from_secs(2);
/// How long before expiry to warn.
const SOON: SignedDuration = SignedDuration::from_hours(14 * 24);

/// The current certificate and key.
#[derive(Debug)]
pub(in crate::serve) struct ServerCertificate {
    files: TlsFiles,
    now: RwLock<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl ServerCertificate {
    /// Loads the files.
    ///
    /// # Errors
    /// If certificate or key cannot be read, or they do not match. `cafile` is for clients: a problem of
    /// it is a warning.
    pub(in crate::serve) fn read(files: &TlsFiles) -> Result<Arc<Self>, Failure> {
        let pair = pair(files).map_err(Failure::Refused)?;
        warn(files, &pair);
        Ok(Arc::new(Self { files: files.clone(), now: RwLock::new(Arc::new(pair)) }))
    }

    /// An acceptor that always uses the current pair.
    ///
    /// # Errors
    /// None on a working system.
    pub(in crate::serve) fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, Failure> {
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let mut config = builder
            .with_safe_default_protocol_versions()
            .map_err(|e| Failure::failed("cannot set up TLS", e))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as _);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// The host for clients on this machine: the address if the certificate contains it, else the
    /// certificate's first name.
    pub(in crate::serve) fn host(&self, address: IpAddr) -> String {
        let now = Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner));
        let names = now.cert.first().map(|der| names(der)).unwrap_or_default();
        let own = match address {
            IpAddr::V4(four) => four.to_string(),
            IpAddr::V6(six) => format!("[{six}]"),
        };
        if address.is_unspecified() || !names.contains(&own) {
            return names.into_iter().next().unwrap_or(own);
        }
        own
    }

    /// The file with the authority that clients must trust: the configured one, or the certificate chain
    /// if its last certificate is self-signed. `None` if the system's authorities suffice.
    pub(in crate::serve) fn authority(&self) -> Option<&Path> {
        if let Some(named) = &self.files.cafile {
            return Some(named);
        }
        let now = Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner));
        let (_, last) = X509Certificate::from_der(now.cert.last()?).ok()?;
        (last.subject() == last.issuer()).then_some(&*self.files.cert)
    }

    /// Starts watching the files.
    pub(in crate::serve) fn watch(self: &Arc<Self>) {
        let shown = Arc::clone(self);
        tokio::spawn(async move {
            let mut seen = shown.stamp();
            loop {
                tokio::time::sleep(LOOK).await;
                let stamp = shown.stamp();
                if stamp == seen {
                    continue;
                }
                seen = stamp;
                let files = shown.files.clone();
                match tokio::task::spawn_blocking(move || pair(&files)).await {
                    Ok(Ok(pair)) => {
                        warn(&shown.files, &pair);
                        let mut now = shown.now.write().unwrap_or_else(PoisonError::into_inner);
                        *now = Arc::new(pair);
                        tracing::info!("reloaded the certificate for new connections");
                    }
                    Ok(Err(why)) => tracing::warn!(
                        why,
                        "cannot use the changed certificate; new connections get the old one"
                    ),
                    Err(error) => tracing::error!(%error, "cannot reload the certificate"),
                }
            }
        });
    }

    /// Changes whenever a file changes or a link points to another file.
    fn stamp(&self) -> [Option<(u64, u64, i64, i64)>; 2] {
        [&self.files.cert, &self.files.key].map(|path| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
        })
    }
}

/// Loads certificate and key.
fn pair(files: &TlsFiles) -> Result<CertifiedKey, String> {
    let wrong = |option: &str, path: &Path, why: &dyn std::fmt::Display| {
        format!("[api] {option} {}: {why}", path.display())
    };
    let read = |option: &str, path: &Path| {
        std::fs::read(path).map_err(|error| wrong(option, path, &error))
    };
    let (cert, key) = (read("cert", &files.cert)?, read("key", &files.key)?);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&cert).collect();
    let chain = chain.map_err(|error| wrong("cert", &files.cert, &invalid(error)))?;
    if chain.is_empty() {
        return Err(wrong("cert", &files.cert, &"it contains no certificate in PEM form"));
    }
    let private = PrivateKeyDer::from_pem_slice(&key).map_err(|error| {
        let file = files.key.display();
        let why = match error {
            _ if is_encrypted(&key) => format!(
                "the key is encrypted; decrypt it with `openssl pkey -in {file} -out {file}.plain` and name \
                 that file"
            ),
            pem::Error::NoItemsFound => "it contains no private key in PEM form".to_owned(),
            error => invalid(error),
        };
        wrong("key", &files.key, &why)
    })?;
    let pair = CertifiedKey::from_der(chain, private, &default_provider());
    pair.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            wrong("key", &files.key, &format!("it is not the key of {}", files.cert.display()))
        }
        error => wrong("cert", &files.cert, &error),
    })
}

/// A client that trusts the certificates of `cafile`; `None` without it.
fn client(files: &TlsFiles) -> Result<Option<Arc<dyn ServerCertVerifier>>, String> {
    let Some(file) = &files.cafile else { return Ok(None) };
    let wrong = |why: &dyn std::fmt::Display| format!("[api] cafile {}: {why}", file.display());
    let text = std::fs::read(file).map_err(|error| wrong(&error))?;
    let listed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let listed = listed.map_err(|error| wrong(&invalid(error)))?;
    if listed.is_empty() {
        return Err(wrong(&"it contains no certificate in PEM form"));
    }
    kilonova_pki::of_listed(listed).map(Some).map_err(|error| wrong(&error))
}

/// The description of a PEM file that cannot be parsed. The library's shows a line as numbers.
fn invalid(error: pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => {
            "the file is cut off: the END line of a section is missing".to_owned()
        }
        pem::Error::IllegalSectionStart { .. } => {
            "the BEGIN line of a section is malformed".to_owned()
        }
        other => other.to_string(),
    }
}

/// True for a key with a passphrase, in the current form and in OpenSSL's earlier one.
fn is_encrypted(pem: &[u8]) -> bool {
    let text = String::from_utf8_lossy(pem);
    text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")
}

/// A problem of a certificate that does not prevent the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateProblem {
    /// True if clients refuse the certificate now.
    pub is_refused: bool,
    /// The problem.
    pub what: String,
    /// The remedy.
    pub remedy: &'static str,
}

/// Examines the certificate of `[api]`, for an operator: its expiry and its problems.
///
/// # Errors
/// If the services do not start with these files.
pub fn examine_certificate(
    files: &TlsFiles,
) -> Result<(Option<Timestamp>, Vec<CertificateProblem>), String> {
    let pair = pair(files)?;
    let until = pair.cert.first().and_then(|der| end(der));
    Ok((until, problems(files, &pair)))
}

fn warn(files: &TlsFiles, pair: &CertifiedKey) {
    for CertificateProblem { what, remedy, .. } in problems(files, pair) {
        tracing::warn!("{what}; {remedy}");
    }
}

fn problems(files: &TlsFiles, pair: &CertifiedKey) -> Vec<CertificateProblem> {
    let Some((own, chain)) = pair.cert.split_first() else { return Vec::new() };
    let file = files.cert.display();
    let (mut problems, now) = (Vec::new(), Timestamp::now());
    let left = end(own).map(|until| until.duration_since(now));
    if left.is_some_and(|left| left.is_negative()) {
        let what = format!("{file} has expired: clients refuse it");
        problems.push(CertificateProblem { is_refused: true, what, remedy: "replace it" });
    } else if let Some(left) = left.filter(|left| *left < SOON) {
        let what = format!("{file} expires in {} days", left.as_hours() / 24);
        problems.push(CertificateProblem { is_refused: false, what, remedy: "replace it" });
    }
    // The services themselves do not use the file, which may be readable for clients only.
    let client = client(files).unwrap_or_else(|what| {
        let remedy = "check that clients can read it and that it has the authority of the certificate; the \
                      services do not use it";
        problems.push(CertificateProblem { is_refused: false, what, remedy });
        None
    });
    let Some(name) = first_name(own) else {
        let what = format!(
            "{file} has no name or address as subject alternative name: clients refuse it, because they do \
             not read its common name"
        );
        let remedy = "replace it (openssl req -addext subjectAltName=DNS:NAME,IP:ADDRESS)";
        problems.push(CertificateProblem { is_refused: true, what, remedy });
        return problems;
    };
    if let (Some(cafile), Some(client)) = (&files.cafile, client)
        && !problems.iter().any(|one| one.is_refused)
    {
        let at = u64::try_from(now.as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(at));
        if let Err(error) = client.verify_server_cert(own, chain, &name, &[], now) {
            let cafile = cafile.display();
            let what = format!("clients that trust [api] cafile {cafile} refuse {file}: {error}");
            let remedy =
                "name the authority that has signed it, and append intermediate certificates to it";
            problems.push(CertificateProblem { is_refused: true, what, remedy });
        }
    }
    problems
}

/// The time until which a certificate is valid.
fn end(der: &[u8]) -> Option<Timestamp> {
    let (_, read) = X509Certificate::from_der(der).ok()?;
    Timestamp::from_second(read.validity().not_after.timestamp()).ok()
}

/// A name for which the certificate is valid.
fn first_name(der: &[u8]) -> Option<ServerName<'static>> {
    let (_, read) = X509Certificate::from_der(der).ok()?;
    let found = read.subject_alternative_name().ok()??;
    found.value.general_names.iter().find_map(|name| match name {
        GeneralName::DNSName(name) => ServerName::try_from(name.replace('*', "any")).ok(),
        GeneralName::IPAddress(bytes) => address(bytes).map(|ip| ServerName::IpAddress(ip.into())),
        _ => None,
    })
}

/// The address in a certificate.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    match (<[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
        (Ok(four), _) => Some(IpAddr::from(four)),
        (_, Ok(six)) => Some(IpAddr::from(six)),
        _ => None,
    }
}

/// The names and addresses of a certificate; IPv6 addresses in brackets.
fn names(der: &[u8]) -> Vec<String> {
    let Ok((_, read)) = X509Certificate::from_der(der) else { return Vec::new() };
    let Ok(Some(found)) = read.subject_alternative_name() else { return Vec::new() };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) if !name.contains('*') => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| match address {
            IpAddr::V4(four) => four.to_string(),
            IpAddr::V6(six) => format!("[{six}]"),
        }),
        _ => None,
    };
    found.value.general_names.iter().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn write(folder: &Path, names: &[&str]) -> TlsFiles {
        let key = KeyPair::generate().expect("the key is generated");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = CertificateParams::new(names)
            .expect("the names are valid")
            .self_signed(&key)
            .expect("the certificate is signed");
        let files =
            TlsFiles { cert: folder.join("c.pem"), key: folder.join("k.pem"), cafile: None };
        std::fs::write(&files.cert, made.pem()).expect("the file is written");
        std::fs::write(&files.key, key.serialize_pem()).expect("the file is written");
        files
    }

    fn refused(files: &TlsFiles) -> String {
        ServerCertificate::read(files).map(drop).expect_err("the pair is refused").to_string()
    }

    #[test]
    fn unusable_files_are_refused_by_name() {
        let (folder, other) = (
            tempfile::tempdir().expect("a temporary directory is created"),
            tempfile::tempdir().expect("a temporary directory is created"),
        );
        let files = write(folder.path(), &["cloud.example"]);
        let shown = ServerCertificate::read(&files).expect("the configuration is valid");
        assert!(shown.acceptor().is_ok());
        let strange = write(other.path(), &["cloud.example"]);
        let mixed = TlsFiles { key: strange.key, ..files.clone() };
        let message = refused(&mixed);
        assert!(
            message.contains("[api] key") && message.contains("is not the key of"),
            "{message}"
        );
        let message = refused(&TlsFiles { cert: files.key.clone(), ..files.clone() });
        assert!(message.contains("[api] cert") && message.contains("no certificate"), "{message}");
        let message = refused(&TlsFiles { key: files.cert.clone(), ..files.clone() });
        assert!(message.contains("[api] key") && message.contains("no private key"), "{message}");
        let message = refused(&TlsFiles { cert: folder.path().join("gone"), ..files.clone() });
        assert!(message.contains("gone: No such file"), "{message}");
        let whole = std::fs::read_to_string(&files.key).expect("the file is read");
        let written = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("the file is written");
            folder.path().join(name)
        };
        let cut = written("cut", whole.split("-----END").next().expect("the text begins"));
        let message = refused(&TlsFiles { key: cut, ..files.clone() });
        assert!(message.contains("the file is cut off"), "{message}");
        let encrypted = written("encrypted", &whole.replace("PRIVATE", "ENCRYPTED PRIVATE"));
        let message = refused(&TlsFiles { key: encrypted, ..files.clone() });
        assert!(message.contains("decrypt it with `openssl pkey -in"), "{message}");
    }

    const CUT_OFF: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n";
    const ODD: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";

    /// Clients use `cafile`, and the services do not.
    #[test]
    fn an_unusable_cafile_is_a_warning() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let files = write(folder.path(), &["cloud.example"]);
        let written = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("the file is written");
            folder.path().join(name)
        };
        for (cafile, words) in [
            (folder.path().join("gone"), "gone: No such file"),
            (files.key.clone(), "it contains no certificate"),
            (written("half", CUT_OFF), "the file is cut off"),
            (written("odd", ODD), "odd: "),
        ] {
            let files = TlsFiles { cafile: Some(cafile), ..files.clone() };
            let shown = ServerCertificate::read(&files).expect("the services start");
            assert_eq!(shown.authority(), files.cafile.as_deref());
            let (_, problems) = examine_certificate(&files).expect("the services start with it");
            let [CertificateProblem { is_refused: false, what, .. }] = &problems[..] else {
                panic!("{problems:?}")
            };
            assert!(what.starts_with("[api] cafile ") && what.contains(words), "{what}");
        }
    }

    #[test]
    fn certificates_that_clients_refuse_are_noticed() {
        let (folder, other) = (
            tempfile::tempdir().expect("a temporary directory is created"),
            tempfile::tempdir().expect("a temporary directory is created"),
        );
        let found = |files: &TlsFiles| {
            let (until, problems) = examine_certificate(files).expect("the services start with it");
            assert!(until.is_some());
            problems.into_iter().map(|one| (one.is_refused, one.what)).collect::<Vec<_>>()
        };
        for names in [&["cloud.example"][..], &["*.cloud.example"], &["192.0.2.1"], &["::1"]] {
            let files = write(folder.path(), names);
            assert_eq!(found(&files), []);
            let own = TlsFiles { cafile: Some(files.cert.clone()), ..files.clone() };
            assert_eq!(found(&own), [], "{names:?}: the certificate is its own authority");
            let foreign = write(other.path(), names).cert;
            let problems = found(&TlsFiles { cafile: Some(foreign), ..files });
            let [(true, what)] = &problems[..] else { panic!("{problems:?}") };
            assert!(what.contains("clients that trust [api] cafile"), "{what}");
        }
        let problems = found(&write(folder.path(), &[]));
        let [(true, what)] = &problems[..] else { panic!("{problems:?}") };
        assert!(what.contains("subject alternative name"), "{what}");
    }

    #[test]
    fn clients_get_a_name_of_the_certificate() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let files = write(folder.path(), &["cloud.example", "192.0.2.1", "::1"]);
        let shown = ServerCertificate::read(&files).expect("the configuration is valid");
        for (address, host) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::1", "[::1]"),
            ("127.0.0.1", "cloud.example"),
            ("0.0.0.0", "cloud.example"),
        ] {
            assert_eq!(shown.host(address.parse().expect("the address is valid")), host);
        }
        assert_eq!(shown.authority(), Some(&*files.cert), "the certificate is self-signed");
    }

    #[tokio::test]
    async fn a_changed_pair_is_reloaded_and_a_broken_one_is_ignored() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let files = write(folder.path(), &["one.example"]);
        let shown = ServerCertificate::read(&files).expect("the configuration is valid");
        shown.watch();
        let any = IpAddr::from([0, 0, 0, 0]);
        std::fs::write(&files.key, "half a file").expect("the file is written");
        tokio::time::sleep(LOOK * 3 / 2).await;
        assert_eq!(shown.host(any), "one.example");
        write(folder.path(), &["two.example"]);
        let begun = std::time::Instant::now();
        while shown.host(any) != "two.example" {
            assert!(begun.elapsed() < LOOK * 10, "the new pair was not loaded");
            tokio::time::sleep(LOOK / 10).await;
        }
    }
}
