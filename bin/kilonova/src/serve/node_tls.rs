//! The listener for enrolled hosts: TLS with the cloud's own authority.
//!
//! A connection without a certificate may only join and read the clock. The certificate of a connection is
//! checked at each request for revocation, expiry and its authority.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use jiff::Timestamp;
use kilonova_compute_app::Compute;
use kilonova_compute_nodes::{Drain, Link, api as nodes};
use kilonova_enroll::{EnrollOptions, Enrollment, Presented};
use kilonova_ids::HostName;
use kilonova_pki::{Authority, Own};
use kilonova_seal::Vault;
use kilonova_wire::auth::Authentication;
use kilonova_wire::{Authenticator, CertifiedHost, Context, Dialect, Fault, Refusal, mount, time};
use rustls::server::{ClientHello, ResolvesServerCert};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::node_listener::PATH;
use super::secrets;
use crate::config::NodeListener;
use crate::failure::Failure;
use crate::state::StateDir;

/// The interval of reading the revocation list, which other controllers change too.
const REFRESH: Duration = Duration::from_secs(5);
/// The interval of comparing the authority with that of the controller's certificate.
const LOOK: Duration = Duration::from_millis(200);
/// The interval of renewing the controller's certificate.
const RENEW: Duration = Duration::from_secs(24 * 3600);

/// An open listener.
pub(super) struct NodeEndpoint {
    pub listener: TcpListener,
    pub acceptor: TlsAcceptor,
    pub enrollment: Enrollment,
    /// The URL of this particular controller, bypassing any balancer.
    pub own_url: String,
}

/// The identity in a connection's client certificate.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    host: HostName,
    serial: Arc<str>,
    issuer: Arc<str>,
    not_after: Timestamp,
}

impl Peer {
    /// Reads a certificate that the handshake has verified.
    pub(super) fn read(der: &[u8]) -> Result<Self, kilonova_pki::Error> {
        let certificate = kilonova_pki::read_der(der)?;
        let (host, serial) = (HostName::verbatim(certificate.name), certificate.serial.into());
        Ok(Self {
            host,
            serial,
            issuer: certificate.issuer.into(),
            not_after: certificate.not_after,
        })
    }
}

/// Binds the socket, before anything is written.
pub(super) async fn bind(options: &NodeListener) -> Result<TcpListener, Failure> {
    super::bind(options.listen, " for hosts", "use another --node-listen address").await
}

/// Loads or creates the cloud's authority, and opens the listener.
pub(super) async fn open(
    options: &NodeListener,
    listener: TcpListener,
    directory: &StateDir,
    vault: &Vault,
) -> Result<NodeEndpoint, Failure> {
    let failed =
        |e: &dyn std::fmt::Display| Failure::failed("cannot open the listener for hosts", e);
    let address = listener.local_addr().map_err(|e| failed(&e))?;
    let authorities = secrets::authorities(vault, directory).await?;
    let mut names = names(options, address);
    let url = options.url.clone().unwrap_or_else(|| url(&names, address.port()));
    // Hosts dial the controller whose client waits for a console, so its certificate also contains its own name.
    let (own, own_url) = own(options, address);
    if !names.contains(&own) {
        names.push(own);
    }
    let shown = ControllerCertificate::new(&authorities.shown(), &names).map_err(|e| failed(&e))?;
    let config = kilonova_pki::server(authorities.trust(), Arc::clone(&shown) as _);
    let acceptor = TlsAcceptor::from(Arc::new(config.map_err(|e| failed(&e))?));
    let enroll_options = EnrollOptions { url, valid: options.valid };
    let enrollment = Enrollment::new(vault.store().clone(), authorities, enroll_options);
    let enrollment = enrollment.knowing(Arc::new(kilonova_compute_db::hosts::spellings));
    enrollment.refresh().await.map_err(|e| failed(&e))?;
    keep_fresh(enrollment.clone(), shown, names);
    Ok(NodeEndpoint { listener, acceptor, enrollment, own_url })
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

/// The name and the URL of this particular controller.
fn own(options: &NodeListener, address: SocketAddr) -> (String, String) {
    let own = match address.ip() {
        any if any.is_unspecified() => kilonova_program::host_name(),
        ip => ip.to_string(),
    };
    match &options.own_url {
        None => {
            let url = url(std::slice::from_ref(&own), address.port());
            (own, url)
        }
        Some(url) => {
            let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
            let authority = rest.split('/').next().unwrap_or_default();
            let host = match authority.strip_prefix('[') {
                Some(six) => six.split(']').next(),
                None => authority.split(':').next(),
            };
            (host.unwrap_or_default().to_owned(), url.clone())
        }
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

fn keep_fresh(enrollment: Enrollment, shown: Arc<ControllerCertificate>, names: Vec<String>) {
    tokio::spawn(async move {
        let mut made = tokio::time::Instant::now();
        let mut authority = enrollment.authorities().shown().fingerprint();
        let mut refreshed = tokio::time::Instant::now();
        let (mut unread, mut unrenewed) = (false, false);
        loop {
            tokio::time::sleep(LOOK).await;
            if refreshed.elapsed() >= REFRESH {
                refreshed = tokio::time::Instant::now();
                let outcome = enrollment.refresh().await;
                match &outcome {
                    Ok(()) if unread => {
                        tracing::info!("read the revocation list and the authorities again");
                    }
                    Ok(()) => {}
                    Err(error) if unread => {
                        tracing::debug!(%error, "still cannot read the revocation list and the authorities");
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot read the revocation list and the authorities; retrying");
                    }
                }
                unread = outcome.is_err();
            }
            let current = enrollment.authorities().shown();
            if made.elapsed() < RENEW && current.fingerprint() == authority {
                continue;
            }
            let renewed = ControllerCertificate::made(&current, &names);
            let failed = std::mem::replace(&mut unrenewed, renewed.is_err());
            match renewed {
                Ok(own) => {
                    *shown.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = own;
                    made = tokio::time::Instant::now();
                    authority = current.fingerprint();
                    if failed {
                        tracing::info!("renewed the controller's certificate after failures");
                    }
                }
                Err(error) if failed => {
                    tracing::debug!(%error, "still cannot renew the controller's certificate");
                }
                Err(error) => {
                    tracing::error!(%error, "cannot renew the controller's certificate; retrying");
                }
            }
        }
    });
}

/// The node API, authenticated by certificates.
pub(super) fn routes(compute: &Compute, enrollment: &Enrollment, drain: &Drain) -> Router {
    let routes = nodes::routes(Link(compute.clone()))
        .layer(Extension(drain.clone()))
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
    // A connection, or a session that it resumes, may be older than the removal of the authority.
    if !enrollment.authorities().trusts(&peer.issuer) {
        return refused(Refusal::unauthorized(format!(
            "The certificate of host {host} is from an authority that is no longer trusted: create a \
                         token with `kilonova node enroll --host {host}`, and join again."
        )));
    }
    request.extensions_mut().insert(CertifiedHost(host.clone()));
    request.extensions_mut().insert(Presented(Arc::clone(&peer.serial)));
    // A long poll or upload in progress ends when the certificate is revoked.
    tokio::select! {
        answer = next.run(request) => answer,
        () = enrollment.revoked().wait_until_revoked(&peer.serial) => revoked(host),
    }
}

fn revoked(host: &HostName) -> Response {
    refused(Refusal::forbidden(format!(
        "The certificate of host {host} was revoked: create a token with `kilonova node enroll \
                 --host {host}`, and join again."
    )))
}

/// Formats a fault here, outside the middleware that usually formats faults.
fn refused(refusal: Refusal) -> Response {
    let fault = Fault::from(refusal);
    let body = Dialect::Compute.body(&fault, "", false);
    (fault.status(), axum::Json(body)).into_response()
}
