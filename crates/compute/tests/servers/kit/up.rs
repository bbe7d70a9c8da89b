//! Services and hosts at work, which can be killed together or apart.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use kilonova_compute::{Compute, Link};
use kilonova_ids::ServerId;
use kilonova_node_api::{ControlPlane, Observation, Outcome};
use kilonova_placement::Placement;
use kilonova_store::params;
use kilonova_store::testing::CrashPlan;
use kilonova_wire::noauth::NoAuth;
use serde_json::{Value, json};

use super::Cloud;
use super::cloud::client;
use super::nodes::Nodes;
use super::wire::Wire;
use crate::common::{ANN, Answer, Client};

pub struct Up {
    pub compute: Compute,
    pub plan: CrashPlan,
    pub nodes: Nodes,
    client: Client,
    wire: Arc<Wire>,
    /// Epochs of the hosts when these services or their nodes started.
    before: HashMap<String, i64>,
}

impl Deref for Up {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Up {
    /// Services without any host.
    pub async fn new(cloud: &Cloud, plan: CrashPlan) -> Self {
        let compute = cloud.services(plan.clone()).await;
        let wire = Arc::new(Wire::to(Arc::new(Link(compute.clone()))));
        let nodes = Nodes::new(wire.clone(), cloud.nodes());
        let client = client(compute.clone());
        let mut up = Self { compute, plan, nodes, client, wire, before: HashMap::new() };
        up.note_epochs(None);
        up
    }

    /// Everything ends where it is, as if the process were killed; what was asked of the kernel is
    /// done by it all the same.
    pub async fn kill(mut self) {
        self.nodes.kill_all().await;
    }

    /// Other services take the place of these, while the nodes live on.
    pub async fn succeed(&mut self, cloud: &Cloud, plan: CrashPlan) {
        self.compute = cloud.services(plan.clone()).await;
        self.plan = plan;
        self.client = client(self.compute.clone());
        self.wire.switch(Arc::new(Link(self.compute.clone())));
    }

    /// Kills every node and starts it again, and does something while they are away.
    pub async fn restart_nodes<T>(
        &mut self,
        cloud: &Cloud,
        meanwhile: impl AsyncFnOnce(&Self) -> T,
    ) -> T {
        let names = self.nodes.names();
        self.nodes.kill_all().await;
        self.note_epochs(None);
        let answer = meanwhile(self).await;
        for name in names {
            self.nodes.start(cloud.host(&name));
        }
        answer
    }

    /// Kills a host's node and starts it again, with steps that fail so many times, or always.
    pub async fn restart_failing(
        &mut self,
        cloud: &Cloud,
        host: &str,
        steps: &[(&str, Option<u32>)],
    ) {
        self.nodes.kill(host).await;
        self.note_epochs(Some(host));
        self.nodes.start_failing(cloud.host(host), steps);
        self.hosts_are_there().await;
    }

    /// Starts a host's node and waits for it.
    pub async fn start_node(&mut self, cloud: &Cloud, host: &str) {
        self.note_epochs(Some(host));
        self.nodes.start(cloud.host(host));
        self.hosts_are_there().await;
    }

    /// Registrations from now on count, of one host or of all.
    fn note_epochs(&mut self, only: Option<&str>) {
        for host in self.compute.fleet.all() {
            if only.is_none_or(|only| only == &*host.name) {
                self.before.insert(host.name.to_string(), host.epoch());
            }
        }
    }

    pub(super) fn all_registered(&self) -> bool {
        self.nodes.names().iter().all(|name| {
            let before = self.before.get(name).copied().unwrap_or(0);
            self.compute.fleet.by_name(name).is_some_and(|host| host.epoch() > before)
        })
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

    /// A server that is `ACTIVE`.
    pub async fn active(&self, cloud: &Cloud, name: &str, flavor: &str) -> String {
        let id = self.boot(cloud, name, flavor).await;
        self.becomes(&id, "ACTIVE").await;
        id
    }

    /// A server that is `ACTIVE` on a host that an admin named.
    pub async fn active_on(&self, cloud: &Cloud, host: &str, flavor: &str) -> String {
        let mut wish = self.wish(cloud, "one", flavor);
        wish["server"]["host"] = json!(host);
        let made = self.admin("2.90", "POST /servers", wish).await.expect(202);
        let id = made["server"]["id"].as_str().expect("an id").to_owned();
        self.becomes(&id, "ACTIVE").await;
        id
    }

    pub async fn act(&self, id: &str, action: Value) {
        self.try_act(id, action).await.expect(202);
    }

    pub async fn try_act(&self, id: &str, action: Value) -> Answer {
        self.call(ANN, "2.90", &format!("POST /servers/{id}/action"), Some(action)).await
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

    /// The project may have as many servers as it likes.
    pub async fn lift_quota(&self) {
        let quota = json!({"quota_set": {"instances": -1, "cores": -1, "ram": -1}});
        self.admin("2.90", "PUT /os-quota-sets/red", quota).await.expect(200);
    }

    /// An operator says that a host is dead, or that it is not.
    pub async fn force_down(&self, host: &str, down: bool) {
        self.try_force_down(host, down).await.expect(200);
    }

    pub async fn try_force_down(&self, host: &str, down: bool) -> Answer {
        let body = json!({"host": host, "binary": "nova-compute", "forced_down": down});
        self.admin("2.11", "PUT /os-services/force-down", body).await
    }

    /// Reports on a server as its host's node would, on its newest document.
    pub async fn report(&self, cloud: &Cloud, host: &str, id: &str, outcome: Outcome) {
        let server: ServerId = id.parse().expect("an id");
        let sql = "SELECT generation FROM documents WHERE server_id = ?1";
        let row = cloud.store.read(move |tx| tx.row(sql, params![server])).await.expect("a query");
        let generation = row.expect("a document").int(0).expect("a number");
        let epoch = self.compute.fleet.by_name(host).expect("a host").epoch();
        let report = vec![Observation::new(server, generation, outcome)];
        Link(self.compute.clone()).observed(host, epoch, report).await.expect("taken in");
    }

    /// A client of the Placement API over the same world.
    pub fn placement(&self) -> Client {
        let (store, world) = (self.compute.store.clone(), self.compute.world.clone());
        let policy = kilonova_placement::policy(&[], Default::default()).expect("fine");
        let policy = Arc::new(policy);
        let manager = Some(Arc::new(kilonova_compute::app::managed_consumers::Servers) as _);
        let state = Placement { store, world, policy, manager };
        let routes = kilonova_placement::routes(state);
        let service = kilonova_placement::service();
        Client { router: kilonova_wire::mount(routes, service, "/placement", Arc::new(NoAuth)) }
    }
}
