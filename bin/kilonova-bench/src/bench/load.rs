//! The load: boots from POST to ACTIVE, lists, deletes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kilonova_program::Failure;
use serde_json::{Value, json};

use super::client::Client;
use super::progress::Progress;

/// How often a client polls its server.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The time limit of a boot or a delete.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The measurements of a load.
#[derive(Debug, Default)]
pub struct Measured {
    /// Wall time of the whole load.
    pub wall: Duration,
    /// Durations of the single requests.
    pub posts: Vec<Duration>,
    /// Durations from the request to its result.
    pub durations: Vec<Duration>,
    /// Polls of all clients.
    pub polls: usize,
}

impl Measured {
    /// Results per second.
    pub fn per_second(&self) -> f64 {
        self.durations.len() as f64 / self.wall.as_secs_f64()
    }

    /// Merges the measurements of two concurrent loads.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.wall = self.wall.max(other.wall);
        self.posts.extend(other.posts);
        self.durations.extend(other.durations);
        self.polls += other.polls;
        self
    }
}

/// The measured server and the load's clients.
#[derive(Clone, Copy)]
pub struct Endpoint<'a> {
    /// `127.0.0.1:1234`.
    pub address: &'a str,
    /// An admin's token.
    pub token: &'a str,
    /// Concurrent clients.
    pub clients: usize,
}

/// Logs in as the admin of a state directory.
///
/// # Errors
/// When the server does not answer.
pub async fn log_in(address: &str, password: &str) -> Result<String, Failure> {
    let domain = json!({"name": "Default"});
    let user = json!({"name": "admin", "domain": domain, "password": password});
    let body = json!({"auth": {
        "identity": {"methods": ["password"], "password": {"user": user}},
        "scope": {"project": {"name": "admin", "domain": domain}},
    }});
    let mut client = Client::connect(address, "").await?;
    let reply = client.post("/identity/v3/auth/tokens", &body).await?;
    reply.token.ok_or_else(|| Failure::Failed("the login returned no token".into()))
}

/// Boots `count` servers with `clients` clients and returns their ids.
///
/// # Errors
/// When a server does not become ACTIVE.
pub async fn boot(
    Endpoint { address, token, clients }: Endpoint<'_>,
    count: usize,
    body: &Value,
    progress: &Arc<Progress>,
) -> Result<(Measured, Vec<String>), Failure> {
    let next = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let mut client = Client::connect(address, token).await?;
        let (next, body, progress) = (Arc::clone(&next), body.clone(), Arc::clone(progress));
        tasks.push(tokio::spawn(async move {
            let (mut result, mut ids) = (Measured::default(), Vec::new());
            while next.fetch_add(1, Ordering::Relaxed) < count {
                let sent = Instant::now();
                let reply = client.post("/compute/v2.1/servers", &body).await?.json();
                result.posts.push(sent.elapsed());
                let id = reply["server"]["id"].as_str().unwrap_or_default().to_owned();
                let path = format!("/compute/v2.1/servers/{id}");
                loop {
                    let server = client.get(&path).await?.json();
                    result.polls += 1;
                    match server["server"]["status"].as_str() {
                        Some("ACTIVE") => break,
                        Some("BUILD") if sent.elapsed() < TIMEOUT => {}
                        _ => return Err(Failure::Failed(format!("a boot failed: {server}"))),
                    }
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                result.durations.push(sent.elapsed());
                progress.step();
                ids.push(id);
            }
            Ok((result, ids))
        }));
    }
    collect(tasks, begun).await
}

/// Deletes servers and waits until each is gone.
///
/// # Errors
/// When a server is not deleted in time.
pub async fn delete(
    Endpoint { address, token, clients }: Endpoint<'_>,
    ids: Vec<String>,
    progress: &Arc<Progress>,
) -> Result<Measured, Failure> {
    let ids = Arc::new(ids);
    let next = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let mut client = Client::connect(address, token).await?;
        let (next, ids, progress) = (Arc::clone(&next), Arc::clone(&ids), Arc::clone(progress));
        tasks.push(tokio::spawn(async move {
            let mut result = Measured::default();
            while let Some(id) = ids.get(next.fetch_add(1, Ordering::Relaxed)) {
                let path = format!("/compute/v2.1/servers/{id}");
                let sent = Instant::now();
                client.send(hyper::Method::DELETE, &path, "application/json", "").await?;
                result.posts.push(sent.elapsed());
                while client.get(&path).await?.status != 404 {
                    result.polls += 1;
                    if sent.elapsed() > TIMEOUT {
                        return Err(Failure::Failed(format!("server {id} is not deleted")));
                    }
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                result.durations.push(sent.elapsed());
                progress.step();
            }
            Ok((result, Vec::new()))
        }));
    }
    Ok(collect(tasks, begun).await?.0)
}

type Task = tokio::task::JoinHandle<Result<(Measured, Vec<String>), Failure>>;

async fn collect(tasks: Vec<Task>, begun: Instant) -> Result<(Measured, Vec<String>), Failure> {
    let (mut all, mut ids) = (Measured::default(), Vec::new());
    for task in tasks {
        let (result, more) =
            task.await.map_err(|e| Failure::failed("the task of a client failed", e))??;
        all.posts.extend(result.posts);
        all.durations.extend(result.durations);
        all.polls += result.polls;
        ids.extend(more);
    }
    all.wall = begun.elapsed();
    Ok((all, ids))
}

/// Lists 1,000 servers in detail, repeatedly.
///
/// # Errors
/// When the answer is not 200.
pub async fn list(admin: &mut Client) -> Result<Vec<Duration>, Failure> {
    let mut times = Vec::new();
    for _ in 0..21 {
        let begun = Instant::now();
        let reply = admin.get("/compute/v2.1/servers/detail?limit=1000").await?;
        times.push(begun.elapsed());
        if reply.status != 200 {
            return Err(Failure::Failed(format!("GET /servers/detail: {}", reply.status)));
        }
    }
    Ok(times)
}

/// The `quantile` of durations, in milliseconds.
pub fn quantile(durations: &[Duration], quantile: f64) -> f64 {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    let index = ((sorted.len() as f64 - 1.0) * quantile).round().max(0.0) as usize;
    sorted.get(index).map_or(0.0, |d| d.as_secs_f64() * 1000.0)
}
