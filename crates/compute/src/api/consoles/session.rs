//! Serves one client of a console: joins its WebSocket with the host's connection until either side
//! ends.
//!
//! Each message carries bytes of the console's stream; message boundaries have no meaning. The session
//! reads from one side only after the other side has accepted the previous bytes. A slow side therefore
//! slows the other side down, and a session holds only a few buffers.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kilonova_compute_app::Compute;
use kilonova_compute_app::consoles::{self, ConsoleToken, End, Session};
use kilonova_wire::time;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};

/// Maximum number of bytes of one read from a host.
const BUFFER: usize = 64 * 1024;
/// Maximum size of a client's message in bytes.
const MAX_MESSAGE: usize = 256 * 1024;
/// The interval of pings to a client.
const PING: Duration = Duration::from_secs(30);
/// Maximum time without a message from a client.
const SILENCE: Duration = Duration::from_secs(90);
/// Maximum time that sending one message to a client may take.
const STALL: Duration = Duration::from_secs(60);
/// Maximum time for sending the close frame and receiving the client's answer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum length of the reason in a close frame, in bytes.
const MAX_REASON: usize = 123;

type Socket = WebSocketStream<TokioIo<Upgraded>>;
type Halves = (SplitSink<Socket, Message>, SplitStream<Socket>);

/// How a client encodes the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Binary messages.
    Binary,
    /// Text messages in base64, which early versions of noVNC use.
    Base64,
}

impl Encoding {
    /// The encoding that a client requests as a subprotocol. Binary if it requests both, `None` if it requests
    /// neither.
    pub(super) fn requested(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
        let names: Vec<&str> = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .collect();
        let both = [Self::Binary, Self::Base64];
        both.into_iter().find(|encoding| names.contains(&encoding.protocol()))
    }

    /// The name of the subprotocol.
    pub(super) fn protocol(self) -> &'static str {
        match self {
            Self::Binary => "binary",
            Self::Base64 => "base64",
        }
    }

    fn message(self, bytes: &[u8]) -> Message {
        match self {
            Self::Binary => Message::Binary(bytes.to_vec().into()),
            Self::Base64 => Message::Text(BASE64_STANDARD.encode(bytes).into()),
        }
    }

    /// The console's bytes in a message. `None` for a message of another kind, such as a ping, and for invalid
    /// base64.
    fn bytes(self, message: Message) -> Option<Vec<u8>> {
        match (message, self) {
            (Message::Binary(bytes), _) => Some(bytes.to_vec()),
            (Message::Text(text), Self::Binary) => Some(text.as_bytes().to_vec()),
            (Message::Text(text), Self::Base64) => BASE64_STANDARD.decode(text.as_bytes()).ok(),
            (Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_), _) => {
                None
            }
        }
    }
}

/// The data of a client that its request contains.
pub(super) struct Client {
    pub token: String,
    pub address: IpAddr,
    pub headers: HeaderMap,
    /// The URL at which the client reached this process.
    pub own: String,
    pub encoding: Encoding,
}

/// Serves a client until its session ends, then sends it the reason.
pub(super) async fn serve(compute: Compute, client: Client, upgraded: Upgraded) {
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * BUFFER)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    let io = TokioIo::new(upgraded);
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let mut halves = socket.split();
    let end = match admit(&compute, &client).await {
        Ok((token, session)) => run(&compute, &client, &token, session, &mut halves).await,
        Err(end) => {
            tracing::info!(client = %client.address, reason = %end, "a console was refused");
            end
        }
    };
    close(halves, &end).await;
}

/// Checks the token and the origin of a client, then opens a session with the guest's console.
async fn admit(compute: &Compute, client: &Client) -> Result<(ConsoleToken, Session), End> {
    let token = consoles::valid(compute, &client.token).await.map_err(|error| {
        tracing::error!(%error, "cannot read a console token");
        End::Unavailable
    })?;
    let token = token.ok_or(End::InvalidToken)?;
    let allowed = &compute.options.consoles.allowed_origins;
    super::origin::check(&client.headers, &token.access_url_base, &client.own, allowed)
        .map_err(End::ForeignOrigin)?;
    let session = consoles::open(compute, &token).await?;
    Ok((token, session))
}

/// Joins the client with the host until either side ends, the session expires or the controller stops. Returns the
/// reason.
async fn run(
    compute: &Compute,
    client: &Client,
    token: &ConsoleToken,
    session: Session,
    (sink, messages): &mut Halves,
) -> End {
    let begun = Instant::now();
    tracing::info!(
        user = %token.user, project = %token.project, server = %token.server, host = %token.host,
        console = %token.console_type, client = %client.address, "a console begins"
    );
    let Session { stream, slot } = session;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
    let end = {
        let down = to_client(&mut reader, sink, client.encoding, &sent);
        let up = to_host(messages, &mut writer, client.encoding, &received);
        tokio::select! {
            end = down => end,
            end = up => end,
            () = expired(compute, token) => End::Expired,
            () = compute.consoles.stopped() => End::Stopping,
        }
    };
    let end = match end {
        End::HostClosed => consoles::closed_by_host(compute, token).await,
        end => end,
    };
    drop(slot);
    tracing::info!(
        user = %token.user, project = %token.project, server = %token.server, host = %token.host,
        console = %token.console_type, client = %client.address, reason = %end,
        seconds = begun.elapsed().as_secs(), sent = sent.into_inner(),
        received = received.into_inner(), "a console ended"
    );
    end
}

/// Returns when the token expires; never returns if sessions may outlast their tokens.
async fn expired(compute: &Compute, token: &ConsoleToken) {
    if !compute.options.consoles.enforce_session_timeout {
        std::future::pending::<()>().await;
    }
    let left = token.expires.duration_since(time::now());
    tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
}

/// Copies from the host to the client.
async fn to_client(
    reader: &mut (impl AsyncRead + Unpin),
    sink: &mut SplitSink<Socket, Message>,
    encoding: Encoding,
    count: &AtomicU64,
) -> End {
    let mut buffer = vec![0; BUFFER];
    let mut pings = tokio::time::interval_at(tokio::time::Instant::now() + PING, PING);
    loop {
        let message = tokio::select! {
            read = reader.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return End::HostClosed,
                Ok(length) => {
                    count.fetch_add(length as u64, Ordering::Relaxed);
                    encoding.message(&buffer[..length])
                }
            },
            _ = pings.tick() => Message::Ping(Default::default()),
        };
        match tokio::time::timeout(STALL, sink.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return End::ClientClosed,
            Err(_) => return End::ClientSilent,
        }
    }
}

/// Copies from the client to the host.
async fn to_host(
    messages: &mut SplitStream<Socket>,
    writer: &mut (impl AsyncWrite + Unpin),
    encoding: Encoding,
    count: &AtomicU64,
) -> End {
    loop {
        let message = match tokio::time::timeout(SILENCE, messages.next()).await {
            Err(_) => return End::ClientSilent,
            Ok(None | Some(Err(_) | Ok(Message::Close(_)))) => return End::ClientClosed,
            Ok(Some(Ok(message))) => message,
        };
        let Some(bytes) = encoding.bytes(message) else { continue };
        count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if write(writer, &bytes).await.is_err() {
            return End::HostClosed;
        }
    }
}

async fn write(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

/// Sends a close frame with the reason, and waits at most [`CLOSE_TIMEOUT`] for the client's answer.
async fn close((mut sink, mut messages): Halves, end: &End) {
    let mut reason = end.to_string();
    while reason.len() > MAX_REASON {
        reason.pop();
    }
    let frame = CloseFrame { code: code(end), reason: reason.into() };
    let closing = async {
        sink.send(Message::Close(Some(frame))).await?;
        while let Some(message) = messages.next().await {
            message?;
        }
        Ok::<_, tungstenite::Error>(())
    };
    if !matches!(tokio::time::timeout(CLOSE_TIMEOUT, closing).await, Ok(Ok(()))) {
        tracing::debug!("a console client did not answer the close frame");
    }
}

/// The code of the close frame. The console page reconnects after every code except 1008 (`Policy`).
fn code(end: &End) -> CloseCode {
    match end {
        End::InvalidToken | End::ForeignOrigin(_) | End::Expired => CloseCode::Policy,
        End::TooMany => CloseCode::Again,
        End::Moved | End::Stopping => CloseCode::Restart,
        End::ShutOff
        | End::NoAnswer(_)
        | End::Refused(_)
        | End::Unavailable
        | End::Deleted
        | End::HostClosed
        | End::ClientSilent => CloseCode::Error,
        End::ClientClosed => CloseCode::Normal,
    }
}
