//! Waits for conditions, with a deadline.

use std::time::Duration;

use kilonova_compute_app::follow;
use kilonova_store::{Error, Tx, params};
use serde_json::Value;

use super::running::ALL_SERVERS;
use super::{Cloud, RunningCloud};

/// The deadline of every wait; only a failing test reaches it.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The pause after the first check of a condition, and the longest pause. A check is a request, which
/// costs as much as a step of the operation that the test waits for.
const FIRST_PAUSE: Duration = Duration::from_millis(3);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// How often the writes of other processes are read.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Waits until `done` is true, up to the deadline.
pub async fn wait_until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    let mut pauses = Pauses::default();
    while !done().await {
        assert!(tokio::time::Instant::now() < deadline, "timed out waiting: {what}");
        pauses.sleep().await;
    }
}

/// The pauses between checks of a condition, each longer than the one before.
#[derive(Default)]
struct Pauses(Option<Duration>);

impl Pauses {
    async fn sleep(&mut self) {
        let pause = self.0.map_or(FIRST_PAUSE, |last| LONGEST_PAUSE.min(last * 3 / 2));
        self.0 = Some(pause);
        tokio::time::sleep(pause).await;
    }
}

fn is_idle(server: &Value) -> bool {
    server["status"] != "BUILD" && server["OS-EXT-STS:task_state"].is_null()
}

impl RunningCloud {
    /// Waits until every running host has registered, or the process is dead.
    pub async fn wait_for_hosts(&self) {
        wait_until("all hosts have registered", async || {
            self.plan.is_dead() || self.all_registered()
        })
        .await;
    }

    /// Waits until the server has no task, and returns it.
    pub async fn wait_until_idle(&self, id: &str) -> Value {
        let mut server = Value::Null;
        wait_until("the server is idle", async || {
            server = self.server(id).await;
            is_idle(&server)
        })
        .await;
        server
    }

    /// Waits until the server has no task, and checks its status.
    pub async fn wait_for_status(&self, id: &str, status: &str) -> Value {
        let server = self.wait_until_idle(id).await;
        assert_eq!(server["status"], status, "{server}");
        server
    }

    /// Waits until the server is gone.
    pub async fn wait_until_gone(&self, id: &str) {
        wait_until("the server is gone", async || self.server(id).await.is_null()).await;
    }

    /// Waits until no server has a task, and returns all servers.
    pub async fn wait_all_idle(&self) -> Vec<Value> {
        let begun = tokio::time::Instant::now();
        let mut refreshed = begun;
        let mut pauses = Pauses::default();
        loop {
            let servers = self.servers().await;
            if servers.iter().all(is_idle) {
                return servers;
            }
            if refreshed.elapsed() > REFRESH_INTERVAL {
                self.refresh_fleet().await;
                refreshed = tokio::time::Instant::now();
            }
            if begun.elapsed() > TIMEOUT {
                panic!(
                    "timed out waiting for idle servers: {servers:#?} {:#?}",
                    self.pending_work().await
                );
            }
            pauses.sleep().await;
        }
    }

    /// Reads the hosts' rows, as services do every ten seconds: this shows them the writes of other
    /// processes, such as the last commit of one that died.
    async fn refresh_fleet(&self) {
        follow::read_hosts(&self.compute).await.expect("the rows are read");
    }

    /// Open operations, documents and moves; printed when a wait fails.
    async fn pending_work(&self) -> Vec<String> {
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
        self.compute.store.read(read).await.expect("the query succeeds")
    }

    /// Waits until every host has dropped the guests that left it, and all device orders are done.
    pub async fn wait_for_host_cleanup(&self, cloud: &Cloud) {
        let left = "SELECT d.server_id FROM documents d LEFT JOIN servers s ON s.id = d.server_id
            WHERE s.id IS NULL OR d.body = '{\"state\":\"absent\"}'";
        wait_until("the hosts have dropped the guests", async || {
            cloud.column(left).await.is_empty()
        })
        .await;
        let open = "SELECT uuid FROM device_orders WHERE state = 'open'";
        wait_until("the device orders are carried out", async || {
            cloud.column(open).await.is_empty()
        })
        .await;
    }

    /// Waits until no server has a task, or the process is dead.
    pub async fn wait_all_idle_or_dead(&self) {
        wait_until("all servers are idle", async || self.plan.is_dead() || self.all_idle().await)
            .await;
    }

    /// True if no server has a task; false also when the services do not answer.
    pub async fn all_idle(&self) -> bool {
        let list = self.get("admin", "2.90", ALL_SERVERS).await;
        list.body["servers"].as_array().is_some_and(|all| all.iter().all(is_idle))
    }

    /// Deletes every server permanently, and waits until all are gone.
    pub async fn delete_all_servers(&self) {
        for server in self.servers().await {
            let id = server["id"].as_str().expect("the answer has an id");
            if self.compute.options.reclaim_instance_interval.is_positive() {
                let body = serde_json::json!({"forceDelete": null});
                self.admin("2.90", &format!("POST /servers/{id}/action"), body).await.expect(202);
                continue;
            }
            self.call("admin", "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
        }
        wait_until("no server is left", async || self.servers().await.is_empty()).await;
    }
}
