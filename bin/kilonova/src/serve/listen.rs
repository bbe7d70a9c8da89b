//! The sockets: answers until SIGTERM or Ctrl-C, then gives open requests a few seconds.
//!
//! No client may hold the server up: a head has to arrive within [`HEAD`], an answer has to be taken
//! within [`STALL_MILLIS`], and there are only so many connections, of users and of hosts apart. One
//! too many is told so and closed. What bodies may take is the business of those who read them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kilonova_wire::PeerAddress;
use rustix::net::sockopt::set_tcp_user_timeout;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::{Layer, ServiceExt};
use tower_http::normalize_path::{NormalizePath, NormalizePathLayer};

use super::door::{Busy, Full, Paced, PerAddress, Pool, Users};
use super::edge;
use super::node_tls::Peer;
use super::unreadable::Speaking;
use crate::config::Front;
use crate::failure::Failure;

/// What open requests get after a signal; the process ends within five seconds of it.
const GRACE: Duration = Duration::from_millis(4500);
/// For a request's head to arrive, from its first byte.
const HEAD: Duration = Duration::from_secs(10);
/// How long a connection may be idle.
const IDLE: Duration = Duration::from_secs(75);
/// For a client to get through the handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For a client that is turned away to read why.
const FAREWELL: Duration = Duration::from_secs(1);
/// How many are told at once why they are turned away; others are just closed.
const FAREWELLS: usize = 256;
/// For a client to take some more of an answer.
const STALL_MILLIS: u32 = 60_000;
/// Connections at most, if the system allows twice as many open files. Each host takes one or two.
const CONNECTIONS: u64 = 32_768;
/// The part of the users' connections that one address may have: a fourth.
const SHARE: usize = 4;
/// Bytes of a request's head at most.
const HEAD_BYTES: usize = 128 * 1024;

type App = NormalizePath<Router>;

/// Whom a door is for.
#[derive(Clone)]
enum Whom {
    Users(Users),
    Hosts,
}

/// A socket, who comes through it, and what answers.
#[derive(Clone)]
pub(super) struct Door {
    acceptor: Option<TlsAcceptor>,
    app: App,
    whom: Whom,
    pool: Pool,
}

impl Door {
    /// For users; over TLS with an acceptor.
    pub(super) fn users(
        front: &Front,
        acceptor: Option<TlsAcceptor>,
        pool: Pool,
        router: Router,
    ) -> Self {
        Self { acceptor, app: app(router), whom: Whom::Users(Users::new(front)), pool }
    }

    /// For hosts that have joined.
    pub(super) fn hosts(acceptor: TlsAcceptor, pool: Pool, router: Router) -> Self {
        Self { acceptor: Some(acceptor), app: app(router), whom: Whom::Hosts, pool }
    }
}

/// The connections of users, and those of hosts if there is a door for them.
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

fn app(router: Router) -> App {
    NormalizePathLayer::trim_trailing_slash().layer(router)
}

/// Answers at every door until a signal.
pub(super) async fn serve(doors: Vec<(TcpListener, Door)>) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|e| Failure::failed("cannot wait for SIGTERM", e))?;
    let (stop, stopping) = watch::channel(false);
    let mut open = JoinSet::new();
    for (listener, door) in doors {
        open.spawn(keep_open(listener, door, stopping.clone()));
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    kilonova_program::systemd::stopping();
    tracing::info!("stopping; open requests have {} s", GRACE.as_secs_f32());
    stop.send_replace(true);
    let broken: usize = open.join_all().await.into_iter().sum();
    if broken > 0 {
        tracing::warn!(open = broken, "some requests were still open and are broken off");
    }
    Ok(())
}

/// One door until the stop; how many connections it had to break off.
async fn keep_open(
    listener: TcpListener,
    door: Door,
    mut stopping: watch::Receiver<bool>,
) -> usize {
    let farewells = Arc::new(Semaphore::new(FAREWELLS));
    let mut connections = JoinSet::new();
    let told = stopping.clone();
    loop {
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => break,
            stream = accept(&listener) => {
                let peer = prepare(&stream);
                match door.pool.take(peer.ip()) {
                    Ok(slot) => {
                        let (door, told) = (door.clone(), told.clone());
                        connections.spawn(async move {
                            converse(peer, stream, door, told).await;
                            drop(slot);
                        });
                    }
                    Err(full) => {
                        // Over TLS there are no words before the handshake.
                        if door.acceptor.is_none()
                            && let Ok(permit) = Arc::clone(&farewells).try_acquire_owned()
                        {
                            connections.spawn(async move {
                                turn_away(stream, why_full(full)).await;
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

/// How many connections there may be: half of the files that the system lets us open.
fn slots() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(2 * CONNECTIONS);
    if limit.current.is_some_and(|current| current < wanted) {
        let before = limit.current.replace(wanted);
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%error, "cannot raise the number of open files");
            limit.current = before;
        }
    }
    let files = limit.current.unwrap_or(u64::MAX);
    usize::try_from((files / 2).clamp(1, CONNECTIONS)).unwrap_or(1)
}

/// The next client. When the system has no room for one, it is asked again a little later.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if is_the_clients(&error) => {}
            Err(error) => {
                tracing::error!(%error, "cannot take a connection");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

fn is_the_clients(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// One connection from its first request to its last.
async fn converse(
    peer: SocketAddr,
    stream: TcpStream,
    door: Door,
    stopping: watch::Receiver<bool>,
) {
    let Some(acceptor) = &door.acceptor else {
        return talk(peer, stream, door, None, stopping).await;
    };
    let shaken = tokio::time::timeout(HANDSHAKE, async {
        if speaks_tls(&stream).await? {
            return acceptor.accept(stream).await.map(Some);
        }
        turn_away(stream, PLAIN).await;
        Ok(None)
    });
    let stream = match shaken.await {
        Ok(Ok(Some(stream))) => stream,
        Ok(Ok(None)) => return,
        Ok(Err(error)) => {
            match door.whom {
                Whom::Hosts => tracing::warn!(%peer, %error, "a host is not let in"),
                Whom::Users(_) => tracing::debug!(%peer, %error, "a handshake failed"),
            }
            return;
        }
        Err(_) => {
            tracing::debug!(%peer, "a handshake took too long");
            return;
        }
    };
    let host = match door.whom {
        Whom::Users(_) => None,
        Whom::Hosts => {
            let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            match shown.map(|certificate| Peer::read(certificate)).transpose() {
                Ok(host) => host,
                Err(error) => {
                    tracing::warn!(%peer, %error, "a host is not let in");
                    return;
                }
            }
        }
    };
    talk(peer, stream, door, host, stopping).await;
}

/// Whether the client begins a handshake, by the first byte of one.
async fn speaks_tls(stream: &TcpStream) -> std::io::Result<bool> {
    let mut first = [0];
    Ok(stream.peek(&mut first).await? == 0 || first == [0x16])
}

/// What is said to a client that gets no connection, before it is closed.
struct Refusal {
    status: &'static str,
    more: &'static str,
    why: &'static str,
}

const PLAIN: Refusal = Refusal {
    status: "400 Bad Request",
    more: "",
    why: "This port speaks TLS: use https:// in the URL.",
};
const FULL: Refusal = Refusal {
    status: "503 Service Unavailable",
    more: "retry-after: 5\r\n",
    why: "All connections are in use. Try again in a few seconds.",
};
const FULL_ADDRESS: Refusal = Refusal {
    status: "503 Service Unavailable",
    more: "retry-after: 5\r\n",
    why: "Your address has all the connections that one address may have. Close some, or try again \
          in a few seconds.",
};

fn why_full(full: Full) -> Refusal {
    match full {
        Full::All => FULL,
        Full::Address => FULL_ADDRESS,
    }
}

/// Says why, without having read the request, and gives the client a moment to read it.
async fn turn_away(mut stream: TcpStream, refusal: Refusal) {
    let Refusal { status, more, why } = refusal;
    let (code, title) = status.split_once(' ').unwrap_or((status, ""));
    let code: u16 = code.parse().unwrap_or(503);
    let id = format!("req-{}", uuid::Uuid::new_v4());
    let body = serde_json::json!({"errors": [
        {"status": code, "title": title, "detail": why, "request_id": id}
    ]})
    .to_string();
    let answer = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\n{more}content-type: application/json\r\n\
         x-openstack-request-id: {id}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let said = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // Unread bytes at the close would reset the connection, and the answer with it.
        let mut rest = [0; 4096];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<(), std::io::Error>(())
    };
    if !matches!(tokio::time::timeout(FAREWELL, said).await, Ok(Ok(()))) {
        tracing::debug!("a client that was turned away did not read why");
    }
}

fn prepare(stream: &TcpStream) -> SocketAddr {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    if let Err(error) = set_tcp_user_timeout(stream, STALL_MILLIS) {
        tracing::debug!(%error, "cannot set TCP_USER_TIMEOUT");
    }
    stream.peer_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)))
}

async fn talk<S>(
    peer: SocketAddr,
    stream: S,
    door: Door,
    host: Option<Peer>,
    mut stopping: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let busy = Busy::default();
    let Door { app, whom, .. } = door;
    let answering = busy.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let app = app.clone();
        let answering = answering.begin();
        match &whom {
            Whom::Users(users) => users.note(&mut request, peer.ip()),
            Whom::Hosts => {
                let address = PeerAddress(peer.ip().to_canonical());
                request.extensions_mut().insert(address);
            }
        }
        if let Some(host) = &host {
            request.extensions_mut().insert(host.clone());
        }
        async move {
            let answer = edge::answer(request, |r: Request<Body>| app.oneshot(r)).await;
            Ok::<_, Infallible>(answering.until_sent(answer))
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(HEAD_BYTES);
    let stream = Paced::new(Speaking::new(stream), busy, HEAD);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let told = async { drop(stopping.wait_for(|stop| *stop).await) };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = told => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection ended badly");
    }
}
