//! The control plane as a node on another machine sees it: [`ControlPlane`] over HTTP.
//!
//! Owns the connection and the reading of refusals. It must never retry or wait by itself: the agent
//! decides how patient it is, and the same way for every kind of control plane.

mod file;
mod refusal;
mod url;

use std::path::PathBuf;
use std::time::Duration;

use kilonova_ids::ImageId;
use kilonova_node_api::{
    Answer, Batch, Carried, Chunk, ControlPlane, Observation, Refusal, Registration, Reply, Session,
};
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use url::Error;

/// Longer than a long poll lasts.
const PATIENCE: Duration = Duration::from_secs(45);
/// How long the bytes of a disk may take on their way.
const UPLOAD: Duration = Duration::from_secs(6 * 3600);
const CONNECT: Duration = Duration::from_secs(5);
/// Says how large the image is of which an answer holds some bytes.
const SIZE: &str = "x-image-size";

/// A control plane at a URL.
#[derive(Clone)]
pub struct Remote {
    client: Client,
    base: String,
    token: String,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Remote {
    /// A control plane at `url` (`http://ADDRESS:PORT`), whose word for nodes is `token`.
    ///
    /// # Errors
    /// A URL or token that cannot be one, or a system without sockets.
    pub fn new(url: &str, token: &str) -> Result<Self, Error> {
        let base = url::base(url)?;
        let token = url::token(token)?;
        let client = Client::builder()
            .connect_timeout(CONNECT)
            .timeout(PATIENCE)
            .tcp_nodelay(true)
            .build()
            .map_err(|error| Error::Client(error.to_string()))?;
        Ok(Self { client, base, token })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base)).bearer_auth(&self.token)
    }

    async fn send(&self, request: RequestBuilder) -> Result<(HeaderMap, Vec<u8>), Refusal> {
        let unavailable = |error: reqwest::Error| Refusal::Unavailable(causes(&error));
        let answer = request.send().await.map_err(unavailable)?;
        let status = answer.status();
        let headers = answer.headers().clone();
        let body = answer.bytes().await.map_err(unavailable)?.to_vec();
        if status.is_success() { Ok((headers, body)) } else { Err(refusal::read(status, &body)) }
    }

    async fn ask<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Refusal> {
        let (_, body) = self.send(request).await?;
        serde_json::from_slice(&body).map_err(|error| {
            Refusal::Unavailable(format!("{} answers what is no message: {error}", self.base))
        })
    }
}

impl ControlPlane for Remote {
    fn register(&self, registration: Registration) -> Answer<'_, Session> {
        Box::pin(async move {
            self.ask(with_body(self.request(Method::POST, "/v1/register"), &registration)?).await
        })
    }

    fn desired<'a>(&'a self, host: &'a str, epoch: i64, since: i64) -> Answer<'a, Batch> {
        Box::pin(async move {
            let path =
                format!("/v1/hosts/{}/desired?epoch={epoch}&since={since}", url::segment(host));
            self.ask(self.request(Method::GET, &path)).await
        })
    }

    fn observed<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        observations: Vec<Observation>,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            let path = format!("/v1/hosts/{}/observed?epoch={epoch}", url::segment(host));
            let request = with_body(self.request(Method::POST, &path), &observations)?;
            self.send(request).await.map(|_| ())
        })
    }

    fn carried_out<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        carried: Vec<Carried>,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            let path = format!("/v1/hosts/{}/carried_out?epoch={epoch}", url::segment(host));
            let request = with_body(self.request(Method::POST, &path), &carried)?;
            self.send(request).await.map(|_| ())
        })
    }

    fn image<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        image: ImageId,
        offset: u64,
    ) -> Answer<'a, Chunk> {
        Box::pin(async move {
            let host = url::segment(host);
            let path = format!("/v1/hosts/{host}/images/{image}?epoch={epoch}&offset={offset}");
            let (headers, bytes) = self.send(self.request(Method::GET, &path)).await?;
            let size = headers.get(SIZE).and_then(|value| value.to_str().ok()?.parse().ok());
            let size = size.ok_or_else(|| {
                Refusal::Unavailable(format!("{} sends bytes without {SIZE}", self.base))
            })?;
            Ok(Chunk { size, bytes })
        })
    }

    fn keep_image<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        image: ImageId,
        file: PathBuf,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            let host = url::segment(host);
            let path = format!("/v1/hosts/{host}/images/{image}?epoch={epoch}");
            let body = file::body(&file).map_err(|error| {
                Refusal::Rejected(format!("{} cannot be read: {error}", file.display()))
            })?;
            let request = self.request(Method::PUT, &path).timeout(UPLOAD).body(body);
            self.send(request).await.map(|_| ())
        })
    }

    fn replied<'a>(&'a self, host: &'a str, epoch: i64, replies: Vec<Reply>) -> Answer<'a, ()> {
        Box::pin(async move {
            let path = format!("/v1/hosts/{}/replies?epoch={epoch}", url::segment(host));
            let request = with_body(self.request(Method::POST, &path), &replies)?;
            self.send(request).await.map(|_| ())
        })
    }
}

fn with_body<T: Serialize>(request: RequestBuilder, body: &T) -> Result<RequestBuilder, Refusal> {
    let bytes = serde_json::to_vec(body)
        .map_err(|error| Refusal::Rejected(format!("the message cannot be written: {error}")))?;
    Ok(request.header("content-type", "application/json").body(bytes))
}

/// The whole chain: the outermost sentence alone says only that a request failed.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
