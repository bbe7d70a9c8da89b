//! Waiting for what must come to pass.

use std::time::Duration;

use serde_json::Value;

use super::{Cloud, Up};

/// How long anything may take; only a failed test ever waits so long.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(3);

/// Waits until `done`, for as long as anything may take.
pub async fn patiently(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !done().await {
        assert!(tokio::time::Instant::now() < deadline, "{what}: not in time");
        tokio::time::sleep(PAUSE).await;
    }
}

fn at_rest(server: &Value) -> bool {
    server["status"] != "BUILD" && server["OS-EXT-STS:task_state"].is_null()
}

impl Up {
    /// Waits until every running host has registered, or the process is dead.
    pub async fn hosts_are_there(&self) {
        patiently("hosts", async || self.plan.is_dead() || self.all_registered()).await;
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

    /// Waits until no host has anything left to drop of servers that are gone, or gone elsewhere.
    pub async fn hosts_have_dropped(&self, cloud: &Cloud) {
        let left = "SELECT d.server_id FROM documents d LEFT JOIN servers s ON s.id = d.server_id
            WHERE s.id IS NULL OR d.body = '{\"state\":\"absent\"}'";
        patiently("hosts to drop guests", async || cloud.column(left).await.is_empty()).await;
        let open = "SELECT uuid FROM device_orders WHERE state = 'open'";
        patiently("device orders", async || cloud.column(open).await.is_empty()).await;
    }

    /// Waits until nothing is being done to any server, or the process is dead.
    pub async fn settle_or_die(&self) {
        patiently("all servers at rest", async || self.plan.is_dead() || self.is_quiet().await)
            .await;
    }

    /// Whether nothing is being done to any server; false when nobody can say.
    pub async fn is_quiet(&self) -> bool {
        let list = self.get("admin", "2.90", "/servers/detail?all_tenants=1").await;
        list.body["servers"].as_array().is_some_and(|all| all.iter().all(at_rest))
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
