//! The HTTP client that the S3 client uses: bounded in time, with TLS by rustls, without proxies.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::body::{Body, Frame, SizeHint};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::{Instant, Sleep, sleep};

use crate::Error;

const CONNECT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(20);
/// The minimum rate, in bytes per second, at which the server must accept a request's body.
const LEAST_RATE: u64 = 512 * 1024;

type Https = Client<HttpsConnector<Tcp>, HttpRequestBody>;

/// The authorities whose certificates a client accepts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trust<'a> {
    /// None, for a server without TLS. The machine then needs no authorities.
    NoAuthorities,
    /// Those of the system.
    System,
    /// Those in a PEM file.
    File(&'a Path),
}

/// A client that accepts the certificates of some authorities. `answer` is the maximum wait for the
/// head of the answer to an empty request, and for the next bytes of its body.
pub(super) fn client(trust: Trust<'_>, answer: Duration) -> Result<HttpClient, Error> {
    let mut tcp = Tcp::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls(trust)?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(https);
    Ok(HttpClient::new(Service { client, answer }))
}

fn tls(trust: Trust<'_>) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::Settings(format!("cannot set up TLS: {e}")))?;
    let builder = match trust {
        Trust::NoAuthorities => builder.with_root_certificates(RootCertStore::empty()),
        Trust::System => builder.with_native_roots().map_err(|e| {
            Error::Settings(format!(
                "the system has no certificate authorities ({e}); install ca-certificates or name a file \
                 with s3_store_cacert"
            ))
        })?,
        Trust::File(cacert) => builder.with_root_certificates(authorities(cacert)?),
    };
    Ok(builder.with_no_client_auth())
}

/// The authorities in a PEM file.
fn authorities(cacert: &Path) -> Result<RootCertStore, Error> {
    let wrong = |why: &dyn std::fmt::Display| {
        Error::Settings(format!("s3_store_cacert {}: {why}", cacert.display()))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(cacert).map_err(|e| wrong(&e))? {
        roots.add(certificate.map_err(|e| wrong(&e))?).map_err(|e| wrong(&e))?;
    }
    if roots.is_empty() {
        return Err(wrong(&"it contains no certificate in PEM form"));
    }
    Ok(roots)
}

/// Gives every request the same client.
#[derive(Debug)]
pub(super) struct Connector(pub HttpClient);

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(self.0.clone())
    }
}

#[derive(Debug)]
struct Service {
    client: Https,
    answer: Duration,
}

impl Service {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let sent = Duration::from_secs(request.body().content_length() as u64 / LEAST_RATE);
        let limit = self.answer + sent;
        let answer = tokio::time::timeout(limit, self.client.request(request)).await;
        let answer = answer.map_err(|_| timed_out(limit))?.map_err(|error| {
            let kind = if error.is_connect() {
                HttpErrorKind::Connect
            } else {
                // Every request is idempotent, because an object's name is used once.
                HttpErrorKind::Request
            };
            HttpError::new(kind, error)
        })?;
        let (parts, body) = answer.into_parts();
        let body = HttpResponseBody::new(Timed {
            body,
            answer: self.answer,
            limit: Box::pin(sleep(self.answer)),
        });
        Ok(HttpResponse::from_parts(parts, body))
    }
}

fn timed_out(limit: Duration) -> HttpError {
    let text = format!("no answer within {} s", limit.as_secs());
    HttpError::new(HttpErrorKind::Timeout, std::io::Error::new(std::io::ErrorKind::TimedOut, text))
}

impl HttpService for Service {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.send(request))
    }
}

/// A body whose next bytes must arrive in time.
struct Timed {
    body: Incoming,
    answer: Duration,
    limit: Pin<Box<Sleep>>,
}

impl Body for Timed {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            ready!(self.limit.as_mut().poll(context));
            return Poll::Ready(Some(Err(timed_out(self.answer))));
        };
        let next = Instant::now() + self.answer;
        self.limit.as_mut().reset(next);
        let interrupted = |e| HttpError::new(HttpErrorKind::Interrupted, e);
        Poll::Ready(frame.map(|frame| frame.map_err(interrupted)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
