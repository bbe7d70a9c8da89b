//! Waiting for what must come to pass.

use std::time::Duration;

use kilonova_compute::db::fleet;
use kilonova_store::{Error, Tx, params};
use serde_json::Value;

use super::{Cloud, Up};

/// How long anything may take; only a failed test ever waits so long.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(3);
/// How often what others wrote is looked at.
const LOOK: Duration = Duration::from_secs(1);

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
        let begun = tokio::time::Instant::now();
        let mut looked = begun;
        loop {
            let servers = self.servers().await;
            if servers.iter().all(at_rest) {
                return servers;
            }
            if looked.elapsed() > LOOK {
                self.look_around().await;
                looked = tokio::time::Instant::now();
            }
            if begun.elapsed() > PATIENCE {
                panic!("servers at rest: not in time: {servers:#?} {:#?}", self.unfinished().await);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// What services do every ten seconds: by this they see what others wrote, such as a process that
    /// died while its last commit was under way.
    async fn look_around(&self) {
        let rows = self.compute.store.read(fleet::all).await.expect("a query");
        for row in rows {
            self.compute.fleet.refresh(&row);
        }
    }

    /// What is under way, and what hosts should do; for a test that waits in vain.
    async fn unfinished(&self) -> Vec<String> {
        let read = |tx: &mut Tx<'_>| {
            let mut lines = Vec::new();
            for sql in [
                "SELECT kind || ' ' || step || ' ' || data FROM operations WHERE outcome = 'open'",
                "SELECT host || ' ' || CAST(generation AS TEXT) || ' ' || body FROM documents",
                "SELECT server_id || ' ' || status || ' to ' || COALESCE(dest_host, '') FROM moves",
            ] {
                for row in tx.rows(sql, params![])? {
                    lines.push(row.string(0)?);
                }
            }
            Ok::<_, Error>(lines)
        };
        self.compute.store.read(read).await.expect("a query")
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

    /// True if nothing is being done to any server; false when nobody can say.
    pub async fn is_quiet(&self) -> bool {
        let list = self.get("admin", "2.90", "/servers/detail?all_tenants=1").await;
        list.body["servers"].as_array().is_some_and(|all| all.iter().all(at_rest))
    }

    /// Deletes every server, for good, and waits for the end of the last.
    pub async fn clear(&self) {
        for server in self.servers().await {
            let id = server["id"].as_str().expect("an id");
            if self.compute.options.reclaim_instance_interval > 0 {
                let body = serde_json::json!({"forceDelete": null});
                self.admin("2.90", &format!("POST /servers/{id}/action"), body).await.expect(202);
                continue;
            }
            self.call("admin", "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
        }
        patiently("no server left", async || self.servers().await.is_empty()).await;
    }
}
