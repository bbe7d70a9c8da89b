//! What is done to a cloud, and what it may be like afterwards.

use kilonova_compute::reconcile::rest;
use kilonova_node::topology::Topology;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Answer, Cloud, GPU, Up, hosts, patiently};

const LIVE: &str = r#"{"os-migrateLive": {"host": null, "block_migration": "auto"}}"#;

/// A server that is there before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Before {
    Nothing,
    Active,
    Stopped,
    /// Migrated from host `a`, and not confirmed.
    Moved,
    /// On host `a`.
    OnA,
    /// Active first, then these actions, each until it has this status.
    Did(&'static [(&'static str, &'static str)]),
    /// The same by an admin, on host `a`.
    DidOnA(&'static [(&'static str, &'static str)]),
    /// Deleted, and to be restored or reclaimed.
    Deleted,
}

/// What is done.
#[derive(Clone, Copy)]
pub enum Act {
    Boot,
    BootThree,
    /// One server at least, four at most.
    BootSome,
    BootAndDelete,
    Delete,
    /// A host is declared dead, which it is not, and a server on it is deleted.
    DeleteOnLostHost(&'static str),
    /// One after the other, whatever the one before has come to.
    Actions(&'static [&'static str]),
    /// The same by an admin.
    Operate(&'static [&'static str]),
    /// An admin does something to a server, and it is deleted.
    OperateAndDelete(&'static str),
    /// Host `a` is declared dead, which it is not, and its server is evacuated.
    Evacuate,
    /// An admin has the server migrate while it runs, and calls that off.
    Abort,
    /// The same, and hurries it.
    Hurry,
    /// Everything that was deleted long ago goes for good.
    Reclaim,
}

pub struct Flow {
    pub name: &'static str,
    pub topology: fn() -> Topology,
    pub flavor: &'static str,
    pub before: Before,
    pub act: Act,
    /// Statuses of all servers once what was answered is done.
    pub done: &'static [&'static str],
    /// What else they may be when there was no answer.
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
    /// Makes what is there before and returns its id.
    pub async fn prepare(&self, cloud: &Cloud, up: &Up) -> Option<String> {
        if self.flavor == "loaded" {
            // As if something else were in the card: each time it is programmed anew.
            cloud.execute("UPDATE deployables SET bitstream_id = NULL").await;
        }
        if self.before == Before::Nothing {
            return None;
        }
        if matches!(self.before, Before::Moved | Before::OnA) {
            let id = up.active_on(cloud, "a", self.flavor).await;
            if self.before == Before::Moved {
                taken(&operate(cloud, up, &id, r#"{"migrate": null}"#).await);
                up.becomes(&id, "VERIFY_RESIZE").await;
            }
            return Some(id);
        }
        if let Before::DidOnA(actions) = self.before {
            let id = up.active_on(cloud, "a", self.flavor).await;
            for (body, status) in actions {
                assert!(taken(&operate(cloud, up, &id, body).await));
                up.becomes(&id, status).await;
            }
            return Some(id);
        }
        let id = up.active(cloud, "before", self.flavor).await;
        if let Before::Did(actions) = self.before {
            for (body, status) in actions {
                assert!(taken(&up.try_act(&id, parse(cloud, body)).await));
                up.becomes(&id, status).await;
            }
        }
        if self.before == Before::Deleted {
            up.delete(&id).await;
            up.becomes(&id, "SOFT_DELETED").await;
            cloud.execute("UPDATE resting SET since = 0").await;
        }
        if self.before == Before::Stopped {
            up.act(&id, json!({"os-stop": null})).await;
            up.becomes(&id, "SHUTOFF").await;
        }
        Some(id)
    }

    /// Does it, as far as the services live. Whether all of it was answered.
    pub async fn act(&self, cloud: &Cloud, up: &Up, id: Option<&str>) -> bool {
        let id = id.unwrap_or_default();
        match self.act {
            Act::Boot => made(self.boot(cloud, up, 1, 1).await).is_some(),
            Act::BootThree => made(self.boot(cloud, up, 3, 3).await).is_some(),
            Act::BootSome => made(self.boot(cloud, up, 1, 4).await).is_some(),
            Act::BootAndDelete => match made(self.boot(cloud, up, 1, 1).await) {
                Some(id) => delete(up, &id).await,
                None => false,
            },
            Act::Delete => delete(up, id).await,
            Act::DeleteOnLostHost(host) => {
                taken(&up.try_force_down(host, true).await) && delete(up, id).await
            }
            Act::Operate(bodies) => {
                let mut all = true;
                for body in bodies {
                    all = all && taken(&operate(cloud, up, id, body).await);
                }
                all
            }
            Act::OperateAndDelete(body) => {
                taken(&operate(cloud, up, id, body).await)
                    && taken(&up.call(ADMIN, "2.90", &format!("DELETE /servers/{id}"), None).await)
            }
            Act::Evacuate => {
                taken(&up.try_force_down("a", true).await)
                    && taken(&operate(cloud, up, id, r#"{"evacuate": {}}"#).await)
            }
            Act::Abort | Act::Hurry => {
                taken(&operate(cloud, up, id, LIVE).await) && self.meddle(up, id).await
            }
            Act::Reclaim => rest::run(up.compute.clone()).await.is_ok() && !up.plan.is_dead(),
            Act::Actions(bodies) => {
                let mut all = true;
                for body in bodies {
                    all = all && taken(&up.try_act(id, parse(cloud, body)).await);
                }
                all
            }
        }
    }

    /// Has a hand in the live migration once the guest is on its way. Whether it came in time.
    async fn meddle(&self, up: &Up, id: &str) -> bool {
        let path = format!("/servers/{id}/migrations");
        let mut number = None;
        patiently("a guest on its way", async || {
            let list = up.get(ADMIN, "2.80", &path).await;
            let found = list.body["migrations"].as_array().cloned().unwrap_or_default();
            let running = found.iter().find(|one| one["status"] == "running");
            number = running.and_then(|one| one["id"].as_i64());
            let nobody = up.plan.is_dead() || up.nodes.names().is_empty();
            number.is_some() || nobody || up.is_quiet().await
        })
        .await;
        let Some(number) = number else { return false };
        let (what, body) = match self.act {
            Act::Abort => (format!("DELETE {path}/{number}"), None),
            _ => (format!("POST {path}/{number}/action"), Some(json!({"force_complete": null}))),
        };
        up.call(ADMIN, "2.80", &what, body).await.status.is_success()
    }

    async fn boot(&self, cloud: &Cloud, up: &Up, least: usize, most: usize) -> Answer {
        let mut wish = up.wish(cloud, "one", self.flavor);
        wish["server"]["min_count"] = json!(least);
        wish["server"]["max_count"] = json!(most);
        up.call(ANN, "2.90", "POST /servers", Some(wish)).await
    }

    /// What has to be undone after all.
    pub async fn restore(&self, cloud: &Cloud, up: &Up, servers: &[Value]) {
        if let Act::DeleteOnLostHost(host) = self.act {
            up.force_down(host, false).await;
        }
        if let Act::Evacuate = self.act {
            up.force_down("a", false).await;
            // Nobody waited for the host that counted as dead to start its guest again.
            let on_a = |server: &&Value| server["OS-EXT-SRV-ATTR:host"] == "a";
            let stays = servers.iter().filter(on_a).count();
            patiently("guests to run again", async || cloud.files("a", "running").len() == stays)
                .await;
        }
    }

    /// Checks how all servers ended.
    pub fn judge(&self, servers: &[Value], answered: bool, when: &str) {
        let mut ends: Vec<&str> = servers.iter().filter_map(|s| s["status"].as_str()).collect();
        ends.sort_unstable();
        let fine = ends == self.done || (!answered && self.otherwise.contains(&ends.as_slice()));
        assert!(fine, "{when}: answered: {answered}, {ends:?}: {servers:#?}");
        for server in servers.iter().filter(|server| server["status"] == "ERROR") {
            assert!(!crate::kit::fault(server).is_empty(), "{when}: no reason: {server}");
        }
    }
}

async fn operate(cloud: &Cloud, up: &Up, id: &str, body: &str) -> Answer {
    let body = parse(cloud, body);
    up.call(ADMIN, "2.91", &format!("POST /servers/{id}/action"), Some(body)).await
}

/// A body in which `IMAGE` stands for the image that every server is made from.
fn parse(cloud: &Cloud, body: &str) -> Value {
    serde_json::from_str(&body.replace("IMAGE", &cloud.image.to_string())).expect("JSON")
}

async fn delete(up: &Up, id: &str) -> bool {
    taken(&up.call(ANN, "2.90", &format!("DELETE /servers/{id}"), None).await)
}

fn made(answer: Answer) -> Option<String> {
    taken(&answer).then(|| answer.body["server"]["id"].as_str().expect("an id").to_owned())
}

/// Done as asked, or not at all because the services are dead.
fn taken(answer: &Answer) -> bool {
    let code = answer.status.as_u16();
    assert!(answer.status.is_success() || code >= 500, "{code} {}", answer.body);
    answer.status.is_success()
}
