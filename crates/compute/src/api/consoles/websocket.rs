//! The handshake of the websocket (RFC 6455), and the token in its request.
//!
//! As in Nova's proxy, the handshake is completed before the token is checked, because a close frame
//! can carry the reason for a refusal, whereas a refused handshake cannot.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use kilonova_compute_app::Compute;
use kilonova_wire::query::Query;
use kilonova_wire::{Fault, Origin, PeerAddress, Refusal, base};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::session::{Client, Encoding, serve};

const VERSION: &str = "13";

pub(super) async fn connect(
    State(compute): State<Compute>,
    peer: PeerAddress,
    query: Query,
    mut request: Request,
) -> Result<Response, Fault> {
    let headers = request.headers();
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| is_upgrade(headers));
    let Some(key) = key else {
        let why = "A console is a websocket: connect with ws:// or wss://.";
        let fault = Fault::from(Refusal::bad_request(why));
        return Err(fault.with_header(header::UPGRADE, HeaderValue::from_static("websocket")));
    };
    if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != VERSION) {
        let fault =
            Fault::from(Refusal::bad_request("Only version 13 of the protocol is supported."));
        let version = HeaderValue::from_static(VERSION);
        return Err(fault.with_header(header::SEC_WEBSOCKET_VERSION, version));
    }
    let accept = derive_accept_key(key.as_bytes());
    let accept = HeaderValue::from_str(&accept)
        .map_err(|error| Refusal::internal(format!("the accept key of a websocket: {error}")))?;
    let encoding = Encoding::requested(headers);
    let own = match request.extensions().get::<Origin>() {
        Some(Origin(origin)) => origin.to_string(),
        None => format!("http://{}", base::host(headers).unwrap_or("localhost")),
    };
    let client = Client {
        token: token(&query, headers).unwrap_or_default(),
        address: peer.0,
        headers: headers.clone(),
        own,
        encoding: encoding.unwrap_or(Encoding::Binary),
    };
    let on_upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match on_upgrade.await {
            Ok(upgraded) => serve(compute, client, upgraded).await,
            Err(error) => tracing::debug!(%error, "a client disconnected during the handshake"),
        }
    });
    let mut answer = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let headers = answer.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(encoding) = encoding {
        let name = HeaderValue::from_static(encoding.protocol());
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, name);
    }
    Ok(answer)
}

/// True if a request asks for an upgrade to a websocket.
fn is_upgrade(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case("websocket"))
}

/// The token of a request: from its query, from the query in its parameter `path`, or from the cookie `token`.
fn token(query: &Query, headers: &HeaderMap) -> Option<String> {
    let within = |path: &str| {
        let (_, query) = path.split_once('?')?;
        query.split('&').find_map(|pair| pair.strip_prefix("token=")).map(str::to_owned)
    };
    let cookie = || {
        let cookies =
            headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).map(str::trim);
        pairs.find_map(|pair| pair.strip_prefix("token=")).map(str::to_owned)
    };
    let asked = query.get("token").map(str::to_owned);
    asked.or_else(|| query.get("path").and_then(within)).or_else(cookie)
}
