//! A strict fake of the external Neutron, and the workers that call it.

use std::sync::Arc;
use std::time::Duration;

use kilonova_compute_app::ports::external::{self, CloudNeutron, CloudNeutronOptions};
use kilonova_compute_app::{Compute, reconcile};
use kilonova_keystone::{Endpoint, Http, Login, Retries, Service, Session};
use kilonova_neutron::Neutron;
use kilonova_testkit::neutron::{FakeNeutron, PASSWORD, SERVICE_USER};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Cloud, RunningCloud, wait_until};

/// A fake Neutron with an agent on every host, and a network of the project `red`.
#[derive(Clone)]
pub struct CloudNetwork {
    pub fake: FakeNeutron,
    pub options: CloudNeutronOptions,
    pub network: String,
}

impl CloudNetwork {
    /// A client of the fake with these options.
    pub fn service(&self) -> CloudNeutron {
        let http = Http::plain(Duration::from_secs(20), 1 << 20).expect("the client is created");
        let login = Login {
            auth_url: self.fake.auth_url(),
            username: SERVICE_USER.into(),
            password: PASSWORD.into(),
            user_domain_name: "Default".into(),
            project_name: "service".into(),
            project_domain_name: "Default".into(),
        };
        let endpoint = Endpoint {
            service_types: vec!["network".into()],
            interfaces: vec!["internal".into()],
            ..Endpoint::default()
        };
        let session = Arc::new(Session::new(http, login));
        let service = Service::new(session, endpoint, Retries::default());
        let client = Neutron::new(service, Duration::from_secs(600));
        CloudNeutron::new(client, self.options.clone())
    }
}

impl CloudNetwork {
    /// Checks that each server on a host has exactly one port, which is bound to that host only, and
    /// that there are no other ports. The port of a shelved server is unbound.
    pub fn assert_as_servers_say(&self, servers: &[Value], when: &str) {
        let state = self.fake.state();
        let mut expected = Vec::new();
        for server in servers {
            let host = server["OS-EXT-SRV-ATTR:host"].as_str();
            let id = server["id"].as_str().unwrap_or_default();
            if let Some(host) = host {
                expected.push((id, vec![host.to_owned()]));
            } else if server["status"] == "SHELVED_OFFLOADED" {
                expected.push((id, vec![String::new()]));
            }
        }
        expected.sort();
        let ports = state.ports();
        let text = |port: &Value, key: &str| port[key].as_str().unwrap_or_default().to_owned();
        let mut found: Vec<(String, Vec<String>)> = ports
            .iter()
            .map(|port| (text(port, "device_id"), state.hosts_of(&text(port, "id"))))
            .collect();
        found.sort();
        let found: Vec<(&str, Vec<String>)> =
            found.iter().map(|(id, hosts)| (id.as_str(), hosts.clone())).collect();
        assert_eq!(found, expected, "{when}");
    }
}

impl Cloud {
    /// Starts a fake Neutron with an agent on every host. Services that start later use it, and do not
    /// wait for its events.
    pub async fn start_neutron(&mut self) -> FakeNeutron {
        let fake = FakeNeutron::start().await;
        let network = {
            let mut state = fake.state();
            for host in &self.topology.hosts {
                state.add_agent(&host.name);
            }
            let network = state.add_network("red", "net", json!({}));
            state.add_subnet(&network, "10.99.0.0/24");
            network
        };
        let options = CloudNeutronOptions {
            vif_plugging_timeout: jiff::SignedDuration::ZERO,
            longest_attempt: jiff::SignedDuration::from_secs(4),
            ..CloudNeutronOptions::default()
        };
        self.neutron = Some(CloudNetwork { fake: fake.clone(), options, network });
        fake
    }

    /// Running clouds with a Neutron, one on each store.
    pub async fn all_with_neutron(
        topology: kilonova_node::topology::Topology,
        options: impl Fn(&mut CloudNeutronOptions),
    ) -> Vec<(Self, RunningCloud, FakeNeutron)> {
        let mut all = Vec::new();
        for mut cloud in Self::all(topology).await {
            let fake = cloud.start_neutron().await;
            if let Some(network) = &mut cloud.neutron {
                options(&mut network.options);
            }
            let running = cloud.start().await;
            running.wait_for_hosts().await;
            fake.take_calls();
            all.push((cloud, running, fake));
        }
        all
    }

    /// The networks that every server of a test gets.
    pub fn networks(&self) -> Value {
        match &self.neutron {
            Some(network) => json!([{"uuid": network.network}]),
            None => json!("none"),
        }
    }

    /// Makes the pending calls of a dead process due immediately.
    pub async fn forget_workers(&self) {
        self.execute(
            "UPDATE external_servers SET taken_until = 0, due_at = 0 WHERE due_at IS NOT NULL",
        )
        .await;
    }

    /// Waits until nothing is left to do in Neutron. A deleted server leaves no row.
    pub async fn wait_for_neutron(&self) {
        wait_until("nothing is left to do in Neutron", async || {
            let due = "SELECT server_id FROM external_servers WHERE due_at IS NOT NULL";
            self.column(due).await.is_empty()
        })
        .await;
    }
}

/// Runs the workers of the services until the returned set is dropped.
pub fn start_workers(compute: &Compute) -> JoinSet<()> {
    let mut workers = JoinSet::new();
    if compute.neutron.is_some() {
        workers.spawn(external::run(compute.clone()));
        let compute = compute.clone();
        workers.spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                // The store of a crashed process returns errors.
                let _ = reconcile::neutron::run(compute.clone()).await;
            }
        });
    }
    workers
}
