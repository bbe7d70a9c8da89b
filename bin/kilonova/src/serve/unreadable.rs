//! Explains refusals of requests that are not valid HTTP.
//!
//! The HTTP library itself answers unreadable requests with an empty body, before any of our code
//! sees the request. This wrapper of the socket passes everything through, but adds a body to such
//! an answer. It recognizes such an answer by its status and by the lack of a request id, which all
//! our own answers have.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of bytes of the client's last data to keep for the explanation.
const KEPT: usize = 2048;

/// A socket that adds bodies to empty refusals.
pub(super) struct ExplainedRefusals<S> {
    inner: S,
    received: Vec<u8>,
    /// The bytes to write instead, and the number already written.
    instead: Option<(Vec<u8>, usize)>,
}

impl<S> ExplainedRefusals<S> {
    /// Wraps a socket.
    pub(super) fn new(inner: S) -> Self {
        Self { inner, received: Vec::new(), instead: None }
    }

    /// Replaces an empty refusal; `false` for other answers.
    fn replace(&mut self, answer: &[u8]) -> bool {
        let Some(body) = refusal(answer, &self.received) else { return false };
        self.instead = Some((body, 0));
        true
    }
}

impl<S: AsyncWrite + Unpin> ExplainedRefusals<S> {
    fn poll_instead(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some((bytes, at)) = &mut self.instead {
            if *at == bytes.len() {
                self.instead = None;
                break;
            }
            match ready!(Pin::new(&mut self.inner).poll_write(context, &bytes[*at..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => *at += written,
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}

/// The complete answer to write instead of an empty one.
fn refusal(answer: &[u8], received: &[u8]) -> Option<Vec<u8>> {
    let status = answer.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    let (status, title, why) = match status {
        b"400" => (400, "Bad Request", unreadable(received)),
        b"414" => (414, "URI Too Long", "The path and query of the request are too long."),
        b"431" => (
            431,
            "Request Header Fields Too Large",
            "The headers of the request are too many or too long.",
        ),
        _ => return None,
    };
    if holds(answer, b"x-openstack-request-id") || !holds(answer, b"content-length: 0") {
        return None;
    }
    let id = format!("req-{}", uuid::Uuid::new_v4());
    tracing::info!(id, status, "{why}");
    let body = json!({"errors": [
        {"status": status, "title": title, "detail": why, "request_id": id}
    ]})
    .to_string();
    Some(
        format!(
            "HTTP/1.1 {status} {title}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             x-openstack-request-id: {id}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes(),
    )
}

/// The problem of a request's head, as far as it can be determined.
fn unreadable(received: &[u8]) -> &'static str {
    let length = b"content-length:";
    let value = received.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(length.len())?;
        name.eq_ignore_ascii_case(length).then_some(value.trim_ascii())
    });
    match value {
        Some(value) if value.is_empty() || !value.iter().all(u8::is_ascii_digit) => {
            "The content-length header must be an integer."
        }
        _ => "This is not an HTTP/1.1 request: check its first line and its headers.",
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ExplainedRefusals<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let new = buffer.filled().get(before..).unwrap_or_default();
        let kept = new.len().min(KEPT);
        self.received.clear();
        self.received.extend_from_slice(&new[..kept]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ExplainedRefusals<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_instead(context))?;
        if self.replace(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_instead(context))?;
        if let [only] = slices
            && self.replace(only)
        {
            return Poll::Ready(Ok(only.len()));
        }
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_instead(context))?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_instead(context))?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Body;
    use axum::http::{Response, StatusCode};
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// The answer to this request, when every readable request is refused with 400.
    async fn answer_to(request: &str) -> String {
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        let served = tokio::spawn(async move {
            let service = service_fn(|_| async {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::BAD_REQUEST;
                let id = axum::http::HeaderValue::from_static("req-own");
                response.headers_mut().insert("x-openstack-request-id", id);
                Ok::<_, Infallible>(response)
            });
            let socket = TokioIo::new(ExplainedRefusals::new(server));
            let _ = hyper::server::conn::http1::Builder::new()
                .keep_alive(false)
                .serve_connection(socket, service)
                .await;
        });
        client.write_all(request.as_bytes()).await.expect("the request is sent");
        let mut received = String::new();
        client.read_to_string(&mut received).await.expect("the file is read");
        served.await.expect("the server task ends");
        received
    }

    #[tokio::test]
    async fn an_unreadable_request_is_refused_with_the_reason() {
        for (request, why) in [
            (
                "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: hi mom\r\n\r\n{}",
                "must be an integer",
            ),
            ("GET / HTTP/1.1\r\nhost: x\r\nbad header\r\n\r\n", "not an HTTP/1.1 request"),
            ("nonsense\r\n\r\n", "not an HTTP/1.1 request"),
        ] {
            let received = answer_to(request).await;
            assert!(received.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{received}");
            assert!(received.contains(why), "{request}: {received}");
            let (head, body) = received.split_once("\r\n\r\n").expect("the text has the separator");
            assert!(head.contains(&format!("content-length: {}", body.len())), "{received}");
            let body: serde_json::Value = serde_json::from_str(body).expect("the text is JSON");
            assert_eq!(body["errors"][0]["status"], 400);
        }
        let received = answer_to(&format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(70_000))).await;
        assert!(
            received.starts_with("HTTP/1.1 414") && received.contains("too long"),
            "{received}"
        );
    }

    #[tokio::test]
    async fn our_own_answers_pass_unchanged() {
        let received = answer_to("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!(received.contains("req-own") && received.ends_with("\r\n\r\n"), "{received}");
    }
}
