//! An external Neutron as the network service. A strict fake takes its place and fails on demand.

mod bandwidth;
mod hybrid;
mod live_plugging;
mod plugging;

use std::time::Duration;

use jiff::SignedDuration;
use kilonova_compute_app::ports::external::{self, Attempt, CloudNeutronOptions};
use kilonova_ids::{NetworkId, ServerId};
use kilonova_store::testing::CrashPlan;
use kilonova_store::{Tx, params};
use kilonova_testkit::neutron::{Failure, FakeNeutron};
use kilonova_testkit::shared;
use kilonova_wire::time;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, BOB, Cloud, RunningCloud, fault, hosts, wait_until};
use crate::servers::instance_actions::{actions, succeeded};

const BAD: &str = "fail = [{ step = \"start\" }]";

async fn clouds(names: &[&str]) -> Vec<(Cloud, RunningCloud, FakeNeutron)> {
    clouds_with(names, |_| {}).await
}

async fn clouds_with(
    names: &[&str],
    options: impl Fn(&mut CloudNeutronOptions),
) -> Vec<(Cloud, RunningCloud, FakeNeutron)> {
    let hosts = hosts(&names.iter().map(|name| (*name, &[][..])).collect::<Vec<_>>());
    Cloud::all_with_neutron(hosts, options).await
}

/// Deletes all servers, and checks that Neutron then has only these ports.
async fn end(cloud: &Cloud, running: &RunningCloud, neutron: &FakeNeutron, left: &[&str]) {
    neutron.heal();
    cloud.forget_workers().await;
    cloud.teardown(running, "at the end").await;
    cloud.forget_workers().await;
    cloud.wait_for_neutron().await;
    assert!(cloud.column("SELECT server_id FROM external_servers").await.is_empty());
    assert!(cloud.column("SELECT server_id FROM external_ports").await.is_empty());
    let state = neutron.state();
    let ids: Vec<String> = state.ports().iter().map(|port| text(port, "id")).collect();
    assert_eq!(ids, left, "{:?}", state.ports());
    for port in state.ports() {
        assert_eq!(text(&port, "device_id"), "");
        assert_eq!(text(&port, "binding:host_id"), "");
    }
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

/// The only port of a server.
fn port_of(neutron: &FakeNeutron, server: &str) -> Value {
    let ports = neutron.state().ports();
    let mut found = ports.into_iter().filter(|port| port["device_id"] == server);
    let port = found.next().expect("the server has a port");
    assert!(found.next().is_none(), "the server has one port");
    port
}

fn hosts_of(neutron: &FakeNeutron, server: &str) -> Vec<String> {
    let port = text(&port_of(neutron, server), "id");
    neutron.state().hosts_of(&port)
}

async fn event(running: &RunningCloud, server: &str, name: &str, status: &str, port: &str) {
    let event = json!({"server_uuid": server, "name": name, "status": status, "tag": port});
    let body = json!({"events": [event]});
    running.admin("2.1", "POST /os-server-external-events", body).await.expect(200);
}

#[tokio::test]
async fn a_boot_creates_binds_and_shows_its_ports() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        let network = cloud.networks()[0]["uuid"].clone();
        let supplied =
            neutron.state().add_port("red", network.as_str().unwrap_or_default(), "normal");
        let networks = json!([{"port": supplied, "tag": "first"}, {"uuid": network}]);
        let more = json!({"networks": networks});
        let id = running.boot_with(&cloud, "one", "plain", more).await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        let calls = neutron.take_calls();
        assert!(calls.contains(&"POST /ports (member)".to_owned()), "{calls:?}");
        let ports: Vec<Value> = neutron.state().ports();
        assert_eq!(ports.len(), 2);
        for port in &ports {
            assert_eq!(text(port, "device_id"), id);
            assert_eq!(text(port, "device_owner"), "compute:nova");
            assert_eq!(text(port, "binding:host_id"), "a");
            assert_eq!(text(port, "dns_name"), "one");
        }
        // The addresses are in the order of the request; a floating IP follows its fixed address.
        let addresses = server["addresses"]["net"].as_array().expect("there are addresses").clone();
        let first = neutron.state().port(&supplied);
        assert_eq!(addresses.len(), 2, "{addresses:?}");
        assert_eq!(addresses[0]["addr"], first["fixed_ips"][0]["ip_address"]);
        assert_eq!(addresses[0]["OS-EXT-IPS-MAC:mac_addr"], first["mac_address"]);
        assert_eq!(server["security_groups"], json!([{"name": "default"}]));
        let shown = running.get(ANN, "2.90", &format!("/servers/{id}/os-interface")).await;
        let shown = shown.body["interfaceAttachments"].clone();
        assert_eq!((&shown[0]["port_id"], &shown[0]["tag"]), (&json!(supplied), &json!("first")));
        assert_eq!(shown[1]["fixed_ips"][0]["ip_address"], addresses[1]["addr"]);
        let groups = running.get(ANN, "2.90", &format!("/servers/{id}/os-security-groups")).await;
        assert_eq!(groups.body["security_groups"][0]["name"], "default");
        // The host connects the ports to Neutron's bridge.
        let document = cloud.column("SELECT body FROM documents").await.remove(0);
        assert!(document.contains(r#""vif":{"type":"ovs","bridge":"br-int"}"#), "{document}");
        assert!(document.contains(r#""security_groups":["default"]"#), "{document}");

        let fixed = text(&addresses[0], "addr");
        neutron.state().add_floating_ip(&supplied, &fixed, "203.0.113.7");
        event(&running, &id, "network-changed", "completed", &supplied).await;
        wait_until("the floating IP is shown", async || {
            let server = running.server(&id).await;
            let second = &server["addresses"]["net"][1];
            second["OS-EXT-IPS:type"] == "floating" && second["addr"] == "203.0.113.7"
        })
        .await;
        // Lists send no requests to Neutron.
        cloud.wait_for_neutron().await;
        neutron.take_calls();
        let path = format!("/servers/detail?ip={fixed}");
        let list = running.get(ANN, "2.90", &path).await.expect(200);
        assert_eq!(list["servers"][0]["id"], json!(id));
        assert_eq!(neutron.take_calls(), Vec::<String>::new());
        end(&cloud, &running, &neutron, &[&supplied]).await;
    }
}

#[tokio::test]
async fn a_boot_is_checked_before_it_is_accepted() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        let network = text(&cloud.networks()[0], "uuid");
        let port = neutron.state().add_port("red", &network, "normal");
        let try_boot = async |token: &str, networks: Value| {
            let mut request = running.boot_request(&cloud, "one", "plain");
            request["server"]["networks"] = networks;
            running.call(token, "2.90", "POST /servers", Some(request)).await
        };
        let missing = "11111111-1111-4111-8111-111111111111";
        let words = format!("Network {missing} could not be found.");
        try_boot(ANN, json!([{"uuid": missing}])).await.refused(400, &words);
        let words = format!("Port id {port} could not be found.");
        try_boot(BOB, json!([{"port": port}])).await.refused(400, &words);
        neutron.state().change_port(&port, "device_id", json!("another"));
        let words = format!("Port {port} is still in use.");
        try_boot(ANN, json!([{"port": port}])).await.refused(409, &words);
        neutron.state().change_port(&port, "device_id", json!(""));
        neutron.state().set_port_quota("red", 1);
        let networks = json!([{"uuid": network}]);
        try_boot(ANN, networks.clone()).await.refused(403, "Maximum number of ports exceeded");
        neutron.state().set_port_quota("red", -1);
        neutron.fail("GET /networks", Failure::Status(500), 20);
        let answer = try_boot(ANN, networks).await;
        assert_eq!(answer.headers["retry-after"], "1");
        answer.refused(503, "The network service is temporarily unavailable");
        assert!(running.servers().await.is_empty());
        end(&cloud, &running, &neutron, &[&port]).await;
    }
}

/// Of two boots with the same port, one is refused.
#[tokio::test]
async fn a_port_is_given_to_one_server() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        let network = text(&cloud.networks()[0], "uuid");
        let port = neutron.state().add_port("red", &network, "normal");
        let request = |name: &str| {
            let mut request = running.boot_request(&cloud, name, "plain");
            request["server"]["networks"] = json!([{"port": port}]);
            running.call(ANN, "2.90", "POST /servers", Some(request))
        };
        let (one, two) = tokio::join!(request("one"), request("two"));
        let mut codes = [one.status.as_u16(), two.status.as_u16()];
        codes.sort_unstable();
        assert_eq!(codes, [202, 409], "{} {}", one.body, two.body);
        running.wait_all_idle().await;
        end(&cloud, &running, &neutron, &[&port]).await;
    }
}

#[tokio::test]
async fn another_host_is_tried_where_a_binding_fails() {
    for (cloud, running, neutron) in clouds(&["a", "b"]).await {
        neutron.state().remove_agent("a");
        for name in ["one", "two"] {
            let id = running.active_server(&cloud, name, "plain").await;
            assert_eq!(running.server(&id).await["OS-EXT-SRV-ATTR:host"], "b");
            assert_eq!(hosts_of(&neutron, &id), ["b"]);
        }
        neutron.state().remove_agent("b");
        let id = running.boot(&cloud, "three", "plain").await;
        let server = running.wait_for_status(&id, "ERROR").await;
        assert!(fault(&server).contains("Binding failed for port"), "{server}");
        cloud.wait_for_neutron().await;
        assert_eq!(neutron.state().ports().len(), 2, "nothing is left of the third");
        end(&cloud, &running, &neutron, &[]).await;
    }
}

#[tokio::test]
async fn a_guest_that_fails_on_one_host_is_bound_to_the_next() {
    let topology = hosts(&[("a", &[BAD]), ("b", &[])]);
    for (cloud, running, neutron) in Cloud::all_with_neutron(topology, |_| {}).await {
        for _ in 0..3 {
            let id = running.active_server(&cloud, "one", "plain").await;
            assert_eq!(hosts_of(&neutron, &id), ["b"]);
        }
        end(&cloud, &running, &neutron, &[]).await;
    }
}

/// Each call of a boot and of a deletion fails in each way, and is repeated until it succeeds. The stores share the
/// combinations.
#[tokio::test]
async fn every_call_of_a_boot_may_fail() {
    let calls = ["GET /ports", "POST /ports", "PUT /ports", "GET /subnets", "GET /floatingips"];
    for (share, (cloud, running, neutron)) in shared(clouds(&["a"]).await) {
        for (at, call) in calls.into_iter().enumerate() {
            let slow = Failure::Slow(Duration::from_millis(300));
            let failures = [Failure::Status(500), Failure::Lost, Failure::AnswerLost, slow];
            for (kind, failure) in failures.into_iter().enumerate() {
                if !share.has(at + kind) {
                    continue;
                }
                let id = running.boot(&cloud, "one", "plain").await;
                // The request itself has been answered.
                neutron.fail(call, failure, 2);
                running.wait_for_status(&id, "ACTIVE").await;
                neutron.heal();
                assert_eq!(hosts_of(&neutron, &id), ["a"], "{call} {failure:?}");
                for call in ["GET /ports", "DELETE /ports"] {
                    neutron.fail(call, failure, 1);
                }
                running.delete(&id).await;
                running.wait_until_gone(&id).await;
                cloud.wait_for_neutron().await;
                neutron.heal();
                assert_eq!(neutron.state().ports(), Vec::<Value>::new(), "{call} {failure:?}");
            }
        }
        end(&cloud, &running, &neutron, &[]).await;
    }
}

/// Neutron is killed at each call of a boot in turn, and starts again a moment later. A request that was accepted
/// results in an active server, and any other request leaves nothing behind. The stores take turns.
#[tokio::test]
async fn a_boot_survives_an_outage() {
    for (share, (cloud, running, neutron)) in shared(clouds(&["a"]).await) {
        let mut accepted = 0;
        for requests in (1..).filter(|requests| share.has(*requests)) {
            neutron.die_after(requests);
            let request = running.boot_request(&cloud, "one", "plain");
            let answer = running.call(ANN, "2.90", "POST /servers", Some(request)).await;
            if answer.status != 202 {
                answer.refused(503, "The network service is temporarily unavailable");
                neutron.heal();
                assert_eq!(neutron.state().ports(), Vec::<Value>::new());
                continue;
            }
            accepted += 1;
            let id = text(&answer.body["server"], "id");
            wait_until("Neutron is dead, or no longer needed", async || {
                let server = running.server(&id).await;
                neutron.is_dead() || server["status"] == "ACTIVE"
            })
            .await;
            let has_died = neutron.is_dead();
            tokio::time::sleep(Duration::from_millis(50)).await;
            neutron.heal();
            running.wait_for_status(&id, "ACTIVE").await;
            cloud.wait_for_neutron().await;
            assert_eq!(hosts_of(&neutron, &id), ["a"], "after {requests} requests");
            running.delete(&id).await;
            running.wait_until_gone(&id).await;
            cloud.wait_for_neutron().await;
            assert_eq!(neutron.state().ports(), Vec::<Value>::new());
            if !has_died {
                break;
            }
        }
        assert!(accepted >= share.least(4), "{accepted} boots");
        end(&cloud, &running, &neutron, &[]).await;
    }
}

#[tokio::test]
async fn a_build_does_not_wait_for_neutron_for_ever() {
    for (cloud, running, neutron) in
        clouds_with(&["a"], |options| options.timeout = SignedDuration::from_millis(1)).await
    {
        neutron.fail("POST /ports", Failure::Status(503), 1000);
        let id = running.boot(&cloud, "one", "plain").await;
        let server = running.wait_for_status(&id, "ERROR").await;
        assert!(text(&server["fault"], "message").contains("aborted"), "{server}");
        assert!(!server.to_string().contains(ANN), "no token is shown");
        // A deleted server is gone even while Neutron fails; its ports are deleted later.
        neutron.heal();
        let id = running.active_server(&cloud, "two", "plain").await;
        neutron.fail("DELETE /ports", Failure::Status(503), 3);
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.wait_for_neutron().await;
        assert_eq!(neutron.state().ports(), Vec::<Value>::new());
        // A refusal is no reason to try another host.
        neutron.state().set_port_quota("red", 1);
        let boots = json!({"min_count": 1, "max_count": 1});
        let first = running.boot_with(&cloud, "three", "plain", boots).await;
        running.wait_for_status(&first, "ACTIVE").await;
        end(&cloud, &running, &neutron, &[]).await;
    }
}

#[tokio::test]
async fn interfaces_come_and_go() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        let network = text(&cloud.networks()[0], "uuid");
        let id = running.active_server(&cloud, "one", "plain").await;
        let path = format!("/servers/{id}/os-interface");
        let attach = async |body: Value| {
            running.call(ANN, "2.90", &format!("POST {path}"), Some(body)).await
        };
        let supplied = neutron.state().add_port("red", &network, "normal");
        let body = json!({"interfaceAttachment": {"port_id": supplied, "tag": "second"}});
        let shown = attach(body.clone()).await.expect(200);
        assert_eq!(shown["interfaceAttachment"]["port_id"], json!(supplied));
        assert_eq!(shown["interfaceAttachment"]["tag"], "second");
        attach(body).await.refused(409, &format!("Port {supplied} is still in use."));
        // A boot answers these with other codes.
        let unknown = NetworkId::new_v4();
        let address = neutron.state().port(&supplied)["fixed_ips"][0]["ip_address"].clone();
        let taken = json!({"net_id": network, "fixed_ips": [{"ip_address": address}]});
        let taken_words =
            format!("Fixed IP {} is already in use.", address.as_str().expect("an address"));
        for (attachment, status, words) in [
            (json!({"port_id": unknown}), 404, format!("Port id {unknown} could not be found.")),
            (json!({"net_id": unknown}), 404, format!("Network {unknown} could not be found.")),
            (taken, 409, taken_words),
        ] {
            attach(json!({"interfaceAttachment": attachment})).await.refused(status, &words);
        }
        let spare = neutron.state().add_network("red", "spare", json!({}));
        neutron.state().add_subnet(&spare, "10.98.0.0/24");
        attach(json!({})).await.refused(400, "Multiple possible networks found");
        let body = json!({"interfaceAttachment": {"net_id": network}});
        let shown = attach(body.clone()).await.expect(200);
        let made = text(&shown["interfaceAttachment"], "port_id");
        let documents = cloud.column("SELECT body FROM documents").await;
        assert!(documents[0].contains(&supplied) && documents[0].contains(&made));
        assert_eq!(running.server(&id).await["addresses"]["net"].as_array().map(Vec::len), Some(3));

        // A failed attempt leaves nothing behind.
        for failure in [Failure::Status(500), Failure::AnswerLost] {
            neutron.fail("PUT /ports", failure, 1);
            attach(body.clone())
                .await
                .refused(503, "The network service is temporarily unavailable");
            // Otherwise the worker that cleans up may meet the next failure instead.
            cloud.wait_for_neutron().await;
            neutron.fail("POST /ports", failure, 1);
            attach(body.clone())
                .await
                .refused(503, "The network service is temporarily unavailable");
            neutron.heal();
            cloud.wait_for_neutron().await;
            wait_until("nothing is left", async || neutron.state().ports().len() == 3).await;
        }
        neutron.state().set_port_quota("red", 3);
        attach(body).await.refused(403, "Maximum number of ports exceeded");
        let (action, message, events) = actions(&running, &id).await.pop().expect("an action");
        assert_eq!((action.as_str(), message), ("attach_interface", json!("Error")));
        assert_eq!(events, [("compute_attach_interface".into(), "Error".into())]);

        for port in [&made, &supplied] {
            let what = format!("DELETE {path}/{port}");
            running.call(ANN, "2.90", &what, None).await.expect(202);
            let last = actions(&running, &id).await.pop().expect("an action");
            assert_eq!(last, succeeded("detach_interface", "compute_detach_interface"));
            running.call(ANN, "2.90", &what, None).await.refused(404, "");
        }
        cloud.wait_for_neutron().await;
        let ports = neutron.state().ports();
        assert_eq!(ports.len(), 2);
        assert_eq!(text(&neutron.state().port(&supplied), "device_id"), "");
        assert_eq!(running.server(&id).await["addresses"]["net"].as_array().map(Vec::len), Some(1));
        let documents = cloud.column("SELECT body FROM documents").await;
        assert!(!documents[0].contains(&supplied) && !documents[0].contains(&made));
        end(&cloud, &running, &neutron, &[&supplied]).await;
    }
}

#[tokio::test]
async fn a_detachment_outlives_the_host() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        let network = text(&cloud.networks()[0], "uuid");
        let id = running.active_server(&cloud, "one", "plain").await;
        let path = format!("/servers/{id}/os-interface");
        let body = json!({"interfaceAttachment": {"net_id": network}});
        let shown =
            running.call(ANN, "2.90", &format!("POST {path}"), Some(body)).await.expect(200);
        let made = text(&shown["interfaceAttachment"], "port_id");
        neutron.fail("DELETE /ports", Failure::Status(500), 1000);
        running.call(ANN, "2.90", &format!("DELETE {path}/{made}"), None).await.expect(202);
        operate(&running, &id, json!({"shelve": null})).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        neutron.heal();
        cloud.forget_workers().await;
        cloud.wait_for_neutron().await;
        let left: Vec<String> =
            neutron.state().ports().iter().map(|port| text(port, "id")).collect();
        assert!(left.len() == 1 && left[0] != made, "{left:?}");
        end(&cloud, &running, &neutron, &[]).await;
    }
}

/// A created port is deleted, whether it became unwanted before the answer or the worker died.
#[tokio::test]
async fn ports_that_are_given_up_are_deleted() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        neutron.fail("PUT /ports", Failure::Slow(Duration::from_millis(500)), 1);
        let id = running.boot(&cloud, "one", "plain").await;
        wait_until("the port is created", async || !neutron.state().ports().is_empty()).await;
        cloud.execute("UPDATE external_ports SET is_leaving = 1").await;
        cloud.execute("UPDATE external_servers SET revision = revision + 1").await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.wait_for_neutron().await;
        assert_eq!(neutron.state().ports(), Vec::<Value>::new(), "the port became unwanted");

        let id = running.active_server(&cloud, "two", "plain").await;
        cloud.wait_for_neutron().await;
        cloud.execute("UPDATE external_ports SET is_leaving = 1, port_id = NULL").await;
        cloud.execute("UPDATE external_servers SET due_at = 0").await;
        cloud.wait_for_neutron().await;
        assert_eq!(neutron.state().ports(), Vec::<Value>::new(), "the worker died");
        assert_eq!(running.server(&id).await["addresses"], json!({}));
        end(&cloud, &running, &neutron, &[]).await;
    }
}

/// A worker respects the pause that another worker has set.
#[tokio::test]
async fn a_server_is_not_taken_before_it_is_due() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        cloud.wait_for_neutron().await;
        let server: ServerId = id.parse().expect("the id is a UUID");
        neutron.take_calls();
        cloud.execute("UPDATE external_servers SET due_at = 9000000000000000").await;
        let attempt = external::settle(&running.compute, server).await.expect("the row is read");
        assert!(matches!(attempt, Attempt::None), "{attempt:?}");
        assert_eq!(neutron.take_calls(), Vec::<String>::new());
        cloud.execute("UPDATE external_servers SET due_at = 1").await;
        cloud.wait_for_neutron().await;
        end(&cloud, &running, &neutron, &[]).await;
    }
}

/// A restarted controller ends the leases of its killed process, and no others.
#[tokio::test]
async fn a_controller_ends_the_leases_of_its_dead_process() {
    for (cloud, mut running, neutron) in clouds(&["a"]).await {
        let mut ids = Vec::new();
        for name in ["own", "others"] {
            ids.push(running.active_server(&cloud, name, "plain").await);
        }
        cloud.wait_for_neutron().await;
        let earlier = running.compute.controller.clone();
        running.replace_services(&cloud, CrashPlan::default()).await;
        let take = "UPDATE external_servers SET due_at = 1, taken_until = 9000000000000000,
            taken_by = 'another'";
        cloud.execute(take).await;
        let (id, by) = (ids[0].clone(), earlier.to_string());
        let own = "UPDATE external_servers SET taken_by = ?2 WHERE server_id = ?1";
        let own = move |tx: &mut Tx<'_>| tx.execute(own, params![id.as_str(), by.as_str()]);
        cloud.store.write(own).await.expect("the row is written");
        let next = running.compute.clone().with_controller(&earlier);
        next.end_earlier_leases().await.expect("the database answers");
        let sql = "SELECT server_id FROM external_servers WHERE taken_until < 9000000000000000";
        assert_eq!(cloud.column(sql).await, ids[..1]);
        let sql = "SELECT CAST(taken_until AS TEXT) FROM external_servers ORDER BY taken_until";
        let until: i64 = cloud.column(sql).await[0].parse().expect("the value is a number");
        let soon = time::after(time::now(), SignedDuration::from_secs(11)).as_microsecond();
        assert!(until < soon, "calls that were sent have a moment to complete");
        end(&cloud, &running, &neutron, &[]).await;
    }
}

#[tokio::test]
async fn a_port_that_is_deleted_in_neutron_leaves_the_guest() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let port = text(&port_of(&neutron, &id), "id");
        neutron.state().remove_port(&port);
        event(&running, &id, "network-vif-deleted", "completed", &port).await;
        wait_until("the port is gone", async || {
            running.server(&id).await["addresses"] == json!({})
        })
        .await;
        let documents = cloud.column("SELECT body FROM documents").await;
        assert!(!documents[0].contains(&port), "{documents:?}");
        end(&cloud, &running, &neutron, &[]).await;
    }
}

#[tokio::test]
async fn security_groups_are_changed_on_the_ports() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        let group = neutron.state().add_group("red", "web", false);
        let id = running.active_server(&cloud, "one", "plain").await;
        running
            .try_act(&id, json!({"addSecurityGroup": {"name": "no"}}))
            .await
            .refused(404, "no not found");
        let found = running.get(ANN, "2.35", "/os-security-groups").await.expect(200);
        let found = found["security_groups"].as_array().expect("it is a list").clone();
        assert!(found.iter().any(|one| one["id"] == *group && one["name"] == "web"), "{found:?}");
        running.act(&id, json!({"addSecurityGroup": {"name": "web"}})).await;
        let groups = || port_of(&neutron, &id)["security_groups"].clone();
        assert!(groups().as_array().is_some_and(|all| all.contains(&json!(group))), "{}", groups());
        let shown = running.server(&id).await["security_groups"].clone();
        assert_eq!(shown, json!([{"name": "default"}, {"name": "web"}]), "at once");
        running.act(&id, json!({"removeSecurityGroup": {"name": "web"}})).await;
        assert!(groups().as_array().is_some_and(|all| !all.contains(&json!(group))));
        let shown = running.server(&id).await["security_groups"].clone();
        assert_eq!(shown, json!([{"name": "default"}]), "at once");
        let again = running.try_act(&id, json!({"removeSecurityGroup": {"name": "web"}})).await;
        again.refused(404, "not associated with the instance");

        let port = text(&port_of(&neutron, &id), "id");
        let add = async || running.try_act(&id, json!({"addSecurityGroup": {"name": "web"}})).await;
        let why = "Network requires port_security_enabled and subnet associated in order to apply \
                   security groups.";
        let addresses = neutron.state().port(&port)["fixed_ips"].clone();
        for (key, value, before) in [
            ("port_security_enabled", json!(false), json!(true)),
            ("fixed_ips", json!([]), addresses),
        ] {
            neutron.state().change_port(&port, key, value);
            add().await.refused(400, why);
            assert!(groups().as_array().is_some_and(|all| !all.contains(&json!(group))), "{key}");
            neutron.state().change_port(&port, key, before);
        }
        let bare = json!({"networks": "none"});
        let bare = running.boot_with(&cloud, "bare", "plain", bare).await;
        running.wait_for_status(&bare, "ACTIVE").await;
        let answer = running.try_act(&bare, json!({"addSecurityGroup": {"name": "web"}})).await;
        answer.refused(
            404,
            &format!("instance_id {bare} could not be found as device id on any ports"),
        );
        running.delete(&bare).await;
        running.wait_until_gone(&bare).await;
        end(&cloud, &running, &neutron, &[]).await;
    }
}

#[tokio::test]
async fn addresses_are_changed_on_the_ports() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        let network = text(&cloud.networks()[0], "uuid");
        let id = running.active_server(&cloud, "one", "plain").await;
        let path = format!("POST /servers/{id}/action");
        let act = async |action: Value| running.call(ANN, "2.43", &path, Some(action)).await;
        let fixed = || -> Vec<String> {
            let fixed = port_of(&neutron, &id)["fixed_ips"].clone();
            fixed.as_array().into_iter().flatten().map(|ip| text(ip, "ip_address")).collect()
        };
        let shown = async || -> Vec<String> {
            let list = running.server(&id).await["addresses"]["net"].clone();
            list.as_array().into_iter().flatten().map(|address| text(address, "addr")).collect()
        };
        let before = fixed();
        act(json!({"addFixedIp": {"networkId": network}})).await.expect(202);
        let both = fixed();
        assert_eq!((both.len(), &both[0]), (2, &before[0]));
        assert_eq!(shown().await, both, "at once");
        wait_until("the host learns the address", async || {
            cloud.column("SELECT body FROM documents").await[0].contains(&both[1])
        })
        .await;
        let remove = json!({"removeFixedIp": {"address": before[0]}});
        act(remove.clone()).await.expect(202);
        assert_eq!(fixed(), both[1..]);
        assert_eq!(shown().await, both[1..], "at once");
        let words = format!("Instance {id} does not have fixed IP '{}'.", before[0]);
        act(remove).await.refused(400, &words);
        let unknown = json!({"addFixedIp": {"networkId": NetworkId::new_v4()}});
        let words = format!("Network could not be found for instance {id}.");
        act(unknown).await.refused(404, &words);
        end(&cloud, &running, &neutron, &[]).await;
    }
}

/// A request that changes ports waits for a worker: calls of its own would end with its client, and block the workers.
#[tokio::test]
async fn a_client_that_waits_for_its_ports_leases_no_server() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        cloud.wait_for_neutron().await;
        let compute = running.compute.clone();
        running.kill().await;
        cloud.forget_workers().await;
        cloud.execute("UPDATE external_servers SET due_at = 0").await;
        let waits = compute.refresh_ports(id.parse().expect("an id"));
        let waited = tokio::time::timeout(Duration::from_millis(300), waits).await;
        assert!(waited.is_err(), "{}: no worker has read the ports", cloud.name);
        let leased = "SELECT server_id FROM external_servers WHERE taken_until > 0 OR attempts > 0";
        assert!(cloud.column(leased).await.is_empty(), "{}", cloud.name);
        let running = cloud.start().await;
        end(&cloud, &running, &neutron, &[]).await;
    }
}

async fn operate(running: &RunningCloud, id: &str, action: Value) {
    running.admin("2.91", &format!("POST /servers/{id}/action"), action).await.expect(202);
}

#[tokio::test]
async fn ports_follow_a_cold_migration_and_its_revert() {
    for (cloud, running, neutron) in clouds(&["a", "b"]).await {
        let id = running.active_server_on(&cloud, "a", "plain").await;
        // The binding is refused: the server stays on its host, and so does its port.
        neutron.state().remove_agent("b");
        operate(&running, &id, json!({"migrate": null})).await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "a");
        cloud.wait_for_neutron().await;
        assert_eq!(hosts_of(&neutron, &id), ["a"]);
        neutron.state().add_agent("b");
        for (end, host) in [("revertResize", "a"), ("confirmResize", "b")] {
            neutron.fail("PUT /ports", Failure::AnswerLost, 1);
            operate(&running, &id, json!({"migrate": null})).await;
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            assert_eq!(hosts_of(&neutron, &id), ["b"]);
            neutron.fail("PUT /ports", Failure::Status(500), 1);
            let action = json!({end: null});
            let path = format!("POST /servers/{id}/action");
            let answer = running.call(ADMIN, "2.90", &path, Some(action)).await;
            assert!(answer.status.is_success(), "{}", answer.body);
            running.wait_for_status(&id, "ACTIVE").await;
            neutron.heal();
            cloud.wait_for_neutron().await;
            assert_eq!(hosts_of(&neutron, &id), [host], "{end}");
        }
        end_of(&cloud, &running, &neutron).await;
    }
}

/// A revert fails because the ports cannot be bound. A hard reboot creates the guest once Neutron can bind them.
#[tokio::test]
async fn a_guest_that_nobody_replaces_is_made_later() {
    for (cloud, running, neutron) in clouds(&["a", "b"]).await {
        let id = running.active_server_on(&cloud, "a", "plain").await;
        operate(&running, &id, json!({"migrate": null})).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        cloud.wait_for_neutron().await;
        neutron.state().remove_agent("a");
        operate(&running, &id, json!({"revertResize": null})).await;
        running.wait_for_status(&id, "ERROR").await;
        neutron.state().add_agent("a");
        operate(&running, &id, json!({"reboot": {"type": "HARD"}})).await;
        cloud.forget_workers().await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "a");
        cloud.wait_for_neutron().await;
        assert_eq!(hosts_of(&neutron, &id), ["a"]);
        let port = text(&port_of(&neutron, &id), "id");
        let sql = "SELECT body FROM documents WHERE held = 0 AND host = 'a'";
        assert!(cloud.column(sql).await.concat().contains(&port), "the guest has its port");
        end(&cloud, &running, &neutron, &[]).await;
    }
}

async fn end_of(cloud: &Cloud, running: &RunningCloud, neutron: &FakeNeutron) {
    end(cloud, running, neutron, &[]).await;
}

#[tokio::test]
async fn ports_follow_a_live_migration() {
    for (cloud, running, neutron) in clouds(&["a", "b"]).await {
        let live = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
        let id = running.active_server_on(&cloud, "a", "plain").await;
        neutron.state().remove_agent("b");
        operate(&running, &id, live.clone()).await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "a");
        cloud.wait_for_neutron().await;
        assert_eq!(hosts_of(&neutron, &id), ["a"]);
        neutron.state().add_agent("b");
        for host in ["b", "a", "b"] {
            neutron.take_calls();
            neutron.fail("PUT /ports", Failure::AnswerLost, 1);
            neutron.fail("DELETE /ports", Failure::AnswerLost, 1);
            neutron.fail("POST /ports", Failure::AnswerLost, 1);
            operate(&running, &id, live.clone()).await;
            let server = running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(server["OS-EXT-SRV-ATTR:host"], host);
            cloud.wait_for_neutron().await;
            neutron.heal();
            let calls = neutron.take_calls();
            assert_eq!(hosts_of(&neutron, &id), [host]);
            let activated = calls.iter().any(|call| call.contains("/activate"));
            assert!(activated, "the prepared binding is activated: {calls:?}");
            let port = text(&port_of(&neutron, &id), "id");
            assert!(!neutron.state().is_skipped(&port), "the agent looks again: {calls:?}");
        }
        end(&cloud, &running, &neutron, &[]).await;
    }
}

#[tokio::test]
async fn ports_follow_an_evacuation_and_an_unshelving() {
    for (cloud, running, neutron) in clouds(&["a", "b"]).await {
        let id = running.active_server_on(&cloud, "a", "plain").await;
        running.force_down("a", true).await;
        let path = format!("POST /servers/{id}/action");
        running.admin("2.91", &path, json!({"evacuate": {}})).await.expect(200);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(hosts_of(&neutron, &id), ["b"]);
        running.force_down("a", false).await;
        operate(&running, &id, json!({"shelve": null})).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        let shown = running.server(&id).await;
        assert_eq!(
            shown["addresses"]["net"].as_array().map(Vec::len),
            Some(1),
            "the server keeps its port"
        );
        cloud.wait_for_neutron().await;
        let port = port_of(&neutron, &id);
        assert_eq!(port["device_owner"], "compute:nova");
        assert_eq!(
            (&port["binding:host_id"], &port["binding:vif_type"]),
            (&json!(""), &json!("unbound"))
        );
        operate(&running, &id, json!({"unshelve": {"host": "a"}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(hosts_of(&neutron, &id), ["a"]);
        end(&cloud, &running, &neutron, &[]).await;
    }
}

#[tokio::test]
async fn ports_of_servers_that_are_gone_are_found() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let other = running.active_server(&cloud, "two", "plain").await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.wait_for_neutron().await;
        let network = text(&cloud.networks()[0], "uuid");
        let (late, foreign) = {
            let mut state = neutron.state();
            let late = state.add_port("red", &network, "normal");
            let foreign = state.add_port("red", &network, "normal");
            state.change_port(&late, "device_id", json!(id));
            state.change_port(&foreign, "device_id", json!("of another Nova"));
            (late, foreign)
        };
        external::sweep(&running.compute).await.expect("Neutron answers");
        assert_eq!(
            text(&neutron.state().port(&late), "device_id"),
            "",
            "the port of a deleted server is released"
        );
        assert_eq!(text(&neutron.state().port(&foreign), "device_id"), "of another Nova");
        assert_eq!(hosts_of(&neutron, &other), ["a"]);
        for port in [&late, &foreign] {
            neutron.state().remove_port(port);
        }
        end(&cloud, &running, &neutron, &[]).await;
    }
}

/// A user of another project sees nothing, and an administrator's attachment uses the administrator's token.
#[tokio::test]
async fn others_learn_nothing() {
    for (cloud, running, neutron) in clouds(&["a"]).await {
        let network = text(&cloud.networks()[0], "uuid");
        let id = running.active_server(&cloud, "one", "plain").await;
        neutron.take_calls();
        let what = format!("POST /servers/{id}/os-interface");
        let body = json!({"interfaceAttachment": {"net_id": network}});
        running.call(BOB, "2.90", &what, Some(body.clone())).await.expect(404);
        assert_eq!(neutron.take_calls(), Vec::<String>::new());
        running.call(ADMIN, "2.90", &what, Some(body)).await.expect(200);
        // If no network is named, the networks and the quota of the server's project are used.
        let none = json!({"interfaceAttachment": {}});
        running.call(ADMIN, "2.90", &what, Some(none.clone())).await.expect(200);
        let ports = neutron.state().ports();
        assert_eq!(ports.len(), 3, "{ports:?}");
        assert!(ports.iter().all(|port| port["tenant_id"] == "red"), "{ports:?}");
        neutron.state().set_port_quota("red", 3);
        let full = running.call(ADMIN, "2.90", &what, Some(none)).await;
        full.refused(403, "Maximum number of ports exceeded");
        end(&cloud, &running, &neutron, &[]).await;
    }
}
