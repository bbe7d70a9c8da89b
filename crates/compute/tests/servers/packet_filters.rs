//! Security groups and networks in the hosts' documents: with their guests, and after changes.

use kilonova_compute_app::reconcile::networks;
use kilonova_store::testing::Meter;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Cloud, GPU, RunningCloud, hosts, wait_until};
use crate::servers::live_migration::wait_until_migrating;
use crate::servers::networks::active_server_with_networks;
use crate::servers::resize::admin;

/// The filters that a host received last.
fn last_filters(cloud: &Cloud, host: &str) -> Value {
    let text = std::fs::read_to_string(cloud.nodes().join(host).join("network"));
    text.map_or(Value::Null, |text| serde_json::from_str(&text).expect("the text is JSON"))
}

/// Waits until a host has received filters that satisfy a condition.
async fn wait_for_filters(
    cloud: &Cloud,
    host: &str,
    what: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Value {
    wait_until(&format!("{host} receives {what}"), async || is_so(&last_filters(cloud, host)))
        .await;
    last_filters(cloud, host)
}

fn members(last_filters: &Value) -> Vec<String> {
    let all = last_filters["filters"]["members"].as_array().expect("the answer has a list");
    let of = |one: &Value| one["addresses"].as_array().cloned().unwrap_or_default();
    let all = all.iter().flat_map(of);
    all.map(|one| one["address"].as_str().expect("the value has an address").to_owned()).collect()
}

async fn propagate_changes(running: &RunningCloud) {
    networks::run(running.compute.clone()).await.expect("the periodic task succeeds");
}

async fn rule(running: &RunningCloud, group: &Value, more: Value) -> String {
    let mut rule = json!({"security_group_id": group, "direction": "ingress"});
    rule.as_object_mut()
        .expect("the value is an object")
        .extend(more.as_object().cloned().expect("the value is an object"));
    let body = Some(json!({"security_group_rule": rule}));
    let made = running.neutron(ANN, "POST /security-group-rules", body).await.expect(201);
    made["security_group_rule"]["id"].as_str().expect("the answer has an id").to_owned()
}

#[tokio::test]
async fn a_host_that_starts_anew_filters_a_guest_whose_document_is_held_back() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let one =
            active_server_with_networks(&cloud, &running, "plain", json!([{"uuid": net}]), "a")
                .await;
        let before = last_filters(&cloud, "a");
        running.nodes.kill("a").await;
        std::fs::remove_file(cloud.nodes().join("a").join("network")).expect("the file is removed");
        cloud.execute("UPDATE documents SET held = 1").await;
        running.start_node(&cloud, "a").await;
        let now = wait_for_filters(&cloud, "a", "the guest", |now| now["guests"][&one].is_array());
        assert_eq!(now.await, before, "the guest runs as before");

        // The removal of a host also removes such a document.
        cloud.execute("UPDATE documents SET held = 0").await;
        running.nodes.kill("a").await;
        running.force_down("a", true).await;
        running.delete(&one).await;
        cloud.execute("UPDATE documents SET held = 1").await;
        let list = running.call(ADMIN, "2.53", "GET /os-services?host=a", None).await.expect(200);
        let id = list["services"][0]["id"].as_str().expect("it has an id").to_owned();
        running.call(ADMIN, "2.53", &format!("DELETE /os-services/{id}"), None).await.expect(204);
        assert_eq!(cloud.column("SELECT server_id FROM documents").await, [""; 0]);
        cloud.audit("the host is removed").await;
    }
}

#[tokio::test]
async fn hosts_receive_groups_with_their_guests_and_on_changes() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let one =
            active_server_with_networks(&cloud, &running, "plain", json!([{"uuid": net}]), "a")
                .await;
        let now = last_filters(&cloud, "a");
        let interface = now["guests"][&one][0].clone();
        assert_eq!(interface["addresses"][0]["address"], "10.0.0.2");
        assert_eq!(interface["addresses"][0]["dhcp_server"], "10.0.0.254");
        assert!(interface["dhcp_mac"].as_str().is_some_and(|mac| mac.starts_with("fa:16:3e")));
        let port = now["filters"]["ports"][0].clone();
        assert_eq!((&port["port"], &port["secure"]), (&interface["port"], &json!(true)));
        let group = port["groups"][0].clone();
        let rules =
            now["filters"]["groups"][0]["rules"].as_array().expect("the group has rules").clone();
        assert_eq!(rules.len(), 4, "ingress from the group and all egress, of each family");
        assert_eq!(members(&now), ["10.0.0.2"]);
        assert_eq!(
            last_filters(&cloud, "b"),
            Value::Null,
            "a host without guests there receives nothing"
        );

        let two =
            active_server_with_networks(&cloud, &running, "plain", json!([{"uuid": net}]), "b")
                .await;
        assert_eq!(members(&last_filters(&cloud, "b")), ["10.0.0.2", "10.0.0.3"]);
        propagate_changes(&running).await;
        wait_for_filters(&cloud, "a", "a new member", |now| members(now).len() == 2).await;

        let ssh = json!({"protocol": "tcp", "port_range_min": 22, "port_range_max": 22,
            "remote_ip_prefix": "192.0.2.7/24"});
        let ssh = rule(&running, &group, ssh).await;
        propagate_changes(&running).await;
        let has = |last_filters: &Value, rule: &Value| {
            let rules = last_filters["filters"]["groups"][0]["rules"].as_array().cloned();
            rules.unwrap_or_default().contains(rule)
        };
        let expected = json!({"direction": "ingress", "six": false, "protocol": 6, "first": 22,
            "last": 22, "remote": {"prefix": {"address": "192.0.2.0", "length": 24}}});
        for host in ["a", "b"] {
            wait_for_filters(&cloud, host, "a rule", |now| has(now, &expected)).await;
        }
        let path = format!("DELETE /security-group-rules/{ssh}");
        running.neutron(ANN, &path, None).await.expect(204);
        propagate_changes(&running).await;
        for host in ["a", "b"] {
            wait_for_filters(&cloud, host, "the removal", |now| !has(now, &expected)).await;
        }

        let id = interface["port"].as_str().expect("the answer has an id");
        let mine = running.show_port(id).await;
        let fixed = json!([{"subnet_id": mine["fixed_ips"][0]["subnet_id"],
            "ip_address": "10.0.0.77"}]);
        let set = json!({"port": {"fixed_ips": fixed,
            "allowed_address_pairs": [{"ip_address": "10.0.0.130/25"}]}});
        running.neutron(ANN, &format!("PUT /ports/{id}"), Some(set)).await.expect(200);
        propagate_changes(&running).await;
        wait_for_filters(&cloud, "a", "another address", |now| {
            now["guests"][&one][0]["addresses"][0]["address"] == "10.0.0.77"
                && now["filters"]["ports"][0]["pairs"][0]["prefix"]["length"] == 25
        })
        .await;
        let expected = ["10.0.0.3", "10.0.0.77", "10.0.0.128"];
        wait_for_filters(&cloud, "b", "the same change", |now| members(now) == expected).await;
        cloud.assert_consistent(&running, "explained").await;

        let subnet =
            mine["fixed_ips"][0]["subnet_id"].as_str().expect("the answer has an id").to_owned();
        let set = json!({"subnet": {"enable_dhcp": false, "dns_nameservers": ["10.0.0.5"]}});
        running.neutron(ANN, &format!("PUT /subnets/{subnet}"), Some(set)).await.expect(200);
        propagate_changes(&running).await;
        for (host, server) in [("a", &one), ("b", &two)] {
            wait_for_filters(&cloud, host, "the subnet", |now| {
                let interface = &now["guests"][server][0];
                let address = &interface["addresses"][0];
                address["dhcp"] == false
                    && address["dns"] == json!(["10.0.0.5"])
                    && interface["dhcp_mac"].is_null()
            })
            .await;
        }

        let web = json!({"security_group": {"name": "web"}});
        let web = running.neutron(ANN, "POST /security-groups", Some(web)).await.expect(201);
        running.act(&one, json!({"addSecurityGroup": {"name": "web"}})).await;
        propagate_changes(&running).await;
        wait_for_filters(&cloud, "a", "another group", |now| {
            let groups = now["filters"]["ports"][0]["groups"].as_array().cloned();
            groups.unwrap_or_default().contains(&web["security_group"]["id"])
        })
        .await;

        running.delete(&two).await;
        running.wait_until_gone(&two).await;
        propagate_changes(&running).await;
        wait_for_filters(&cloud, "a", "the removal of a member", |now| {
            members(now) == ["10.0.0.77", "10.0.0.128"]
        })
        .await;
        assert_eq!(last_filters(&cloud, "b"), Value::Null);
        cloud.teardown(&running, "filtered").await;
    }
}

#[tokio::test]
async fn the_destination_receives_filters_before_the_guest() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let id = active_server_with_networks(&cloud, &running, "vgpu", json!([{"uuid": net}]), "a")
            .await;
        let live = json!({"os-migrateLive": {"host": "b", "block_migration": "auto"}});
        admin(&running, "2.90", &id, live).await.expect(202);
        let port = running.ports().await[0]["id"].clone();
        wait_for_filters(&cloud, "b", "the guest", |now| {
            now["guests"][&id][0]["port"] == port && now["filters"]["ports"][0]["port"] == port
        })
        .await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.wait_for_host_cleanup(&cloud).await;
        wait_for_filters(&cloud, "a", "the removal", Value::is_null).await;
        propagate_changes(&running).await;
        assert_eq!(last_filters(&cloud, "b")["guests"][&id][0]["port"], port);
        cloud.teardown(&running, "moved").await;
    }
}

/// Filters that wait for the arrival of a migrating guest do not delay those of others.
#[tokio::test]
async fn a_migrating_guest_does_not_delay_other_guests() {
    const SLOW_MIGRATION: &str = "times_ms = { migrate = 60000 }";
    for (cloud, running) in
        Cloud::all_running(hosts(&[("a", &[SLOW_MIGRATION]), ("b", &[SLOW_MIGRATION])])).await
    {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(
                active_server_with_networks(&cloud, &running, "plain", json!([{"uuid": net}]), "a")
                    .await,
            );
        }
        // Guests are processed in the order of their ids; the first one migrates.
        ids.sort_unstable();
        let live = json!({"os-migrateLive": {"host": "b", "block_migration": "auto"}});
        admin(&running, "2.90", &ids[0], live).await.expect(202);
        wait_until_migrating(&running, &ids[0]).await;
        let set = json!({"network": {"mtu": 1400}});
        running.neutron(ADMIN, &format!("PUT /networks/{net}"), Some(set)).await.expect(200);
        propagate_changes(&running).await;
        for id in &ids[1..] {
            wait_for_filters(&cloud, "a", "the network", |now| now["guests"][id][0]["mtu"] == 1400)
                .await;
        }
        assert_ne!(
            last_filters(&cloud, "a")["guests"][&ids[0]][0]["mtu"],
            1400,
            "the update waits for the migration"
        );
    }
}

/// The statements of a run without changes, and of a new member that concerns all hosts.
#[tokio::test]
async fn statements_per_update() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        for host in ["a", "b", "b"] {
            active_server_with_networks(&cloud, &running, "plain", json!([{"uuid": net}]), host)
                .await;
        }
        propagate_changes(&running).await;
        let meter = Meter::counting();
        let counted = kilonova_compute_app::Compute {
            store: running.compute.store.with_meter(meter.clone()),
            ..running.compute.clone()
        };
        meter.take();
        networks::run(counted.clone()).await.expect("the periodic task succeeds");
        assert_eq!(meter.take(), 1, "{}", cloud.name);
        running.port(ANN, &net, json!({})).await;
        running.port(ANN, &net, json!({})).await;
        meter.take();
        networks::run(counted.clone()).await.expect("the periodic task succeeds");
        let cost = meter.take();
        // Other controllers are notified of the documents of each host, in the round trip of another statement.
        let entries = if cloud.name == "postgresql" { 2 } else { 0 };
        assert_eq!(
            cost,
            7 + entries,
            "the change, the filters, two for servers, one for hosts, one per host"
        );
        for host in ["a", "b"] {
            wait_for_filters(&cloud, host, "both", |now| members(now).len() == 5).await;
        }
        cloud.teardown(&running, "counted").await;
    }
}
