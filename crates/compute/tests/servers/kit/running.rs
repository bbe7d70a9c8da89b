//! Running services and hosts, which can be killed together or separately.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use kilonova_compute_app::Compute;
use kilonova_compute_app::managed_consumers::Servers;
use kilonova_compute_nodes::Link;
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{ControlPlane, Observation, Outcome};
use kilonova_placement::Placement;
use kilonova_store::params;
use kilonova_store::testing::CrashPlan;
use kilonova_wire::noauth::NoAuth;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::Cloud;
use super::cloud::client;
use super::external::start_workers;
use super::link::SwitchableLink;
use super::nodes::Nodes;
use super::wait::wait_until;
use crate::common::{ANN, Answer, Client};

/// The list of the servers of all projects, soft-deleted ones included.
pub(super) const ALL_SERVERS: &str = "/servers/detail?all_tenants=1&soft_deleted=1";

pub struct RunningCloud {
    pub compute: Compute,
    pub plan: CrashPlan,
    pub nodes: Nodes,
    client: Client,
    link: Arc<SwitchableLink>,
    /// The workers of the services, which stop with them.
    workers: JoinSet<()>,
    /// Epochs of the hosts when these services or their agents started.
    before: HashMap<HostName, i64>,
}

impl Deref for RunningCloud {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl RunningCloud {
    /// Services without hosts.
    pub async fn new(cloud: &Cloud, plan: CrashPlan) -> Self {
        let compute = cloud.services(plan.clone()).await;
        cloud.forget_workers().await;
        let workers = start_workers(&compute);
        let link = Arc::new(SwitchableLink::new(Arc::new(Link(compute.clone()))));
        let nodes = Nodes::new(link.clone(), cloud.nodes());
        let client = client(compute.clone());
        let before = HashMap::new();
        let mut running = Self { compute, plan, nodes, client, link, workers, before };
        running.record_epochs(None);
        running
    }

    /// Stops everything as if the process were killed. The kernel completes the calls that it has
    /// received.
    pub async fn kill(mut self) {
        self.workers.shutdown().await;
        self.nodes.kill_all().await;
    }

    /// Makes the client use the current services.
    pub fn renew_client(&mut self) {
        self.client = client(self.compute.clone());
    }

    /// Connects the agents to another controller.
    pub fn connect(&self, control: Arc<dyn ControlPlane>) {
        self.link.switch(control);
    }

    /// Runs `request`, and loses the agents' reports until `lost` of them are lost.
    pub async fn lose_reports(&self, lost: usize, request: impl AsyncFnOnce(&Self)) {
        let end = self.link.lost_reports() + lost;
        self.link.lose_reports(true);
        request(self).await;
        wait_until("the reports are lost", async || self.link.lost_reports() >= end).await;
        self.link.lose_reports(false);
    }

    /// Replaces the services while the agents continue.
    pub async fn replace_services(&mut self, cloud: &Cloud, plan: CrashPlan) {
        self.workers.shutdown().await;
        cloud.wait_for_commits().await;
        self.compute = cloud.services(plan.clone()).await;
        cloud.forget_workers().await;
        self.workers = start_workers(&self.compute);
        self.plan = plan;
        self.client = client(self.compute.clone());
        self.link.switch(Arc::new(Link(self.compute.clone())));
    }

    /// Kills every agent, runs `meanwhile`, and starts the agents again.
    pub async fn restart_nodes<T>(
        &mut self,
        cloud: &Cloud,
        meanwhile: impl AsyncFnOnce(&Self) -> T,
    ) -> T {
        let names = self.nodes.names();
        self.nodes.kill_all().await;
        self.record_epochs(None);
        let answer = meanwhile(self).await;
        for name in names {
            self.nodes.start(cloud.host(&name));
        }
        answer
    }

    /// Restarts a host's agent with steps that fail the given number of times, or always.
    pub async fn restart_failing(
        &mut self,
        cloud: &Cloud,
        host: &str,
        steps: &[(&str, Option<u32>)],
    ) {
        self.nodes.kill(host).await;
        self.record_epochs(Some(host));
        self.nodes.start_failing(cloud.host(host), steps);
        self.wait_for_hosts().await;
    }

    /// Starts a host's agent and waits until it has registered.
    pub async fn start_node(&mut self, cloud: &Cloud, host: &str) {
        self.record_epochs(Some(host));
        self.nodes.start(cloud.host(host));
        self.wait_for_hosts().await;
    }

    /// Makes `all_registered` count only later registrations, of one host or of all.
    fn record_epochs(&mut self, only: Option<&str>) {
        for host in self.compute.fleet.all() {
            if only.is_none_or(|only| only == &*host.name) {
                self.before.insert(host.name.clone(), host.epoch());
            }
        }
    }

    pub(super) fn all_registered(&self) -> bool {
        self.nodes.names().iter().all(|name| {
            let before = self.before.get(name).copied().unwrap_or(0);
            self.compute.fleet.by_name(name).is_some_and(|host| host.epoch() > before)
        })
    }

    pub fn boot_request(&self, cloud: &Cloud, name: &str, flavor: &str) -> Value {
        json!({"server": {
            "name": name, "flavorRef": flavor, "imageRef": cloud.image,
            "networks": cloud.networks(),
        }})
    }

    /// Requests a server and returns its id.
    pub async fn boot(&self, cloud: &Cloud, name: &str, flavor: &str) -> String {
        self.boot_with(cloud, name, flavor, json!({})).await
    }

    /// [`RunningCloud::boot`] with more keys in the request.
    pub async fn boot_with(&self, cloud: &Cloud, name: &str, flavor: &str, more: Value) -> String {
        let mut boot_request = self.boot_request(cloud, name, flavor);
        if let (Some(server), Value::Object(more)) = (boot_request["server"].as_object_mut(), more)
        {
            server.extend(more);
        }
        let answer = self.call(ANN, "2.90", "POST /servers", Some(boot_request)).await.expect(202);
        answer["server"]["id"].as_str().expect("the answer has an id").to_owned()
    }

    /// Boots a server and waits until it is `ACTIVE`.
    pub async fn active_server(&self, cloud: &Cloud, name: &str, flavor: &str) -> String {
        let id = self.boot(cloud, name, flavor).await;
        self.wait_for_status(&id, "ACTIVE").await;
        id
    }

    /// Boots a server on this host as an admin, and waits until it is `ACTIVE`.
    pub async fn active_server_on(&self, cloud: &Cloud, host: &str, flavor: &str) -> String {
        let mut boot_request = self.boot_request(cloud, "one", flavor);
        boot_request["server"]["host"] = json!(host);
        let made = self.admin("2.90", "POST /servers", boot_request).await.expect(202);
        let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
        self.wait_for_status(&id, "ACTIVE").await;
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

    /// Every server of every project, soft-deleted ones included.
    pub async fn servers(&self) -> Vec<Value> {
        let list = self.get("admin", "2.90", ALL_SERVERS).await.expect(200);
        list["servers"].as_array().expect("the answer has a list").clone()
    }

    /// Removes the quota limits of the project.
    pub async fn remove_quota_limits(&self) {
        let quota = json!({"quota_set": {"instances": -1, "cores": -1, "ram": -1}});
        self.admin("2.90", "PUT /os-quota-sets/red", quota).await.expect(200);
    }

    /// Forces the service of a host down, or up again, once it has removed the guests of evacuated servers.
    pub async fn force_down(&self, host: &str, down: bool) {
        let mut answer = self.try_force_down(host, down).await;
        wait_until("the host has removed the guests of evacuated servers", async || {
            let remain = answer.body.to_string().contains("evacuation migration records remain");
            if remain {
                answer = self.try_force_down(host, down).await;
            }
            !remain
        })
        .await;
        answer.expect(200);
    }

    pub async fn try_force_down(&self, host: &str, down: bool) -> Answer {
        let body = json!({"host": host, "binary": "nova-compute", "forced_down": down});
        self.admin("2.11", "PUT /os-services/force-down", body).await
    }

    /// Sends the observation that the host's agent would send for the newest document.
    pub async fn report(&self, cloud: &Cloud, host: &str, id: &str, outcome: Outcome) {
        let server: ServerId = id.parse().expect("the id is a UUID");
        let host = HostName::verbatim(host);
        let own = host.clone();
        let sql = "SELECT generation FROM documents WHERE server_id = ?1 AND host = ?2";
        let row = cloud
            .store
            .read(move |tx| tx.row(sql, params![server, &own]))
            .await
            .expect("the query succeeds");
        let generation = row.expect("the document exists").int(0).expect("the value is a number");
        let epoch = self.compute.fleet.by_name(&host).expect("the host is known").epoch();
        let report = vec![Observation::new(server, generation, outcome)];
        Link(self.compute.clone())
            .observed(&host, epoch, report)
            .await
            .expect("the controller accepts the report");
    }

    /// A client of the Placement API over the same providers.
    pub fn placement(&self) -> Client {
        let (store, world) = (self.compute.store.clone(), self.compute.world.clone());
        let policy = kilonova_placement::policy(&[], Default::default())
            .expect("the default policy is valid");
        let policy = Arc::new(policy);
        let manager = Some(Arc::new(Servers::new(Some(self.compute.clone()))) as _);
        let state = Placement { store, world, policy, manager };
        let routes = kilonova_placement::routes(state);
        let service = kilonova_placement::service();
        Client { router: kilonova_wire::mount(routes, service, "/placement", Arc::new(NoAuth)) }
    }
}
