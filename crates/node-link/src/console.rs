//! Answers a console request at the controller that sent it: with a message, or with a connection
//! that is upgraded to the console's byte stream.
//!
//! The controller's own address may be unreachable if a single controller is behind a forwarded
//! port; then the configured address is tried.

use std::io;
use std::os::unix::net::UnixStream as Socket;

use kilonova_ids::HostName;
use kilonova_node_api::{CONSOLE_PROTOCOL, ConsoleAnswer, ConsoleReply, ConsoleRequest, Refusal};
use reqwest::header::{CONNECTION, UPGRADE};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Upgraded};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::{CONNECT, Remote, connect_error, refusal, url, with_body};

/// Maximum number of buffered bytes in each direction.
const BUFFER: usize = 64 * 1024;

pub(super) async fn answer(
    remote: &Remote,
    host: &HostName,
    request: &ConsoleRequest,
    answer: ConsoleAnswer,
) -> Result<(), Refusal> {
    let path = format!("/v1/hosts/{}/consoles/{}", url::segment(host), request.id);
    let reply = match answer {
        ConsoleAnswer::Available => ConsoleReply::Available,
        ConsoleAnswer::Refused(refusal) => ConsoleReply::Refused(refusal),
        ConsoleAnswer::Connected(console) => return connect(remote, request, &path, console).await,
    };
    send(remote, request, |base| {
        with_body(remote.request_at(base, Method::POST, &path).timeout(CONNECT * 2), &reply)
    })
    .await
    .map(drop)
}

/// Sends a request to the controller that requested the console.
async fn send(
    remote: &Remote,
    request: &ConsoleRequest,
    build: impl Fn(&str) -> Result<RequestBuilder, Refusal>,
) -> Result<Response, Refusal> {
    let usual = remote.addresses.current().1;
    let own = match remote.token {
        Some(_) => &request.controller.api,
        None => &request.controller.hosts,
    };
    // Only with the configured scheme: the shared token must not be sent without TLS.
    let own = own.as_ref().and_then(|own| url::base(own, remote.addresses.scheme).ok());
    if let Some(own) = own.filter(|own| own != usual) {
        match build(&own)?.send().await {
            Ok(response) => return accepted(response).await,
            Err(error) => {
                let why = connect_error::explain(&error);
                tracing::info!(controller = %own, %why, "cannot reach a controller at its own address; trying the configured one");
            }
        }
    }
    let sent = build(usual)?.send().await;
    accepted(sent.map_err(|error| Refusal::Unavailable(connect_error::explain(&error)))?).await
}

async fn accepted(response: Response) -> Result<Response, Refusal> {
    let status = response.status();
    if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(response);
    }
    let body = response.bytes().await.unwrap_or_default();
    Err(refusal::read(status, &body))
}

async fn connect(
    remote: &Remote,
    request: &ConsoleRequest,
    path: &str,
    console: Socket,
) -> Result<(), Refusal> {
    let failed = |error: io::Error| Refusal::Rejected(format!("the console's socket: {error}"));
    console.set_nonblocking(true).map_err(failed)?;
    let console = UnixStream::from_std(console).map_err(failed)?;
    let response = send(remote, request, |base| {
        let request = remote.request_at(base, Method::POST, path);
        Ok(request.header(CONNECTION, "upgrade").header(UPGRADE, CONSOLE_PROTOCOL))
    })
    .await?;
    let upgraded: Upgraded = response
        .upgrade()
        .await
        .map_err(|error| Refusal::Unavailable(connect_error::explain(&error)))?;
    if let Err(error) = join(console, upgraded).await {
        tracing::debug!(server = %request.server, %error, "a console's connection was lost");
    }
    Ok(())
}

/// Copies in both directions until one side closes.
async fn join<A, B>(one: A, other: B) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (one_reader, mut one) = tokio::io::split(one);
    let (other_reader, mut other) = tokio::io::split(other);
    let ended = tokio::select! {
        ended = copy(BufReader::with_capacity(BUFFER, one_reader), &mut other) => ended,
        ended = copy(BufReader::with_capacity(BUFFER, other_reader), &mut one) => ended,
    };
    // Notifies both sides of the end, regardless of its cause.
    let (_, _) = (one.shutdown().await, other.shutdown().await);
    ended
}

async fn copy(
    mut reader: impl AsyncBufRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    tokio::io::copy_buf(&mut reader, &mut writer).await.map(drop)
}
