//! Measures one kind of request, sent by several clients for some time: durations, and CPU time and
//! memory of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hyper::Method;
use kilonova_program::Failure;
use serde_json::{Value, json};

use super::super::client::Client;
use super::super::load::quantile;
use super::super::process;

/// A server that is measured.
pub struct Target {
    /// `127.0.0.1:1234`.
    pub address: String,
    /// The source of its CPU time and memory.
    pub meter: Meter,
}

/// A source of a server's CPU time and memory.
pub enum Meter {
    /// A process.
    Process(u32),
    /// A command that prints `rss_kb cpu_s database_cpu_s`.
    Command(String),
}

/// CPU time and memory of a server so far.
pub struct Cost {
    /// User and system time.
    pub cpu_ms: f64,
    /// Resident memory.
    pub resident_mb: f64,
}

impl Meter {
    /// Reads the current values.
    pub fn read(&self) -> Result<Cost, Failure> {
        match self {
            Self::Process(id) => {
                Ok(Cost { cpu_ms: process::cpu_ms(*id), resident_mb: process::resident_mb(*id) })
            }
            Self::Command(command) => {
                let output = std::process::Command::new("sh").arg("-c").arg(command).output();
                let output = output.map_err(|e| Failure::failed("cannot run the meter", e))?;
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                let numbers: Vec<f64> =
                    text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
                match numbers.as_slice() {
                    [resident_kb, cpu_s, rest @ ..] => Ok(Cost {
                        cpu_ms: (cpu_s + rest.iter().sum::<f64>()) * 1000.0,
                        resident_mb: resident_kb / 1000.0,
                    }),
                    _ => Err(Failure::Failed(format!("`{command}` printed {text:?}"))),
                }
            }
        }
    }
}

/// A request: method, path, body.
pub type Request = (Method, String, String);

/// The figures of one kind of request.
pub struct Row {
    what: String,
    clients: usize,
    count: usize,
    per_second: f64,
    cpu_ms: f64,
    p50: f64,
    p99: f64,
    kilobytes: f64,
    resident_mb: f64,
}

impl Row {
    /// The head of the table.
    pub const HEAD: &str = "request                                      clients  requests  CPU ms   \
                            p50 ms   p99 ms     per s    KB each   MB resident";

    /// The number of requests.
    pub fn count(&self) -> usize {
        self.count
    }

    /// As one JSON value.
    pub fn json(&self) -> Value {
        json!({
            "request": self.what, "clients": self.clients, "requests": self.count,
            "cpu_ms": self.cpu_ms, "p50_ms": self.p50, "p99_ms": self.p99,
            "per_second": self.per_second, "kilobytes": self.kilobytes,
            "resident_mb": self.resident_mb,
        })
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, clients, count, cpu_ms, p50, p99, .. } = self;
        let Self { per_second, kilobytes, resident_mb, .. } = self;
        write!(
            f,
            "{what:46} {clients:5} {count:9} {cpu_ms:7.2} {p50:8.2} {p99:8.2} {per_second:9.1} \
             {kilobytes:10.1} {resident_mb:13.0}"
        )
    }
}

/// Sends requests of one kind for `duration`, at least three per client. Every answer must be 2xx or
/// lower.
pub async fn measure(
    target: &Target,
    what: &str,
    clients: usize,
    duration: Duration,
    request: impl Fn(usize) -> Request + Clone + Send + 'static,
) -> Result<Row, Failure> {
    let mut connected = Vec::new();
    for _ in 0..clients {
        let client = Client::connect(&target.address, "admin").await?;
        connected.push(client.with_version("placement 1.39"));
    }
    let next = Arc::new(AtomicUsize::new(0));
    let before = target.meter.read()?;
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for mut client in connected {
        let (next, request) = (Arc::clone(&next), request.clone());
        tasks.push(tokio::spawn(async move {
            let (mut times, mut bytes) = (Vec::new(), 0);
            while begun.elapsed() < duration || times.len() < 3 {
                let (method, path, body) = request(next.fetch_add(1, Ordering::Relaxed));
                let sent = Instant::now();
                let reply = client.send(method, &path, "application/json", body).await?;
                times.push(sent.elapsed());
                bytes += reply.body.len();
                if reply.status >= 300 {
                    let message = String::from_utf8_lossy(&reply.body).into_owned();
                    return Err(Failure::Failed(format!("{path}: {} {message}", reply.status)));
                }
            }
            Ok((times, bytes))
        }));
    }
    let (mut times, mut bytes) = (Vec::new(), 0);
    for task in tasks {
        let (more, read) =
            task.await.map_err(|e| Failure::failed("the task of a client failed", e))??;
        times.extend(more);
        bytes += read;
    }
    let wall = begun.elapsed().as_secs_f64();
    let after = target.meter.read()?;
    let count = times.len();
    Ok(Row {
        what: what.to_owned(),
        clients,
        count,
        per_second: count as f64 / wall,
        cpu_ms: (after.cpu_ms - before.cpu_ms) / count as f64,
        p50: quantile(&times, 0.5),
        p99: quantile(&times, 0.99),
        kilobytes: bytes as f64 / 1000.0 / count as f64,
        resident_mb: after.resident_mb,
    })
}
