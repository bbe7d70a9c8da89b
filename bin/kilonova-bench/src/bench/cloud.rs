//! A running cloud: `kilonova serve` on its own state directory, simulated hosts inside it or in
//! another process, an admin's token, and the body of a boot.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hyper::Method;
use kilonova_program::Failure;
use serde_json::{Value, json};

use super::client::Client;
use super::load;
use super::process::{Nodes, Server};
use super::progress::Progress;

const TOPOLOGY: &str = include_str!("../../../../examples/nodes/bench.toml");
/// Number of hosts at the end of the list that are polled, as hosts register out of order.
const TAIL: usize = 64;
/// The time limit for the registration of all hosts.
const REGISTER: Duration = Duration::from_secs(480);

/// The parameters of a cloud.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    /// Number of hosts with eight GPUs each.
    pub hosts: usize,
    /// Number of vGPUs per GPU.
    pub vgpus: usize,
    /// True if the hosts run in a separate process.
    pub apart: bool,
    /// The database URL, unless it is SQLite.
    pub database: Option<&'a str>,
}

/// The cloud.
pub struct Cloud {
    directory: PathBuf,
    nodes: PathBuf,
    database: Option<String>,
    /// The controller, with the hosts unless they run in another process.
    pub server: Server,
    /// The hosts, if they run in another process.
    pub apart: Option<Nodes>,
    /// An admin's token.
    pub token: String,
    /// An admin's connection.
    pub admin: Client,
    /// The number of hosts.
    pub hosts: usize,
    metrics: String,
}

impl Cloud {
    /// Starts a cloud in an empty folder below `directory`, without hosts in another process.
    ///
    /// # Errors
    /// When the server does not become ready.
    pub async fn start(directory: &Path, name: &str, plan: &Plan<'_>) -> Result<Self, Failure> {
        let directory = directory.join(name);
        let nodes = directory.join("nodes.toml");
        std::fs::create_dir_all(&directory)
            .and_then(|()| std::fs::write(&nodes, topology(plan)))
            .map_err(|e| Failure::failed("cannot write the topology", e))?;
        let inside = (!plan.apart).then_some(nodes.as_path());
        let server = Server::start(&directory, inside, plan.database)?;
        let password = password(&directory)?;
        let token = load::log_in(&server.address, &password).await?;
        let admin = Client::connect(&server.address, &token).await?;
        let metrics = directory.join("state/metrics.token");
        let metrics = std::fs::read_to_string(&metrics)
            .map_err(|e| Failure::failed(&format!("cannot read {}", metrics.display()), e))?;
        let database = plan.database.map(str::to_owned);
        let (hosts, metrics) = (plan.hosts, metrics.trim().to_owned());
        Ok(Self { directory, nodes, database, server, apart: None, token, admin, hosts, metrics })
    }

    /// Starts the hosts in a separate process.
    ///
    /// # Errors
    /// When the process does not start.
    pub fn start_hosts(&mut self) -> Result<(), Failure> {
        self.apart = Some(Nodes::start(&self.directory, &self.server.address, &self.nodes)?);
        Ok(())
    }

    /// Waits until all hosts have registered. Polls the last hosts only, to keep the load small.
    ///
    /// # Errors
    /// When a host has not registered within [`REGISTER`].
    pub async fn wait_for_hosts(&mut self) -> Result<Duration, Failure> {
        let progress = Progress::begin(format!("{} hosts register", self.hosts), 1);
        let begun = Instant::now();
        let width = self.hosts.to_string().len();
        for number in self.hosts.saturating_sub(TAIL) + 1..=self.hosts {
            let host = format!("bench{number:0width$}");
            let path = format!("/compute/v2.1/os-services?binary=nova-compute&host={host}");
            while self.admin.get(&path).await?.json()["services"]
                .as_array()
                .is_none_or(Vec::is_empty)
            {
                if begun.elapsed() > REGISTER {
                    return Err(Failure::Failed(format!("host {host} did not register")));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        progress.step();
        Ok(begun.elapsed())
    }

    /// The number of hosts that the compute API lists.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn known_hosts(&mut self) -> Result<usize, Failure> {
        let reply = self.admin.get("/compute/v2.1/os-services?binary=nova-compute").await?;
        Ok(reply.json()["services"].as_array().map_or(0, Vec::len))
    }

    /// Waits until the server is idle, for at most two minutes; returns the CPU milliseconds that it
    /// has used.
    ///
    /// # Errors
    /// When the metrics cannot be read.
    pub async fn wait_until_settled(&self) -> Result<f64, Failure> {
        let _progress = Progress::begin("waiting until the server is idle", 1);
        let begun = Instant::now();
        loop {
            let before = self.server.cpu_ms();
            tokio::time::sleep(Duration::from_secs(1)).await;
            let used = self.server.cpu_ms();
            let late = begun.elapsed() > Duration::from_secs(120);
            if used - before > 150.0 && !late {
                continue;
            }
            // Low CPU use may only mean that the machine is busy; the statements prove that it is idle.
            let statements = self.statements().await?;
            tokio::time::sleep(Duration::from_secs(2)).await;
            if late || self.statements().await? <= statements {
                return Ok(used);
            }
        }
    }

    /// CPU milliseconds per idle second.
    pub async fn idle_cpu_ms(&self, seconds: u64) -> f64 {
        let _progress = Progress::begin("measuring the idle server", 1);
        let before = self.server.cpu_ms();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        (self.server.cpu_ms() - before) / seconds as f64
    }

    /// Statements that requests of clients and agents have run so far.
    ///
    /// # Errors
    /// When the metrics cannot be read.
    pub async fn statements(&self) -> Result<f64, Failure> {
        let text = self.metrics_of(&self.server).await?;
        metric(&text, "kilonova_statements_total{whose=\"requests\"}")
    }

    /// The metrics of a controller of this cloud.
    ///
    /// # Errors
    /// When the controller does not answer.
    pub async fn metrics_of(&self, server: &Server) -> Result<String, Failure> {
        let bearer = format!("Bearer {}", self.metrics);
        let mut client = Client::connect(&server.address, "").await?.with_bearer(bearer);
        let reply = client.get("/metrics").await?;
        Ok(String::from_utf8_lossy(&reply.body).into_owned())
    }

    /// Statements of one `GET /servers/{id}`.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn statements_per_get(&mut self, server: &str) -> Result<f64, Failure> {
        const GETS: usize = 20;
        let path = format!("/compute/v2.1/servers/{server}");
        let before = self.statements().await?;
        for _ in 0..GETS {
            self.admin.get(&path).await?;
        }
        Ok((self.statements().await? - before) / GETS as f64)
    }

    /// Restarts the server on its state directory; returns the seconds that it reports for becoming
    /// ready.
    ///
    /// # Errors
    /// When the server does not become ready.
    pub async fn restart(self) -> Result<(Self, f64), Failure> {
        let Self { directory, nodes, database, server, apart, token, hosts, metrics, .. } = self;
        server.stop();
        let inside = apart.is_none().then_some(nodes.as_path());
        let server = Server::start(&directory, inside, database.as_deref())?;
        let ready = server.ready.trim_end_matches(" s").parse().unwrap_or(f64::NAN);
        let admin = Client::connect(&server.address, &token).await?;
        Ok((
            Self { directory, nodes, database, server, apart, token, admin, hosts, metrics },
            ready,
        ))
    }

    /// Stops the cloud and removes its directory.
    pub fn end(self) {
        let directory = self.directory.clone();
        drop(self);
        if let Err(error) = std::fs::remove_dir_all(&directory) {
            eprintln!("kilonova-bench: cannot remove {}: {error}", directory.display());
        }
    }

    /// Creates an image, two flavors with a vGPU, and a quota that is enforced but never reached.
    ///
    /// # Errors
    /// When a request is refused.
    pub async fn seed(&mut self) -> Result<BootRequest, Failure> {
        let admin = &mut self.admin;
        let image = json!({"name": "bench", "disk_format": "raw", "container_format": "bare"});
        let image = admin.post("/image/v2/images", &image).await?.json();
        let image = image["id"].as_str().unwrap_or_default().to_owned();
        let path = format!("/image/v2/images/{image}/file");
        admin.send(Method::PUT, &path, "application/octet-stream", vec![7; 4096]).await?;
        for (name, ram) in [(BootRequest::SMALL, 64), (BootRequest::LARGE, 128)] {
            let flavor = json!({"name": name, "id": name, "ram": ram, "vcpus": 1, "disk": 1});
            admin.post("/compute/v2.1/flavors", &json!({"flavor": flavor})).await?;
            let specs = json!({"extra_specs": {"resources:VGPU": "1"}});
            let path = format!("/compute/v2.1/flavors/{name}/os-extra_specs");
            admin.post(&path, &specs).await?;
        }
        let most = 1_000_000_000;
        let class = json!({"instances": most, "cores": most, "ram": most});
        let class = json!({"quota_class_set": class}).to_string();
        let path = "/compute/v2.1/os-quota-class-sets/default";
        let reply = admin.send(Method::PUT, path, "application/json", class).await?;
        if reply.status != 200 {
            return Err(Failure::Failed(format!("the quota cannot be raised: {}", reply.status)));
        }
        Ok(BootRequest(json!({"server": {
            "name": "bench", "imageRef": image, "flavorRef": BootRequest::SMALL, "networks": "none",
        }})))
    }
}

/// A counter of the text of `/metrics`.
///
/// # Errors
/// When the text lacks it.
pub fn metric(text: &str, name: &str) -> Result<f64, Failure> {
    let values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let mut numbers = values.filter_map(|count| count.parse().ok());
    numbers.next().ok_or_else(|| Failure::Failed(format!("/metrics has no {name}")))
}

/// The body of a boot.
pub struct BootRequest(pub Value);

impl BootRequest {
    /// The flavor of the boot.
    pub const SMALL: &str = "bench";
    /// The flavor of a resize.
    pub const LARGE: &str = "bench-large";
}

/// The topology file of a cloud.
pub fn topology(plan: &Plan<'_>) -> String {
    let Plan { hosts, vgpus, .. } = plan;
    TOPOLOGY
        .replace("count = 1000", &format!("count = {hosts}"))
        .replace("available_instances = 16", &format!("available_instances = {vgpus}"))
}

fn password(directory: &Path) -> Result<String, Failure> {
    let path = directory.join("state/openrc");
    let text = std::fs::read_to_string(&path)
        .map_err(|e| Failure::failed(&format!("cannot read {}", path.display()), e))?;
    let password = text.lines().find_map(|line| line.strip_prefix("export OS_PASSWORD="));
    Ok(password.unwrap_or_default().to_owned())
}
