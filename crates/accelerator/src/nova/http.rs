//! Nova's `os-server-external-events` over plain HTTP, one connection for each delivery: they are
//! few. For an endpoint behind TLS, an operator puts a forwarder on the loopback interface.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::token::{Credentials, Tokens};
use super::{Event, Nova, Telling, Trouble};

/// Time for one call, from connecting to the last byte.
const PATIENCE: Duration = Duration::from_secs(30);
const MOST_BYTES: usize = 1024 * 1024;
/// The first version that knows `accelerator-request-bound`.
const VERSION: &str = "2.82";

/// Somebody's Nova.
pub struct HttpNova {
    url: String,
    tokens: Tokens,
}

/// An answer.
pub(super) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl HttpNova {
    /// At an endpoint such as `http://controller:8774/v2.1`.
    ///
    /// # Errors
    /// What is wrong with a URL, for the operator.
    pub fn new(endpoint: &str, credentials: Credentials) -> Result<Self, String> {
        let url = format!("{}/os-server-external-events", endpoint.trim_end_matches('/'));
        address(&url)?;
        if let Credentials::Password { auth_url, .. } = &credentials {
            address(auth_url)?;
        }
        Ok(Self { url, tokens: Tokens::new(credentials) })
    }

    async fn deliver(&self, events: &[Event]) -> Result<(), Trouble> {
        let body = body(events);
        for fresh in [false, true] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            for (name, value) in [
                ("openstack-api-version", format!("compute {VERSION}")),
                ("x-openstack-nova-api-version", VERSION.to_owned()),
            ] {
                if let Ok(value) = HeaderValue::from_str(&value) {
                    headers.insert(name, value);
                }
            }
            if let Some(token) = self.tokens.get(fresh).await? {
                headers.insert("x-auth-token", token);
            }
            let reply = call(Method::POST, &self.url, headers, body.to_string()).await?;
            if reply.status != StatusCode::UNAUTHORIZED || fresh {
                return judge(&reply);
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for HttpNova {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpNova").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Nova for HttpNova {
    fn tell<'a>(&'a self, events: &'a [Event]) -> Telling<'a> {
        Box::pin(self.deliver(events))
    }
}

fn body(events: &[Event]) -> Value {
    let events: Vec<Value> = events
        .iter()
        .map(|event| {
            json!({
                "name": "accelerator-request-bound",
                "server_uuid": event.server,
                "tag": event.arq,
                "status": event.status,
            })
        })
        .collect();
    json!({"events": events})
}

/// 207 says for each event what became of it: 422 is a server that no host has yet, which is normal
/// for a bind before the spawn, and 404 one that is gone.
fn judge(reply: &Reply) -> Result<(), Trouble> {
    let status = reply.status;
    let said = || format!("Nova answered {status}: {}", shown(&reply.body));
    match status.as_u16() {
        200 | 404 => Ok(()),
        207 => {
            let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
            let codes = body["events"].as_array().into_iter().flatten();
            let mut bad = codes.filter_map(|event| event["code"].as_i64());
            match bad.find(|code| ![200, 404, 422].contains(code)) {
                Some(code) if code >= 500 => Err(Trouble::Later(said())),
                Some(_) => Err(Trouble::Never(said())),
                None => Ok(()),
            }
        }
        401 | 403 | 408 | 429 => Err(Trouble::Later(said())),
        code if code >= 500 => Err(Trouble::Later(said())),
        _ => Err(Trouble::Never(said())),
    }
}

pub(super) fn shown(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(300)]).escape_debug().to_string()
}

/// Host and port of a URL that can be called.
fn address(url: &str) -> Result<(Uri, String), String> {
    let uri: Uri = url.parse().map_err(|_| format!("{url} is no URL"))?;
    if uri.scheme_str() != Some("http") {
        return Err(format!("{url} must begin with http://; for TLS use a local forwarder"));
    }
    let host = uri.host().ok_or_else(|| format!("{url} names no host"))?;
    let address = format!("{host}:{}", uri.port_u16().unwrap_or(80));
    Ok((uri, address))
}

/// One call.
pub(super) async fn call(
    method: Method,
    url: &str,
    headers: HeaderMap,
    body: String,
) -> Result<Reply, Trouble> {
    let (uri, address) = address(url).map_err(Trouble::Never)?;
    let later = |error: &dyn std::fmt::Display| Trouble::Later(format!("{url}: {error}"));
    let exchange = async {
        let stream = TcpStream::connect(&address).await.map_err(|e| later(&e))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| later(&e))?;
        tokio::spawn(connection);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|e| later(&e))?;
        *request.headers_mut() = headers;
        let host = HeaderValue::from_str(&address).map_err(|e| later(&e))?;
        request.headers_mut().insert(header::HOST, host);
        let (parts, body) = sender.send_request(request).await.map_err(|e| later(&e))?.into_parts();
        let body = Limited::new(body, MOST_BYTES).collect().await.map_err(|e| later(&e))?;
        Ok(Reply { status: parts.status, headers: parts.headers, body: body.to_bytes() })
    };
    match tokio::time::timeout(PATIENCE, exchange).await {
        Ok(answer) => answer,
        Err(_) => Err(Trouble::Later(format!("{url}: no answer in {} s", PATIENCE.as_secs()))),
    }
}
