//! An HTTP client for other services, bounded in time and size, with TLS by rustls. It follows no
//! redirects and uses no proxies.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::{Error, SessionToken};

const X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const CONNECT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(20);
/// The pause before the second attempt; upstream's clients start with half a second too.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// Statuses of a Keystone, or of a proxy before it, that is temporarily unavailable.
const TEMPORARY: [StatusCode; 3] =
    [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];

/// The body of a request, sent in chunks.
pub type RequestBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// The client; cheap to clone.
#[derive(Clone)]
pub struct Http {
    client: Client<HttpsConnector<HttpConnector>, RequestBody>,
    timeout: Duration,
    largest: usize,
}

/// A complete answer.
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON; null if it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// An answer whose body is not read yet.
pub struct Streaming {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    url: String,
    body: Incoming,
    timeout: Duration,
    largest: usize,
}

impl Streaming {
    /// The next bytes of the body; `None` at its end.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if none arrive in time, or if the body ends early.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let lost =
            |cause: String| Error::Unreachable { url: self.url.clone(), connected: true, cause };
        loop {
            match tokio::time::timeout(self.timeout, self.body.frame()).await {
                Err(_) => {
                    return Err(lost(format!("no bytes within {} s", self.timeout.as_secs())));
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(lost(chain(&error))),
                Ok(Some(Ok(frame))) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    /// Reads the whole body.
    ///
    /// # Errors
    /// As [`Http::send`].
    pub async fn read(self) -> Result<Answer, Error> {
        let Self { status, headers, url, body, timeout, largest } = self;
        match tokio::time::timeout(timeout, collect(&url, body, largest)).await {
            Ok(body) => Ok(Answer { status, headers, body: body? }),
            Err(_) => Err(late(url, timeout)),
        }
    }
}

fn late(url: String, timeout: Duration) -> Error {
    let cause = format!("no answer within {} s", timeout.as_secs());
    Error::Unreachable { url, connected: true, cause }
}

async fn collect(url: &str, body: Incoming, largest: usize) -> Result<Bytes, Error> {
    let body = Limited::new(body, largest).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            Error::Unexpected { url: url.into(), what: format!("with more than {largest} bytes") }
        } else {
            Error::Unreachable { url: url.into(), connected: true, cause: chain(error.as_ref()) }
        }
    })?;
    Ok(body.to_bytes())
}

impl Http {
    /// A client that trusts the authorities in `cafile`, or the system's. `timeout` and `largest`
    /// (bytes) limit an answer.
    ///
    /// # Errors
    /// If the file contains no certificate.
    pub fn new(cafile: Option<&Path>, timeout: Duration, largest: usize) -> Result<Self, Error> {
        Self::with_certificate(cafile, None, timeout, largest)
    }

    /// As [`Http::new`], and presents a certificate with its key, both in PEM form.
    ///
    /// # Errors
    /// If a file contains no certificate or no key, or they do not belong together.
    pub fn with_certificate(
        cafile: Option<&Path>,
        own: Option<(&Path, &Path)>,
        timeout: Duration,
        largest: usize,
    ) -> Result<Self, Error> {
        let roots = match cafile {
            Some(cafile) => Roots::Named(cafile),
            None => Roots::System,
        };
        Self::trusting(&roots, own, CONNECT, timeout, largest)
    }

    /// A client for these URLs only, which needs no authorities if none of them uses TLS. `connect`
    /// and `read` bound the wait for a connection and for an answer.
    ///
    /// # Errors
    /// As [`Http::new`].
    pub fn for_urls<'a>(
        urls: impl IntoIterator<Item = &'a str>,
        cafile: Option<&Path>,
        (connect, read): (Duration, Duration),
        largest: usize,
    ) -> Result<Self, Error> {
        let has_tls = urls.into_iter().any(|url| url.starts_with("https://"));
        let roots = match cafile {
            Some(cafile) if has_tls => Roots::Named(cafile),
            None if has_tls => Roots::System,
            _ => Roots::Nobody,
        };
        Self::trusting(&roots, None, connect, connect + read, largest)
    }

    /// A client for URLs without TLS, which needs no authorities.
    ///
    /// # Errors
    /// If TLS cannot be set up at all.
    pub fn plain(timeout: Duration, largest: usize) -> Result<Self, Error> {
        Self::trusting(&Roots::Nobody, None, CONNECT, timeout, largest)
    }

    fn trusting(
        roots: &Roots<'_>,
        own: Option<(&Path, &Path)>,
        connect: Duration,
        timeout: Duration,
        largest: usize,
    ) -> Result<Self, Error> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(connect));
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls(roots, own)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(https);
        Ok(Self { client, timeout, largest })
    }

    /// Sends a request and reads the whole answer, regardless of its status.
    ///
    /// # Errors
    /// [`Error::Unreachable`] without a timely answer, [`Error::Unexpected`] if it is too large.
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Option<Bytes>,
    ) -> Result<Answer, Error> {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let has_type = headers.iter().any(|(name, _)| *name == http::header::CONTENT_TYPE);
        if body.is_some() && !has_type {
            request = request.header(http::header::CONTENT_TYPE, "application/json");
        }
        let body = Full::new(body.unwrap_or_default()).map_err(|never| match never {});
        let request = request.body(body.boxed_unsync()).map_err(|e| not_a_url(url, &e))?;
        match tokio::time::timeout(self.timeout, self.exchange(url, request)).await {
            Ok(answer) => answer,
            Err(_) => Err(late(url.into(), self.timeout)),
        }
    }

    /// Sends a request and returns the answer before its body arrives. Sending the request's body may
    /// take any time, so the caller bounds the wait for the answer.
    ///
    /// # Errors
    /// [`Error::Unreachable`] without an answer.
    pub async fn open(
        &self,
        method: Method,
        url: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: RequestBody,
    ) -> Result<Streaming, Error> {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(body).map_err(|e| not_a_url(url, &e))?;
        let (parts, body) = self.response(url, request).await?.into_parts();
        Ok(Streaming {
            status: parts.status,
            headers: parts.headers,
            url: url.into(),
            body,
            timeout: self.timeout,
            largest: self.largest,
        })
    }

    /// Posts a JSON document, with a token if there is one. `agent` names this client in the other side's
    /// log.
    ///
    /// # Errors
    /// Those of [`Http::send`].
    pub async fn post_json(
        &self,
        url: &str,
        token: Option<&SessionToken>,
        agent: &'static str,
        body: &serde_json::Value,
    ) -> Result<Answer, Error> {
        let mut headers = vec![
            (http::header::ACCEPT, HeaderValue::from_static("application/json")),
            (http::header::USER_AGENT, HeaderValue::from_static(agent)),
        ];
        headers.extend(token.map(|token| (X_AUTH_TOKEN, token.text.clone())));
        let body = Bytes::from(body.to_string());
        self.send(Method::POST, url, &headers, Some(body)).await
    }

    /// How long the client waits for an answer.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Like [`Http::send`], but retries up to `retries` times, with doubling pauses, if there is no
    /// answer or the status is 502, 503 or 504.
    ///
    /// # Errors
    /// Those of the last attempt.
    pub async fn send_with_retries(
        &self,
        retries: u32,
        method: Method,
        url: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Option<Bytes>,
    ) -> Result<Answer, Error> {
        let mut pause = FIRST_PAUSE;
        for _ in 0..retries {
            match self.send(method.clone(), url, headers, body.clone()).await {
                Err(Error::Unreachable { cause, .. }) => {
                    tracing::debug!(url, cause, "no answer; retrying");
                }
                Ok(answer) if TEMPORARY.contains(&answer.status) => {
                    tracing::debug!(url, status = answer.status.as_u16(), "unavailable; retrying");
                }
                other => return other,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        self.send(method, url, headers, body).await
    }

    async fn exchange(&self, url: &str, request: Request<RequestBody>) -> Result<Answer, Error> {
        let (parts, body) = self.response(url, request).await?.into_parts();
        let body = collect(url, body, self.largest).await?;
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }

    async fn response(
        &self,
        url: &str,
        request: Request<RequestBody>,
    ) -> Result<http::Response<Incoming>, Error> {
        self.client.request(request).await.map_err(|error| Error::Unreachable {
            url: url.into(),
            connected: !error.is_connect(),
            cause: chain(&error),
        })
    }
}

fn not_a_url(url: &str, error: &http::Error) -> Error {
    Error::Setup(format!("{url} is not a valid URL: {error}"))
}

/// The trusted authorities.
enum Roots<'a> {
    System,
    Named(&'a Path),
    Nobody,
}

fn tls(roots: &Roots<'_>, own: Option<(&Path, &Path)>) -> Result<ClientConfig, Error> {
    let broken = |e: rustls::Error| Error::Setup(format!("TLS cannot be set up: {e}"));
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(broken)?;
    let cafile = match roots {
        Roots::Named(cafile) => cafile,
        Roots::Nobody => {
            let nobody = builder.with_root_certificates(RootCertStore::empty());
            return presenting(nobody, own);
        }
        Roots::System => {
            let system = builder.with_native_roots();
            let system = system.map_err(|e| {
            Error::Setup(format!(
                                "the system has no certificate authorities ({e}); install ca-certificates or name \
                                 a file with cafile"
            ))
        })?;
            return presenting(system, own);
        }
    };
    let wrong = |why: String| Error::Setup(format!("cafile {}: {why}", cafile.display()));
    let listed = CertificateDer::pem_file_iter(cafile)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| wrong(e.to_string()))?;
    if listed.is_empty() {
        return Err(wrong("it contains no certificate in PEM form".into()));
    }
    let verifier = kilonova_pki::of_listed(listed).map_err(|e| wrong(e.to_string()))?;
    presenting(builder.dangerous().with_custom_certificate_verifier(verifier), own)
}

/// Completes a configuration with the client's own certificate.
fn presenting(
    builder: rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>,
    own: Option<(&Path, &Path)>,
) -> Result<ClientConfig, Error> {
    let Some((certfile, keyfile)) = own else { return Ok(builder.with_no_client_auth()) };
    let wrong = |file: &Path, option: &str, why: String| {
        Error::Setup(format!("{option} {}: {why}", file.display()))
    };
    let chain = CertificateDer::pem_file_iter(certfile)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| wrong(certfile, "certfile", e.to_string()))?;
    if chain.is_empty() {
        return Err(wrong(certfile, "certfile", "it contains no certificate in PEM form".into()));
    }
    let key = PrivateKeyDer::from_pem_file(keyfile)
        .map_err(|e| wrong(keyfile, "keyfile", e.to_string()))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|e| wrong(certfile, "certfile", format!("it does not match its key: {e}")))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
