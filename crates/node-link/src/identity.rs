//! What a host that has joined keeps: who it is, and by which control plane. One file, 0600, replaced
//! as a whole, so that no certificate is ever there without its key.

use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use kilonova_node_api::{Credential, Refusal, Renewal};
use kilonova_pki::{Certificate, Request, Token};
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};

use super::{Error, Remote};

const FILE: &str = "identity.json";

/// Where a host keeps who it is.
#[derive(Debug, Clone)]
pub struct Identity {
    file: PathBuf,
}

/// Who a host is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The control plane.
    pub control: String,
    /// The host's name, as its certificate has it.
    pub host: String,
    /// The certificate of the authority, PEM.
    pub authority: String,
    /// The host's certificate, PEM.
    pub certificate: String,
    /// Its key, PEM.
    pub key: String,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Known");
        shown.field("control", &self.control).field("host", &self.host).finish_non_exhaustive()
    }
}

impl Known {
    /// What the certificate says.
    ///
    /// # Errors
    /// When it is none.
    pub fn said(&self) -> Result<Certificate, Error> {
        Ok(kilonova_pki::read(&self.certificate)?)
    }

    /// How the host shows who it is.
    ///
    /// # Errors
    /// When certificate and key are none.
    pub fn settings(&self) -> Result<ClientConfig, Error> {
        Ok(kilonova_pki::certified(&self.authority, &self.certificate, &self.key)?)
    }

    /// The control plane, spoken to as this host.
    ///
    /// # Errors
    /// When what is kept makes no sense.
    pub fn remote(&self) -> Result<Remote, Error> {
        Remote::certified(&self.control, self.settings()?)
    }

    fn with(&self, credential: Credential, key: String) -> Self {
        let Credential { certificate, authority } = credential;
        Self { authority, certificate, key, ..self.clone() }
    }
}

impl Identity {
    /// In a folder of the host.
    pub fn at(folder: &Path) -> Self {
        Self { file: folder.join(FILE) }
    }

    /// Who the host is; `None` if it has never joined.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&self) -> Result<Option<Known>, Error> {
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

    /// Joins: a new key, and a certificate for it. That it can be kept is tried first: a token is good
    /// once.
    ///
    /// # Errors
    /// When the control plane does not give one, or it cannot be kept.
    pub async fn join(
        &self,
        url: &str,
        token: &Token,
        host: &str,
        addresses: Vec<IpAddr>,
    ) -> Result<Known, Error> {
        let request = Request::new(host)?;
        self.try_to_write()?;
        let renewal = Renewal { csr: request.csr, addresses };
        let credential = super::join(url, token, host, renewal).await.map_err(Error::Refused)?;
        let given = kilonova_pki::fingerprint(&credential.authority)?;
        if given != token.authority {
            return Err(Error::Refused(Refusal::Rejected(format!(
                "the control plane gave an authority ({given}) that the token does not name"
            ))));
        }
        let known = Known {
            control: url.trim().trim_end_matches('/').to_owned(),
            host: host.to_owned(),
            authority: credential.authority,
            certificate: credential.certificate,
            key: request.key,
        };
        self.keep(&known)?;
        Ok(known)
    }

    /// Gets a new certificate with a new key by the one that is known.
    ///
    /// # Errors
    /// When the control plane does not give one, or it cannot be kept.
    pub async fn renew(
        &self,
        remote: &Remote,
        known: &Known,
        addresses: Vec<IpAddr>,
    ) -> Result<Known, Error> {
        let request = Request::new(&known.host)?;
        self.try_to_write()?;
        let renewal = Renewal { csr: request.csr, addresses };
        let given = remote.renew(&known.host, &renewal).await.map_err(Error::Refused)?;
        let known = known.with(given, request.key);
        self.keep(&known)?;
        Ok(known)
    }

    fn keep(&self, known: &Known) -> Result<(), Error> {
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
