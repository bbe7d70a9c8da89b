//! A mixed load of all kinds of operations in the proportions of [`SHARES`]. Each client has its own
//! servers and takes the least recently used one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hyper::Method;
use kilonova_program::Failure;
use serde_json::{Value, json};

use super::client::{Client, Reply};
use super::cloud::BootRequest;
use super::load::Endpoint;
use super::progress::Progress;

/// How often a client polls its server.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The time limit of an operation.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Boot a server until it is `ACTIVE`.
    Create,
    /// Resize to the other flavor on another host, and confirm.
    Resize,
    /// Cold-migrate to another host, and confirm.
    Cold,
    /// Live-migrate to another host.
    Live,
    /// Delete a server until it is gone.
    Delete,
}

/// The share of each kind, in percent.
pub const SHARES: [(Kind, &str, u32); 5] = [
    (Kind::Create, "create", 35),
    (Kind::Resize, "resize and confirm", 15),
    (Kind::Cold, "cold migrate and confirm", 10),
    (Kind::Live, "live migrate", 10),
    (Kind::Delete, "delete", 30),
];

/// The measurements of the mixed load.
#[derive(Debug, Default)]
pub struct Mixed {
    /// Wall time of the whole load.
    pub wall: Duration,
    /// Durations from the request to its result, by the index in [`SHARES`].
    pub durations: [Vec<Duration>; SHARES.len()],
    /// Failed operations with their answers.
    pub failed: Vec<String>,
    /// The remaining servers.
    pub servers: Vec<String>,
}

impl Mixed {
    /// The number of successful operations.
    pub fn count(&self) -> usize {
        self.durations.iter().map(Vec::len).sum()
    }

    /// Successful operations per second.
    pub fn per_second(&self) -> f64 {
        self.count() as f64 / self.wall.as_secs_f64()
    }
}

/// Runs `count` operations on `servers` and new servers.
///
/// # Errors
/// When the server does not answer, or an operation exceeds its time limit.
pub async fn run(
    endpoint: Endpoint<'_>,
    boot_request: &BootRequest,
    count: usize,
    servers: Vec<String>,
    progress: &Arc<Progress>,
) -> Result<Mixed, Failure> {
    let next = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let mut tasks = Vec::new();
    let share = servers.len().div_ceil(endpoint.clients).max(1);
    let mut shares = servers.chunks(share);
    for _ in 0..endpoint.clients {
        let servers = shares.next().unwrap_or_default().to_vec();
        let client = Client::connect(endpoint.address, endpoint.token).await?;
        let mut mixed_client = MixedClient {
            client,
            boot_request: boot_request.0.clone(),
            servers,
            result: Mixed::default(),
        };
        let (next, progress) = (Arc::clone(&next), Arc::clone(progress));
        tasks.push(tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    break;
                }
                mixed_client.operation(number).await?;
                progress.step();
            }
            Ok::<_, Failure>(Mixed { servers: mixed_client.servers, ..mixed_client.result })
        }));
    }
    let mut all = Mixed::default();
    for task in tasks {
        let result =
            task.await.map_err(|e| Failure::failed("the task of a client failed", e))??;
        for (durations, more) in all.durations.iter_mut().zip(result.durations) {
            durations.extend(more);
        }
        all.failed.extend(result.failed);
        all.servers.extend(result.servers);
    }
    all.wall = begun.elapsed();
    Ok(all)
}

/// A client and its servers.
struct MixedClient {
    client: Client,
    boot_request: Value,
    servers: Vec<String>,
    result: Mixed,
}

impl MixedClient {
    async fn operation(&mut self, number: usize) -> Result<(), Failure> {
        let kind_index = if self.servers.is_empty() { 0 } else { choose(number) };
        let begun = Instant::now();
        let server = match SHARES[kind_index].0 {
            Kind::Create => None,
            _ => self.servers.pop(),
        };
        let ended = match (SHARES[kind_index].0, &server) {
            (Kind::Create, _) | (_, None) => self.create().await?,
            (Kind::Delete, Some(server)) => self.delete(server).await?,
            (kind, Some(server)) => self.change(kind, server).await?,
        };
        match ended {
            Ok(()) => self.result.durations[kind_index].push(begun.elapsed()),
            Err(why) => self.result.failed.push(format!("{}: {why}", SHARES[kind_index].1)),
        }
        if let Some(server) = server.filter(|_| SHARES[kind_index].0 != Kind::Delete) {
            // The next operation takes another server.
            self.servers.insert(0, server);
        }
        Ok(())
    }

    async fn create(&mut self) -> Result<Result<(), String>, Failure> {
        let body = self.boot_request.to_string();
        let reply =
            self.client.send(Method::POST, "/compute/v2.1/servers", "application/json", body);
        let reply = reply.await?;
        if reply.status != 202 {
            return Ok(Err(describe(&reply)));
        }
        let id = reply.json()["server"]["id"].as_str().unwrap_or_default().to_owned();
        let ended = self.wait_for_status(&id, "ACTIVE").await?;
        self.servers.insert(0, id);
        Ok(ended.map(drop))
    }

    async fn delete(&mut self, server: &str) -> Result<Result<(), String>, Failure> {
        let path = format!("/compute/v2.1/servers/{server}");
        let reply = self.client.send(Method::DELETE, &path, "application/json", "").await?;
        if reply.status != 204 {
            return Ok(Err(describe(&reply)));
        }
        let begun = Instant::now();
        while self.client.get(&path).await?.status != 404 {
            if begun.elapsed() > TIMEOUT {
                return Err(Failure::Failed(format!("server {server} is not deleted")));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(Ok(()))
    }

    /// Resizes or migrates the server, and checks that its host has changed.
    async fn change(&mut self, kind: Kind, server: &str) -> Result<Result<(), String>, Failure> {
        let before = self.show(server).await?;
        let flavor = before["flavor"]["original_name"].as_str().unwrap_or_default();
        let other =
            if flavor == BootRequest::SMALL { BootRequest::LARGE } else { BootRequest::SMALL };
        let (action, end) = match kind {
            Kind::Resize => (json!({"resize": {"flavorRef": other}}), "VERIFY_RESIZE"),
            Kind::Cold => (json!({"migrate": null}), "VERIFY_RESIZE"),
            _ => {
                let live = json!({"host": null, "block_migration": "auto"});
                (json!({"os-migrateLive": live}), "ACTIVE")
            }
        };
        let mut after = match self.act(server, action, end).await? {
            Ok(after) => after,
            Err(why) => return Ok(Err(why)),
        };
        if end == "VERIFY_RESIZE" {
            after = match self.act(server, json!({"confirmResize": null}), "ACTIVE").await? {
                Ok(after) => after,
                Err(why) => return Ok(Err(why)),
            };
        }
        let host = "OS-EXT-SRV-ATTR:host";
        if before[host] == after[host] {
            return Ok(Err(format!("server {server} is still on {}", before[host])));
        }
        Ok(Ok(()))
    }

    async fn act(
        &mut self,
        server: &str,
        action: Value,
        end: &str,
    ) -> Result<Result<Value, String>, Failure> {
        let path = format!("/compute/v2.1/servers/{server}/action");
        let body = action.to_string();
        let reply = self.client.send(Method::POST, &path, "application/json", body).await?;
        if reply.status >= 300 {
            return Ok(Err(describe(&reply)));
        }
        self.wait_for_status(server, end).await
    }

    /// Waits until the server has this status and no task state.
    async fn wait_for_status(
        &mut self,
        server: &str,
        status: &str,
    ) -> Result<Result<Value, String>, Failure> {
        let begun = Instant::now();
        loop {
            let shown = self.show(server).await?;
            let is_idle = shown["OS-EXT-STS:task_state"].is_null();
            match shown["status"].as_str() {
                Some(is) if is == status && is_idle => return Ok(Ok(shown)),
                Some("ERROR") | None => return Ok(Err(shown.to_string())),
                Some(is) if begun.elapsed() > TIMEOUT => {
                    let why = format!("server {server} is {is}, not {status}: {shown}");
                    return Err(Failure::Failed(why));
                }
                Some(_) => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }

    async fn show(&mut self, server: &str) -> Result<Value, Failure> {
        let reply = self.client.get(&format!("/compute/v2.1/servers/{server}")).await?;
        Ok(reply.json()["server"].take())
    }
}

/// The index of the operation's kind: each hundred consecutive operations have exactly the shares,
/// interleaved.
fn choose(number: usize) -> usize {
    let mut left = (number * 37 % 100) as u32;
    for (kind_index, (_, _, share)) in SHARES.iter().enumerate() {
        if left < *share {
            return kind_index;
        }
        left -= share;
    }
    0
}

fn describe(reply: &Reply) -> String {
    format!("{} {}", reply.status, String::from_utf8_lossy(&reply.body))
}

#[cfg(test)]
mod tests {
    use super::{SHARES, choose};

    #[test]
    fn of_a_hundred_operations_each_kind_has_its_share() {
        let mut counts = [0; SHARES.len()];
        (0..100).for_each(|number| counts[choose(number)] += 1);
        assert_eq!(counts, SHARES.map(|(_, _, share)| share));
    }
}
