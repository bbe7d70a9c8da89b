//! The load: boots from POST to ACTIVE, lists, deletes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kilonova_program::Failure;
use serde_json::{Value, json};

use super::client::Client;
use super::progress::Progress;

/// How often a client looks whether its server is ACTIVE.
const LOOK: Duration = Duration::from_millis(10);
/// After this a boot or a delete counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a load came to.
#[derive(Debug, Default)]
pub struct Measured {
    /// Wall time of the whole load.
    pub wall: Duration,
    /// Of the single requests.
    pub posts: Vec<Duration>,
    /// From the request to the wished end.
    pub ends: Vec<Duration>,
    /// How often clients looked whether it was there.
    pub looks: usize,
}

impl Measured {
    /// How many came to their end in a second.
    pub fn per_second(&self) -> f64 {
        self.ends.len() as f64 / self.wall.as_secs_f64()
    }
}

/// A server to speak to, and how.
#[derive(Clone, Copy)]
pub struct Door<'a> {
    /// `127.0.0.1:1234`.
    pub address: &'a str,
    /// An admin's.
    pub token: &'a str,
    /// Clients at once.
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
    reply.token.ok_or_else(|| Failure::Failed("the login gave no token".into()))
}

/// Boots `count` servers with `clients` clients and returns their ids.
///
/// # Errors
/// When one does not become ACTIVE.
pub async fn boot(
    Door { address, token, clients }: Door<'_>,
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
                    result.looks += 1;
                    match server["server"]["status"].as_str() {
                        Some("ACTIVE") => break,
                        Some("BUILD") if sent.elapsed() < PATIENCE => {}
                        _ => return Err(Failure::Failed(format!("a boot failed: {server}"))),
                    }
                    tokio::time::sleep(LOOK).await;
                }
                result.ends.push(sent.elapsed());
                progress.one();
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
/// When one stays.
pub async fn delete(
    Door { address, token, clients }: Door<'_>,
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
                    result.looks += 1;
                    if sent.elapsed() > PATIENCE {
                        return Err(Failure::Failed(format!("server {id} is not deleted")));
                    }
                    tokio::time::sleep(LOOK).await;
                }
                result.ends.push(sent.elapsed());
                progress.one();
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
        let (result, more) = task.await.map_err(|e| Failure::failed("a client broke", e))??;
        all.posts.extend(result.posts);
        all.ends.extend(result.ends);
        all.looks += result.looks;
        ids.extend(more);
    }
    all.wall = begun.elapsed();
    Ok((all, ids))
}

/// Lists 1,000 servers with all that is known of them, again and again.
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

/// The `quantile` of some durations, in milliseconds.
pub fn quantile(durations: &[Duration], quantile: f64) -> f64 {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    let index = ((sorted.len() as f64 - 1.0) * quantile).round().max(0.0) as usize;
    sorted.get(index).map_or(0.0, |d| d.as_secs_f64() * 1000.0)
}
