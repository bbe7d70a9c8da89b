//! Connects to one host after the other, until one accepts the session. Unless the URL has
//! `target_session_attrs=any`, a standby counts as a refusal.
//!
//! Each host has a time limit of its own, because a host that accepts a connection and then stays
//! silent must not prevent attempts at the others. The reason for a refusal contains a remedy where
//! one is known, and never a password.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::UnixStream;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage, Socket};

use super::line::Driver;
use super::merge::{Merged, OverTls};
use super::url::{Endpoint, Mode, PostgresUrl, Root, Tls};
use super::{chain, password, tls};
use crate::Options;
use crate::error::is_outage;

/// The reason why there is no connection.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) why: String,
    /// True if the same attempt may succeed later; otherwise an operator must act.
    pub(crate) is_temporary: bool,
}

/// A session.
pub(super) struct Dialed {
    pub(super) client: Client,
    pub(super) driver: Driver,
}

/// Connects to the first host that accepts, beginning with the one that accepted the last
/// connection.
///
/// # Errors
/// The reasons of all hosts, if none accepts.
pub(super) async fn dial(
    url: &PostgresUrl,
    options: &Options,
    last: &AtomicUsize,
) -> Result<Dialed, Refused> {
    let endpoints = url.endpoints();
    let first = last.load(Ordering::Relaxed);
    let mut reasons = Vec::new();
    let mut is_temporary = false;
    for at in (0..endpoints.len()).map(|step| (first + step) % endpoints.len()) {
        let Some(endpoint) = endpoints.get(at) else { continue };
        let limit = url.config.get_connect_timeout().copied().unwrap_or(options.connect_timeout);
        let one = tokio::time::timeout(limit, connect(url, endpoint, options)).await;
        let refused = match one {
            Ok(Ok(dialed)) => {
                last.store(at, Ordering::Relaxed);
                return Ok(dialed);
            }
            Ok(Err(refused)) => refused,
            Err(_) => later(format!("it did not answer within {limit:?}")),
        };
        reasons.push(format!("{endpoint}: {}", refused.why));
        is_temporary |= refused.is_temporary;
    }
    let why = format!("cannot connect to PostgreSQL at {}", reasons.join("; at "));
    Err(Refused { why, is_temporary })
}

fn later(why: impl Into<String>) -> Refused {
    Refused { why: why.into(), is_temporary: true }
}

fn never(why: impl Into<String>) -> Refused {
    Refused { why: why.into(), is_temporary: false }
}

async fn connect(
    url: &PostgresUrl,
    endpoint: &Endpoint,
    options: &Options,
) -> Result<Dialed, Refused> {
    let mut config = url.config_for(endpoint);
    if let Some(password) = password::of(url, endpoint).map_err(never)? {
        config.password(password);
    }
    // Neither libpq nor the server supports TLS on Unix sockets.
    let mode = match endpoint.host {
        Host::Unix(_) => Mode::Disable,
        Host::Tcp(_) => url.tls.mode,
    };
    if mode == Mode::Disable {
        return plain(url, &config, endpoint, options).await.map_err(|e| refused(&e, &url.tls));
    }
    let connector = OverTls(tls::connector(&url.tls).map_err(never)?);
    config.ssl_mode(if mode == Mode::Prefer { SslMode::Prefer } else { SslMode::Require });
    match session(url, &config, connector, options).await {
        Err(Failed::Server(error)) if mode == Mode::Prefer && rustls_of(&error).is_some() => {
            plain(url, &config, endpoint, options).await.map_err(|e| refused(&e, &url.tls))
        }
        other => other.map_err(|e| refused(&e, &url.tls)),
    }
}

enum Failed {
    Server(tokio_postgres::Error),
    /// The socket of the server cannot be opened.
    Socket(std::io::Error),
    /// The server is a standby.
    Standby,
}

impl From<tokio_postgres::Error> for Failed {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Server(error)
    }
}

/// A session without TLS.
async fn plain(
    url: &PostgresUrl,
    config: &Config,
    endpoint: &Endpoint,
    options: &Options,
) -> Result<Dialed, Failed> {
    let mut config = config.clone();
    config.ssl_mode(SslMode::Disable);
    let Host::Unix(folder) = &endpoint.host else {
        return session(url, &config, NoTls, options).await;
    };
    let file = folder.join(format!(".s.PGSQL.{}", endpoint.port));
    let socket = UnixStream::connect(file).await.map_err(Failed::Socket)?;
    let (client, connection) = config.connect_raw(Merged::new(socket), NoTls).await?;
    begin(url, client, Box::pin(connection), options).await
}

/// A session over TCP.
async fn session<T>(
    url: &PostgresUrl,
    config: &Config,
    tls: T,
    options: &Options,
) -> Result<Dialed, Failed>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, connection) = config.connect(tls).await?;
    begin(url, client, Box::pin(connection), options).await
}

/// Sets the limits of the session, and asks whether it can write, in one round trip.
async fn begin(
    url: &PostgresUrl,
    client: Client,
    mut driver: Driver,
    options: &Options,
) -> Result<Dialed, Failed> {
    let statement = options.statement_timeout.as_millis();
    let lock = options.lock_timeout.as_millis();
    // A controller that hangs during a transaction keeps its locks for at most `idle_in_transaction_session_timeout`.
    //
    // Every statement has one plan for the life of its connection, and the tests check that plan. Otherwise the server
    // would plan each statement five times on each connection, and then at every call those whose generic plan it
    // considers more expensive. On a new database the plan is made while the tables are empty, when a sequential scan
    // looks cheapest, so sequential scans are off: the plan must use an index. A plan that cannot gets a cost so high
    // that the server would compile it (JIT), which takes longer than any of our statements.
    // The server sends no notices, such as that a table exists already: the driver would log them. Warnings stay.
    let sql = format!(
        "SET client_min_messages = warning; SET statement_timeout = {statement}; SET lock_timeout = {lock}; \
         SET idle_in_transaction_session_timeout = {statement}; \
         SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off; \
         SET enable_mergejoin = off; SET jit = off; \
         SHOW transaction_read_only"
    );
    let answer = tokio::select! {
        biased;
        answer = client.simple_query(&sql) => answer?,
        ended = &mut driver => {
            ended?;
            // The connection has ended, so this statement fails.
            client.simple_query("").await?
        }
    };
    let standby = answer
        .iter()
        .any(|message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("on")));
    if url.writable && standby {
        return Err(Failed::Standby);
    }
    Ok(Dialed { client, driver })
}

/// The error of rustls in a chain of causes.
fn rustls_of(error: &tokio_postgres::Error) -> Option<&rustls::Error> {
    use std::error::Error as _;
    let io = error.source()?.downcast_ref::<std::io::Error>()?;
    io.get_ref()?.downcast_ref()
}

/// The reason for a failed attempt, with a remedy if one is known.
fn refused(error: &Failed, tls: &Tls) -> Refused {
    let error = match error {
        Failed::Standby => return later("it is a standby, which accepts no writes"),
        Failed::Socket(error) => return later(format!("error connecting to server: {error}")),
        Failed::Server(error) => error,
    };
    if let Some(answer) = error.as_db_error() {
        return of_server(answer);
    }
    if let Some(error) = rustls_of(error) {
        return never(format!("TLS failed: {error}{}", advice(error, tls)));
    }
    let text = chain(error);
    if text.contains("password missing") {
        return never(
            "it asks for a password, and there is none: set PGPASSWORD, or passfile in the URL to a \
             file with a line host:port:database:user:password for this host, database and user",
        );
    }
    if text.contains("server does not support TLS") {
        return never(
            "it has no TLS: set ssl = on in its postgresql.conf, or sslmode=disable in the URL if \
             the network in between is private",
        );
    }
    // The client ended the login: the server's method is not supported, or lacks the required channel binding.
    if text.contains("authentication error") {
        return never(format!(
            "{text}; see channel_binding in the URL (it needs TLS and SCRAM authentication), and the \
             method in pg_hba.conf of the server"
        ));
    }
    later(text)
}

/// The remedy for a failed handshake, with the file that it concerns.
fn advice(error: &rustls::Error, tls: &Tls) -> String {
    use rustls::{CertificateError as Wrong, Error};
    match error {
        Error::InvalidCertificate(Wrong::UnknownIssuer | Wrong::BadSignature) => match &tls.root {
            Some(Root::File(file)) => format!(
                "; sslrootcert {} must hold the authority that signed the server's certificate \
                 (its ssl_cert_file)",
                file.display()
            ),
            Some(Root::System) | None => {
                "; the operating system does not know the authority that signed the server's \
                 certificate: name the PEM file of that authority in sslrootcert"
                    .into()
            }
        },
        Error::InvalidCertificate(
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. },
        ) => "; use a name of the certificate in the URL, or sslmode=verify-ca (names must be subject \
              alternative names; the common name does not count)"
            .into(),
        Error::InvalidCertificate(
            Wrong::Expired
            | Wrong::ExpiredContext { .. }
            | Wrong::NotValidYet
            | Wrong::NotValidYetContext { .. },
        ) => "; renew the server's certificate (its ssl_cert_file), unless the clock of this machine \
              is wrong"
            .into(),
        Error::InvalidCertificate(_) => {
            "; replace the server's certificate (its ssl_cert_file)".into()
        }
        Error::AlertReceived(_) => match &tls.own {
            Some((cert, _)) => format!(
                "; the server refused sslcert {}: an authority in its ssl_ca_file must have signed \
                 it, and it must be current; the server's log has the reason",
                cert.display()
            ),
            None => "; the server refused the connection: it may ask for a client certificate \
                     (sslcert and sslkey); its log has the reason"
                .into(),
        },
        Error::PeerIncompatible(_) => {
            "; the server must accept TLS 1.2 or 1.3 (its ssl_max_protocol_version)".into()
        }
        _ => "; the server's log has the reason".into(),
    }
}

/// The reason that the server gave for a refusal, with a remedy if one is known.
fn of_server(error: &tokio_postgres::error::DbError) -> Refused {
    let (code, message) = (error.code(), error.message());
    let advice = match *code {
        SqlState::INVALID_PASSWORD => {
            "; check the password in the URL, PGPASSWORD or the passfile, and whether sslcert is the \
             certificate of this user, if the server asks for one"
        }
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            "; see pg_hba.conf of the server, and user, sslmode and sslcert in the URL"
        }
        SqlState::INVALID_CATALOG_NAME => "; create the database, owned by the user of the URL",
        _ => "",
    };
    Refused { why: format!("{}: {message}{advice}", code.code()), is_temporary: is_outage(code) }
}
