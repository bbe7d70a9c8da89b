//! The sockets: serves until SIGTERM or Ctrl-C, then shuts down gracefully, which gives open requests a few
//! seconds. A second signal ends the process immediately.
//!
//! ```text
//! Serving ──signal──► Draining ──[api] shutdown_delay──► Stopping ──open requests or GRACE──► end
//! ```
//!
//! In the phase `Draining`, connections are still accepted, so that none fails before the balancers notice, but
//! each is closed after its answer.
//!
//! No client can block the server: a head must arrive within [`HEAD`], an answer must be received within
//! [`STALL_MILLIS`], a large one also at a minimum rate ([`super::unsent`]), and connections are limited,
//! separately for users and hosts. A connection beyond the limit gets a 503 and is closed. Readers of request
//! bodies have their own time limits.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use http::{HeaderValue, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kilonova_compute_nodes::{Drain, Phase};
use kilonova_program::signals::StopSignals;
use kilonova_wire::PeerAddress;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
    set_tcp_user_timeout,
};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::{Layer, ServiceExt};
use tower_http::normalize_path::{NormalizePath, NormalizePathLayer};

use super::connection::{Busy, Full, Paced, PerAddress, Pool, RequestOrigin};
use super::edge;
use super::node_tls::Peer;
use super::unreadable::ExplainedRefusals;
use super::unsent::Disconnect;
use crate::config::Front;

/// The grace period of open requests after a signal; the process ends within five seconds.
const GRACE: Duration = Duration::from_millis(4500);
/// The deadline of a request's head, from its first byte.
const HEAD: Duration = Duration::from_secs(10);
/// The timeout of an idle connection.
const IDLE: Duration = Duration::from_secs(75);
/// The timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The time that a refused client has to read the answer.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of concurrent refusals with an answer; others are closed immediately.
const MAX_REFUSALS: usize = 256;
/// The time in which a client must accept more of an answer.
const STALL_MILLIS: u32 = 60_000;
/// The silence after which the system checks a connection, the interval of its probes, and their number.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEP_ALIVE_PROBES: u32 = 4;
/// Maximum number of connections, if the system allows twice as many open files. Each host needs
/// one or two.
const CONNECTIONS: u64 = 32_768;
/// One address may use one in `SHARE` of the users' connections.
const SHARE: usize = 4;
/// Maximum number of bytes of a request's head.
const HEAD_BYTES: usize = 128 * 1024;

type App = NormalizePath<Router>;

/// The clients of a listener.
#[derive(Clone)]
enum Clients {
    Users(RequestOrigin),
    Hosts,
}

/// The handling of a listener's connections.
#[derive(Clone)]
pub(super) struct Endpoint {
    acceptor: Option<TlsAcceptor>,
    app: App,
    clients: Clients,
    pool: Pool,
}

impl Endpoint {
    /// For users; with TLS if there is an acceptor.
    pub(super) fn users(
        front: &Front,
        acceptor: Option<TlsAcceptor>,
        pool: Pool,
        router: Router,
    ) -> Self {
        Self {
            acceptor,
            app: app(router),
            clients: Clients::Users(RequestOrigin::new(front)),
            pool,
        }
    }

    /// For enrolled hosts.
    pub(super) fn hosts(acceptor: TlsAcceptor, pool: Pool, router: Router) -> Self {
        Self { acceptor: Some(acceptor), app: app(router), clients: Clients::Hosts, pool }
    }
}

/// The connection pools of users and hosts; `hosts` tells whether there is a listener for hosts.
pub(super) fn pools(front: &Front, hosts: bool) -> (Pool, Pool) {
    let slots = slots();
    let half = if hosts { (slots / 2).max(1) } else { slots };
    let users = front.connections.unwrap_or(half);
    let per_address = match front.connections_per_address {
        Some(number) => PerAddress::Exactly(number),
        None => PerAddress::Strangers((users / SHARE).max(1), front.proxies.clone()),
    };
    (Pool::new("users", users, per_address), Pool::new("hosts", half, PerAddress::Any))
}

/// The connection pool of Neutron's proxies: a few addresses, each for many guests.
pub(super) fn proxies() -> Pool {
    Pool::new("metadata", (slots() / 4).max(1), PerAddress::Any)
}

fn app(router: Router) -> App {
    NormalizePathLayer::trim_trailing_slash().layer(router)
}

/// Serves all listeners until a signal. `phase` starts the phases of the shutdown, which `drain` follows.
pub(super) async fn serve(
    listeners: Vec<(TcpListener, Endpoint)>,
    (phase, drain): (watch::Sender<Phase>, Drain),
    delay: Duration,
    mut signals: StopSignals,
) {
    let mut open = JoinSet::new();
    for (listener, endpoint) in listeners {
        open.spawn(listen(listener, endpoint, drain.clone()));
    }
    signals.recv().await;
    kilonova_program::systemd::stopping();
    let ending = async {
        phase.send_replace(Phase::Draining);
        if !delay.is_zero() {
            tracing::info!(
                "shutting down; connections are accepted for {} s more",
                delay.as_secs()
            );
            tokio::time::sleep(delay).await;
        }
        tracing::info!("stopping; open requests have {} s to finish", GRACE.as_secs_f32());
        phase.send_replace(Phase::Stopping);
        let broken: usize = open.join_all().await.into_iter().sum();
        if broken > 0 {
            tracing::warn!(open = broken, "aborting requests that did not finish in time");
        }
    };
    tokio::select! {
        () = ending => {}
        () = signals.recv() => tracing::warn!("received a second signal; aborting open requests"),
    }
}

/// Serves one listener until `Phase::Stopping`; returns the number of aborted connections.
async fn listen(listener: TcpListener, endpoint: Endpoint, mut drain: Drain) -> usize {
    let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
    let mut connections = JoinSet::new();
    let followed = drain.clone();
    loop {
        tokio::select! {
            () = drain.reached(Phase::Stopping) => break,
            stream = accept(&listener) => {
                let peer = prepare(&stream);
                match endpoint.pool.take(peer.ip()) {
                    Ok(slot) => {
                        let (endpoint, drain) = (endpoint.clone(), followed.clone());
                        connections.spawn(async move {
                            handle_connection(peer, stream, endpoint, drain).await;
                            drop(slot);
                        });
                    }
                    Err(full) => {
                        // With TLS, no answer is possible before the handshake.
                        if endpoint.acceptor.is_none()
                            && let Ok(permit) = Arc::clone(&refusals).try_acquire_owned()
                        {
                            connections.spawn(async move {
                                refuse(stream, refusal_of(full)).await;
                                drop(permit);
                            });
                        }
                    }
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    match tokio::time::timeout(GRACE, ended).await {
        Ok(()) => 0,
        Err(_) => connections.len(),
    }
}

/// Maximum number of connections: half of the allowed open files.
fn slots() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    let target = limit.maximum.unwrap_or(u64::MAX).min(2 * CONNECTIONS);
    if limit.current.is_some_and(|current| current < target) {
        let before = limit.current.replace(target);
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%error, "cannot raise the limit of open files");
            limit.current = before;
        }
    }
    let files = limit.current.unwrap_or(u64::MAX);
    usize::try_from((files / 2).clamp(1, CONNECTIONS)).unwrap_or(1)
}

/// The next connection. Retries after a pause if the system has no resources.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if is_client_error(&error) => {}
            Err(error) => {
                tracing::error!(%error, "cannot accept a connection; retrying");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

fn is_client_error(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Handles one connection, from the handshake to the last request.
///
/// Its future is small, as every host keeps a connection: the handshake and TLS are boxed.
async fn handle_connection(peer: SocketAddr, stream: TcpStream, endpoint: Endpoint, drain: Drain) {
    match endpoint.acceptor.clone() {
        None => serve_requests(peer, stream, endpoint, None, drain).await,
        Some(acceptor) => Box::pin(handle_tls(peer, stream, acceptor, endpoint, drain)).await,
    }
}

/// Handles one connection with TLS.
async fn handle_tls(
    peer: SocketAddr,
    stream: TcpStream,
    acceptor: TlsAcceptor,
    endpoint: Endpoint,
    drain: Drain,
) {
    let shaken = Box::pin(tokio::time::timeout(HANDSHAKE, async {
        if is_tls(&stream).await? {
            return acceptor.accept(stream).await.map(Some);
        }
        refuse(stream, PLAIN).await;
        Ok(None)
    }));
    let stream = match shaken.await {
        Ok(Ok(Some(stream))) => stream,
        Ok(Ok(None)) => return,
        Ok(Err(error)) => {
            match endpoint.clients {
                Clients::Hosts => tracing::warn!(%peer, %error, "TLS handshake of a host failed"),
                Clients::Users(_) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            }
            return;
        }
        Err(_) => {
            tracing::debug!(%peer, "TLS handshake timed out");
            return;
        }
    };
    let host = match endpoint.clients {
        Clients::Users(_) => None,
        Clients::Hosts => {
            let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            match shown.map(|certificate| Peer::read(certificate)).transpose() {
                Ok(host) => host,
                Err(error) => {
                    tracing::warn!(%peer, %error, "cannot read a host's certificate; connection refused");
                    return;
                }
            }
        }
    };
    serve_requests(peer, stream, endpoint, host, drain).await;
}

/// True if the client begins a TLS handshake, by its first byte.
async fn is_tls(stream: &TcpStream) -> std::io::Result<bool> {
    let mut first = [0];
    Ok(stream.peek(&mut first).await? == 0 || first == [0x16])
}

/// The answer to a client that is refused before its request is read.
struct Refusal {
    status: &'static str,
    headers: &'static str,
    why: &'static str,
}

const PLAIN: Refusal = Refusal {
    status: "400 Bad Request",
    headers: "",
    why: "This port requires TLS: use https:// in the URL.",
};
const FULL: Refusal = Refusal {
    status: "503 Service Unavailable",
    headers: "retry-after: 5\r\n",
    why: "All connections are in use. Try again in a few seconds.",
};
const FULL_ADDRESS: Refusal = Refusal {
    status: "503 Service Unavailable",
    headers: "retry-after: 5\r\n",
    why: "Your address has reached its connection limit. Close some connections, or try again in a few \
              seconds.",
};

fn refusal_of(full: Full) -> Refusal {
    match full {
        Full::All => FULL,
        Full::Address => FULL_ADDRESS,
    }
}

/// Answers without reading the request, and gives the client a moment to read the answer.
async fn refuse(mut stream: TcpStream, refusal: Refusal) {
    let Refusal { status, headers, why } = refusal;
    let (code, title) = status.split_once(' ').unwrap_or((status, ""));
    let code: u16 = code.parse().unwrap_or(503);
    let id = format!("req-{}", uuid::Uuid::new_v4());
    let body = serde_json::json!({"errors": [
        {"status": code, "title": title, "detail": why, "request_id": id}
    ]})
    .to_string();
    let answer = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-type: application/json\r\n\
         x-openstack-request-id: {id}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let exchange = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // Closing with unread bytes would reset the connection before the answer is read.
        let mut rest = [0; 4096];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<(), std::io::Error>(())
    };
    if !matches!(tokio::time::timeout(REFUSAL_TIMEOUT, exchange).await, Ok(Ok(()))) {
        tracing::debug!("a refused client did not read the answer");
    }
}

/// Sets a socket's options. A console may be idle for hours, so the system checks silent connections.
fn prepare(stream: &TcpStream) -> SocketAddr {
    let kept = set_socket_keepalive(stream, true)
        .and_then(|()| set_tcp_keepidle(stream, KEEP_ALIVE))
        .and_then(|()| set_tcp_keepintvl(stream, KEEP_ALIVE_INTERVAL))
        .and_then(|()| set_tcp_keepcnt(stream, KEEP_ALIVE_PROBES));
    if let Err(error) = kept {
        tracing::debug!(%error, "cannot enable keep-alive probes");
    }
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    if let Err(error) = set_tcp_user_timeout(stream, STALL_MILLIS) {
        tracing::debug!(%error, "cannot set TCP_USER_TIMEOUT");
    }
    stream.peer_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)))
}

async fn serve_requests<S>(
    peer: SocketAddr,
    stream: S,
    endpoint: Endpoint,
    host: Option<Peer>,
    mut drain: Drain,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let busy = Busy::default();
    let Endpoint { app, clients, .. } = endpoint;
    let answering = busy.clone();
    let disconnect = Disconnect::default();
    let ordered = disconnect.clone();
    let followed = drain.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let app = app.clone();
        let drain = followed.clone();
        let answering = answering.begin();
        edge::detach(&mut request);
        match &clients {
            Clients::Users(origin) => {
                origin.note(&mut request, peer.ip());
                request.extensions_mut().insert(disconnect.clone());
            }
            Clients::Hosts => {
                let address = PeerAddress(peer.ip().to_canonical());
                request.extensions_mut().insert(address);
            }
        }
        if let Some(host) = &host {
            request.extensions_mut().insert(host.clone());
        }
        async move {
            let mut answer = edge::answer(request, |r: Request<Body>| app.oneshot(r)).await;
            if drain.phase() > Phase::Serving {
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(header::CONNECTION, close);
            }
            Ok::<_, Infallible>(answering.until_sent(answer))
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(HEAD_BYTES);
    let (stream, closed) = Paced::new(ExplainedRefusals::new(stream), busy, HEAD).told();
    // In a block of its own, because the socket is closed with the connection.
    let ended = {
        let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
        let mut connection = pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = ordered.ordered() => Ok(()),
            () = drain.reached(Phase::Stopping) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "connection error");
    }
    // An upgraded connection stays open, and counts until its socket is closed.
    let _ = closed.await;
}
