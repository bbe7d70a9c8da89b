//! A deadline for a request's head, counted from its first byte: a client that trickles bytes must not
//! occupy a connection. The HTTP library watches idle keep-alive connections, with a longer timeout.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

/// True if a request is in progress. Shared by a connection's socket and its requests.
#[derive(Clone, Default)]
pub(in crate::serve) struct Busy(Arc<AtomicBool>);

impl Busy {
    /// Marks a request as in progress until its answer is sent completely.
    pub(in crate::serve) fn begin(&self) -> Answering {
        self.0.store(true, Ordering::Relaxed);
        Answering(self.clone())
    }
}

/// The mark of a request in progress, removed when this value is dropped.
pub(in crate::serve) struct Answering(Busy);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

impl Answering {
    /// Keeps the mark until the body is sent or dropped, or forever if the connection is upgraded, because
    /// no further heads follow.
    pub(in crate::serve) fn until_sent(self, response: Response) -> Response {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            std::mem::forget(self);
            return response;
        }
        response.map(|body| Body::new(Sent { body, _answering: self }))
    }
}

struct Sent {
    body: Body,
    _answering: Answering,
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A socket with a deadline for request heads.
pub(in crate::serve) struct Paced<S> {
    inner: S,
    busy: Busy,
    limit: Duration,
    /// Started by a head's first byte.
    head: Option<Pin<Box<Sleep>>>,
    /// Signals the socket's end when it is dropped.
    open: Option<oneshot::Sender<()>>,
}

impl<S> Paced<S> {
    /// Wraps a socket.
    pub(in crate::serve) fn new(inner: S, busy: Busy, limit: Duration) -> Self {
        Self { inner, busy, limit, head: None, open: None }
    }

    /// The socket, and a receiver that fails when the socket is closed.
    pub(in crate::serve) fn told(mut self) -> (Self, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        self.open = Some(sender);
        (self, receiver)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.busy.0.load(Ordering::Relaxed) {
            self.head = None;
            return Pin::new(&mut self.inner).poll_read(context, buffer);
        }
        if let Some(head) = &mut self.head
            && head.as_mut().poll(context).is_ready()
        {
            let why = "the head of the request did not arrive in time";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if polled.is_ready() && buffer.filled().len() > before && self.head.is_none() {
            self.head = Some(Box::pin(tokio::time::sleep_until(Instant::now() + self.limit)));
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn the_deadline_counts_from_the_first_byte_and_not_during_an_answer() {
        let (limit, longer) = (Duration::from_millis(50), Duration::from_millis(150));
        let (mut client, server) = tokio::io::duplex(64);
        let busy = Busy::default();
        let mut server = Paced::new(server, busy.clone(), limit);
        let mut byte = [0; 1];
        assert!(tokio::time::timeout(longer, server.read(&mut byte)).await.is_err(), "idle");
        client.write_all(b"G").await.expect("the request is sent");
        assert_eq!(server.read(&mut byte).await.expect("the byte is read"), 1);
        let answering = busy.begin();
        assert!(tokio::time::timeout(longer, server.read(&mut byte)).await.is_err(), "a body");
        drop(answering);
        client.write_all(b"GE").await.expect("the request is sent");
        let begun = Instant::now();
        for _ in 0..2 {
            assert_eq!(server.read(&mut byte).await.expect("the byte is read"), 1);
        }
        let error = server.read(&mut byte).await.expect_err("the deadline passed");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= limit, "{:?}", begun.elapsed());
    }
}
