//! The controller for an agent on another machine: [`ControlPlane`] over HTTP.
//!
//! Owns the connection and the mapping of refusals. It must never wait, or retry a request that may
//! have been sent: the agent decides that, in the same way for every controller. Only [`join()`]
//! waits, because it precedes the agent. If a request gets no answer, or a controller answers that it
//! is unavailable, the next request goes to the next address.

mod addresses;
mod connect_error;
mod console;
mod file;
mod identity;
mod join;
mod refusal;
mod renewal;
mod revocations;
mod url;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use kilonova_ids::{HostName, ImageId};
use kilonova_node_api::{
    Authorities, Batch, Chunk, Clock, ConsoleAnswer, ConsoleRequest, ControlFuture, ControlPlane,
    Credential, DiskFormat, Observation, OrderResult, PasswordAnswer, PasswordRequest, Refusal,
    Registration, Renewal, Reply, Revocations, Session, VendordataAnswer, VendordataRequest,
};
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use rustls::ClientConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;

use addresses::Addresses;
pub use identity::{HostIdentity, Identity};
pub use join::{JOIN_LIMIT, join};
pub use renewal::keep_certified;
pub use revocations::follow_revocations;
pub use url::Error;

/// Time limit for most requests.
const TIMEOUT: Duration = Duration::from_secs(45);
/// Time limit for a long poll, which a controller answers within 20 seconds. If a controller stops
/// answering, the host must reach another one before it counts as down.
const POLL: Duration = Duration::from_secs(30);
/// Time limit for uploading a disk image.
const UPLOAD: Duration = Duration::from_secs(6 * 3600);
/// Time limit for a request on behalf of a waiting guest.
const GUEST: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(5);
/// The idle time after which the system probes a connection: a console may be idle for hours.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Number of attempts for a request whose connection closes before anything is sent.
const ATTEMPTS: usize = 3;
/// The path at which a host registers.
const REGISTER: &str = "/v1/register";
/// Header: size of the whole image.
const SIZE: &str = "x-image-size";
/// Header: format of the image.
const FORMAT: &str = "x-image-format";
/// Header: SHA-512 of the image.
const SHA512: &str = "x-image-sha512";
/// Header: the sender's time in microseconds since 1970.
const CLOCK: &str = "x-kilonova-clock";

/// The controllers, at one or several URLs.
#[derive(Clone)]
pub struct Remote {
    client: Arc<RwLock<Client>>,
    addresses: Arc<Addresses>,
    /// The shared token, if there is no certificate.
    token: Option<String>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Remote {
    /// A controller at `url` (`http://ADDRESS:PORT`) with a shared `token`. The token is sent in
    /// clear text: use it only on a single machine and in tests. Here and below, `url` may be a
    /// list of controllers, separated by commas.
    ///
    /// # Errors
    /// An invalid URL or token, or a system without sockets.
    pub fn new(url: &str, token: &str) -> Result<Self, Error> {
        let addresses = Addresses::read(url, "http")?;
        let token = Some(url::token(token)?);
        let config = kilonova_pki::anonymous().map_err(|error| Error::Client(error.to_string()))?;
        Ok(Self { client: Arc::new(RwLock::new(client(config)?)), addresses, token })
    }

    /// A controller whose API port has TLS (`https://NAME:PORT`). It authenticates this host by
    /// the shared token; its certificate must be signed by one of the authorities (PEM).
    ///
    /// # Errors
    /// An invalid URL, token or certificate, or a system without sockets.
    pub fn over_tls(url: &str, token: &str, authorities: &str) -> Result<Self, Error> {
        let addresses = Addresses::read(url, "https")?;
        let token = Some(url::token(token)?);
        let config = kilonova_pki::of_users(authorities)?;
        Ok(Self { client: Arc::new(RwLock::new(client(config)?)), addresses, token })
    }

    /// A controller at `url` (`https://ADDRESS:PORT`) that authenticates this host by
    /// certificate.
    ///
    /// # Errors
    /// An invalid URL, or a system without sockets.
    pub fn certified(url: &str, config: ClientConfig) -> Result<Self, Error> {
        let addresses = Addresses::read(url, "https")?;
        Ok(Self { client: Arc::new(RwLock::new(client(config)?)), addresses, token: None })
    }

    /// Uses another certificate for new requests. Requests in progress are not affected.
    ///
    /// # Errors
    /// A system without sockets.
    pub fn speak_by(&self, config: ClientConfig) -> Result<(), Error> {
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = client(config)?;
        Ok(())
    }

    /// The controller's time.
    ///
    /// # Errors
    /// If the controller refuses or is unavailable.
    pub async fn clock(&self) -> Result<Clock, Refusal> {
        self.ask(self.request(Method::GET, "/v1/clock").timeout(CONNECT * 2)).await
    }

    /// Requests a new certificate for the host of the present one.
    ///
    /// # Errors
    /// If the controller refuses or is unavailable.
    pub async fn renew(&self, host: &HostName, renewal: &Renewal) -> Result<Credential, Refusal> {
        let path = format!("/v1/hosts/{}/certificate", url::segment(host));
        self.ask(with_body(self.request(Method::POST, &path), renewal)?).await
    }

    /// The authorities that the host must trust. `has` is the digest of those that it trusts now.
    ///
    /// # Errors
    /// If the controller refuses or is unavailable. A controller of an earlier version
    /// refuses the request.
    pub async fn authorities(&self, host: &HostName, has: &str) -> Result<Authorities, Refusal> {
        let path = format!("/v1/hosts/{}/authorities?has={has}", url::segment(host));
        self.ask(self.request(Method::GET, &path).timeout(CONNECT * 2)).await
    }

    /// The revoked certificates.
    ///
    /// # Errors
    /// If the controller refuses or is unavailable.
    pub async fn revocations(&self) -> Result<Revocations, Refusal> {
        self.ask(self.request(Method::GET, "/v1/revocations").timeout(CONNECT * 2)).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.request_at(self.addresses.current().1, method, path)
    }

    fn request_at(&self, base: &str, method: Method, path: &str) -> RequestBuilder {
        let client = self.client.read().unwrap_or_else(PoisonError::into_inner).clone();
        let request = client.request(method, format!("{base}{path}"));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn send(&self, request: RequestBuilder) -> Result<(HeaderMap, Vec<u8>), Refusal> {
        let (at, _) = self.addresses.current();
        let answer = self.try_send(request).await;
        if let Err(Refusal::Unavailable(_)) = &answer {
            self.addresses.leave(at);
        }
        answer
    }

    async fn try_send(&self, request: RequestBuilder) -> Result<(HeaderMap, Vec<u8>), Refusal> {
        read(sent(request).await.map_err(unavailable)?).await
    }

    async fn ask<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Refusal> {
        let (_, body) = self.send(request).await?;
        parse(&body)
    }
}

fn unavailable(error: reqwest::Error) -> Refusal {
    Refusal::Unavailable(connect_error::explain(&error))
}

/// The headers and the body of an answer, if it is a success.
async fn read(answer: Response) -> Result<(HeaderMap, Vec<u8>), Refusal> {
    let status = answer.status();
    let headers = answer.headers().clone();
    let registers = answer.url().path().ends_with(REGISTER);
    let body = answer.bytes().await.map_err(unavailable)?.to_vec();
    if status.is_success() {
        return Ok((headers, body));
    }
    // Every port for hosts has this route.
    if registers && status == StatusCode::NOT_FOUND {
        return Err(refusal::not_for_hosts());
    }
    Err(refusal::read(status, &body))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| {
        Refusal::Unavailable(format!("unexpected answer from the controller: {error}"))
    })
}

/// Sends a request. A server that rejects the client's certificate may close the connection before
/// anything is sent, without a reason; the request is then repeated to get the reason.
async fn sent(mut request: RequestBuilder) -> Result<Response, reqwest::Error> {
    for _ in 1..ATTEMPTS {
        let again = request.try_clone();
        match (request.send().await, again) {
            (Err(error), Some(again)) if connect_error::is_unsent(&error) => request = again,
            (ended, _) => return ended,
        }
    }
    request.send().await
}

impl ControlPlane for Remote {
    fn register(&self, registration: Registration) -> ControlFuture<'_, Session> {
        Box::pin(async move {
            self.ask(with_body(self.request(Method::POST, REGISTER), &registration)?).await
        })
    }

    fn desired<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        since: i64,
    ) -> ControlFuture<'a, Batch> {
        Box::pin(async move {
            let path =
                format!("/v1/hosts/{}/desired?epoch={epoch}&since={since}", url::segment(host));
            let clock = Timestamp::now().as_microsecond().to_string();
            let request = self.request(Method::GET, &path).header(CLOCK, clock).timeout(POLL);
            self.ask(request).await
        })
    }

    fn observed<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        observations: Vec<Observation>,
    ) -> ControlFuture<'a, ()> {
        Box::pin(async move {
            let path = format!("/v1/hosts/{}/observed?epoch={epoch}", url::segment(host));
            let request = with_body(self.request(Method::POST, &path), &observations)?;
            self.send(request).await.map(|_| ())
        })
    }

    fn report_orders<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        carried: Vec<OrderResult>,
    ) -> ControlFuture<'a, ()> {
        Box::pin(async move {
            let path = format!("/v1/hosts/{}/carried_out?epoch={epoch}", url::segment(host));
            let request = with_body(self.request(Method::POST, &path), &carried)?;
            self.send(request).await.map(|_| ())
        })
    }

    fn image<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        image: ImageId,
        offset: u64,
    ) -> ControlFuture<'a, Chunk> {
        Box::pin(async move {
            let host = url::segment(host);
            let path = format!("/v1/hosts/{host}/images/{image}?epoch={epoch}&offset={offset}");
            let (headers, bytes) = self.send(self.request(Method::GET, &path)).await?;
            let size = headers.get(SIZE).and_then(|value| value.to_str().ok()?.parse().ok());
            let size = size.ok_or_else(|| {
                Refusal::Unavailable(format!("the controller sent a chunk without {SIZE}"))
            })?;
            let header = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
            Ok(Chunk { size, bytes, format: header(FORMAT), sha512: header(SHA512) })
        })
    }

    fn upload_image<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        image: ImageId,
        format: DiskFormat,
        file: PathBuf,
    ) -> ControlFuture<'a, ()> {
        Box::pin(async move {
            let host = url::segment(host);
            let text = format.as_str();
            let path = format!("/v1/hosts/{host}/images/{image}?epoch={epoch}&format={text}");
            let body = file::body(&file).map_err(|error| {
                Refusal::Rejected(format!("could not read {}: {error}", file.display()))
            })?;
            let request = self.request(Method::PUT, &path).timeout(UPLOAD).body(body);
            self.send(request).await.map(|_| ())
        })
    }

    fn answer_console<'a>(
        &'a self,
        host: &'a HostName,
        request: &'a ConsoleRequest,
        answer: ConsoleAnswer,
    ) -> ControlFuture<'a, ()> {
        Box::pin(console::answer(self, host, request, answer))
    }

    fn report_replies<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        replies: Vec<Reply>,
    ) -> ControlFuture<'a, ()> {
        Box::pin(async move {
            let path = format!("/v1/hosts/{}/replies?epoch={epoch}", url::segment(host));
            let request = with_body(self.request(Method::POST, &path), &replies)?;
            self.send(request).await.map(|_| ())
        })
    }

    fn guest_password<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        request: PasswordRequest,
    ) -> ControlFuture<'a, PasswordAnswer> {
        Box::pin(async move {
            let path = format!("/v1/hosts/{}/guest_password?epoch={epoch}", url::segment(host));
            let sent = self.request(Method::POST, &path).timeout(GUEST);
            self.ask(with_body(sent, &request)?).await
        })
    }

    fn vendordata<'a>(
        &'a self,
        host: &'a HostName,
        epoch: i64,
        request: VendordataRequest,
    ) -> ControlFuture<'a, VendordataAnswer> {
        Box::pin(async move {
            let path = format!("/v1/hosts/{}/vendordata?epoch={epoch}", url::segment(host));
            self.ask(with_body(self.request(Method::POST, &path), &request)?).await
        })
    }
}

fn with_body<T: Serialize>(request: RequestBuilder, body: &T) -> Result<RequestBuilder, Refusal> {
    let bytes = serde_json::to_vec(body)
        .map_err(|error| Refusal::Rejected(format!("could not serialize the request: {error}")))?;
    Ok(request.header("content-type", "application/json").body(bytes))
}

fn client(config: ClientConfig) -> Result<Client, Error> {
    Client::builder()
        .connect_timeout(CONNECT)
        .timeout(TIMEOUT)
        .tcp_nodelay(true)
        .tcp_keepalive(KEEP_ALIVE)
        .tls_backend_preconfigured(config)
        .build()
        .map_err(|error| Error::Client(error.to_string()))
}
