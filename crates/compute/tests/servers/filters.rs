//! What hosts are told of networks and security groups: with their guests, and when it changes.

use kilonova_compute::reconcile::networks;
use kilonova_store::testing::Meter;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Cloud, GPU, Up, hosts, patiently};
use crate::servers::leaving::on_its_way;
use crate::servers::moving::admin;
use crate::servers::networks::active;

/// What a host was told last.
fn told(cloud: &Cloud, host: &str) -> Value {
    let text = std::fs::read_to_string(cloud.nodes().join(host).join("network"));
    text.map_or(Value::Null, |text| serde_json::from_str(&text).expect("JSON"))
}

/// Waits until a host was told something.
async fn hears(cloud: &Cloud, host: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    patiently(&format!("{host} to hear of {what}"), async || is_so(&told(cloud, host))).await;
    told(cloud, host)
}

fn members(told: &Value) -> Vec<String> {
    let all = told["filters"]["members"].as_array().expect("a list");
    let of = |one: &Value| one["addresses"].as_array().cloned().unwrap_or_default();
    let all = all.iter().flat_map(of);
    all.map(|one| one["address"].as_str().expect("an address").to_owned()).collect()
}

async fn changed(up: &Up) {
    networks::run(up.compute.clone()).await.expect("told");
}

async fn rule(up: &Up, group: &Value, more: Value) -> String {
    let mut rule = json!({"security_group_id": group, "direction": "ingress"});
    rule.as_object_mut().expect("a map").extend(more.as_object().cloned().expect("a map"));
    let body = Some(json!({"security_group_rule": rule}));
    let made = up.neutron(ANN, "POST /security-group-rules", body).await.expect(201);
    made["security_group_rule"]["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn hosts_hear_of_groups_with_their_guests_and_when_they_change() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let one = active(&cloud, &up, "plain", json!([{"uuid": net}]), "a").await;
        let now = told(&cloud, "a");
        let interface = now["guests"][&one][0].clone();
        assert_eq!(interface["addresses"][0]["address"], "10.0.0.2");
        assert_eq!(interface["addresses"][0]["dhcp_server"], "10.0.0.254");
        assert!(interface["dhcp_mac"].as_str().is_some_and(|mac| mac.starts_with("fa:16:3e")));
        let port = now["filters"]["ports"][0].clone();
        assert_eq!((&port["port"], &port["secure"]), (&interface["port"], &json!(true)));
        let group = port["groups"][0].clone();
        let rules = now["filters"]["groups"][0]["rules"].as_array().expect("rules").clone();
        assert_eq!(rules.len(), 4, "its own in, all out, of each family");
        assert_eq!(members(&now), ["10.0.0.2"]);
        assert_eq!(told(&cloud, "b"), Value::Null, "a host without guests there hears nothing");

        let two = active(&cloud, &up, "plain", json!([{"uuid": net}]), "b").await;
        assert_eq!(members(&told(&cloud, "b")), ["10.0.0.2", "10.0.0.3"]);
        changed(&up).await;
        hears(&cloud, "a", "a new member", |now| members(now).len() == 2).await;

        let ssh = json!({"protocol": "tcp", "port_range_min": 22, "port_range_max": 22,
            "remote_ip_prefix": "192.0.2.0/24"});
        let ssh = rule(&up, &group, ssh).await;
        changed(&up).await;
        let has = |told: &Value, rule: &Value| {
            let rules = told["filters"]["groups"][0]["rules"].as_array().cloned();
            rules.unwrap_or_default().contains(rule)
        };
        let expected = json!({"direction": "ingress", "six": false, "protocol": 6, "first": 22,
            "last": 22, "remote": {"prefix": {"address": "192.0.2.0", "length": 24}}});
        for host in ["a", "b"] {
            hears(&cloud, host, "a rule", |now| has(now, &expected)).await;
        }
        let path = format!("DELETE /security-group-rules/{ssh}");
        up.neutron(ANN, &path, None).await.expect(204);
        changed(&up).await;
        for host in ["a", "b"] {
            hears(&cloud, host, "its end", |now| !has(now, &expected)).await;
        }

        let id = interface["port"].as_str().expect("an id");
        let mine = up.port_now(id).await;
        let fixed = json!([{"subnet_id": mine["fixed_ips"][0]["subnet_id"],
            "ip_address": "10.0.0.77"}]);
        let set = json!({"port": {"fixed_ips": fixed,
            "allowed_address_pairs": [{"ip_address": "10.0.0.128/25"}]}});
        up.neutron(ANN, &format!("PUT /ports/{id}"), Some(set)).await.expect(200);
        changed(&up).await;
        hears(&cloud, "a", "another address", |now| {
            now["guests"][&one][0]["addresses"][0]["address"] == "10.0.0.77"
                && now["filters"]["ports"][0]["pairs"][0]["prefix"]["length"] == 25
        })
        .await;
        let expected = ["10.0.0.3", "10.0.0.77", "10.0.0.128"];
        hears(&cloud, "b", "it too", |now| members(now) == expected).await;
        cloud.sound(&up, "told").await;

        let subnet = mine["fixed_ips"][0]["subnet_id"].as_str().expect("an id").to_owned();
        let set = json!({"subnet": {"enable_dhcp": false, "dns_nameservers": ["10.0.0.5"]}});
        up.neutron(ANN, &format!("PUT /subnets/{subnet}"), Some(set)).await.expect(200);
        changed(&up).await;
        for (host, server) in [("a", &one), ("b", &two)] {
            hears(&cloud, host, "the subnet", |now| {
                let interface = &now["guests"][server][0];
                let address = &interface["addresses"][0];
                address["dhcp"] == false
                    && address["dns"] == json!(["10.0.0.5"])
                    && interface["dhcp_mac"].is_null()
            })
            .await;
        }

        let web = json!({"security_group": {"name": "web"}});
        let web = up.neutron(ANN, "POST /security-groups", Some(web)).await.expect(201);
        up.act(&one, json!({"addSecurityGroup": {"name": "web"}})).await;
        changed(&up).await;
        hears(&cloud, "a", "another group", |now| {
            let groups = now["filters"]["ports"][0]["groups"].as_array().cloned();
            groups.unwrap_or_default().contains(&web["security_group"]["id"])
        })
        .await;

        up.delete(&two).await;
        up.goes(&two).await;
        changed(&up).await;
        hears(&cloud, "a", "a member that has gone", |now| {
            members(now) == ["10.0.0.77", "10.0.0.128"]
        })
        .await;
        assert_eq!(told(&cloud, "b"), Value::Null);
        cloud.sweep(&up, "filtered").await;
    }
}

#[tokio::test]
async fn the_host_that_a_guest_goes_to_hears_first() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let id = active(&cloud, &up, "vgpu", json!([{"uuid": net}]), "a").await;
        let live = json!({"os-migrateLive": {"host": "b", "block_migration": "auto"}});
        admin(&up, "2.90", &id, live).await.expect(202);
        let port = up.ports().await[0]["id"].clone();
        hears(&cloud, "b", "the guest", |now| {
            now["guests"][&id][0]["port"] == port && now["filters"]["ports"][0]["port"] == port
        })
        .await;
        up.becomes(&id, "ACTIVE").await;
        up.hosts_have_dropped(&cloud).await;
        hears(&cloud, "a", "its end", Value::is_null).await;
        changed(&up).await;
        assert_eq!(told(&cloud, "b")["guests"][&id][0]["port"], port);
        cloud.sweep(&up, "moved").await;
    }
}

/// What is told of a guest when it has arrived is told of the others at once.
#[tokio::test]
async fn a_guest_on_its_way_keeps_no_other_waiting() {
    const LASTING: &str = "times_ms = { migrate = 60000 }";
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[LASTING]), ("b", &[LASTING])])).await {
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(active(&cloud, &up, "plain", json!([{"uuid": net}]), "a").await);
        }
        // The one that is looked at first.
        ids.sort_unstable();
        let live = json!({"os-migrateLive": {"host": "b", "block_migration": "auto"}});
        admin(&up, "2.90", &ids[0], live).await.expect(202);
        on_its_way(&up, &ids[0]).await;
        let set = json!({"network": {"mtu": 1400}});
        up.neutron(ADMIN, &format!("PUT /networks/{net}"), Some(set)).await.expect(200);
        changed(&up).await;
        for id in &ids[1..] {
            hears(&cloud, "a", "the network", |now| now["guests"][id][0]["mtu"] == 1400).await;
        }
        assert_ne!(told(&cloud, "a")["guests"][&ids[0]][0]["mtu"], 1400, "it comes later");
    }
}

/// What it costs that nothing has changed, and that a member more concerns all hosts.
#[tokio::test]
async fn what_news_costs() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        for host in ["a", "b", "b"] {
            active(&cloud, &up, "plain", json!([{"uuid": net}]), host).await;
        }
        changed(&up).await;
        let meter = Meter::counting();
        let counted = kilonova_compute::Compute {
            store: up.compute.store.with_meter(meter.clone()),
            ..up.compute.clone()
        };
        meter.take();
        networks::run(counted.clone()).await.expect("nothing to tell");
        assert_eq!(meter.take(), 1, "{}", cloud.name);
        up.port(ANN, &net, json!({})).await;
        up.port(ANN, &net, json!({})).await;
        meter.take();
        networks::run(counted.clone()).await.expect("told");
        let cost = meter.take();
        assert_eq!(cost, 7, "a look, the news, two to find servers, one their hosts, one a host");
        for host in ["a", "b"] {
            hears(&cloud, host, "both", |now| members(now).len() == 5).await;
        }
        cloud.sweep(&up, "counted").await;
    }
}
