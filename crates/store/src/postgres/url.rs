//! The URL of a PostgreSQL server, with libpq's parameters: its hosts, its TLS settings, and where
//! the password is. A parameter that would have no effect is refused, with the remedy. Nothing here
//! reads a file or prints a password.

use std::path::PathBuf;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, SslNegotiation, TargetSessionAttrs};

use super::chain;

/// The parameters that tokio-postgres reads.
const KNOWN: &[&str] = &[
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "options",
    "password",
    "port",
    "sslnegotiation",
    "tcp_user_timeout",
    "user",
];

/// The session settings that `[database]` has options for: those options override the `options` of
/// the URL.
const LIMITS: &[&str] =
    &["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"];

/// The port, if the URL names none.
const PORT: u16 = 5432;

/// One or several PostgreSQL servers of one database, and how to log in. `Debug` hides the password.
#[derive(Debug, Clone)]
pub struct PostgresUrl {
    pub(super) config: Config,
    pub(super) tls: Tls,
    pub(super) passfile: Option<PathBuf>,
    /// True if a standby is not accepted.
    pub(super) writable: bool,
}

/// The TLS protection of a connection, in libpq's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mode {
    /// No TLS.
    Disable,
    /// TLS if the server has it. It does not protect against an active attacker.
    Prefer,
    /// TLS with any certificate.
    Require,
    /// A certificate of a known authority.
    VerifyCa,
    /// A certificate of a known authority for the host's name.
    VerifyFull,
}

/// The authorities that sign certificates of servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Root {
    /// The authorities of a PEM file.
    File(PathBuf),
    /// The authorities that the operating system knows.
    System,
}

#[derive(Debug, Clone)]
pub(super) struct Tls {
    pub(super) mode: Mode,
    pub(super) root: Option<Root>,
    /// The client's certificate and its key.
    pub(super) own: Option<(PathBuf, PathBuf)>,
}

/// One host of the URL.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) host: Host,
    /// The address to connect to instead of the host's.
    pub(super) address: Option<std::net::IpAddr>,
    pub(super) port: u16,
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.host {
            Host::Tcp(name) if name.contains(':') => write!(f, "[{name}]:{}", self.port),
            Host::Tcp(name) => write!(f, "{name}:{}", self.port),
            Host::Unix(folder) => write!(f, "{}/.s.PGSQL.{}", folder.display(), self.port),
        }
    }
}

impl PostgresUrl {
    /// Parses the part after `postgresql://`. The reason for a refusal contains no value.
    pub(crate) fn parse(rest: &str) -> Result<Self, String> {
        let (base, query) = rest.split_once('?').unwrap_or((rest, ""));
        if query.contains('@') {
            return Err("an @ follows a ?; write ? as %3F and @ as %40 within a password or a \
                        value"
                .into());
        }
        let (mut mode, mut root, mut cert, mut key) = (None, None, None, None);
        let (mut passfile, mut writable) = (None, true);
        let (mut others, mut seen) = (Vec::new(), Vec::new());
        let at_front = format!("postgresql://{base}").parse().map_err(reason)?;
        let at_front: &Config = &at_front;
        let twice = |what: &str| {
            format!(
                "it names {what} twice: write them before the database or after the ?, not both"
            )
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or("a parameter has no value; expected ?name=value&name=value")?;
            let path = || decoded(name, value).map(PathBuf::from);
            match name {
                "sslmode" => mode = Some(read_mode(value)?),
                "sslrootcert" if value == "system" => root = Some(Root::System),
                "sslrootcert" => root = Some(Root::File(path()?)),
                "sslcert" => cert = Some(path()?),
                "sslkey" => key = Some(path()?),
                "passfile" => passfile = Some(path()?),
                "target_session_attrs" => writable = read_target(value)?,
                "host" if !at_front.get_hosts().is_empty() => return Err(twice("hosts")),
                "port" if !at_front.get_ports().is_empty() => return Err(twice("ports")),
                "host" | "hostaddr" | "port" if seen.contains(&name) => {
                    return Err(format!(
                        "it has the parameter {name} twice; separate its values with commas"
                    ));
                }
                "load_balance_hosts" if value == "disable" => {}
                "load_balance_hosts" => {
                    return Err(
                        "load_balance_hosts is not supported: the hosts are tried in order, \
                                beginning with the one that accepted the last connection, because \
                                only one of them accepts writes; remove it"
                            .into(),
                    );
                }
                "connect_timeout" if value.parse::<i64>().is_ok_and(|seconds| seconds < 1) => {
                    return Err(
                        "connect_timeout must be at least 1 second: waiting without a limit \
                                is not supported"
                            .into(),
                    );
                }
                // tokio-postgres splits hosts at commas only before the database.
                "host" => others.extend(value.split(',').map(|host| format!("host={host}"))),
                known if KNOWN.contains(&known) => others.push(pair.to_owned()),
                other if other.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                    return Err(format!(
                        "the parameter {other} is not supported and would have no effect; remove it"
                    ));
                }
                _ => return Err("the name of a parameter has unexpected characters".into()),
            }
            seen.push(name);
        }
        let config = format!("postgresql://{base}?{}", others.join("&"));
        let config: Config = config.parse().map_err(reason)?;
        let own = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            (Some(_), None) => return Err("sslcert needs sslkey too".into()),
            (None, Some(_)) => return Err("sslkey needs sslcert too".into()),
        };
        let mut url = Self { tls: tls(mode, root, own)?, config, passfile, writable };
        url.check()?;
        if url.config.get_application_name().is_none() {
            url.config.application_name("kilonova");
        }
        Ok(url)
    }

    fn check(&self) -> Result<(), String> {
        let (hosts, addresses) = (self.config.get_hosts(), self.config.get_hostaddrs());
        let number = hosts.len().max(addresses.len());
        if number == 0 {
            return Err("it names no host; for a socket add ?host=/var/run/postgresql".into());
        }
        if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
            return Err("hostaddr needs one address for each host".into());
        }
        let ports = self.config.get_ports().len();
        if ports > 1 && ports != number {
            return Err("it needs one port, or one for each host".into());
        }
        // The address would be used instead of the socket, without TLS.
        if !addresses.is_empty() && hosts.iter().any(|host| matches!(host, Host::Unix(_))) {
            return Err("hostaddr cannot be combined with a socket; remove one of them".into());
        }
        let direct = self.config.get_ssl_negotiation() == SslNegotiation::Direct;
        if direct && self.tls.mode < Mode::Require {
            return Err(
                "sslnegotiation=direct needs sslmode=require, verify-ca or verify-full".into()
            );
        }
        let options = self.config.get_options().unwrap_or_default();
        match LIMITS.iter().find(|limit| options.contains(**limit)) {
            Some(limit @ &"idle_in_transaction_session_timeout") => Err(format!(
                "{limit} in options would have no effect, because [database] statement_timeout \
                 sets it; remove it"
            )),
            Some(limit) => Err(format!(
                "{limit} in options would have no effect; set [database] {limit} instead"
            )),
            None => Ok(()),
        }
    }

    /// The same server with another database.
    #[must_use]
    pub fn with_database(&self, name: &str) -> Self {
        let mut other = self.clone();
        other.config.dbname(name);
        other
    }

    /// The name of the database, if the URL has one.
    pub fn database(&self) -> Option<&str> {
        self.config.get_dbname()
    }

    /// The hosts in their order.
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        let (hosts, addresses) = (self.config.get_hosts(), self.config.get_hostaddrs());
        let ports = self.config.get_ports();
        (0..hosts.len().max(addresses.len()))
            .filter_map(|at| {
                let address = addresses.get(at).copied();
                let named = || address.map(|address| Host::Tcp(address.to_string()));
                let host = hosts.get(at).cloned().or_else(named)?;
                let port = ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
                Some(Endpoint { host, address, port })
            })
            .collect()
    }

    /// The settings for one host, without a password and without TLS.
    pub(super) fn config_for(&self, endpoint: &Endpoint) -> Config {
        let all = &self.config;
        let mut one = Config::new();
        match &endpoint.host {
            Host::Tcp(name) => one.host(name),
            Host::Unix(folder) => one.host_path(folder),
        };
        one.port(endpoint.port);
        if let Some(address) = endpoint.address {
            one.hostaddr(address);
        }
        all.get_user().map(|user| one.user(user));
        all.get_dbname().map(|name| one.dbname(name));
        all.get_options().map(|options| one.options(options));
        all.get_application_name().map(|name| one.application_name(name));
        all.get_tcp_user_timeout().map(|limit| one.tcp_user_timeout(*limit));
        all.get_keepalives_interval().map(|interval| one.keepalives_interval(interval));
        all.get_keepalives_retries().map(|retries| one.keepalives_retries(retries));
        one.keepalives(all.get_keepalives());
        one.keepalives_idle(all.get_keepalives_idle());
        one.ssl_negotiation(all.get_ssl_negotiation());
        one.channel_binding(all.get_channel_binding());
        one.target_session_attrs(TargetSessionAttrs::Any);
        one.ssl_mode(SslMode::Disable);
        one
    }
}

impl From<Config> for PostgresUrl {
    /// A server without TLS files, for tests.
    fn from(config: Config) -> Self {
        let mode = match config.get_ssl_mode() {
            SslMode::Disable => Mode::Disable,
            SslMode::Require => Mode::Require,
            _ => Mode::Prefer,
        };
        let tls = Tls { mode, root: None, own: None };
        Self { config, tls, passfile: None, writable: true }
    }
}

/// The text of an error. tokio-postgres names the parameter in it, never its value.
#[allow(clippy::needless_pass_by_value, reason = "it is passed to map_err")]
fn reason(error: tokio_postgres::Error) -> String {
    chain(&error)
}

fn read_mode(value: &str) -> Result<Mode, String> {
    Ok(match value {
        "disable" => Mode::Disable,
        "prefer" => Mode::Prefer,
        "require" => Mode::Require,
        "verify-ca" => Mode::VerifyCa,
        "verify-full" => Mode::VerifyFull,
        _ => {
            return Err("sslmode must be disable, prefer, require, verify-ca or verify-full".into());
        }
    })
}

fn read_target(value: &str) -> Result<bool, String> {
    match value {
        "read-write" | "primary" => Ok(true),
        "any" => Ok(false),
        _ => {
            Err("target_session_attrs must be read-write, primary or any, because kilonova writes"
                .into())
        }
    }
}

/// Checks that mode, authorities and certificate are consistent.
fn tls(
    mode: Option<Mode>,
    root: Option<Root>,
    own: Option<(PathBuf, PathBuf)>,
) -> Result<Tls, String> {
    let system = root == Some(Root::System);
    // libpq's defaults.
    let mode = mode.unwrap_or(if system { Mode::VerifyFull } else { Mode::Prefer });
    if system && mode != Mode::VerifyFull {
        return Err("sslrootcert=system needs sslmode=verify-full, because anyone can obtain a \
                    certificate from these authorities"
            .into());
    }
    if mode >= Mode::VerifyCa && root.is_none() {
        return Err("sslmode=verify-ca and verify-full need sslrootcert=FILE with the authority \
                    that signed the server's certificate; verify-full accepts \
                    sslrootcert=system too"
            .into());
    }
    if mode == Mode::Disable && (root.is_some() || own.is_some()) {
        return Err("sslrootcert, sslcert and sslkey have no effect with sslmode=disable".into());
    }
    // As in libpq, a named authority is never ignored once TLS is required.
    let mode = if mode == Mode::Require && root.is_some() { Mode::VerifyCa } else { mode };
    Ok(Tls { mode, root, own })
}

/// Decodes `%2F`.
fn decoded(name: &str, value: &str) -> Result<String, String> {
    let wrong = || format!("the value of {name} is not percent-encoded UTF-8");
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| wrong())?);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}
