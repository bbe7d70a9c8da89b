//! Services and hosts at work, as one process that can be killed.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kilonova_compute::{Compute, Link};
use kilonova_node::Node;
use kilonova_node::topology::Topology;
use kilonova_node_api::ControlPlane;
use kilonova_store::testing::CrashPlan;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Cloud;
use super::cloud::client;
use crate::common::{ANN, Client};

/// How long anything may take; only a failed test ever waits so long.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(3);

pub struct Up {
    pub compute: Compute,
    pub plan: CrashPlan,
    client: Client,
    hosts: usize,
    stop: watch::Sender<bool>,
    nodes: JoinSet<Result<(), kilonova_node::Error>>,
}

impl Deref for Up {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Up {
    pub(super) fn start(
        compute: Compute,
        plan: CrashPlan,
        topology: &Topology,
        folder: &Path,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let control: Arc<dyn ControlPlane> = Arc::new(Link(compute.clone()));
        let mut nodes = JoinSet::new();
        for host in &topology.hosts {
            let node = Node::simulated(host, folder).expect("a node");
            nodes.spawn(node.run(Arc::clone(&control), stopped.clone()));
        }
        let (client, hosts) = (client(compute.clone()), topology.hosts.len());
        Self { compute, plan, client, hosts, stop, nodes }
    }

    /// Everything ends where it is, as if the process were killed; what was asked of the kernel is
    /// done by it all the same.
    pub async fn kill(mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.nodes.join_next().await {
            ended.expect("no panic").expect("nothing but the kill ends a node");
        }
    }

    /// Waits until every host may be given servers, or the process is dead.
    pub async fn hosts_are_there(&self) {
        patiently("hosts", async || {
            self.plan.is_dead() || self.compute.fleet.all().len() == self.hosts
        })
        .await;
    }

    pub fn wish(&self, cloud: &Cloud, name: &str, flavor: &str) -> Value {
        json!({"server": {
            "name": name, "flavorRef": flavor, "imageRef": cloud.image, "networks": "none",
        }})
    }

    /// Asks for a server and returns its id.
    pub async fn boot(&self, cloud: &Cloud, name: &str, flavor: &str) -> String {
        self.boot_with(cloud, name, flavor, json!({})).await
    }

    /// [`Up::boot`] with more in the request.
    pub async fn boot_with(&self, cloud: &Cloud, name: &str, flavor: &str, more: Value) -> String {
        let mut wish = self.wish(cloud, name, flavor);
        if let (Some(server), Value::Object(more)) = (wish["server"].as_object_mut(), more) {
            server.extend(more);
        }
        let answer = self.call(ANN, "2.90", "POST /servers", Some(wish)).await.expect(202);
        answer["server"]["id"].as_str().expect("an id").to_owned()
    }

    pub async fn act(&self, id: &str, action: Value) -> Value {
        self.call(ANN, "2.90", &format!("POST /servers/{id}/action"), Some(action))
            .await
            .expect(202)
    }

    pub async fn delete(&self, id: &str) {
        self.call(ANN, "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
    }

    /// The server as an admin sees it; null when it is gone.
    pub async fn server(&self, id: &str) -> Value {
        let answer = self.get("admin", "2.90", &format!("/servers/{id}")).await;
        if answer.status == 404 { Value::Null } else { answer.expect(200)["server"].take() }
    }

    /// Every server of every project.
    pub async fn servers(&self) -> Vec<Value> {
        let list = self.get("admin", "2.90", "/servers/detail?all_tenants=1").await.expect(200);
        list["servers"].as_array().expect("a list").clone()
    }

    /// Waits until nothing is being done to the server any more, and returns it.
    pub async fn rest(&self, id: &str) -> Value {
        let mut server = Value::Null;
        patiently("a server at rest", async || {
            server = self.server(id).await;
            at_rest(&server)
        })
        .await;
        server
    }

    /// Waits for the server to rest and checks its status.
    pub async fn becomes(&self, id: &str, status: &str) -> Value {
        let server = self.rest(id).await;
        assert_eq!(server["status"], status, "{server}");
        server
    }

    /// Waits until the server is no more.
    pub async fn goes(&self, id: &str) {
        patiently("a server gone", async || self.server(id).await.is_null()).await;
    }

    /// Waits until nothing is being done to any server, and returns all.
    pub async fn settle(&self) -> Vec<Value> {
        let mut servers = Vec::new();
        patiently("all servers at rest", async || {
            servers = self.servers().await;
            servers.iter().all(at_rest)
        })
        .await;
        servers
    }

    /// Deletes every server and waits for the end of the last.
    pub async fn clear(&self) {
        for server in self.servers().await {
            let id = server["id"].as_str().expect("an id");
            self.call("admin", "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
        }
        patiently("no server left", async || self.servers().await.is_empty()).await;
    }
}

fn at_rest(server: &Value) -> bool {
    server["status"] != "BUILD" && server["OS-EXT-STS:task_state"].is_null()
}

/// Waits until `done`, for as long as anything may take.
pub async fn patiently(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !done().await {
        assert!(tokio::time::Instant::now() < deadline, "{what}: not in time");
        tokio::time::sleep(PAUSE).await;
    }
}
