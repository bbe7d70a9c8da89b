//! The operations of the crash matrix, and the states that each may end in.

use kilonova_compute_app::reconcile::rest;
use kilonova_node::topology::Topology;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Answer, Cloud, GPU, RunningCloud, hosts, wait_until};

const LIVE: &str = r#"{"os-migrateLive": {"host": null, "block_migration": "auto"}}"#;

/// The server that exists before the operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Before {
    Nothing,
    Active,
    Stopped,
    /// Migrated from host `a`, and not confirmed.
    Migrated,
    /// On host `a`.
    ActiveOnA,
    /// Active, then these actions, each until the server has its status.
    AfterActions(&'static [(&'static str, &'static str)]),
    /// Like `AfterActions`, but by an admin, and on host `a`.
    AfterActionsOnA(&'static [(&'static str, &'static str)]),
    /// Soft-deleted.
    Deleted,
}

/// The operation.
#[derive(Clone, Copy)]
pub enum Act {
    Boot,
    BootThree,
    /// At least one server, at most four.
    BootSome,
    BootAndDelete,
    /// The server is deleted; once its device is free, a server of this flavor uses the card with another type.
    ChangeType(&'static str),
    Delete,
    /// A host that is up is forced down, and a server on it is deleted.
    DeleteOnLostHost(&'static str),
    /// Actions in order, without waiting for their results.
    Actions(&'static [&'static str]),
    /// Like `Actions`, but by an admin.
    Operate(&'static [&'static str]),
    /// An admin's action, followed by a delete.
    OperateAndDelete(&'static str),
    /// Host `a`, which is up, is forced down, and its server is evacuated.
    Evacuate,
    /// An admin starts a live migration and aborts it.
    Abort,
    /// An admin starts a live migration and forces it to complete.
    ForceComplete,
    /// The reclaim task deletes soft-deleted servers.
    Reclaim,
}

pub struct Flow {
    pub name: &'static str,
    pub topology: fn() -> Topology,
    pub flavor: &'static str,
    pub before: Before,
    pub act: Act,
    /// Statuses of all servers after the accepted operations.
    pub done: &'static [&'static str],
    /// Further statuses that are allowed when a request was not answered.
    pub otherwise: &'static [&'static [&'static str]],
}

/// Actions on a server with a vGPU, on the only host.
pub fn flow(
    name: &'static str,
    before: Before,
    actions: &'static [&'static str],
    done: &'static [&'static str],
    otherwise: &'static [&'static [&'static str]],
) -> Flow {
    let topology = || hosts(&[("a", &[GPU])]);
    Flow { name, topology, flavor: "vgpu", before, act: Act::Actions(actions), done, otherwise }
}

impl Flow {
    /// Creates the server that exists before the operation, and returns its id.
    pub async fn prepare(&self, cloud: &Cloud, running: &RunningCloud) -> Option<String> {
        if self.flavor == "loaded" {
            // Forgets the loaded bitstream, so that each boot programs the card.
            cloud.execute("UPDATE deployables SET bitstream_id = NULL").await;
        }
        if matches!(self.act, Act::ChangeType(_)) {
            super::super::retyping::flavors(running).await;
        }
        if self.flavor.starts_with("alone") {
            super::super::gpu_topology::exclusive::flavors(running).await;
        }
        if self.before == Before::Nothing {
            return None;
        }
        if matches!(self.before, Before::Migrated | Before::ActiveOnA) {
            let id = running.active_server_on(cloud, "a", self.flavor).await;
            if self.before == Before::Migrated {
                accepted(&operate(cloud, running, &id, r#"{"migrate": null}"#).await);
                running.wait_for_status(&id, "VERIFY_RESIZE").await;
            }
            return Some(id);
        }
        if let Before::AfterActionsOnA(actions) = self.before {
            let id = running.active_server_on(cloud, "a", self.flavor).await;
            for (body, status) in actions {
                assert!(accepted(&operate(cloud, running, &id, body).await));
                running.wait_for_status(&id, status).await;
            }
            return Some(id);
        }
        let id = running.active_server(cloud, "before", self.flavor).await;
        if let Before::AfterActions(actions) = self.before {
            for (body, status) in actions {
                assert!(accepted(&running.try_act(&id, parse(cloud, body)).await));
                running.wait_for_status(&id, status).await;
            }
        }
        if self.before == Before::Deleted {
            running.delete(&id).await;
            running.wait_for_status(&id, "SOFT_DELETED").await;
            cloud.execute("UPDATE resting SET since = 0").await;
        }
        if self.before == Before::Stopped {
            running.act(&id, json!({"os-stop": null})).await;
            running.wait_for_status(&id, "SHUTOFF").await;
        }
        Some(id)
    }

    /// Runs the operation. True if every request was accepted; false if the services died first.
    pub async fn act(&self, cloud: &Cloud, running: &RunningCloud, id: Option<&str>) -> bool {
        let id = id.unwrap_or_default();
        match self.act {
            Act::Boot => created_id(self.boot(cloud, running, 1, 1).await).is_some(),
            Act::BootThree => created_id(self.boot(cloud, running, 3, 3).await).is_some(),
            Act::BootSome => created_id(self.boot(cloud, running, 1, 4).await).is_some(),
            Act::BootAndDelete => match created_id(self.boot(cloud, running, 1, 1).await) {
                Some(id) => delete(running, &id).await,
                None => false,
            },
            Act::ChangeType(flavor) => {
                let is_gone = delete(running, id).await;
                let mut is_free = false;
                wait_until("the card is free", async || {
                    let used =
                        cloud.column("SELECT uuid FROM attach_handles WHERE state <> 'free'");
                    is_free = used.await.is_empty();
                    is_free || running.plan.is_dead() || running.nodes.names().is_empty()
                })
                .await;
                let later = Self { flavor, ..*self };
                is_gone && is_free && created_id(later.boot(cloud, running, 1, 1).await).is_some()
            }
            Act::Delete => delete(running, id).await,
            Act::DeleteOnLostHost(host) => {
                accepted(&running.try_force_down(host, true).await) && delete(running, id).await
            }
            Act::Operate(bodies) => {
                let mut all = true;
                for body in bodies {
                    all = all && accepted(&operate(cloud, running, id, body).await);
                }
                all
            }
            Act::OperateAndDelete(body) => {
                accepted(&operate(cloud, running, id, body).await)
                    && accepted(
                        &running.call(ADMIN, "2.90", &format!("DELETE /servers/{id}"), None).await,
                    )
            }
            Act::Evacuate => {
                accepted(&running.try_force_down("a", true).await)
                    && accepted(&operate(cloud, running, id, r#"{"evacuate": {}}"#).await)
            }
            Act::Abort | Act::ForceComplete => {
                accepted(&operate(cloud, running, id, LIVE).await)
                    && self.control_live_migration(running, id).await
            }
            Act::Reclaim => {
                rest::run(running.compute.clone()).await.is_ok() && !running.plan.is_dead()
            }
            Act::Actions(bodies) => {
                let mut all = true;
                for body in bodies {
                    all = all && accepted(&running.try_act(id, parse(cloud, body)).await);
                }
                all
            }
        }
    }

    /// Aborts or force-completes the live migration once it runs. True if the request was accepted.
    async fn control_live_migration(&self, running: &RunningCloud, id: &str) -> bool {
        let path = format!("/servers/{id}/migrations");
        let mut number = None;
        wait_until("the migration runs", async || {
            let list = running.get(ADMIN, "2.80", &path).await;
            let found = list.body["migrations"].as_array().cloned().unwrap_or_default();
            let migration = found.iter().find(|one| one["status"] == "running");
            number = migration.and_then(|one| one["id"].as_i64());
            let nobody = running.plan.is_dead() || running.nodes.names().is_empty();
            number.is_some() || nobody || running.all_idle().await
        })
        .await;
        let Some(number) = number else { return false };
        let (what, body) = match self.act {
            Act::Abort => (format!("DELETE {path}/{number}"), None),
            _ => (format!("POST {path}/{number}/action"), Some(json!({"force_complete": null}))),
        };
        running.call(ADMIN, "2.80", &what, body).await.status.is_success()
    }

    async fn boot(
        &self,
        cloud: &Cloud,
        running: &RunningCloud,
        least: usize,
        most: usize,
    ) -> Answer {
        let mut boot_request = running.boot_request(cloud, "one", self.flavor);
        boot_request["server"]["min_count"] = json!(least);
        boot_request["server"]["max_count"] = json!(most);
        running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await
    }

    /// Undoes the side effects of the operation, such as a forced-down host.
    pub async fn undo_side_effects(
        &self,
        cloud: &Cloud,
        running: &RunningCloud,
        servers: &[Value],
    ) {
        if let Act::DeleteOnLostHost(host) = self.act {
            running.force_down(host, false).await;
        }
        if let Act::Evacuate = self.act {
            running.force_down("a", false).await;
            // The operation did not wait for host `a` to start its guest again.
            let on_a = |server: &&Value| server["OS-EXT-SRV-ATTR:host"] == "a";
            let stays = servers.iter().filter(on_a).count();
            wait_until("the guests run again", async || cloud.files("a", "running").len() == stays)
                .await;
        }
    }

    /// Checks the final statuses of all servers.
    pub fn assert_statuses(&self, servers: &[Value], answered: bool, when: &str) {
        let mut statuses: Vec<&str> = servers.iter().filter_map(|s| s["status"].as_str()).collect();
        statuses.sort_unstable();
        let fine =
            statuses == self.done || (!answered && self.otherwise.contains(&statuses.as_slice()));
        assert!(fine, "{when}: answered: {answered}, {statuses:?}: {servers:#?}");
        for server in servers.iter().filter(|server| server["status"] == "ERROR") {
            assert!(!crate::kit::fault(server).is_empty(), "{when}: no reason: {server}");
        }
    }
}

async fn operate(cloud: &Cloud, running: &RunningCloud, id: &str, body: &str) -> Answer {
    let body = parse(cloud, body);
    running.call(ADMIN, "2.91", &format!("POST /servers/{id}/action"), Some(body)).await
}

/// A body in which `IMAGE` stands for the id of the servers' image.
fn parse(cloud: &Cloud, body: &str) -> Value {
    serde_json::from_str(&body.replace("IMAGE", &cloud.image.to_string()))
        .expect("the text is JSON")
}

async fn delete(running: &RunningCloud, id: &str) -> bool {
    accepted(&running.call(ANN, "2.90", &format!("DELETE /servers/{id}"), None).await)
}

fn created_id(answer: Answer) -> Option<String> {
    accepted(&answer)
        .then(|| answer.body["server"]["id"].as_str().expect("the answer has an id").to_owned())
}

/// True if the request was accepted; false if the services were dead.
fn accepted(answer: &Answer) -> bool {
    let code = answer.status.as_u16();
    assert!(answer.status.is_success() || code >= 500, "{code} {}", answer.body);
    answer.status.is_success()
}
