//! All kinds of operations at once, [`SHARES`] of each. Each client has servers of its own and takes
//! the one that it has not touched for longest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hyper::Method;
use kilonova_program::Failure;
use serde_json::{Value, json};

use super::client::{Client, Reply};
use super::cloud::Wish;
use super::load::Door;
use super::progress::Progress;

/// How often a client looks whether the server is as wanted.
const LOOK: Duration = Duration::from_millis(10);
/// After this an operation counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Boot one more, to `ACTIVE`.
    Create,
    /// To the other flavor and another host, and confirm.
    Resize,
    /// To another host, and confirm.
    Cold,
    /// To another host while it runs.
    Live,
    /// Until it is gone.
    Delete,
}

/// Of 100 operations so many are of each kind.
pub const SHARES: [(Kind, &str, u32); 5] = [
    (Kind::Create, "create", 35),
    (Kind::Resize, "resize and confirm", 15),
    (Kind::Cold, "cold migrate and confirm", 10),
    (Kind::Live, "live migrate", 10),
    (Kind::Delete, "delete", 30),
];

/// What the mixed load came to.
#[derive(Debug, Default)]
pub struct Mixed {
    /// Wall time of the whole load.
    pub wall: Duration,
    /// From the request to the wished end, by the place in [`SHARES`].
    pub ends: [Vec<Duration>; SHARES.len()],
    /// Operations that came to another end, with the first's words.
    pub failed: Vec<String>,
    /// The servers that are there now.
    pub servers: Vec<String>,
}

impl Mixed {
    /// How many operations came to their end.
    pub fn count(&self) -> usize {
        self.ends.iter().map(Vec::len).sum()
    }

    /// How many of them in a second.
    pub fn per_second(&self) -> f64 {
        self.count() as f64 / self.wall.as_secs_f64()
    }
}

/// Does `count` operations on `servers` and new ones.
///
/// # Errors
/// When the server does not answer, or an operation is stuck.
pub async fn run(
    door: Door<'_>,
    wish: &Wish,
    count: usize,
    servers: Vec<String>,
    progress: &Arc<Progress>,
) -> Result<Mixed, Failure> {
    let next = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let mut tasks = Vec::new();
    let share = servers.len().div_ceil(door.clients).max(1);
    let mut shares = servers.chunks(share);
    for _ in 0..door.clients {
        let servers = shares.next().unwrap_or_default().to_vec();
        let client = Client::connect(door.address, door.token).await?;
        let mut one = One { client, wish: wish.0.clone(), servers, result: Mixed::default() };
        let (next, progress) = (Arc::clone(&next), Arc::clone(progress));
        tasks.push(tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    break;
                }
                one.operation(number).await?;
                progress.one();
            }
            Ok::<_, Failure>(Mixed { servers: one.servers, ..one.result })
        }));
    }
    let mut all = Mixed::default();
    for task in tasks {
        let result = task.await.map_err(|e| Failure::failed("a client broke", e))??;
        for (ends, more) in all.ends.iter_mut().zip(result.ends) {
            ends.extend(more);
        }
        all.failed.extend(result.failed);
        all.servers.extend(result.servers);
    }
    all.wall = begun.elapsed();
    Ok(all)
}

/// A client and its servers.
struct One {
    client: Client,
    wish: Value,
    servers: Vec<String>,
    result: Mixed,
}

impl One {
    async fn operation(&mut self, number: usize) -> Result<(), Failure> {
        let place = if self.servers.is_empty() { 0 } else { choose(number) };
        let begun = Instant::now();
        let server = match SHARES[place].0 {
            Kind::Create => None,
            _ => self.servers.pop(),
        };
        let ended = match (SHARES[place].0, &server) {
            (Kind::Create, _) | (_, None) => self.create().await?,
            (Kind::Delete, Some(server)) => self.delete(server).await?,
            (kind, Some(server)) => self.change(kind, server).await?,
        };
        match ended {
            Ok(()) => self.result.ends[place].push(begun.elapsed()),
            Err(why) => self.result.failed.push(format!("{}: {why}", SHARES[place].1)),
        }
        if let Some(server) = server.filter(|_| SHARES[place].0 != Kind::Delete) {
            // Another one is next.
            self.servers.insert(0, server);
        }
        Ok(())
    }

    async fn create(&mut self) -> Result<Result<(), String>, Failure> {
        let body = self.wish.to_string();
        let reply =
            self.client.send(Method::POST, "/compute/v2.1/servers", "application/json", body);
        let reply = reply.await?;
        if reply.status != 202 {
            return Ok(Err(said(&reply)));
        }
        let id = reply.json()["server"]["id"].as_str().unwrap_or_default().to_owned();
        let ended = self.until(&id, "ACTIVE").await?;
        self.servers.insert(0, id);
        Ok(ended.map(drop))
    }

    async fn delete(&mut self, server: &str) -> Result<Result<(), String>, Failure> {
        let path = format!("/compute/v2.1/servers/{server}");
        let reply = self.client.send(Method::DELETE, &path, "application/json", "").await?;
        if reply.status != 204 {
            return Ok(Err(said(&reply)));
        }
        let begun = Instant::now();
        while self.client.get(&path).await?.status != 404 {
            if begun.elapsed() > PATIENCE {
                return Err(Failure::Failed(format!("server {server} is not deleted")));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(Ok(()))
    }

    /// Resizes or migrates, and looks that the server has gone to another host.
    async fn change(&mut self, kind: Kind, server: &str) -> Result<Result<(), String>, Failure> {
        let before = self.look(server).await?;
        let flavor = before["flavor"]["original_name"].as_str().unwrap_or_default();
        let other = if flavor == Wish::SMALL { Wish::LARGE } else { Wish::SMALL };
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
            return Ok(Err(said(&reply)));
        }
        self.until(server, end).await
    }

    /// Waits until the server has that status and nothing goes on with it.
    async fn until(
        &mut self,
        server: &str,
        status: &str,
    ) -> Result<Result<Value, String>, Failure> {
        let begun = Instant::now();
        loop {
            let shown = self.look(server).await?;
            let rests = shown["OS-EXT-STS:task_state"].is_null();
            match shown["status"].as_str() {
                Some(is) if is == status && rests => return Ok(Ok(shown)),
                Some("ERROR") | None => return Ok(Err(shown.to_string())),
                Some(is) if begun.elapsed() > PATIENCE => {
                    let why = format!("server {server} is {is}, not {status}: {shown}");
                    return Err(Failure::Failed(why));
                }
                Some(_) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    async fn look(&mut self, server: &str) -> Result<Value, Failure> {
        let reply = self.client.get(&format!("/compute/v2.1/servers/{server}")).await?;
        Ok(reply.json()["server"].take())
    }
}

/// The kind of an operation: of each hundred in a row exactly the shares, well mixed.
fn choose(number: usize) -> usize {
    let mut left = (number * 37 % 100) as u32;
    for (place, (_, _, share)) in SHARES.iter().enumerate() {
        if left < *share {
            return place;
        }
        left -= share;
    }
    0
}

fn said(reply: &Reply) -> String {
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
