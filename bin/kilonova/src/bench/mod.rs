//! `kilonova bench`: a thousand simulated hosts, boots from POST to ACTIVE, what they cost.
//!
//! The measured server is a process of its own; the clients share the machine with it, and on a
//! small one they take a good part of it. So CPU time per boot, which the clients are not in, says
//! more than boots per second.

pub mod accelerators;
mod client;
mod load;
pub mod placement;
mod process;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::client::Client;
use self::load::quantile;
use self::process::Server;
use crate::failure::Failure;

/// How much of it.
pub struct Size<'a> {
    /// Simulated hosts.
    pub hosts: usize,
    /// Servers to boot.
    pub servers: usize,
    /// Clients at once.
    pub clients: usize,
    /// The database, where it is not SQLite.
    pub database: Option<&'a str>,
}

/// A row of the table: what, how much, unit.
pub type Row = (&'static str, f64, &'static str);

/// Runs it and returns the table.
///
/// # Errors
/// When the measured server misbehaves.
pub async fn run(directory: &Path, size: &Size<'_>) -> Result<Vec<Row>, Failure> {
    let nodes = directory.join("nodes.toml");
    std::fs::write(&nodes, topology(size.hosts))
        .map_err(|e| Failure::failed("cannot write the topology", e))?;
    let say = |what: &str| eprintln!("kilonova bench: {what}");
    say("starting the server on an empty state directory");
    let server = Server::start(directory, &nodes, size.database)?;
    let password = password(directory)?;
    let token = load::log_in(&server.address, &password).await?;
    let mut admin = Client::connect(&server.address, &token).await?;
    let registered = wait_for_hosts(&mut admin, size.hosts).await?;
    let flavor = prepare(&mut admin).await?;
    let idle = server.resident_mb();
    say(&format!("booting {} servers with {} clients", size.servers, size.clients));
    let cpu = server.cpu_ms();
    let (boots, ids) =
        load::boot(&server.address, &token, size.clients, size.servers, &flavor).await?;
    let boot_cpu = (server.cpu_ms() - cpu) / boots.ends.len() as f64;
    let full = server.resident_mb();
    let list = list(&mut admin).await?;
    say("starting the server again on what is there");
    server.stop();
    let server = Server::start(directory, &nodes, size.database)?;
    let again: f64 = server.ready.trim_end_matches(" s").parse().unwrap_or(f64::NAN);
    say("deleting them");
    let deletes = load::delete(&server.address, &token, size.clients, ids).await?;
    server.stop();
    let rate = |count: usize, wall: Duration| count as f64 / wall.as_secs_f64();
    Ok(vec![
        ("hosts registered on an empty state directory", registered.as_secs_f64(), "s"),
        ("servers booted", rate(boots.ends.len(), boots.wall), "/s"),
        ("POST p50", quantile(&boots.posts, 0.5), "ms"),
        ("POST p99", quantile(&boots.posts, 0.99), "ms"),
        ("POST to ACTIVE p50", quantile(&boots.ends, 0.5), "ms"),
        ("POST to ACTIVE p99", quantile(&boots.ends, 0.99), "ms"),
        ("CPU per boot, control plane and nodes", boot_cpu, "ms"),
        ("GET /servers/detail of 1000 servers p50", quantile(&list, 0.5), "ms"),
        ("servers deleted", rate(deletes.ends.len(), deletes.wall), "/s"),
        ("resident, hosts registered, no server", idle, "MB"),
        ("resident, all servers booted", full, "MB"),
        ("ready on an existing state directory", again, "s"),
    ])
}

fn topology(hosts: usize) -> String {
    include_str!("../../../../examples/nodes/bench.toml")
        .replace("count = 1000", &format!("count = {hosts}"))
}

fn password(directory: &Path) -> Result<String, Failure> {
    let path = directory.join("state/openrc");
    let text = std::fs::read_to_string(&path)
        .map_err(|e| Failure::failed(&format!("cannot read {}", path.display()), e))?;
    let password = text.lines().find_map(|line| line.strip_prefix("export OS_PASSWORD="));
    Ok(password.unwrap_or_default().to_owned())
}

async fn wait_for_hosts(admin: &mut Client, hosts: usize) -> Result<Duration, Failure> {
    let begun = Instant::now();
    loop {
        let reply = admin.get("/compute/v2.1/os-services?binary=nova-compute").await?;
        if reply.json()["services"].as_array().map_or(0, Vec::len) >= hosts {
            return Ok(begun.elapsed());
        }
        if begun.elapsed() > Duration::from_secs(300) {
            return Err(Failure::Failed(format!(
                "the hosts did not register: {} {}",
                reply.status,
                String::from_utf8_lossy(&reply.body)
            )));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// An image, a flavor with a vGPU, no quota; returns the body of a boot.
async fn prepare(admin: &mut Client) -> Result<Value, Failure> {
    let image = json!({"name": "bench", "disk_format": "raw", "container_format": "bare"});
    let image = admin.post("/image/v2/images", &image).await?.json();
    let id = image["id"].as_str().unwrap_or_default().to_owned();
    let path = format!("/image/v2/images/{id}/file");
    admin.send(hyper::Method::PUT, &path, "application/octet-stream", vec![7; 4096]).await?;
    let flavor = json!({"flavor": {
        "name": "bench", "id": "bench", "ram": 64, "vcpus": 1, "disk": 1,
    }});
    admin.post("/compute/v2.1/flavors", &flavor).await?;
    let specs = json!({"extra_specs": {"resources:VGPU": "1"}});
    admin.post("/compute/v2.1/flavors/bench/os-extra_specs", &specs).await?;
    let class = json!({"quota_class_set": {"instances": -1, "cores": -1, "ram": -1}}).to_string();
    let path = "/compute/v2.1/os-quota-class-sets/default";
    let reply = admin.send(hyper::Method::PUT, path, "application/json", class).await?;
    if reply.status != 200 {
        return Err(Failure::Failed(format!("the quota cannot be lifted: {}", reply.status)));
    }
    Ok(json!({"server": {
        "name": "bench", "imageRef": id, "flavorRef": "bench", "networks": "none",
    }}))
}

async fn list(admin: &mut Client) -> Result<Vec<Duration>, Failure> {
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
