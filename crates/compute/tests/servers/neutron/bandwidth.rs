//! Ports with guaranteed bandwidth and packet rates: their resources are claimed with the server.

use std::collections::BTreeMap;

use kilonova_compute_app::attention::report::examine;
use kilonova_store::testing::{CrashPlan, Death};
use kilonova_testkit::neutron::{Failure, FakeNeutron};
use kilonova_testkit::shared;
use serde_json::{Value, json};

use super::{clouds, end, event, operate, text};
use crate::kit::{ADMIN, ANN, Answer, Cloud, GPU, RunningCloud, fault, hosts, wait_until};
use crate::servers::host_selection::{placement, send};
use crate::servers::rebalance::two_hosts;
use crate::servers::resize::failure;

const BANDWIDTH: &str = "NET_BW_EGR_KILOBIT_PER_SEC";
const PACKETS: &str = "NET_PACKET_RATE_KILOPACKET_PER_SEC";
const PHYSNET: &str = "CUSTOM_PHYSNET_P";
const VNIC: &str = "CUSTOM_VNIC_TYPE_NORMAL";

/// The providers of Neutron's agent on a host, and of its bridge, which has 1000 kbit/s.
struct Agent {
    agent: String,
    bridge: String,
}

impl Agent {
    /// Adds the providers, as Neutron does.
    async fn add(running: &RunningCloud, host: &str) -> Self {
        Self::add_named(running, host, "Open vSwitch agent").await
    }

    async fn add_named(running: &RunningCloud, host: &str, name: &str) -> Self {
        let path = format!("/resource_providers?name={host}");
        let found = placement(running, "GET", &path, Value::Null).await;
        let root = text(&found["resource_providers"][0], "uuid");
        for name in [PHYSNET, VNIC] {
            placement(running, "PUT", &format!("/traits/{name}"), Value::Null).await;
        }
        let add = async |name: &str, parent: &str, class: &str, traits: &[&str]| {
            let id = uuid::Uuid::new_v4().to_string();
            let body = json!({"name": name, "uuid": id, "parent_provider_uuid": parent});
            placement(running, "POST", "/resource_providers", body).await;
            let path = format!("/resource_providers/{id}");
            let inventories = json!({class: {"total": 1000}});
            let body = json!({"resource_provider_generation": 0, "inventories": inventories});
            placement(running, "PUT", &format!("{path}/inventories"), body).await;
            let body = json!({"resource_provider_generation": 1, "traits": traits});
            placement(running, "PUT", &format!("{path}/traits"), body).await;
            id
        };
        let name = format!("{host}:{name}");
        let agent = add(&name, &root, PACKETS, &[VNIC]).await;
        let name = format!("{name}:br-p");
        let bridge = add(&name, &agent, BANDWIDTH, &[PHYSNET, VNIC]).await;
        Self { agent, bridge }
    }

    /// The bandwidth and the packet rate in use.
    async fn used(&self, running: &RunningCloud) -> (i64, i64) {
        let mut used = Vec::new();
        for (provider, class) in [(&self.bridge, BANDWIDTH), (&self.agent, PACKETS)] {
            let path = format!("/resource_providers/{provider}/usages");
            let usages = placement(running, "GET", &path, Value::Null).await;
            used.push(usages["usages"][class].as_i64().expect("the provider offers the class"));
        }
        (used[0], used[1])
    }
}

/// A port with these guarantees, and the ids of its groups.
fn add_port(cloud: &Cloud, neutron: &FakeNeutron, bandwidth: i64) -> (String, [String; 2]) {
    let network = text(&cloud.networks()[0], "uuid");
    let port = neutron.state().add_port("red", &network, "normal");
    let groups = guarantee(neutron, &port, bandwidth);
    (port, groups)
}

/// Gives a port a policy, or replaces its policy.
fn guarantee(neutron: &FakeNeutron, port: &str, bandwidth: i64) -> [String; 2] {
    let (request, ids) = request(bandwidth);
    neutron.state().set_resource_request(port, request);
    ids
}

/// A request for these guarantees, and the ids of its groups.
fn request(bandwidth: i64) -> (Value, [String; 2]) {
    let ids = [0, 1].map(|_| uuid::Uuid::new_v4().to_string());
    let groups = json!([
        {"id": ids[0], "required": [PHYSNET, VNIC], "resources": {BANDWIDTH: bandwidth}},
        {"id": ids[1], "required": [VNIC], "resources": {PACKETS: 10}},
    ]);
    (json!({"request_groups": groups, "same_subtree": ids}), ids)
}

/// Adds amounts to the allocations of a server, as Neutron does when the policy of a bound port changes. Returns the
/// answer.
async fn shift(running: &RunningCloud, server: &str, changes: &[(&str, &str, i64)]) -> Answer {
    let path = format!("/allocations/{server}");
    let mut body = placement(running, "GET", &path, Value::Null).await;
    for (provider, class, amount) in changes {
        let resources = &mut body["allocations"][provider]["resources"];
        let sum = resources[class].as_i64().unwrap_or_default() + amount;
        match sum {
            0 => drop(resources.as_object_mut().expect("resources").remove(*class)),
            _ => resources[class] = json!(sum),
        }
    }
    let all = body["allocations"].as_object_mut().expect("allocations");
    all.retain(|_, one| one["resources"].as_object().is_some_and(|all| !all.is_empty()));
    send(running, "PUT", &path, body).await
}

fn allocation(neutron: &FakeNeutron, port: &str) -> Value {
    neutron.state().port(port)["binding:profile"]["allocation"].clone()
}

async fn boot(running: &RunningCloud, cloud: &Cloud, name: &str, port: &str) -> String {
    running.boot_with(cloud, name, "plain", json!({"networks": [{"port": port}]})).await
}

async fn boot_on_a(running: &RunningCloud, cloud: &Cloud, port: &str) -> String {
    running.force_down("b", true).await;
    let id = boot(running, cloud, "one", port).await;
    running.wait_for_status(&id, "ACTIVE").await;
    running.force_down("b", false).await;
    id
}

#[tokio::test]
async fn a_boot_claims_what_its_ports_request() {
    for (cloud, mut running, neutron) in clouds(&["a"]).await {
        let agent = Agent::add(&running, "a").await;
        let (port, [one, two]) = add_port(&cloud, &neutron, 600);
        let mut request = running.boot_request(&cloud, "one", "plain");
        request["server"]["networks"] = json!([{"port": port}]);
        let answer = running.call(ANN, "2.71", "POST /servers", Some(request)).await;
        answer.refused(400, "is not supported until microversion 2.72");

        neutron.fail("PUT /ports", Failure::AnswerLost, 2);
        let id = boot(&running, &cloud, "one", &port).await;
        running.wait_for_status(&id, "ACTIVE").await;
        neutron.heal();
        let wanted = json!({one: agent.bridge, two: agent.agent});
        assert_eq!(allocation(&neutron, &port), wanted);
        assert_eq!(agent.used(&running).await, (600, 10));
        cloud.audit("with claims for a port").await;
        let found = examine(&running.compute).await.expect("it is readable");
        assert!(found.findings.is_empty(), "{:?}", found.findings);

        // The providers are Neutron's: the next registration of the host does not touch them.
        running.restart_nodes(&cloud, async |_| ()).await;
        running.wait_for_hosts().await;
        assert_eq!(agent.used(&running).await, (600, 10));

        let (second, _) = add_port(&cloud, &neutron, 401);
        let late = boot(&running, &cloud, "two", &second).await;
        let server = running.wait_for_status(&late, "ERROR").await;
        assert!(fault(&server).contains("No valid host"), "{server}");
        let seen = running.get(ADMIN, "2.90", &format!("/servers/{late}")).await;
        let details = seen.body["server"]["fault"]["details"].to_string();
        assert!(details.contains(BANDWIDTH), "{details}");
        for server in [&id, &late] {
            running.delete(server).await;
            running.wait_until_gone(server).await;
        }
        cloud.forget_workers().await;
        cloud.wait_for_neutron().await;
        assert_eq!(agent.used(&running).await, (0, 0));
        assert_eq!(allocation(&neutron, &port), Value::Null);

        // Neutron lacks the extension for resource request groups.
        let old = json!({"required": [PHYSNET], "resources": {BANDWIDTH: 1000}});
        neutron.state().set_resource_request(&port, old);
        let id = boot(&running, &cloud, "three", &port).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(allocation(&neutron, &port), json!(agent.bridge));
        assert_eq!(agent.used(&running).await, (1000, 0));
        let mut left = [port.as_str(), second.as_str()];
        left.sort_unstable();
        end(&cloud, &running, &neutron, &left).await;
        assert_eq!(agent.used(&running).await, (0, 0));
    }
}

/// The services die between the claim and the binding.
#[tokio::test]
async fn a_restart_keeps_the_providers() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        let agent = Agent::add(&running, "a").await;
        let (port, [one, two]) = add_port(&cloud, &neutron, 600);
        neutron.fail("PUT /ports", Failure::Lost, 1000);
        let id = boot(&running, &cloud, "one", &port).await;
        running.kill().await;
        assert_eq!(allocation(&neutron, &port), Value::Null);
        neutron.heal();
        cloud.forget_workers().await;
        let running = cloud.start().await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(allocation(&neutron, &port), json!({one: agent.bridge, two: agent.agent}));
        end(&cloud, &running, &neutron, &[&port]).await;
    }
}

#[tokio::test]
async fn a_request_that_no_host_can_fulfil_is_refused() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        Agent::add(&running, "a").await;
        let network = text(&cloud.networks()[0], "uuid");
        let port = neutron.state().add_port("red", &network, "normal");
        for (required, class) in [("CUSTOM_NOWHERE", BANDWIDTH), (VNIC, "CUSTOM_NOWHERE")] {
            let group = json!({"id": "g", "required": [required], "resources": {class: 1}});
            neutron.state().set_resource_request(&port, json!({"request_groups": [group]}));
            let id = boot(&running, &cloud, "one", &port).await;
            let server = running.wait_for_status(&id, "ERROR").await;
            assert!(fault(&server).contains("No valid host"), "{server}");
        }
        neutron.state().set_resource_request(&port, json!({"request_groups": [7]}));
        let mut request = running.boot_request(&cloud, "one", "plain");
        request["server"]["networks"] = json!([{"port": port}]);
        let answer = running.call(ANN, "2.90", "POST /servers", Some(request)).await;
        answer.refused(400, "requests resources in a form that is not supported");
        // The boot creates a port on a network with such a policy.
        let group = json!({"id": "g", "resources": {BANDWIDTH: 1}});
        neutron.state().guarantee(&network, json!({"request_groups": [group]}));
        let id = running.boot(&cloud, "one", "plain").await;
        let server = running.wait_for_status(&id, "ERROR").await;
        assert!(fault(&server).contains("Using networks with QoS policy"), "{server}");
        end(&cloud, &running, &neutron, &[&port]).await;
    }
}

#[tokio::test]
async fn claims_follow_their_server() {
    for (cloud, running, neutron) in clouds(&["a", "b"]).await {
        let agents = [Agent::add(&running, "a").await, Agent::add(&running, "b").await];
        let (port, groups) = add_port(&cloud, &neutron, 600);
        let id = boot_on_a(&running, &cloud, &port).await;
        let bound = |groups: &[String; 2], at: usize| json!({&groups[0]: agents[at].bridge, &groups[1]: agents[at].agent});
        let is_at = async |at: usize, when: &str| {
            cloud.wait_for_neutron().await;
            let used = |of: usize| if of == at { (600, 10) } else { (0, 0) };
            wait_until("the claims on the other host are released", async || {
                agents[0].used(&running).await == used(0)
                    && agents[1].used(&running).await == used(1)
            })
            .await;
            assert_eq!(allocation(&neutron, &port), bound(&groups, at), "{when}");
            cloud.audit(when).await;
        };
        is_at(0, "boot").await;
        let live = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
        operate(&running, &id, live.clone()).await;
        running.wait_for_status(&id, "ACTIVE").await;
        is_at(1, "live migration").await;

        // The destination fails, or has no room.
        neutron.state().remove_agent("a");
        for action in [&live, &json!({"migrate": null})] {
            operate(&running, &id, action.clone()).await;
            running.wait_for_status(&id, "ACTIVE").await;
            is_at(1, "failed move").await;
        }
        neutron.state().add_agent("a");
        for (end, at) in [("revertResize", 1), ("confirmResize", 0)] {
            operate(&running, &id, json!({"migrate": null})).await;
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            cloud.wait_for_neutron().await;
            assert_eq!(allocation(&neutron, &port), bound(&groups, 0));
            assert_eq!(agents[0].used(&running).await, (600, 10));
            assert_eq!(agents[1].used(&running).await, (600, 10));
            cloud.audit("two claims").await;
            let path = format!("POST /servers/{id}/action");
            let answer = running.admin("2.90", &path, json!({end: null})).await;
            assert!(answer.status.is_success(), "{}", answer.body);
            running.wait_for_status(&id, "ACTIVE").await;
            is_at(at, end).await;
        }
        running.force_down("a", true).await;
        let path = format!("POST /servers/{id}/action");
        running.admin("2.91", &path, json!({"evacuate": {}})).await.expect(200);
        running.wait_for_status(&id, "ACTIVE").await;
        running.force_down("a", false).await;
        is_at(1, "evacuation").await;

        operate(&running, &id, json!({"shelve": null})).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        cloud.wait_for_neutron().await;
        assert_eq!(agents[1].used(&running).await, (0, 0));
        assert_eq!(allocation(&neutron, &port), Value::Null);
        // The policy of the port may change meanwhile.
        let groups = guarantee(&neutron, &port, 300);
        operate(&running, &id, json!({"unshelve": null})).await;
        let unshelved = |server: &Value| {
            server["status"] == "SHELVED_OFFLOADED" && server["OS-EXT-STS:task_state"].is_null()
        };
        wait_until("the unshelve fails", async || unshelved(&running.server(&id).await)).await;
        cloud.wait_for_neutron().await;
        assert_eq!(agents[0].used(&running).await, (0, 0));
        operate(&running, &id, json!({"unshelve": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.wait_for_neutron().await;
        let at = usize::from(running.server(&id).await["OS-EXT-SRV-ATTR:host"] == "b");
        assert_eq!(allocation(&neutron, &port), bound(&groups, at));
        assert_eq!(agents[at].used(&running).await, (300, 10));
        end(&cloud, &running, &neutron, &[&port]).await;
        assert_eq!(agents[at].used(&running).await, (0, 0));
    }
}

#[tokio::test]
async fn a_port_that_leaves_its_server_releases_its_claims() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        let agent = Agent::add(&running, "a").await;
        let (port, _) = add_port(&cloud, &neutron, 600);
        let id = boot(&running, &cloud, "one", &port).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let path = format!("/servers/{id}/os-interface");
        let (second, _) = add_port(&cloud, &neutron, 401);
        let attach = async || {
            let body = json!({"interfaceAttachment": {"port_id": second}});
            running.call(ANN, "2.90", &format!("POST {path}"), Some(body)).await
        };
        attach().await.refused(400, "Failed to allocate additional resources to instance");
        let groups = guarantee(&neutron, &second, 400);
        // A failed attempt leaves nothing behind.
        neutron.fail("PUT /ports", Failure::Status(500), 1);
        attach().await.refused(503, "The network service is temporarily unavailable");
        cloud.wait_for_neutron().await;
        assert_eq!(agent.used(&running).await, (600, 10));
        attach().await.expect(200);
        let wanted = json!({&groups[0]: agent.bridge, &groups[1]: agent.agent});
        assert_eq!(allocation(&neutron, &second), wanted);
        assert_eq!(agent.used(&running).await, (1000, 20));
        cloud.audit("after the attachment").await;
        running.call(ANN, "2.90", &format!("DELETE {path}/{second}"), None).await.expect(202);
        cloud.wait_for_neutron().await;
        assert_eq!(agent.used(&running).await, (600, 10));
        assert_eq!(allocation(&neutron, &second), Value::Null);

        running.call(ANN, "2.90", &format!("DELETE {path}/{port}"), None).await.expect(202);
        cloud.wait_for_neutron().await;
        assert_eq!(agent.used(&running).await, (0, 0));
        assert_eq!(allocation(&neutron, &port), Value::Null);
        cloud.audit("after the detachment").await;

        let id = boot(&running, &cloud, "two", &port).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(agent.used(&running).await, (600, 10));
        neutron.state().remove_port(&port);
        event(&running, &id, "network-vif-deleted", "completed", &port).await;
        cloud.wait_for_neutron().await;
        assert_eq!(agent.used(&running).await, (0, 0));
        cloud.audit("after the deletion").await;
        end(&cloud, &running, &neutron, &[&second]).await;
    }
}

#[tokio::test]
async fn a_resize_on_one_host_may_change_the_provider() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
        let neutron = cloud.start_neutron().await;
        cloud.options.allow_resize_to_same_host = true;
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        let mut agents = Vec::new();
        for name in ["one", "two"] {
            agents.push(Agent::add_named(&running, "a", name).await);
        }
        let (port, groups) = add_port(&cloud, &neutron, 600);
        let id = boot(&running, &cloud, "one", &port).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let bound =
            |at: usize| json!({&groups[0]: agents[at].bridge, &groups[1]: agents[at].agent});
        let first = usize::from(allocation(&neutron, &port) == bound(1));
        for end in ["revertResize", "confirmResize"] {
            operate(&running, &id, json!({"resize": {"flavorRef": "vgpu"}})).await;
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            cloud.wait_for_neutron().await;
            assert_eq!(allocation(&neutron, &port), bound(1 - first), "{end}");
            cloud.audit("two claims on one host").await;
            let path = format!("POST /servers/{id}/action");
            let answer = running.admin("2.90", &path, json!({end: null})).await;
            assert!(answer.status.is_success(), "{}", answer.body);
            running.wait_for_status(&id, "ACTIVE").await;
            cloud.wait_for_neutron().await;
            let last = if end == "confirmResize" { 1 - first } else { first };
            assert_eq!(allocation(&neutron, &port), bound(last), "{end}");
            assert_eq!(agents[1 - last].used(&running).await, (0, 0), "{end}");
        }
        end(&cloud, &running, &neutron, &[&port]).await;
    }
}

/// Neutron changes the allocations, then the port.
#[tokio::test]
async fn a_policy_of_a_bound_port_may_change() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        let agent = Agent::add(&running, "a").await;
        let bridge = agent.bridge.as_str();
        let (port, _) = add_port(&cloud, &neutron, 300);
        let id = boot(&running, &cloud, "one", &port).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.wait_for_neutron().await;

        let answer = shift(&running, &id, &[(bridge, BANDWIDTH, 400)]).await;
        assert_eq!(answer.status, 204, "{}", answer.body);
        assert_eq!(agent.used(&running).await, (700, 10));
        cloud.audit("after a change of the allocations").await;
        let (wanted, [three, four]) = request(700);
        let named = json!({&three: agent.bridge, &four: agent.agent});
        neutron.state().change_policy(&port, wanted, named.clone());
        neutron.take_calls();
        // Neutron sends no event.
        cloud.wait_for_neutron().await;
        assert_eq!(claims(&cloud, &port).await, [(three, 700), (four, 10)]);
        assert_eq!(agent.used(&running).await, (700, 10));
        let calls = neutron.take_calls();
        assert!(!calls.iter().any(|call| call.starts_with("PUT")), "{calls:?}");
        assert_eq!(allocation(&neutron, &port), named);

        // More than the bridge has.
        let answer = shift(&running, &id, &[(bridge, BANDWIDTH, 301)]).await;
        assert_eq!(answer.status, 409, "{}", answer.body);
        assert_eq!(answer.body["errors"][0]["code"], "placement.undefined_code");
        assert_eq!(agent.used(&running).await, (700, 10));
        cloud.wait_for_neutron().await;

        // The policy no longer guarantees anything.
        let changes = [(bridge, BANDWIDTH, -700), (agent.agent.as_str(), PACKETS, -10)];
        let answer = shift(&running, &id, &changes).await;
        assert_eq!(answer.status, 204, "{}", answer.body);
        assert_eq!(agent.used(&running).await, (0, 0));
        cloud.audit("without allocations").await;
        neutron.state().change_policy(&port, Value::Null, json!({}));
        cloud.wait_for_neutron().await;
        assert_eq!(claims(&cloud, &port).await, []);
        assert_eq!(allocation(&neutron, &port), json!({}));
        operate(&running, &id, json!({"reboot": {"type": "HARD"}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        end(&cloud, &running, &neutron, &[&port]).await;
    }
}

/// A server's allocations for anything but its ports change only with the server.
#[tokio::test]
async fn other_allocations_of_a_server_are_not_changed() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        let agent = Agent::add(&running, "a").await;
        let bridge = agent.bridge.as_str();
        let (port, _) = add_port(&cloud, &neutron, 300);
        let id = boot(&running, &cloud, "one", &port).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.wait_for_neutron().await;
        let root = placement(&running, "GET", "/resource_providers?name=a", Value::Null).await;
        let root = text(&root["resource_providers"][0], "uuid");
        let before = placement(&running, "GET", &format!("/allocations/{id}"), Value::Null).await;
        for changes in [
            vec![(root.as_str(), "VCPU", 1)],
            vec![(root.as_str(), "VCPU", -1), (bridge, BANDWIDTH, 1)],
            vec![(bridge, BANDWIDTH, -301)],
            vec![(bridge, BANDWIDTH, 0)],
        ] {
            let answer = shift(&running, &id, &changes).await;
            assert!(answer.status.is_client_error(), "{changes:?}: {}", answer.body);
        }
        let mut other = before.clone();
        other["allocations"][bridge]["resources"][BANDWIDTH] = json!(400);
        other["project_id"] = json!("blue");
        let path = format!("/allocations/{id}");
        let answer = send(&running, "PUT", &path, other).await;
        assert_eq!(answer.status, 409, "{}", answer.body);
        let message = answer.body["errors"][0]["detail"].to_string();
        assert!(message.contains("its allocations change only with the server"), "{message}");
        assert_eq!(placement(&running, "GET", &path, Value::Null).await, before);
        cloud.audit("after refused changes").await;
        end(&cloud, &running, &neutron, &[&port]).await;
    }
}

/// Placement cannot tell which of two ports on one bridge has changed.
#[tokio::test]
async fn the_changed_one_of_two_ports_is_found() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        let agent = Agent::add(&running, "a").await;
        let bridge = agent.bridge.as_str();
        let (first, _) = add_port(&cloud, &neutron, 300);
        let (second, _) = add_port(&cloud, &neutron, 300);
        let networks = json!({"networks": [{"port": first}, {"port": second}]});
        let id = running.boot_with(&cloud, "one", "plain", networks).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.wait_for_neutron().await;
        for (port, other) in [(&first, &second), (&second, &first)] {
            let before = claims(&cloud, other).await;
            let (wanted, [group, packets]) = request(100);
            let answer = shift(&running, &id, &[(bridge, BANDWIDTH, -200)]).await;
            assert_eq!(answer.status, 204, "{}", answer.body);
            cloud.audit("between both changes").await;
            let named = json!({&group: agent.bridge, &packets: agent.agent});
            neutron.state().change_policy(port, wanted, named);
            event(&running, &id, "network-changed", "completed", port).await;
            cloud.wait_for_neutron().await;
            assert_eq!(claims(&cloud, port).await, [(group, 100), (packets, 10)]);
            assert_eq!(claims(&cloud, other).await, before);
            cloud.audit("after both changes").await;
        }
        assert_eq!(agent.used(&running).await, (200, 20));
        let path = format!("DELETE /servers/{id}/os-interface/{first}");
        running.call(ANN, "2.90", &path, None).await.expect(202);
        cloud.wait_for_neutron().await;
        assert_eq!(agent.used(&running).await, (100, 10));
        let mut left = [first.as_str(), second.as_str()];
        left.sort_unstable();
        end(&cloud, &running, &neutron, &left).await;
        assert_eq!(agent.used(&running).await, (0, 0));
    }
}

/// Changes the policy of a port that is bound on a host where its server has claimed bandwidth, as Neutron does.
async fn change(
    running: &RunningCloud,
    neutron: &FakeNeutron,
    (server, port): (&str, &str),
    agent: &Agent,
    (from, to): (i64, i64),
) -> [String; 2] {
    let answer = shift(running, server, &[(&agent.bridge, BANDWIDTH, to - from)]).await;
    assert_eq!(answer.status, 204, "{}", answer.body);
    let (wanted, groups) = request(to);
    let named = json!({&groups[0]: agent.bridge, &groups[1]: agent.agent});
    neutron.state().change_policy(port, wanted, named);
    event(running, server, "network-changed", "completed", port).await;
    groups
}

/// The policy changes while a resize waits for its confirmation. The migration's claim on the source does not change
/// with it, but the revert claims what the port requests at that time.
#[tokio::test]
async fn a_revert_claims_what_its_ports_request_by_then() {
    for (cloud, running, neutron) in clouds(&["a", "b"]).await {
        let agents = [Agent::add(&running, "a").await, Agent::add(&running, "b").await];
        let (port, _) = add_port(&cloud, &neutron, 300);
        let id = boot_on_a(&running, &cloud, &port).await;
        let (other, _) = add_port(&cloud, &neutron, 400);
        let second = boot_on_a(&running, &cloud, &other).await;
        let revert = async || {
            let path = format!("POST /servers/{id}/action");
            running.admin("2.90", &path, json!({"revertResize": null})).await
        };
        operate(&running, &id, json!({"migrate": null})).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        cloud.wait_for_neutron().await;

        // Neutron cannot change the migration's claim.
        let migration =
            cloud.column("SELECT id FROM moves WHERE held_on IS NOT NULL").await.remove(0);
        let answer = shift(&running, &migration, &[(&agents[0].bridge, BANDWIDTH, 1)]).await;
        assert_eq!(answer.status, 409, "{}", answer.body);
        let message = answer.body["errors"][0]["detail"].to_string();
        assert!(message.contains("is a migration of server"), "{message}");

        change(&running, &neutron, (&id, &port), &agents[1], (300, 700)).await;
        cloud.wait_for_neutron().await;
        assert_eq!(agents[0].used(&running).await, (700, 20));
        assert_eq!(agents[1].used(&running).await, (700, 10));
        let answer = revert().await;
        answer
            .refused(409, &format!("it lacks 700 of {BANDWIDTH} for port {port} (only 600 free)"));
        assert_eq!(running.server(&id).await["status"], "VERIFY_RESIZE");
        assert_eq!(agents[0].used(&running).await, (700, 20));
        cloud.audit("after a refused revert").await;

        // Neutron has changed the allocations, and will change the port shortly.
        let answer = shift(&running, &id, &[(&agents[1].bridge, BANDWIDTH, -100)]).await;
        assert_eq!(answer.status, 204, "{}", answer.body);
        let (wanted, groups) = request(600);
        let named = json!({&groups[0]: agents[1].bridge, &groups[1]: agents[1].agent});
        let policy = async {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            neutron.state().change_policy(&port, wanted, named);
        };
        let (answer, ()) = tokio::join!(revert(), policy);
        assert_eq!(answer.status, 202, "{}", answer.body);
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.wait_for_neutron().await;
        assert_eq!(running.server(&id).await["OS-EXT-SRV-ATTR:host"], "a");
        let bound = json!({&groups[0]: agents[0].bridge, &groups[1]: agents[0].agent});
        assert_eq!(allocation(&neutron, &port), bound);
        assert_eq!(
            claims(&cloud, &port).await,
            [(groups[0].clone(), 600), (groups[1].clone(), 10)]
        );
        assert_eq!(agents[0].used(&running).await, (1000, 20));
        wait_until("the claims on the destination are released", async || {
            agents[1].used(&running).await == (0, 0)
        })
        .await;
        cloud.audit("after the revert").await;

        // The policy no longer guarantees anything.
        operate(&running, &id, json!({"migrate": null})).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        cloud.wait_for_neutron().await;
        let changes = [(&*agents[1].bridge, BANDWIDTH, -600), (&*agents[1].agent, PACKETS, -10)];
        let answer = shift(&running, &id, &changes).await;
        assert_eq!(answer.status, 204, "{}", answer.body);
        neutron.state().change_policy(&port, Value::Null, json!({}));
        neutron.fail("GET /ports", Failure::Status(500), 1000);
        revert().await.refused(503, "The network service is temporarily unavailable");
        neutron.heal();
        assert_eq!(running.server(&id).await["status"], "VERIFY_RESIZE");
        cloud.forget_workers().await;
        let answer = revert().await;
        assert_eq!(answer.status, 202, "{}", answer.body);
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.wait_for_neutron().await;
        assert_eq!(claims(&cloud, &port).await, []);
        assert_eq!(agents[0].used(&running).await, (400, 10));
        running.delete(&second).await;
        running.wait_until_gone(&second).await;
        let mut left = [port.as_str(), other.as_str()];
        left.sort_unstable();
        end(&cloud, &running, &neutron, &left).await;
        assert_eq!(agents[0].used(&running).await, (0, 0));
        assert_eq!(agents[1].used(&running).await, (0, 0));
    }
}

/// The policy changes while the source is asked whether it has the guest. The claims on the source are those of the
/// earlier policy then, so that the revert ends, and can be requested again.
#[tokio::test]
async fn a_revert_ends_if_a_policy_changes_while_the_source_is_asked() {
    for (cloud, mut running, neutron) in clouds(&["a", "b"]).await {
        let agents = [Agent::add(&running, "a").await, Agent::add(&running, "b").await];
        let (port, _) = add_port(&cloud, &neutron, 300);
        let id = boot_on_a(&running, &cloud, &port).await;
        operate(&running, &id, json!({"migrate": null})).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        cloud.wait_for_neutron().await;
        running.nodes.kill("a").await;
        operate(&running, &id, json!({"revertResize": null})).await;
        change(&running, &neutron, (&id, &port), &agents[1], (300, 500)).await;
        running.start_node(&cloud, "a").await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        let why = failure(&running, &id).await;
        assert!(why.contains("changed while the source was asked"), "{why}");
        assert_eq!(running.server(&id).await["OS-EXT-SRV-ATTR:host"], "b");
        assert_eq!(agents[0].used(&running).await, (300, 10));
        assert_eq!(agents[1].used(&running).await, (500, 10));
        cloud.audit("after the change").await;

        // Neutron's event, which came during the operation, is handled half a minute later, so the revert does not wait for it.
        operate(&running, &id, json!({"revertResize": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.wait_for_neutron().await;
        assert_eq!(running.server(&id).await["OS-EXT-SRV-ATTR:host"], "a");
        assert_eq!(agents[0].used(&running).await, (500, 10));
        wait_until("the claims on the destination are released", async || {
            agents[1].used(&running).await == (0, 0)
        })
        .await;
        cloud.audit("after the revert").await;
        end(&cloud, &running, &neutron, &[&port]).await;
    }
}

/// The services crash at each write of a revert after such a change, and their successors complete it. The stores take
/// turns, so that each has both kinds of crash.
#[tokio::test]
async fn a_revert_after_a_change_survives_crashes() {
    for (share, (cloud, mut running, neutron)) in shared(clouds(&["a", "b"]).await) {
        let agents = [Agent::add(&running, "a").await, Agent::add(&running, "b").await];
        let (port, _) = add_port(&cloud, &neutron, 100);
        let id = boot_on_a(&running, &cloud, &port).await;
        let (mut amount, mut crashes) = (100, 0);
        for at in (0..40).filter(|at| share.has(*at as usize / 2)) {
            let death = if at % 2 == 0 { Death::BeforeCommit } else { Death::AfterCommit };
            operate(&running, &id, json!({"migrate": null})).await;
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            cloud.wait_for_neutron().await;
            let next = amount + 10;
            let groups = change(&running, &neutron, (&id, &port), &agents[1], (amount, next)).await;
            cloud.wait_for_neutron().await;
            amount = next;
            let plan = CrashPlan::at(at, death);
            running.replace_services(&cloud, plan.clone()).await;
            let path = format!("POST /servers/{id}/action");
            let body = json!({"revertResize": null});
            let _ = running.admin("2.90", &path, body.clone()).await;
            running.wait_all_idle_or_dead().await;
            let has_died = plan.is_dead();
            cloud.forget_workers().await;
            running.replace_services(&cloud, CrashPlan::default()).await;
            cloud.audit("after a crash").await;
            let server = running.server(&id).await;
            if server["status"] == "VERIFY_RESIZE" && server["OS-EXT-STS:task_state"].is_null() {
                let answer = running.admin("2.90", &path, body).await;
                assert_eq!(answer.status, 202, "{}", answer.body);
            }
            running.wait_for_status(&id, "ACTIVE").await;
            cloud.wait_for_neutron().await;
            let bound = json!({&groups[0]: agents[0].bridge, &groups[1]: agents[0].agent});
            assert_eq!(allocation(&neutron, &port), bound, "crash at write {at}");
            assert_eq!(agents[0].used(&running).await, (amount, 10), "crash at write {at}");
            wait_until("the claims on the destination are released", async || {
                agents[1].used(&running).await == (0, 0)
            })
            .await;
            crashes += u32::from(has_died);
            if !has_died {
                break;
            }
        }
        assert!(crashes >= share.least(4), "{}: {crashes} crashes", cloud.name);
        end(&cloud, &running, &neutron, &[&port]).await;
    }
}

/// A request with several ports reads the resource requests of all of them in one call.
#[tokio::test]
async fn the_requests_of_several_ports_are_one_list() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        Agent::add(&running, "a").await;
        let ports: Vec<String> = (0..3).map(|_| add_port(&cloud, &neutron, 100).0).collect();
        let networks: Vec<Value> = ports.iter().map(|port| json!({"port": port})).collect();
        let mut request = running.boot_request(&cloud, "one", "plain");
        request["server"]["networks"] = json!(networks);
        neutron.take_calls();
        let answer = running.call(ANN, "2.71", "POST /servers", Some(request)).await;
        answer.refused(400, "is not supported until microversion 2.72");
        let mut calls = neutron.take_calls();
        calls.retain(|call| call.starts_with("GET /ports") && call.ends_with("(admin)"));
        assert_eq!(calls, ["GET /ports (admin)"]);
        let id = running.boot_with(&cloud, "one", "plain", json!({"networks": networks})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.wait_for_neutron().await;
        for port in &ports {
            assert_eq!(claims(&cloud, port).await.len(), 2);
        }
        let mut left: Vec<&str> = ports.iter().map(String::as_str).collect();
        left.sort_unstable();
        end(&cloud, &running, &neutron, &left).await;
    }
}

/// A plan moves no guest to a host without the bandwidth that its ports have claimed.
#[tokio::test]
async fn plans_of_moves_count_the_bandwidth_of_ports() {
    for (cloud, running, neutron) in Cloud::all_with_neutron(two_hosts(), |_| {}).await {
        Agent::add(&running, "a").await;
        let there = Agent::add(&running, "b").await;
        let (port, _) = add_port(&cloud, &neutron, 600);
        running.force_down("b", true).await;
        let networks = json!({"networks": [{"port": port}]});
        let one = running.boot_with(&cloud, "one", "vgpu", networks).await;
        running.wait_for_status(&one, "ACTIVE").await;
        running.force_down("b", false).await;
        let two = running.active_server_on(&cloud, "b", "vgpu").await;
        operate(&running, &two, json!({"lock": null})).await;
        cloud.wait_for_neutron().await;
        let plan = async || {
            let path = "/kilonova/rebalance?flavor=vgpu4";
            running.get(ADMIN, "2.1", path).await.expect(200)["rebalance"]["moves"].take()
        };
        let moves = plan().await;
        assert_eq!(moves[0]["server"], json!(one), "{moves}");
        assert_eq!(moves[0]["to"], "b", "{moves}");
        let path = format!("/resource_providers/{}/inventories", there.bridge);
        let mut body = placement(&running, "GET", &path, Value::Null).await;
        body["inventories"][BANDWIDTH]["total"] = json!(599);
        placement(&running, "PUT", &path, body).await;
        assert_eq!(plan().await, json!([]));
        operate(&running, &two, json!({"unlock": null})).await;
        let moves = plan().await;
        assert_eq!((&moves[0]["server"], &moves[0]["to"]), (&json!(two), &json!("a")), "{moves}");
        end(&cloud, &running, &neutron, &[&port]).await;
    }
}

/// The claims for a port by group: that for bandwidth, then that for packets.
async fn claims(cloud: &Cloud, port: &str) -> Vec<(String, i64)> {
    let query = "SELECT port_id || ' ' || group_id || ' ' || resources FROM port_claims";
    let mut found: Vec<(String, String, i64)> = Vec::new();
    for claim in cloud.column(query).await {
        let [owner, group, resources] = claim.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("three columns: {claim}");
        };
        if owner == port {
            let resources: BTreeMap<String, i64> =
                serde_json::from_str(resources).expect("the resources are JSON");
            let (class, amount) = resources.into_iter().next().expect("one class");
            found.push((class, group.to_owned(), amount));
        }
    }
    found.sort();
    found.into_iter().map(|(_, group, amount)| (group, amount)).collect()
}
