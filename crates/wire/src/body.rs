//! Request bodies: bounded, read once, and JSON unless the route says otherwise.

use std::time::{Duration, Instant};

use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde_json::Value;

use crate::Refusal;
use crate::refusal::Kind;

/// Maximum number of bytes of a JSON body.
pub const JSON_LIMIT: usize = 1024 * 1024;

/// The time limit for a small body: a slow client must not hold its connection and memory.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// A larger body gets one more second per this many bytes received.
const BYTES_PER_SECOND: usize = 32 * 1024;
/// A time limit that ends later than this means that the process was stopped. Its timers then fire before it reads what
/// has arrived in the meantime, so it continues to read for the same time.
const LATE: Duration = Duration::from_secs(1);

/// The raw bytes of a body within [`JSON_LIMIT`], without NUL.
pub struct Body(pub Bytes);

/// A JSON body.
pub struct JsonBody(pub Value);

/// A JSON body of at most `LIMIT` bytes, for unauthenticated callers.
pub struct SmallJson<const LIMIT: usize>(pub Value);

fn too_large(limit: usize) -> Refusal {
    Refusal::new(
        Kind::TooLarge,
        format!("Request is too large: a body may have at most {limit} bytes."),
    )
}

impl Body {
    /// Reads a body of at most `limit` bytes.
    async fn within(request: Request, limit: usize) -> Result<Self, Refusal> {
        let content_length = request
            .headers()
            .get(http::header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok())
            .and_then(|length| length.parse::<u64>().ok());
        if content_length.is_some_and(|length| length > limit as u64) {
            return Err(too_large(limit));
        }
        let bytes = whole(request.into_body(), limit).await?;
        if holds_nul(&bytes) {
            return Err(Refusal::bad_request(
                "The request body contains a NUL character (\\u0000), which is not supported.",
            ));
        }
        Ok(Self(bytes))
    }
}

impl<S: Sync> FromRequest<S> for Body {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        Self::within(request, JSON_LIMIT).await
    }
}

fn json(bytes: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(bytes)
        .map_err(|error| Refusal::bad_request(format!("Malformed request body: {error}")))
}

/// Reads a body of at most `most` bytes completely, within the time limit.
///
/// # Errors
/// A larger body ([`Kind::TooLarge`]), one that ends early, and one that does not arrive in time.
pub async fn whole(body: axum::body::Body, most: usize) -> Result<Bytes, Refusal> {
    whole_in(BODY_TIMEOUT, body, most).await
}

/// [`whole`], with the time limit of a small body.
async fn whole_in(
    timeout: Duration,
    mut body: axum::body::Body,
    most: usize,
) -> Result<Bytes, Refusal> {
    let begun = Instant::now();
    let mut stopped = Duration::ZERO;
    let mut bytes = BytesMut::new();
    loop {
        let limit = timeout + Duration::from_secs((bytes.len() / BYTES_PER_SECOND) as u64);
        let left = (limit + stopped).saturating_sub(begun.elapsed());
        let frame = match tokio::time::timeout(left, body.frame()).await {
            Ok(None) => return Ok(bytes.freeze()),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => {
                return Err(Refusal::bad_request("The request body ended prematurely."));
            }
            Err(_) if begun.elapsed() > limit + stopped + LATE => {
                stopped = begun.elapsed() + LATE - limit;
                continue;
            }
            Err(_) => {
                return Err(Refusal::new(
                    Kind::Timeout,
                    format!("The request body did not arrive within {} s.", limit.as_secs()),
                ));
            }
        };
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > most {
            return Err(too_large(most));
        }
        bytes.extend_from_slice(data);
    }
}

/// True if a JSON text contains an escaped NUL, which SQLite stores but PostgreSQL refuses.
fn holds_nul(json: &[u8]) -> bool {
    let escapes = json.windows(6).enumerate().filter(|(_, window)| *window == b"\\u0000");
    escapes.into_iter().any(|(at, _)| {
        let slashes = json[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        slashes % 2 == 0
    })
}

impl<S: Sync> FromRequest<S> for JsonBody {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let Body(bytes) = Body::from_request(request, state).await?;
        json(&bytes).map(Self)
    }
}

impl<S: Sync, const LIMIT: usize> FromRequest<S> for SmallJson<LIMIT> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        let Body(bytes) = Body::within(request, LIMIT).await?;
        json(&bytes).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    const SHORT: Duration = Duration::from_millis(10);

    #[tokio::test]
    async fn a_body_that_arrived_while_the_process_was_stopped_is_read() {
        let mut polls = 0;
        let frames = std::iter::once(Bytes::from_static(b"{}"));
        let mut frames = frames.map(Ok::<_, std::io::Error>);
        let stream = futures_util::stream::poll_fn(move |context| {
            polls += 1;
            if polls == 1 {
                // The process is stopped, and its timers fire before it reads.
                std::thread::sleep(LATE + SHORT * 5);
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(frames.next())
        });
        let read = whole_in(SHORT, axum::body::Body::from_stream(stream), JSON_LIMIT).await;
        assert_eq!(read.expect("the body is whole"), "{}");
    }

    #[tokio::test]
    async fn a_body_that_does_not_arrive_in_time_is_refused() {
        let stream = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
        let read = whole_in(SHORT, axum::body::Body::from_stream(stream), JSON_LIMIT).await;
        assert_eq!(read.expect_err("the client is too slow").kind, Kind::Timeout);
    }

    #[test]
    fn a_nul_is_distinguished_from_a_text_about_one() {
        assert!(holds_nul(br#"{"name": "a\u0000b"}"#));
        assert!(holds_nul(br#"{"name": "\\\u0000"}"#));
        assert!(!holds_nul(br#"{"name": "\\u0000"}"#));
        assert!(!holds_nul(br#"{"name": "\u0001"}"#));
    }
}
