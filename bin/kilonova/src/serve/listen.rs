//! The socket: answers until SIGTERM or Ctrl-C, then gives open requests a few seconds.
//!
//! No client may hold the server up: a head has to arrive within [`HEAD`], an answer has to be taken
//! within [`STALL_MILLIS`], and there are only so many connections; more wait in the system's queue. What
//! bodies may take is the business of those who read them.

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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::{Layer, ServiceExt};
use tower_http::normalize_path::{NormalizePath, NormalizePathLayer};

use super::edge;
use super::node_tls::Peer;
use super::unreadable::Speaking;
use crate::failure::Failure;

/// What open requests get after a signal; the process ends within five seconds of it.
const GRACE: Duration = Duration::from_millis(4500);
/// For a request's head to arrive; also how long a kept connection may be idle.
const HEAD: Duration = Duration::from_secs(75);
/// For a host to prove who it is.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For a client to take some more of an answer.
const STALL_MILLIS: u32 = 60_000;
/// Connections at most, if the system allows twice as many open files. Each host takes one or two.
const CONNECTIONS: u64 = 32_768;
/// Bytes of a request's head at most.
const HEAD_BYTES: usize = 128 * 1024;

type App = NormalizePath<Router>;

/// The other socket: that of hosts that have joined.
pub(super) struct Hosts {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    app: App,
}

impl Hosts {
    /// Answers by `router`, over TLS.
    pub(super) fn new(listener: TcpListener, acceptor: TlsAcceptor, router: Router) -> Self {
        Self { listener, acceptor, app: app(router) }
    }
}

fn app(router: Router) -> App {
    NormalizePathLayer::trim_trailing_slash().layer(router)
}

pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    hosts: Option<Hosts>,
) -> Result<(), Failure> {
    let app = app(router);
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|e| Failure::failed("cannot wait for SIGTERM", e))?;
    let slots = Arc::new(Semaphore::new(slots()));
    let (stop, stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            let came = tokio::select! {
                stream = accept(&listener) => (stream, None),
                came = accept_host(hosts.as_ref()) => came,
            };
            (came, slot)
        };
        tokio::select! {
            _ = terminate.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
            ((stream, acceptor), slot) = accepted => {
                if slots.available_permits() == 0 {
                    tracing::warn!("all connections are in use; new ones wait for one to end");
                }
                let stopping = stopping.clone();
                let app = hosts.as_ref().filter(|_| acceptor.is_some()).map_or(&app, |h| &h.app);
                let app = app.clone();
                connections.spawn(async move {
                    match acceptor {
                        None => converse(stream, app, stopping).await,
                        Some(acceptor) => converse_with_host(stream, acceptor, app, stopping).await,
                    }
                    drop(slot);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
    kilonova_program::systemd::stopping();
    drop((listener, hosts));
    tracing::info!("stopping; open requests have {} s", GRACE.as_secs_f32());
    stop.send_replace(true);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, ended).await.is_err() {
        tracing::warn!(
            open = connections.len(),
            "some requests were still open and are broken off"
        );
    }
    Ok(())
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

/// The next host, if there is a door for them.
async fn accept_host(hosts: Option<&Hosts>) -> (TcpStream, Option<TlsAcceptor>) {
    match hosts {
        Some(hosts) => (accept(&hosts.listener).await, Some(hosts.acceptor.clone())),
        None => std::future::pending().await,
    }
}

fn is_the_clients(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// One connection from its first request to its last.
async fn converse(stream: TcpStream, app: App, stopping: watch::Receiver<bool>) {
    let peer = prepare(&stream);
    talk(peer, stream, app, None, stopping).await;
}

/// The same, after a handshake that may have told who it is.
async fn converse_with_host(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    app: App,
    stopping: watch::Receiver<bool>,
) {
    let peer = prepare(&stream);
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::warn!(%peer, %error, "a host is not let in");
            return;
        }
        Err(_) => {
            tracing::debug!(%peer, "a handshake took too long");
            return;
        }
    };
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let host = match shown.map(|certificate| Peer::read(certificate)).transpose() {
        Ok(host) => host,
        Err(error) => {
            tracing::warn!(%peer, %error, "a host is not let in");
            return;
        }
    };
    talk(peer, stream, app, host, stopping).await;
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
    app: App,
    host: Option<Peer>,
    mut stopping: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |mut request: Request<Incoming>| {
        let app = app.clone();
        request.extensions_mut().insert(PeerAddress(peer.ip().to_canonical()));
        if let Some(host) = &host {
            request.extensions_mut().insert(host.clone());
        }
        async move {
            Ok::<_, Infallible>(edge::answer(request, |r: Request<Body>| app.oneshot(r)).await)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_BYTES);
    let mut connection =
        pin!(builder.serve_connection(TokioIo::new(Speaking::new(stream)), service));
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
