//! The first request of a host: it waits for a controller, and sends a token only once.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kilonova_ids::HostName;
use kilonova_node_api::{Credential, Refusal, Renewal};
use kilonova_node_link::{JOIN_LIMIT, join};
use kilonova_pki::{Authority, Request, Secret, Token, Trust};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

/// How a controller treats hosts that join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Answers,
    /// Reads the request and closes the connection.
    Closes,
}

#[derive(Debug)]
struct Shown(kilonova_pki::Own);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<kilonova_pki::Own> {
        Some(Arc::clone(&self.0))
    }
}

fn authority() -> Authority {
    let (certificate, key) = Authority::make(Timestamp::now()).expect("the authority is created");
    Authority::load(&certificate, &key).expect("the authority is loaded")
}

fn tls(authority: &Authority) -> Arc<ServerConfig> {
    let made = authority.control_plane(&[], Timestamp::now());
    let (pem, key) = made.expect("the certificate is created");
    let own =
        kilonova_pki::own(&pem, &key, authority.certificate()).expect("certificate and key match");
    let trust = Trust::new(&[authority.certificate().clone()]).expect("the authority is valid");
    let config = kilonova_pki::server(trust, Arc::new(Shown(own)));
    Arc::new(config.expect("the TLS settings are valid"))
}

/// A controller for hosts that join, on a thread of its own. It counts connections and requests.
struct ControlPlane {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl ControlPlane {
    /// Listens after `delay`; until then, its port refuses connections.
    fn opens(authority: &Authority, door: Door, delay: Duration) -> Self {
        let address = unused();
        let connections = Arc::<AtomicUsize>::default();
        let requests = Arc::<AtomicUsize>::default();
        let (config, counted) = (tls(authority), (Arc::clone(&connections), Arc::clone(&requests)));
        let given = json!({"certificate": "c", "authority": "a"}).to_string();
        std::thread::spawn(move || {
            std::thread::sleep(delay);
            let listener = std::net::TcpListener::bind(address).expect("the port is free");
            for connection in listener.incoming().map_while(Result::ok) {
                counted.0.fetch_add(1, Ordering::SeqCst);
                let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
                let mut stream = StreamOwned::new(session, connection);
                let mut chunk = [0; 16 * 1024];
                let mut received = Vec::new();
                while !received.ends_with(b"}}") {
                    match stream.read(&mut chunk) {
                        Ok(length @ 1..) => received.extend_from_slice(&chunk[..length]),
                        _ => break,
                    }
                }
                if received.is_empty() {
                    continue;
                }
                counted.1.fetch_add(1, Ordering::SeqCst);
                if door == Door::Answers {
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n", given.len());
                    drop(write!(stream, "{head}\r\n{given}").and_then(|()| stream.flush()));
                }
            }
        });
        Self { address, connections, requests }
    }

    fn counts(&self) -> (usize, usize) {
        (self.connections.load(Ordering::SeqCst), self.requests.load(Ordering::SeqCst))
    }
}

/// An address at which nothing listens.
fn unused() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("the listener has an address")
}

async fn joins(
    address: SocketAddr,
    authority: &Authority,
    limit: Duration,
) -> Result<Credential, Refusal> {
    let host = HostName::verbatim("a");
    let request = Request::new(&host).expect("the request is created");
    let token = Token { secret: Secret::new(), authority: authority.fingerprint() };
    let renewal = Renewal { csr: request.csr, addresses: Vec::new() };
    join(&format!("https://{address}"), &token, &host, renewal, limit).await
}

#[tokio::test]
async fn a_host_waits_for_a_control_plane_that_starts_later() {
    let ours = authority();
    let late = ControlPlane::opens(&ours, Door::Answers, Duration::from_millis(700));
    let given = joins(late.address, &ours, JOIN_LIMIT).await.expect("the host joins");
    assert_eq!((given.certificate.as_str(), given.authority.as_str()), ("c", "a"));
    assert_eq!(late.counts(), (1, 1));
}

#[tokio::test]
async fn a_host_that_reaches_no_control_plane_says_what_to_do() {
    let (begun, limit) = (Instant::now(), Duration::from_secs(2));
    let refused = joins(unused(), &authority(), limit).await.expect_err("nothing listens");
    let Refusal::Unavailable(why) = refused else { panic!("{refused:?}") };
    for words in ["within 2 s", "onnection refused", "check the URL", "the token was not used"] {
        assert!(why.contains(words), "{words}: {why}");
    }
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(500) && took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test]
async fn a_token_that_may_have_been_used_is_not_sent_again() {
    let ours = authority();
    let closing = ControlPlane::opens(&ours, Door::Closes, Duration::ZERO);
    let refused = joins(closing.address, &ours, JOIN_LIMIT).await.expect_err("no answer");
    let Refusal::Unavailable(why) = refused else { panic!("{refused:?}") };
    assert!(why.contains("may have used the token"), "{why}");
    assert!(why.contains("kilonova node enroll --host a"), "{why}");
    assert_eq!(closing.counts().1, 1);
}

#[tokio::test]
async fn another_control_plane_than_the_tokens_is_refused_at_once() {
    let other = ControlPlane::opens(&authority(), Door::Answers, Duration::ZERO);
    while std::net::TcpStream::connect(other.address).is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (before, begun) = (other.counts().0, Instant::now());
    let refused = joins(other.address, &authority(), JOIN_LIMIT).await.expect_err("it is another");
    let Refusal::Unavailable(why) = refused else { panic!("{refused:?}") };
    assert!(why.contains("authority is not the one in the token"), "{why}");
    assert!(!why.contains("may have used"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(other.counts().0 <= before + 2, "{:?}", other.counts());
    assert_eq!(other.counts().1, 0);
}
