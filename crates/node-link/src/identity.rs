//! The identity of a host that has joined: certificate, key, and the controller. It is one file
//! with mode 0600, replaced atomically, so that a certificate never exists without its key.

use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use kilonova_ids::HostName;
use kilonova_node_api::{Credential, Refusal, Renewal};
use kilonova_pki::{Certificate, Fingerprint, Request, Token};
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};

use super::{Error, Remote};

const FILE: &str = "identity.json";

/// The file of a host's identity.
#[derive(Debug, Clone)]
pub struct Identity {
    file: PathBuf,
}

/// The identity of a host.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostIdentity {
    /// The controller.
    pub control: String,
    /// The host's name, as in its certificate.
    pub host: HostName,
    /// The certificates of the trusted authorities, PEM.
    pub authority: String,
    /// The host's certificate, PEM.
    pub certificate: String,
    /// Its key, PEM.
    pub key: String,
}

impl std::fmt::Debug for HostIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("HostIdentity");
        shown.field("control", &self.control).field("host", &self.host).finish_non_exhaustive()
    }
}

impl HostIdentity {
    /// Parses the certificate.
    ///
    /// # Errors
    /// If it is invalid.
    pub fn parsed_certificate(&self) -> Result<Certificate, Error> {
        Ok(kilonova_pki::read(&self.certificate)?)
    }

    /// The TLS settings of the host.
    ///
    /// # Errors
    /// If the certificate or the key is invalid.
    pub fn settings(&self) -> Result<ClientConfig, Error> {
        Ok(kilonova_pki::certified(&self.authority, &self.certificate, &self.key)?)
    }

    /// A connection to the controller as this host.
    ///
    /// # Errors
    /// If the identity is invalid.
    pub fn remote(&self) -> Result<Remote, Error> {
        self.remote_at(&self.control)
    }

    /// Like [`HostIdentity::remote`], but to controllers other than the one that the host joined.
    ///
    /// # Errors
    /// If the identity or a URL is invalid.
    pub fn remote_at(&self, controllers: &str) -> Result<Remote, Error> {
        Remote::certified(controllers, self.settings()?)
    }

    /// The digest of the trusted authorities, which the host reports to the controller.
    pub fn trust(&self) -> String {
        Fingerprint::of(self.authority.as_bytes()).to_string()
    }

    fn with(&self, credential: Credential, key: String) -> Self {
        let Credential { certificate, authority } = credential;
        Self { authority, certificate, key, ..self.clone() }
    }
}

impl Identity {
    /// The identity in a directory of the host.
    pub fn at(folder: &Path) -> Self {
        Self { file: folder.join(FILE) }
    }

    /// The identity; `None` if the host has never joined.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(&self) -> Result<Option<HostIdentity>, Error> {
        let wrong = |why: String| Error::Identity { file: self.file.clone(), why };
        let text = match std::fs::read(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrong(error.to_string())),
        };
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| wrong(format!("{error}; remove it and join again")))
    }

    /// Joins with a new key. It first checks that the identity can be written, because a token
    /// works only once. Waits up to [`JOIN_LIMIT`](super::JOIN_LIMIT) for a controller that cannot be
    /// reached yet.
    ///
    /// # Errors
    /// If the controller refuses, or the identity cannot be written.
    pub async fn join(
        &self,
        url: &str,
        token: &Token,
        host: &HostName,
        addresses: Vec<IpAddr>,
    ) -> Result<HostIdentity, Error> {
        let request = Request::new(host)?;
        self.try_to_write()?;
        let renewal = Renewal { csr: request.csr, addresses };
        let joined = super::join(url, token, host, renewal, super::JOIN_LIMIT).await;
        let credential = joined.map_err(Error::Refused)?;
        let given = kilonova_pki::fingerprint(&credential.authority)?;
        if given != token.authority {
            return Err(Error::Refused(Refusal::Rejected(format!(
                "the controller's authority ({given}) does not match the join token"
            ))));
        }
        let known = HostIdentity {
            control: url.trim().trim_end_matches('/').to_owned(),
            host: host.to_owned(),
            authority: credential.authority,
            certificate: credential.certificate,
            key: request.key,
        };
        self.keep(&known)?;
        Ok(known)
    }

    /// Requests a new certificate with a new key, authenticated by the present one.
    ///
    /// # Errors
    /// If the controller refuses, or the identity cannot be written.
    pub async fn renew(
        &self,
        remote: &Remote,
        known: &HostIdentity,
        addresses: Vec<IpAddr>,
    ) -> Result<HostIdentity, Error> {
        let request = Request::new(&known.host)?;
        self.try_to_write()?;
        let renewal = Renewal { csr: request.csr, addresses };
        let given = remote.renew(&known.host, &renewal).await.map_err(Error::Refused)?;
        let known = known.with(given, request.key);
        self.keep(&known)?;
        Ok(known)
    }

    /// Trusts only these authorities (PEM).
    ///
    /// # Errors
    /// If one is invalid, or the identity cannot be written.
    pub fn trust(&self, known: &HostIdentity, authorities: String) -> Result<HostIdentity, Error> {
        let known = HostIdentity { authority: authorities, ..known.clone() };
        known.settings()?;
        self.keep(&known)?;
        Ok(known)
    }

    fn keep(&self, known: &HostIdentity) -> Result<(), Error> {
        let text = serde_json::to_vec_pretty(known).map_err(|error| self.wrong(&error))?;
        self.write(&text).map_err(|error| self.wrong(&error))
    }

    fn try_to_write(&self) -> Result<(), Error> {
        let folder = self.file.parent().unwrap_or(Path::new("."));
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o711).create(folder);
        let room = vec![0; 16 * 1024];
        let draft = self.file.with_extension("try");
        let tried = made.and_then(|()| private(&draft, &room));
        tried.and_then(|()| std::fs::remove_file(&draft)).map_err(|error| self.wrong(&error))
    }

    fn write(&self, text: &[u8]) -> std::io::Result<()> {
        let draft = self.file.with_extension("new");
        private(&draft, text)?;
        std::fs::rename(&draft, &self.file)?;
        std::fs::File::open(self.file.parent().unwrap_or(Path::new(".")))?.sync_all()
    }

    fn wrong(&self, why: &dyn std::fmt::Display) -> Error {
        Error::Identity { file: self.file.clone(), why: why.to_string() }
    }
}

fn private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
