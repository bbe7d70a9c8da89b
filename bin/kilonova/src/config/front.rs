//! `[api]` and `[oslo_middleware]`: how users reach the API: TLS, the public URL, trusted proxies, and
//! connection limits.
//!
//! This file only reads options; `serve` opens the certificate files.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::File;
use crate::failure::Failure;

const API: &str = "api";
const MIDDLEWARE: &str = "oslo_middleware";
/// Maximum `shutdown_delay`, in seconds; the systemd unit waits longer than this.
const MAX_DELAY: u64 = 60;

/// How users reach the API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Front {
    /// Certificate and key; plain HTTP if `None`.
    pub tls: Option<TlsFiles>,
    /// `https://cloud.example`: the start of the catalog's URLs and of every link.
    pub public_endpoint: Option<Arc<str>>,
    /// Proxies whose forwarding headers are trusted.
    pub proxies: Proxies,
    /// Maximum number of connections of users.
    pub connections: Option<usize>,
    /// Maximum number of connections from one address.
    pub connections_per_address: Option<usize>,
    /// How long the process still accepts connections after SIGTERM.
    pub shutdown_delay: Duration,
}

/// PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by intermediate ones.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority for clients to trust, for the admin's `clouds.yaml`.
    pub cafile: Option<PathBuf>,
}

/// Networks of trusted proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies(Vec<IpNet>);

impl Proxies {
    /// Proxies in these networks.
    #[cfg(test)]
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self(networks)
    }

    /// True if an address belongs to a proxy.
    pub fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Front {
    /// True if passwords and tokens would cross a network unencrypted, as far as the options tell.
    pub fn is_in_clear(&self, listen: SocketAddr) -> bool {
        let https = self.public_endpoint.as_deref().is_some_and(is_https);
        let terminated = !self.proxies.is_empty() || https;
        self.tls.is_none() && !terminated && !listen.ip().is_loopback()
    }
}

fn is_https(url: &str) -> bool {
    url.starts_with("https://")
}

pub(super) fn read(file: &File) -> Result<Front, Failure> {
    Ok(Front {
        tls: tls(file)?,
        public_endpoint: public_endpoint(file)?,
        proxies: proxies(file)?,
        connections: count(file, "max_connections")?,
        connections_per_address: count(file, "max_connections_per_address")?,
        shutdown_delay: shutdown_delay(file)?,
    })
}

fn tls(file: &File) -> Result<Option<TlsFiles>, Failure> {
    let path = |option| {
        let path = file.path(API, option)?;
        Some(match file.folder() {
            Some(folder) => folder.join(path),
            None => path,
        })
    };
    match (path("cert"), path("key"), path("cafile")) {
        (Some(cert), Some(key), cafile) => Ok(Some(TlsFiles { cert, key, cafile })),
        (None, None, None) => Ok(None),
        (Some(_), None, _) => Err(file.wrong(API, "cert", "TLS requires [api] key too")),
        (None, Some(_), _) => Err(file.wrong(API, "key", "TLS requires [api] cert too")),
        (None, None, Some(_)) => {
            Err(file.wrong(API, "cafile", "it has no effect without [api] cert and key"))
        }
    }
}

fn public_endpoint(file: &File) -> Result<Option<Arc<str>>, Failure> {
    const OPTION: &str = "public_endpoint";
    let Some(text) = file.get(API, OPTION) else { return Ok(None) };
    let url = text.trim_end_matches('/');
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let (host, path) =
        rest.map_or(("", ""), |rest| rest.split_at(rest.find('/').unwrap_or(rest.len())));
    if !kilonova_wire::base::has_authority_characters(host) || !kilonova_wire::base::is_prefix(path)
    {
        let why = format!("{text} is not a URL; expected http[s]://HOST[:PORT][/PATH]");
        return Err(file.wrong(API, OPTION, &why));
    }
    Ok(Some(url.into()))
}

fn proxies(file: &File) -> Result<Proxies, Failure> {
    const OPTION: &str = "trusted_proxies";
    const PARSING: &str = "enable_proxy_headers_parsing";
    let mut networks = Vec::new();
    let text = file.get(API, OPTION).unwrap_or_default();
    for one in text.split([',', '\n']).map(str::trim).filter(|one| !one.is_empty()) {
        let network = one.parse().or_else(|_| one.parse().map(|address: IpAddr| address.into()));
        networks.push(network.map_err(|_| {
            let why =
                format!("{one} is not an address or network; expected 192.0.2.7 or 10.0.0.0/8");
            file.wrong(API, OPTION, &why)
        })?);
    }
    let parsing = file.parse::<bool>(MIDDLEWARE, PARSING, "true or false")?.unwrap_or(false);
    match (parsing, networks.is_empty()) {
        (true, true) => Err(file.wrong(
            MIDDLEWARE,
            PARSING,
            "list the proxies in [api] trusted_proxies: other clients can forge the headers",
        )),
        (false, false) => Err(file.wrong(
            API,
            OPTION,
            "it has no effect without [oslo_middleware] enable_proxy_headers_parsing = true",
        )),
        _ => Ok(Proxies(networks)),
    }
}

fn count(file: &File, option: &str) -> Result<Option<usize>, Failure> {
    match file.parse(API, option, "an integer of at least 1")? {
        Some(0) => Err(file.wrong(API, option, "it must be at least 1")),
        number => Ok(number),
    }
}

fn shutdown_delay(file: &File) -> Result<Duration, Failure> {
    const OPTION: &str = "shutdown_delay";
    const EXPECTED: &str = "a number of seconds from 0 to 60";
    match file.parse::<u64>(API, OPTION, EXPECTED)?.unwrap_or(0) {
        seconds if seconds <= MAX_DELAY => Ok(Duration::from_secs(seconds)),
        _ => Err(file.wrong(API, OPTION, &format!("expected {EXPECTED}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KNOWN;

    fn front(text: &str) -> Result<Front, String> {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("k.conf");
        std::fs::write(&path, text).expect("the file is written");
        let read = File::read(&path, KNOWN).and_then(|file| read(&file));
        read.map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_options_are_read() {
        assert_eq!(front(""), Ok(Front::default()));
        let read = front(
            "[api]\ncert = /c\nkey = k\npublic_endpoint = https://cloud.example/os/\n\
             trusted_proxies = 10.0.0.0/8, ::1\n[oslo_middleware]\n\
             enable_proxy_headers_parsing = True\n[api]\nshutdown_delay = 3\n",
        )
        .expect("the configuration is valid");
        assert_eq!(read.shutdown_delay, Duration::from_secs(3));
        let tls = read.tls.expect("the files are read");
        assert_eq!(tls.cert, PathBuf::from("/c"));
        assert!(tls.key.is_absolute() && tls.key.ends_with("k"), "{:?}", tls.key);
        assert_eq!(read.public_endpoint.as_deref(), Some("https://cloud.example/os"));
        for (address, trusted) in [("10.1.2.3", true), ("11.0.0.1", false), ("::1", true)] {
            assert_eq!(
                read.proxies.contain(address.parse().expect("the address is valid")),
                trusted
            );
        }
    }

    #[test]
    fn invalid_options_are_refused_by_name() {
        for (text, part) in [
            ("[api]\ncert = c\n", "k.conf:2: [api] cert: TLS requires [api] key"),
            ("[api]\nkey = c\n", "k.conf:2: [api] key: TLS requires [api] cert"),
            ("[api]\ncafile = c\n", "k.conf:2: [api] cafile: it has no effect"),
            (
                "[api]\npublic_endpoint = cloud\n",
                "k.conf:2: [api] public_endpoint: cloud is not a URL",
            ),
            ("[api]\npublic_endpoint = https://a b\n", "is not a URL"),
            ("[api]\npublic_endpoint = https://a?x=1\n", "is not a URL"),
            ("[api]\ntrusted_proxies = haproxy\n", "haproxy is not an address"),
            ("[api]\ntrusted_proxies = ::1\n", "it has no effect without [oslo_middleware]"),
            (
                "[oslo_middleware]\nenable_proxy_headers_parsing = yes\n",
                "k.conf:2: [oslo_middleware] enable_proxy_headers_parsing: yes is not a valid \
                 value",
            ),
            (
                "[oslo_middleware]\nenable_proxy_headers_parsing = true\n",
                "list the proxies in [api] trusted_proxies",
            ),
            ("[api]\nmax_connections = 0\n", "it must be at least 1"),
            ("[api]\nshutdown_delay = 61\n", "expected a number of seconds from 0 to 60"),
            ("[api]\nshutdown_delay = soon\n", "k.conf:2: [api] shutdown_delay: soon"),
        ] {
            let message = front(text).expect_err(text);
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn only_a_network_without_tls_is_unencrypted() {
        let clear = |text: &str, listen: &str| {
            front(text)
                .expect("the configuration is valid")
                .is_in_clear(listen.parse().expect("the address is valid"))
        };
        assert!(clear("", "0.0.0.0:1"));
        assert!(clear("[api]\npublic_endpoint = http://a\n", "0.0.0.0:1"));
        assert!(!clear("", "127.0.0.1:1"));
        assert!(!clear("[api]\ncert = c\nkey = k\n", "0.0.0.0:1"));
        assert!(!clear("[api]\npublic_endpoint = https://a\n", "0.0.0.0:1"));
    }
}
