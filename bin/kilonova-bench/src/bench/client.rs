//! An HTTP client for measurements: one keep-alive connection, one request at a time, no retries.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use kilonova_program::Failure;
use serde_json::Value;
use tokio::net::TcpStream;

/// An open connection with a token.
pub struct Client {
    address: String,
    token: String,
    version: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    bearer: Option<String>,
    sender: SendRequest<Full<Bytes>>,
}

/// Status, the token header, body.
pub struct Reply {
    pub status: u16,
    pub token: Option<String>,
    pub body: Bytes,
}

impl Reply {
    /// The body as JSON; `null` if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::failed("the measured server does not answer", error)
}

async fn open(address: &str) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let stream = TcpStream::connect(address).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(failed)?;
    tokio::spawn(connection);
    Ok(sender)
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn connect(address: &str, token: &str) -> Result<Self, Failure> {
        let sender = open(address).await?;
        let (address, token) = (address.to_owned(), token.to_owned());
        let (version, headers) = ("compute 2.100", Vec::new());
        Ok(Self { address, token, version, headers, bearer: None, sender })
    }

    /// Sends another microversion.
    #[must_use]
    pub fn with_version(self, version: &'static str) -> Self {
        Self { version, ..self }
    }

    /// Sends a bearer token.
    #[must_use]
    pub fn with_bearer(self, bearer: String) -> Self {
        Self { bearer: Some(bearer), ..self }
    }

    /// Sends further headers.
    #[must_use]
    pub fn with_headers(self, headers: Vec<(&'static str, &'static str)>) -> Self {
        Self { headers, ..self }
    }

    /// One request.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        kind: &str,
        body: impl Into<Bytes>,
    ) -> Result<Reply, Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.address)
            .header("x-auth-token", &self.token)
            .header("openstack-api-version", self.version)
            .header("content-type", kind);
        for (name, value) in &self.headers {
            request = request.header(*name, *value);
        }
        if let Some(bearer) = &self.bearer {
            request = request.header("authorization", bearer);
        }
        let request = request.body(Full::new(body.into())).map_err(failed)?;
        if self.sender.ready().await.is_err() {
            // The server closes idle connections.
            self.sender = open(&self.address).await?;
        }
        let reply = self.sender.send_request(request).await.map_err(failed)?;
        let status = reply.status().as_u16();
        let token = reply
            .headers()
            .get("x-subject-token")
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        let body = reply.into_body().collect().await.map_err(failed)?.to_bytes();
        Ok(Reply { status, token, body })
    }

    /// `GET`.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn get(&mut self, path: &str) -> Result<Reply, Failure> {
        self.send(Method::GET, path, "application/json", Bytes::new()).await
    }

    /// `POST` of JSON.
    ///
    /// # Errors
    /// When the answer is not 2xx.
    pub async fn post(&mut self, path: &str, body: &Value) -> Result<Reply, Failure> {
        let reply = self.send(Method::POST, path, "application/json", body.to_string()).await?;
        if reply.status >= 300 {
            let text = String::from_utf8_lossy(&reply.body);
            return Err(Failure::Failed(format!("POST {path}: {} {text}", reply.status)));
        }
        Ok(reply)
    }
}
