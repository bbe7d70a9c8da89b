//! Ensures that every answer has a request id and that the client can read it.
//!
//! A client that is still sending its body when the answer is sent (100 MB where 1 MB is allowed) would
//! lose the answer, because closing a socket with unread bytes resets the connection. So the rest of the
//! body is read and discarded first, up to a limit.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::uri::PathAndQuery;
use http::{HeaderValue, Uri, header};
use http_body_util::BodyExt;
use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use kilonova_wire::EndsInSlash;
use tokio::sync::oneshot;

const LEFTOVER_BYTES: u64 = 1024 * 1024 * 1024;
const LEFTOVER_TIME: Duration = Duration::from_secs(5);

/// Copies the URI and the headers out of the connection's read buffer. A request that waits, like a
/// host's poll, would otherwise hold that buffer, and the connection would allocate another.
pub(super) fn detach<B>(request: &mut Request<B>) {
    if let Some(uri) = copied(request.uri()) {
        *request.uri_mut() = uri;
    }
    for value in request.headers_mut().values_mut() {
        if let Ok(mut copy) = HeaderValue::from_bytes(value.as_bytes()) {
            copy.set_sensitive(value.is_sensitive());
            *value = copy;
        }
    }
}

/// A copy of a URI. Usually a URI is only a path with a query, which is copied without formatting it.
fn copied(uri: &Uri) -> Option<Uri> {
    match (uri.scheme(), uri.authority(), uri.path_and_query()) {
        (None, None, Some(path)) => {
            let bytes = Bytes::copy_from_slice(path.as_str().as_bytes());
            PathAndQuery::from_maybe_shared(bytes).ok().map(Uri::from)
        }
        _ => uri.to_string().parse().ok(),
    }
}

/// Answers with `app`, then discards the rest of the body.
pub(super) async fn answer<F>(
    request: Request<Incoming>,
    app: impl FnOnce(Request<Body>) -> F,
) -> Response
where
    F: Future<Output = Result<Response, std::convert::Infallible>>,
{
    // A client that sent `Expect: 100-continue` gets the answer before it sends a body.
    let expects_continue = request.headers().contains_key(header::EXPECT);
    let (back, leftover) = oneshot::channel();
    let mut request =
        request.map(|body| Body::new(ReturnedBody { body: Some(body), back: Some(back) }));
    if request.uri().path().ends_with('/') {
        request.extensions_mut().insert(EndsInSlash);
    }
    let Ok(mut response) = app(request).await;
    let headers = response.headers_mut();
    if !headers.contains_key("x-openstack-request-id")
        && let Ok(id) = HeaderValue::from_str(&format!("req-{}", uuid::Uuid::new_v4()))
    {
        headers.insert("x-openstack-request-id", id);
    }
    let mut leftover = leftover;
    if !expects_continue && let Ok(body) = leftover.try_recv() {
        discard(body).await;
    }
    response
}

async fn discard(mut body: Incoming) {
    let all = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            if bytes > LEFTOVER_BYTES {
                break;
            }
        }
    };
    if tokio::time::timeout(LEFTOVER_TIME, all).await.is_err() {
        tracing::debug!("the client was still sending after the answer");
    }
}

/// A body that is sent back through the channel if it is dropped before its end.
struct ReturnedBody {
    body: Option<Incoming>,
    back: Option<oneshot::Sender<Incoming>>,
}

impl hyper::body::Body for ReturnedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(hyper::body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), hyper::body::Body::size_hint)
    }
}

impl Drop for ReturnedBody {
    fn drop(&mut self) {
        if let (Some(body), Some(back)) = (self.body.take(), self.back.take())
            && !hyper::body::Body::is_end_stream(&body)
        {
            // The receiver is gone if the answer was dropped.
            drop(back.send(body));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detached_request_holds_no_part_of_the_buffer() {
        for uri in ["/compute/v2.1/servers?name=%C3%A4&x", "http://cloud:1/a?b", "*", "cloud:1"] {
            let buffer = Bytes::from(b"0123456789".to_vec());
            let value = HeaderValue::from_maybe_shared(buffer.clone()).expect("the value is valid");
            let request = Request::builder().uri(uri).header("x-auth-token", value).body(());
            let mut request = request.expect("the request is valid");
            assert!(!buffer.is_unique(), "the header is a part of the buffer");
            detach(&mut request);
            assert!(buffer.is_unique(), "{uri}");
            assert_eq!(request.uri(), uri);
            assert_eq!(request.headers()["x-auth-token"], "0123456789");
        }
    }
}
