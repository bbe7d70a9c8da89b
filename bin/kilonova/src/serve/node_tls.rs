//! The listener for enrolled hosts: TLS with the cloud's own authority.
//!
//! A connection without a certificate may only join and read the clock. The certificate of a connection is
//! checked at each request for revocation and expiry.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use kilonova_compute_app::Compute;
use kilonova_compute_nodes::{Link, api as nodes};
use kilonova_enroll::{EnrollOptions, Enrollment};
use kilonova_pki::{Authority, Own};
use kilonova_store::Store;
use kilonova_wire::auth::Authentication;
use kilonova_wire::{Authenticator, Context, Dialect, Fault, Refusal, Speaker, mount, time};
use rustls::server::{ClientHello, ResolvesServerCert};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::node_listener::PATH;
use crate::config::NodeListener;
use crate::failure::Failure;
use crate::state::{StateDir, write_secret};

/// The interval of reading the revocation list, which other controllers change too.
const REFRESH: Duration = Duration::from_secs(5);
/// The interval of renewing the controller's certificate.
const RENEW: Duration = Duration::from_secs(24 * 3600);

/// An open listener.
pub(super) struct NodeEndpoint {
    pub listener: TcpListener,
    pub acceptor: TlsAcceptor,
    pub enrollment: Enrollment,
}

/// The identity in a connection's client certificate.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    host: Arc<str>,
    serial: Arc<str>,
    not_after: Timestamp,
}

impl Peer {
    /// Reads a certificate that the handshake has verified.
    pub(super) fn read(der: &[u8]) -> Result<Self, kilonova_pki::Error> {
        let said = kilonova_pki::read_der(der)?;
        let (host, serial) = (said.name.into(), said.serial.into());
        Ok(Self { host, serial, not_after: said.not_after })
    }
}

/// Binds the socket, before anything is written.
pub(super) async fn bind(options: &NodeListener) -> Result<TcpListener, Failure> {
    TcpListener::bind(options.listen).await.map_err(|e| {
        Failure::Refused(format!(
                        "cannot listen on {} for hosts: {e}; stop the program that listens there, or use another \
                         --node-listen address",
                        options.listen
        ))
    })
}

/// Loads or creates the authority, and opens the listener.
pub(super) async fn open(
    options: &NodeListener,
    listener: TcpListener,
    directory: &StateDir,
    store: &Store,
) -> Result<NodeEndpoint, Failure> {
    let failed =
        |e: &dyn std::fmt::Display| Failure::failed("cannot open the listener for hosts", e);
    let address = listener.local_addr().map_err(|e| failed(&e))?;
    let authority = Arc::new(authority(directory, store).await?);
    let names = names(options, address);
    let url = options.url.clone().unwrap_or_else(|| url(&names, address.port()));
    let shown = ControllerCertificate::new(&authority, &names).map_err(|e| failed(&e))?;
    let config = kilonova_pki::server(authority.certificate(), Arc::clone(&shown) as _);
    let acceptor = TlsAcceptor::from(Arc::new(config.map_err(|e| failed(&e))?));
    let enroll_options = EnrollOptions { url, valid: options.valid };
    let enrollment = Enrollment::new(store.clone(), Arc::clone(&authority), enroll_options);
    let enrollment = enrollment.knowing(Arc::new(kilonova_compute_db::hosts::spellings));
    enrollment.refresh().await.map_err(|e| failed(&e))?;
    keep_fresh(enrollment.clone(), authority, shown, names);
    Ok(NodeEndpoint { listener, acceptor, enrollment })
}

async fn authority(directory: &StateDir, store: &Store) -> Result<Authority, Failure> {
    let folder = directory.join("ca");
    let (certificate, key) = (folder.join("ca.crt"), folder.join("ca.key"));
    let refused = |error: kilonova_enroll::Error| Failure::Refused(error.to_string());
    if !certificate.exists() && !key.exists() {
        kilonova_enroll::record_authority(store, None).await.map_err(refused)?;
        let failed = |e: &dyn std::fmt::Display| Failure::failed("cannot create the authority", e);
        let (pem, secret) = Authority::make(time::now()).map_err(|e| failed(&e))?;
        std::fs::create_dir_all(&folder).map_err(|e| failed(&e))?;
        write_secret(&key, &secret).map_err(|e| failed(&e))?;
        write_secret(&certificate, &pem).map_err(|e| failed(&e))?;
    }
    let read = |path: &std::path::Path| {
        std::fs::read_to_string(path)
            .map_err(|e| Failure::failed(&format!("cannot read {}", path.display()), e))
    };
    let loaded = Authority::load(&read(&certificate)?, &read(&key)?);
    let loaded = loaded.map_err(|e| Failure::Refused(format!("{}: {e}", folder.display())))?;
    kilonova_enroll::record_authority(store, Some(loaded.fingerprint())).await.map_err(refused)?;
    Ok(loaded)
}

fn names(options: &NodeListener, address: SocketAddr) -> Vec<String> {
    if !options.names.is_empty() {
        return options.names.clone();
    }
    let own = kilonova_program::host_name();
    match address.ip() {
        any if any.is_unspecified() => vec![own],
        ip => vec![ip.to_string(), own],
    }
}

fn url(names: &[String], port: u16) -> String {
    let name = names.first().map_or("localhost", String::as_str);
    match name.parse::<std::net::Ipv6Addr>() {
        Ok(address) => format!("https://[{address}]:{port}"),
        Err(_) => format!("https://{name}:{port}"),
    }
}

/// The controller's current certificate.
#[derive(Debug)]
struct ControllerCertificate(std::sync::RwLock<Own>);

impl ControllerCertificate {
    fn new(authority: &Authority, names: &[String]) -> Result<Arc<Self>, kilonova_pki::Error> {
        Ok(Arc::new(Self(std::sync::RwLock::new(Self::made(authority, names)?))))
    }

    fn made(authority: &Authority, names: &[String]) -> Result<Own, kilonova_pki::Error> {
        let (pem, key) = authority.control_plane(names, time::now())?;
        kilonova_pki::own(&pem, &key, authority.certificate())
    }
}

impl ResolvesServerCert for ControllerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Own> {
        let own = self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        Some(Arc::clone(&own))
    }
}

fn keep_fresh(
    enrollment: Enrollment,
    authority: Arc<Authority>,
    shown: Arc<ControllerCertificate>,
    names: Vec<String>,
) {
    tokio::spawn(async move {
        let mut made = tokio::time::Instant::now();
        loop {
            tokio::time::sleep(REFRESH).await;
            if let Err(error) = enrollment.refresh().await {
                tracing::warn!(%error, "cannot read the revocation list; retrying");
            }
            if made.elapsed() < RENEW {
                continue;
            }
            made = tokio::time::Instant::now();
            match ControllerCertificate::made(&authority, &names) {
                Ok(own) => {
                    *shown.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = own;
                }
                Err(error) => tracing::error!(%error, "cannot renew the controller's certificate"),
            }
        }
    });
}

/// The node API, authenticated by certificates.
pub(super) fn routes(compute: &Compute, enrollment: &Enrollment) -> Router {
    let routes = nodes::routes(Link(compute.clone()))
        .merge(kilonova_enroll::node_routes(enrollment.clone()));
    let below = mount(routes, nodes::service(), PATH, Arc::new(ByCertificate));
    let below = below.layer(middleware::from_fn_with_state(enrollment.clone(), check_certificate));
    Router::new().nest(PATH, below)
}

/// Accepts requests that passed [`check_certificate`].
struct ByCertificate;

impl Authenticator for ByCertificate {
    fn authenticate<'a>(&'a self, _: &'a http::HeaderMap) -> Authentication<'a> {
        Box::pin(async { Ok(Context::default()) })
    }
}

async fn check_certificate(
    State(enrollment): State<Enrollment>,
    mut request: Request,
    next: Next,
) -> Response {
    // The path relative to the nested router.
    let open = matches!(request.uri().path(), "/v1/join" | "/v1/clock");
    let Some(peer) = request.extensions().get::<Peer>().cloned() else {
        if open {
            return next.run(request).await;
        }
        return refused(Refusal::unauthorized(
            "This API is for enrolled hosts, and this connection has no client certificate: create a \
                         token with `kilonova node enroll`, and join with it.",
        ));
    };
    let host = &peer.host;
    if enrollment.revoked().has(&peer.serial) {
        return revoked(host);
    }
    if time::now() > peer.not_after {
        return refused(Refusal::unauthorized(format!(
            "The certificate of host {host} has expired: create a token with `kilonova node enroll \
                         --host {host}`, and join again."
        )));
    }
    request.extensions_mut().insert(Speaker(Arc::clone(host)));
    // A long poll or upload in progress ends when the certificate is revoked.
    tokio::select! {
        answer = next.run(request) => answer,
        () = enrollment.revoked().wait_until_revoked(&peer.serial) => revoked(host),
    }
}

fn revoked(host: &str) -> Response {
    refused(Refusal::forbidden(format!(
        "The certificate of host {host} was revoked: create a token with `kilonova node enroll \
                 --host {host}`, and join again."
    )))
}

/// Formats a fault outside of the middleware that does so.
fn refused(refusal: Refusal) -> Response {
    let fault = Fault::from(refusal);
    let body = Dialect::Compute.body(&fault, "", false);
    (fault.status(), axum::Json(body)).into_response()
}
