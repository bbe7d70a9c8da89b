//! HTTP by hand, so that a test controls every byte. Each request opens a connection of its own.
//!
//! Checks what must hold for every answer: it has a request id, it is not a 500, an error has a JSON
//! body with a message, and it shows no internals of the program.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(30);

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The request, for messages.
    pub request: String,
    /// The status.
    pub status: u16,
    /// The headers, their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Parses an answer that was read to its end.
    pub fn parse(request: &str, bytes: &[u8]) -> Self {
        let cut = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
        let cut = cut.unwrap_or_else(|| panic!("{request}: this is not an answer: {shown:?}"));
        let head = String::from_utf8_lossy(&bytes[..cut]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
            .collect();
        let status = status.unwrap_or_else(|| panic!("{request}: no status in {head:?}"));
        Self { request: request.to_owned(), status, headers, body: bytes[cut + 4..].to_vec() }
    }

    /// The last value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().rev().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("{}: {} is not JSON ({error}): {}", self.request, self.status, self.text())
        })
    }

    /// Returns the body; panics unless the status is the expected one.
    #[track_caller]
    pub fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}: {}", self.request, self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// Returns the error's message; panics unless the status is the expected one.
    #[track_caller]
    pub fn refused(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}: {}", self.request, self.text());
        self.sentence()
    }

    /// Like [`Self::refused`]; the message must contain all of `words`.
    #[track_caller]
    pub fn refused_saying(&self, status: u16, words: &[&str]) {
        let sentence = self.refused(status);
        for word in words {
            assert!(sentence.contains(word), "{}: {word:?} is not in: {sentence}", self.request);
        }
    }

    /// The error's message, in any service's format.
    #[track_caller]
    pub fn sentence(&self) -> String {
        let body = self.json();
        if let Some(inner) = body["error_message"].as_str() {
            // Cyborg encodes JSON as a string, except for errors of its web framework.
            return match serde_json::from_str::<Value>(inner) {
                Ok(inner) => {
                    inner["faultstring"].as_str().expect("the fault has a message").to_owned()
                }
                Err(_) => inner.to_owned(),
            };
        }
        let first = body.as_object().and_then(|object| object.values().next());
        let found = [
            &body["errors"][0]["detail"],
            &body["error"]["message"],
            &body["message"],
            &body["NeutronError"]["message"],
            &first.unwrap_or(&Value::Null)["message"],
        ];
        let sentence = found.iter().find_map(|value| value.as_str());
        sentence.unwrap_or_else(|| panic!("{}: no message in {body}", self.request)).to_owned()
    }

    /// Checks what must hold for every answer.
    #[track_caller]
    pub fn check(self) -> Self {
        let id = self.header("x-openstack-request-id").unwrap_or_default();
        assert!(id.starts_with("req-") && id.len() == 40, "{}: request id {id:?}", self.request);
        let busy = self.status == 503 && self.header("retry-after").is_some();
        assert!(
            self.status < 500 || self.status == 501 || busy,
            "{}: {}",
            self.request,
            self.text()
        );
        let text = self.text();
        for inside in ["Traceback", "panicked", "rusqlite", "SQLSTATE", ".rs:", "src/"] {
            assert!(!text.contains(inside), "{}: {inside} shows in {text}", self.request);
        }
        if self.status >= 400 && !self.body.is_empty() {
            assert!(!self.sentence().is_empty(), "{}", self.request);
        }
        self
    }
}

/// Sends raw bytes and reads until the server closes the connection.
pub fn raw(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    // The server may close before it has read everything; its answer can still be read.
    let sent = stream.write_all(bytes);
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer)
        && answer.is_empty()
    {
        panic!("no answer: {error}; sending: {sent:?}");
    }
    answer
}

/// A connection.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the connection opens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("the timeout is set");
    stream.set_write_timeout(Some(TIMEOUT)).expect("the timeout is set");
    stream
}

/// A client: an address, a token, and headers for every request.
#[derive(Debug, Clone)]
pub struct Session {
    /// The server's address.
    pub address: SocketAddr,
    /// The headers of every request.
    pub headers: Vec<(String, String)>,
}

impl Session {
    /// Without a token.
    pub fn anonymous(address: SocketAddr) -> Self {
        Self { address, headers: vec![("Accept".into(), "application/json".into())] }
    }

    /// The same with one more header.
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut session = self.clone();
        session.headers.retain(|(have, _)| !have.eq_ignore_ascii_case(name));
        session.headers.push((name.into(), value.into()));
        session
    }

    /// The same with a token.
    pub fn token(&self, token: &str) -> Self {
        self.with("X-Auth-Token", token)
    }

    /// Sends one request with raw bytes as its body, and checks the answer with [`Answer::check`].
    #[track_caller]
    pub fn send(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> Answer {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.address);
        for (name, value) in &self.headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if !kind.is_empty() {
            request.push_str(&format!("Content-Type: {kind}\r\n"));
        }
        if !kind.is_empty() || !body.is_empty() {
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        request.push_str("Connection: close\r\n\r\n");
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(120)]).into_owned();
        Answer::parse(&format!("{method} {path} {shown}"), &raw(self.address, &bytes)).check()
    }

    /// Sends one request with a JSON body.
    #[track_caller]
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.send(method, path, "application/json", body.to_string().as_bytes())
    }

    /// GET.
    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", b"")
    }

    /// DELETE.
    #[track_caller]
    pub fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, "", b"")
    }

    /// POST.
    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, body)
    }

    /// PUT.
    #[track_caller]
    pub fn put(&self, path: &str, body: &Value) -> Answer {
        self.ask("PUT", path, body)
    }
}
