//! What is done to a cloud, and what it may be like afterwards.

use kilonova_node::topology::Topology;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Answer, Cloud, GPU, Up, hosts};

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
}

/// What is done.
#[derive(Clone, Copy)]
pub enum Act {
    Boot,
    BootThree,
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
                taken(&operate(up, &id, r#"{"migrate": null}"#).await);
                up.becomes(&id, "VERIFY_RESIZE").await;
            }
            return Some(id);
        }
        let id = up.active(cloud, "before", self.flavor).await;
        if let Before::Did(actions) = self.before {
            for (body, status) in actions {
                let body = serde_json::from_str(body).expect("JSON");
                assert!(taken(&up.try_act(&id, body).await));
                up.becomes(&id, status).await;
            }
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
            Act::Boot => made(self.boot(cloud, up, 1).await).is_some(),
            Act::BootThree => made(self.boot(cloud, up, 3).await).is_some(),
            Act::BootAndDelete => match made(self.boot(cloud, up, 1).await) {
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
                    all = all && taken(&operate(up, id, body).await);
                }
                all
            }
            Act::OperateAndDelete(body) => {
                taken(&operate(up, id, body).await)
                    && taken(&up.call(ADMIN, "2.90", &format!("DELETE /servers/{id}"), None).await)
            }
            Act::Evacuate => {
                taken(&up.try_force_down("a", true).await)
                    && taken(&operate(up, id, r#"{"evacuate": {}}"#).await)
            }
            Act::Actions(bodies) => {
                let mut all = true;
                for body in bodies {
                    let body = serde_json::from_str(body).expect("JSON");
                    all = all && taken(&up.try_act(id, body).await);
                }
                all
            }
        }
    }

    async fn boot(&self, cloud: &Cloud, up: &Up, count: usize) -> Answer {
        let mut wish = up.wish(cloud, "one", self.flavor);
        wish["server"]["min_count"] = json!(count);
        up.call(ANN, "2.90", "POST /servers", Some(wish)).await
    }

    /// What has to be undone after all.
    pub async fn restore(&self, up: &Up) {
        if let Act::DeleteOnLostHost(host) = self.act {
            up.force_down(host, false).await;
        }
        if let Act::Evacuate = self.act {
            up.force_down("a", false).await;
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

async fn operate(up: &Up, id: &str, body: &str) -> Answer {
    let body = serde_json::from_str(body).expect("JSON");
    up.call(ADMIN, "2.90", &format!("POST /servers/{id}/action"), Some(body)).await
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
