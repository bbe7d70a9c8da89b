//! An agent with a list of controllers, one of which is down, hangs or is unavailable.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod joining;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kilonova_node_api::Refusal;
use kilonova_node_link::Remote;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The behaviour of a controller towards its hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Manner {
    Answers,
    /// Answers every request with 503, like a controller without its database.
    Unavailable,
    /// Accepts connections and reads requests, but never answers, like a stopped process.
    Hangs,
    /// Closes every connection, like a load balancer without a healthy controller.
    Closes,
}

const MANNERS: [Manner; 4] = [Manner::Answers, Manner::Unavailable, Manner::Hangs, Manner::Closes];

/// A controller on a port of this machine.
struct Controller {
    address: SocketAddr,
    manner: Arc<AtomicU8>,
    requests: Arc<AtomicUsize>,
}

impl Controller {
    async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("the listener has an address");
        let requests = Arc::new(AtomicUsize::new(0));
        let manner = Arc::new(AtomicU8::new(manner as u8));
        let (how, count) = (Arc::clone(&manner), Arc::clone(&requests));
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, Arc::clone(&how), Arc::clone(&count)));
            }
        });
        Self { address, manner, requests }
    }

    fn becomes(&self, manner: Manner) {
        self.manner.store(manner as u8, Ordering::SeqCst);
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

async fn serve(mut connection: TcpStream, manner: Arc<AtomicU8>, requests: Arc<AtomicUsize>) {
    let mut received = Vec::new();
    let mut chunk = [0; 1024];
    while let Ok(length @ 1..) = connection.read(&mut chunk).await {
        received.extend_from_slice(&chunk[..length]);
        // The requests of these tests have no body.
        let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        received.drain(..end + 4);
        requests.fetch_add(1, Ordering::SeqCst);
        let (status, body) = match MANNERS[usize::from(manner.load(Ordering::SeqCst))] {
            Manner::Answers => ("200 OK", "{\"micros\": 0}"),
            Manner::Unavailable => {
                ("503 Service Unavailable", "{\"fault\": {\"message\": \"no\"}}")
            }
            Manner::Hangs => return std::future::pending().await,
            Manner::Closes => return,
        };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if connection.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// An agent's connection to two controllers that tries `first` first.
async fn beginning_with(first: SocketAddr, then: SocketAddr, tried: impl Fn() -> bool) -> Remote {
    let list = format!("http://{then},http://{first}");
    for _ in 0..200 {
        let remote = Remote::new(&list, "token").expect("the list is valid");
        match remote.clock().await {
            Err(Refusal::Unavailable(_)) => {
                assert!(tried(), "the first request goes to the first controller alone");
                return remote;
            }
            Ok(_) => {}
            Err(other) => panic!("{other}"),
        }
    }
    panic!("no list begins with {first}");
}

async fn works(remote: &Remote) {
    for _ in 0..5 {
        remote.clock().await.expect("the other controller answers");
    }
}

#[tokio::test]
async fn an_agent_leaves_a_controller_that_is_down() {
    let free = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let down = free.local_addr().expect("the listener has an address");
    drop(free);
    let other = Controller::start(Manner::Answers).await;
    let remote = beginning_with(down, other.address, || true).await;
    works(&remote).await;
}

#[tokio::test]
async fn an_agent_leaves_a_controller_that_answers_503_or_closes_connections() {
    for manner in [Manner::Unavailable, Manner::Closes] {
        let (first, other) =
            (Controller::start(manner).await, Controller::start(Manner::Answers).await);
        let remote = beginning_with(first.address, other.address, || first.requests() > 0).await;
        let tried = first.requests();
        works(&remote).await;
        assert_eq!(first.requests(), tried, "the agent stays with the other controller");
        // The agent switches back when the other controller fails.
        first.becomes(Manner::Answers);
        other.becomes(manner);
        remote.clock().await.expect_err("the other controller fails");
        works(&remote).await;
        assert_eq!(first.requests(), tried + 5);
    }
}

#[tokio::test]
async fn an_agent_leaves_a_controller_that_hangs() {
    let (first, other) =
        (Controller::start(Manner::Hangs).await, Controller::start(Manner::Answers).await);
    let begun = Instant::now();
    let remote = beginning_with(first.address, other.address, || first.requests() == 1).await;
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    works(&remote).await;
    assert_eq!(first.requests(), 1);
}

/// Requests in progress at a failing controller move to the next controller together.
#[tokio::test]
async fn requests_in_progress_leave_a_controller_once() {
    let (first, other) =
        (Controller::start(Manner::Answers).await, Controller::start(Manner::Answers).await);
    // A refusal shows which controller is tried first; if both answer, the request counts show it.
    let list = format!("http://{},http://{}", first.address, other.address);
    let remote = Remote::new(&list, "token").expect("the list is valid");
    remote.clock().await.expect("the controller answers");
    let (begins, next) = if first.requests() == 1 { (first, other) } else { (other, first) };
    begins.becomes(Manner::Unavailable);
    let all: Vec<_> = (0..8)
        .map(|_| {
            let remote = remote.clone();
            tokio::spawn(async move { remote.clock().await })
        })
        .collect();
    for one in all {
        drop(one.await.expect("the task does not panic"));
    }
    let at_first = begins.requests();
    works(&remote).await;
    assert_eq!(begins.requests(), at_first);
    assert!(next.requests() >= 5);
}
