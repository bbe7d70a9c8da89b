//! Bounds the memory and the time of answers that clients have not received yet.
//!
//! An answer is in memory until its client has received it. Lists can have several MiB, so a client that requests
//! many of them and reads slowly, or not at all, could exhaust the memory. An answer that would exceed the bound of
//! all clients or of its address is dropped, and its request gets 503. This concerns only GET, which changes
//! nothing. Small answers are not counted, because connections are limited. Streams of unknown size, such as the
//! data of an image, have their own bounds.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::Method;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use kilonova_wire::refusal::Kind;
use kilonova_wire::{PeerAddress, Refusal};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::connection::fairness_key;
use crate::config::Proxies;

/// The number of bytes from which an answer is counted.
const LARGE: u64 = 64 * 1024;
/// Maximum number of bytes of all counted answers.
const TOTAL: u64 = 1024 * 1024 * 1024;
/// One address may use one in `SHARE` of these bytes.
const SHARE: u64 = 4;
/// The time that a client has for each answer, and the bytes that it must receive in each further second.
const BASE_TIME: Duration = Duration::from_secs(60);
const BYTES_PER_SECOND: u64 = 32 * 1024;
/// Seconds after which a client may retry.
const RETRY_AFTER: u64 = 5;
/// Minimum interval between log lines.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
const REFUSED: &str = "Too many large answers are waiting for their clients to read them. Read the answers that you \
                       requested, request fewer at once, or try again in a few seconds.";

/// Closes a connection whose client is too slow. Shared by a connection and its requests.
#[derive(Clone, Default)]
pub(super) struct Disconnect(Arc<Notify>);

impl Disconnect {
    /// Completes when the connection has to be closed.
    pub(super) async fn ordered(&self) {
        self.0.notified().await;
    }
}

/// The answers that clients have not received yet.
#[derive(Clone)]
pub(super) struct Unsent(Arc<Inner>);

struct Inner {
    total: u64,
    time: Duration,
    /// Bytes per second.
    rate: u64,
    proxies: Proxies,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    total: u64,
    by_address: HashMap<IpAddr, u64>,
    warned_at: Option<Instant>,
}

/// An answer's share of the memory, until dropped.
struct Reservation {
    unsent: Unsent,
    address: IpAddr,
    size: u64,
    timer: Option<AbortHandle>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.abort();
        }
        let mut held = self.unsent.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.total = held.total.saturating_sub(self.size);
        if let Some(own) = held.by_address.get_mut(&self.address) {
            *own = own.saturating_sub(self.size);
            if *own == 0 {
                held.by_address.remove(&self.address);
            }
        }
    }
}

impl Unsent {
    /// Without any answers. `proxies` act for many clients, so each may use the whole bound.
    pub(super) fn new(proxies: Proxies) -> Self {
        Self::bounded(proxies, TOTAL, BASE_TIME, BYTES_PER_SECOND)
    }

    fn bounded(proxies: Proxies, total: u64, time: Duration, rate: u64) -> Self {
        Self(Arc::new(Inner { total, time, rate, proxies, held: Mutex::default() }))
    }

    /// Reserves memory for an answer. A bound to which no answer counts yet admits an answer of any size.
    fn reserve(&self, address: IpAddr, size: u64) -> Option<Reservation> {
        let address = fairness_key(address);
        let for_many = address.is_loopback() || self.0.proxies.contain(address);
        let share = if for_many { self.0.total } else { self.0.total / SHARE };
        let mut held = self.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held.by_address.get(&address).copied().unwrap_or_default();
        let exceeds = |before: u64, bound: u64| before > 0 && before.saturating_add(size) > bound;
        if exceeds(held.total, self.0.total) || exceeds(own, share) {
            if held.warned_at.is_none_or(|at| at.elapsed() > LOG_INTERVAL) {
                held.warned_at = Some(Instant::now());
                tracing::warn!(
                    %address,
                    size,
                    unsent = held.total,
                    unsent_to_address = own,
                    "clients are not reading their large answers; refusing more of them until they do"
                );
            }
            return None;
        }
        held.total = held.total.saturating_add(size);
        held.by_address.insert(address, own.saturating_add(size));
        Some(Reservation { unsent: self.clone(), address, size, timer: None })
    }

    /// The time that a client has to receive an answer of this size.
    fn time(&self, size: u64) -> Duration {
        self.0.time + Duration::from_secs(size / self.0.rate.max(1))
    }

    /// The answer, counted until it is received, or a refusal.
    fn admit(
        &self,
        address: IpAddr,
        disconnect: Option<Disconnect>,
        response: Response,
    ) -> Response {
        let size = response.body().size_hint().exact().filter(|size| *size >= LARGE);
        let Some(size) = size else { return response };
        let Some(mut reservation) = self.reserve(address, size) else {
            return Refusal::new(Kind::Unavailable, REFUSED)
                .with_retry_after(RETRY_AFTER)
                .into_response();
        };
        if let Some(disconnect) = disconnect {
            let time = self.time(size);
            let timer = tokio::spawn(async move {
                tokio::time::sleep(time).await;
                tracing::info!(%address, size, "a client did not read its answer in time; disconnecting it");
                disconnect.0.notify_one();
            });
            reservation.timer = Some(timer.abort_handle());
        }
        let reservation = Arc::new(reservation);
        response.map(|body| Body::new(CountedBody { body, reservation }))
    }
}

/// Bounds the answers to GET requests.
pub(super) async fn bound(State(unsent): State<Unsent>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<PeerAddress>().map(|peer| peer.0);
    let disconnect = request.extensions().get::<Disconnect>().cloned();
    let reads = *request.method() == Method::GET;
    let response = next.run(request).await;
    match peer {
        Some(peer) if reads => unsent.admit(peer, disconnect, response),
        _ => response,
    }
}

/// A body whose bytes keep its reservation: the HTTP library drops a body as soon as it has the last bytes, but keeps
/// those bytes until they are written.
struct CountedBody {
    body: Body,
    reservation: Arc<Reservation>,
}

struct CountedBytes {
    bytes: Bytes,
    _reservation: Arc<Reservation>,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        polled.map_ok(|frame| {
            frame.map_data(|bytes| {
                Bytes::from_owner(CountedBytes {
                    bytes,
                    _reservation: Arc::clone(&self.reservation),
                })
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::middleware;
    use axum::routing::get;
    use http::StatusCode;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    const MIB: u64 = 1024 * 1024;
    const TIME: Duration = Duration::from_millis(200);

    fn unsent(total: u64) -> Unsent {
        let proxies = Proxies::new(vec!["192.0.2.0/24".parse().expect("the network is valid")]);
        Unsent::bounded(proxies, total, TIME, 8 * MIB)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("the address is valid")
    }

    #[test]
    fn an_address_has_a_share_and_a_proxy_all() {
        let unsent = unsent(8 * MIB);
        let (one, other) = (address("198.51.100.1"), address("198.51.100.2"));
        let first = unsent.reserve(one, MIB).expect("it fits");
        let second = unsent.reserve(one, MIB).expect("it fits");
        assert!(unsent.reserve(one, 1).is_none(), "the address has used its share");
        assert!(unsent.reserve(address("::ffff:198.51.100.1"), 1).is_none(), "the same address");
        let huge = unsent.reserve(other, 3 * MIB).expect("one answer of any size fits");
        drop((first, second));
        let _proxy = unsent.reserve(address("192.0.2.7"), 5 * MIB).expect("a proxy may use it all");
        assert!(unsent.reserve(one, MIB).is_none(), "the whole bound is used");
        drop(huge);
        let _third = unsent.reserve(one, MIB).expect("it fits again");
    }

    fn router(unsent: &Unsent) -> Router {
        let large = || async { vec![0_u8; 1024 * 1024] };
        Router::new()
            .route("/", get(large).post(large))
            .route("/small", get(|| async { "small" }))
            .layer(middleware::from_fn_with_state(unsent.clone(), bound))
    }

    async fn answer(
        router: &Router,
        method: Method,
        path: &str,
        disconnect: &Disconnect,
    ) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(extensions) = request.extensions_mut() {
            extensions.insert(PeerAddress(address("127.0.0.1")));
            extensions.insert(disconnect.clone());
        }
        let request = request.body(Body::empty()).expect("the request is valid");
        router.clone().oneshot(request).await.expect("an answer arrives")
    }

    #[tokio::test]
    async fn an_answer_counts_until_its_bytes_are_gone() {
        let unsent = unsent(2 * MIB);
        let (router, disconnect) = (router(&unsent), Disconnect::default());
        let first = answer(&router, Method::GET, "/", &disconnect).await;
        let second = answer(&router, Method::GET, "/", &disconnect).await;
        assert_eq!((first.status(), second.status()), (StatusCode::OK, StatusCode::OK));
        let refused = answer(&router, Method::GET, "/", &disconnect).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers()["retry-after"], "5");
        // Requests that change something, and small answers, are never refused.
        assert_eq!(answer(&router, Method::POST, "/", &disconnect).await.status(), StatusCode::OK);
        assert_eq!(
            answer(&router, Method::GET, "/small", &disconnect).await.status(),
            StatusCode::OK
        );
        let bytes = first.into_body().collect().await.expect("the body arrives").to_bytes();
        assert_eq!(bytes.len() as u64, MIB);
        let refused = answer(&router, Method::GET, "/", &disconnect).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE, "its bytes are still unsent");
        drop(bytes);
        assert_eq!(answer(&router, Method::GET, "/", &disconnect).await.status(), StatusCode::OK);
        drop(second);
        let held = unsent.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!((held.total, held.by_address.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_slow_client_is_cut_and_a_fast_one_is_not() {
        let unsent = unsent(16 * MIB);
        let (router, disconnect) = (router(&unsent), Disconnect::default());
        drop(answer(&router, Method::GET, "/", &disconnect).await);
        assert!(
            tokio::time::timeout(TIME * 2, disconnect.ordered()).await.is_err(),
            "it is not cut"
        );
        let begun = Instant::now();
        let slow = answer(&router, Method::GET, "/", &disconnect).await;
        disconnect.ordered().await;
        assert!(begun.elapsed() >= TIME, "{:?}", begun.elapsed());
        drop(slow);
        // A large answer has more time.
        let reservation = unsent.reserve(address("127.0.0.1"), 16 * MIB).expect("it fits");
        assert_eq!(unsent.time(reservation.size), TIME + Duration::from_secs(2));
    }
}
