//! HTTP for guests, which are untrusted: headers, bodies, times and numbers are bounded, and a
//! connection that exceeds a bound is closed.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use kilonova_ids::NetworkId;
use kilonova_node::{GuestAnswer, GuestMethod, GuestRequest, GuestRequests, GuestStatus};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::limits::{Limits, Permit};

/// Maximum number of bytes of a request's head.
const HEAD: usize = 16 * 1024;
/// Maximum number of headers.
const HEADERS: usize = 64;
/// Maximum number of bytes of a body: more than the largest password.
const BODY: usize = 1024;
/// How long a guest may take for a head, and between two requests.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// How long a connection may last.
const LIFETIME: Duration = Duration::from_secs(30);
/// The pause after a failed accept, for instance because of too many open files.
const PAUSE: Duration = Duration::from_millis(100);
/// `Retry-After` in seconds when the service cannot answer.
const AGAIN: &str = "5";

/// The service on one network.
#[derive(Clone)]
pub(super) struct Service {
    pub network: NetworkId,
    pub guests: Arc<dyn GuestRequests>,
    pub limits: Arc<Limits>,
}

/// Serves a socket; never returns.
pub(super) async fn serve(socket: TcpListener, service: Service) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match socket.accept().await {
            Ok((stream, from)) => {
                let from = from.ip();
                // A connection above the limit is closed immediately.
                if let Some(permit) = service.limits.connect(service.network, from) {
                    connections.spawn(connection(stream, from, permit, service.clone()));
                }
            }
            Err(error) => {
                tracing::warn!(network = %service.network, %error, "could not accept a guest's connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, from: IpAddr, permit: Permit, service: Service) {
    let answer = service_fn(|request| answer(request, from, &permit, &service));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(stream), answer);
    // A guest that sends an invalid request or disconnects is not worth a log line.
    let _ = tokio::time::timeout(LIFETIME, connection).await;
}

async fn answer(
    request: Request<Incoming>,
    from: IpAddr,
    permit: &Permit,
    service: &Service,
) -> Result<Response<Full<Bytes>>, Infallible> {
    permit.request().await;
    let path = request.uri().path().to_owned();
    let method = match *request.method() {
        Method::GET => GuestMethod::Get,
        Method::POST => {
            let sent = Limited::new(request.into_body(), BODY).collect().await;
            GuestMethod::Post(sent.ok().map(|sent| sent.to_bytes().to_vec()))
        }
        _ => GuestMethod::Other,
    };
    let request = GuestRequest { network: service.network, from, method, path };
    let GuestAnswer { status, kind, body } = service.guests.answer(request).await;
    let mut response =
        Response::builder().status(status.code()).header(CONTENT_TYPE, kind.header());
    if status == GuestStatus::Unavailable {
        response = response.header(RETRY_AFTER, AGAIN);
    }
    let body = Full::new(Bytes::from(body));
    Ok(response.body(body).unwrap_or_else(|_| Response::new(Full::default())))
}
