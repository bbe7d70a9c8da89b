//! Servers on networks: what they are given, that it follows them, and that nothing is left of it.

use kilonova_compute::Compute;
use kilonova_store::testing::Meter;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Answer, BOB, Cloud, GPU, Up, client, hosts};
use crate::servers::moving::admin;

/// Asks for a server with these networks.
pub async fn ask(cloud: &Cloud, up: &Up, flavor: &str, networks: Value) -> Answer {
    let mut wish = up.wish(cloud, "one", flavor);
    wish["server"]["networks"] = networks;
    up.call(ANN, "2.90", "POST /servers", Some(wish)).await
}

/// A server with these networks, running on a host.
pub async fn active(cloud: &Cloud, up: &Up, flavor: &str, networks: Value, host: &str) -> String {
    let mut wish = up.wish(cloud, "one", flavor);
    wish["server"]["networks"] = networks;
    wish["server"]["availability_zone"] = json!(format!("nova:{host}"));
    let request = axum::http::Request::post("/v2.1/servers")
        .header("x-auth-token", "ann:red")
        .header("x-roles", "admin")
        .header("openstack-api-version", "compute 2.90")
        .body(axum::body::Body::from(wish.to_string()))
        .expect("a request");
    let made = up.send(request).await.expect(202);
    let id = made["server"]["id"].as_str().expect("an id").to_owned();
    up.becomes(&id, "ACTIVE").await;
    id
}

/// The guest's XML on a host.
pub fn xml(cloud: &Cloud, host: &str, id: &str) -> String {
    let path = cloud.nodes().join(host).join("domains").join(format!("{id}.xml"));
    std::fs::read_to_string(path).expect("a domain")
}

#[tokio::test]
async fn a_port_is_made_with_the_server_and_goes_with_it() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let id = active(&cloud, &up, "vgpu", json!([{"uuid": net, "tag": "nic"}]), "a").await;
        let ports = up.ports().await;
        assert_eq!(ports.len(), 1);
        let port = &ports[0];
        assert_eq!(port["device_id"], id.as_str());
        assert_eq!(port["device_owner"], "compute:nova");
        assert_eq!(port["binding:host_id"], "a");
        assert_eq!(port["status"], "ACTIVE");
        let ip = port["fixed_ips"][0]["ip_address"].as_str().expect("an address");
        assert_eq!(ip, "10.0.0.2", "the first is the gateway's");
        let server = up.server(&id).await;
        assert_eq!(
            server["addresses"],
            json!({"private": [{"version": 4, "addr": ip, "OS-EXT-IPS:type": "fixed",
                "OS-EXT-IPS-MAC:mac_addr": port["mac_address"]}]})
        );
        assert_eq!(server["security_groups"], json!([{"name": "default"}]));
        let listed = up.servers().await;
        assert_eq!(listed[0]["addresses"], server["addresses"]);
        let ips = up.get(ANN, "2.90", &format!("/servers/{id}/ips")).await.expect(200);
        assert_eq!(ips, json!({"addresses": {"private": [{"version": 4, "addr": ip}]}}));
        let path = format!("/servers/{id}/ips/private");
        assert_eq!(up.get(ANN, "2.90", &path).await.expect(200)["private"][0]["addr"], ip);
        let xml = xml(&cloud, "a", &id);
        let mac = port["mac_address"].as_str().expect("a mac");
        assert!(xml.contains("<interface type='bridge'>") && xml.contains(mac), "{xml}");
        let list = up.get(ANN, "2.90", &format!("/servers/{id}/os-interface")).await.expect(200);
        let shown = &list["interfaceAttachments"][0];
        assert_eq!((&shown["port_id"], &shown["tag"]), (&port["id"], &json!("nic")));
        let port_path = format!("DELETE /ports/{}", port["id"].as_str().expect("an id"));
        up.neutron(ANN, &port_path, None).await.refused(403, "delete_port");
        up.neutron("admin", &port_path, None).await.refused(409, "in use by server");
        up.neutron(ANN, &format!("DELETE /networks/{net}"), None).await.refused(409, "ports");
        cloud.sound(&up, "connected").await;
        up.delete(&id).await;
        up.goes(&id).await;
        assert_eq!(up.ports().await, Vec::<Value>::new());
        up.neutron(ANN, &format!("DELETE /networks/{net}"), None).await.expect(204);
        cloud.sweep(&up, "networks").await;
    }
}

#[tokio::test]
async fn a_port_that_was_there_stays() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let wish = json!({"fixed_ips": [{"ip_address": "10.0.0.77"}], "name": "mine"});
        let port = up.port(ANN, &net, wish).await;
        let id = active(&cloud, &up, "plain", json!([{"port": port}]), "a").await;
        let bound = up.port_now(&port).await;
        assert_eq!((&bound["device_id"], &bound["binding:host_id"]), (&json!(id), &json!("a")));
        let again = ask(&cloud, &up, "plain", json!([{"port": port}])).await;
        again.refused(409, &format!("Port {port} is still in use."));
        let taken =
            ask(&cloud, &up, "plain", json!([{"uuid": net, "fixed_ip": "10.0.0.77"}])).await;
        taken.refused(400, "Fixed IP address 10.0.0.77 is already in use");
        for (key, value) in [("device_id", json!("")), ("mac_address", json!("fa:16:3e:00:00:01"))]
        {
            let body = json!({"port": {key: value}});
            up.neutron("admin", &format!("PUT /ports/{port}"), Some(body)).await.refused(409, key);
        }
        cloud.sound(&up, "bound").await;
        up.delete(&id).await;
        up.goes(&id).await;
        let free = up.port_now(&port).await;
        assert_eq!((&free["device_id"], &free["device_owner"]), (&json!(""), &json!("")));
        assert_eq!(free["binding:vif_type"], "unbound");
        assert_eq!(free["fixed_ips"][0]["ip_address"], "10.0.0.77");
        cloud.sweep(&up, "kept").await;
    }
}

#[tokio::test]
async fn ports_follow_every_move() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let id = active(&cloud, &up, "vgpu", json!([{"uuid": net}]), "a").await;
        let port = up.ports().await[0]["id"].as_str().expect("an id").to_owned();
        let mac = up.port_now(&port).await["mac_address"].as_str().expect("a mac").to_owned();
        let on = async |up: &Up, host: &str, when: &str| {
            let now = up.port_now(&port).await;
            assert_eq!(now["binding:host_id"], host, "{when}");
            assert_eq!(now["fixed_ips"][0]["ip_address"], "10.0.0.2", "{when}");
            if !host.is_empty() {
                assert!(xml(&cloud, host, &id).contains(&mac), "{when}");
            }
            cloud.sound(up, when).await;
        };
        for (end, host) in [("revertResize", "a"), ("confirmResize", "b")] {
            admin(&up, "2.90", &id, json!({"migrate": null})).await.expect(202);
            up.becomes(&id, "VERIFY_RESIZE").await;
            on(&up, "b", "migrated").await;
            let answer = admin(&up, "2.90", &id, json!({end: null})).await;
            assert!(answer.status.is_success(), "{}", answer.body);
            up.becomes(&id, "ACTIVE").await;
            up.hosts_have_dropped(&cloud).await;
            on(&up, host, end).await;
        }
        let live = json!({"os-migrateLive": {"host": "a", "block_migration": "auto"}});
        admin(&up, "2.90", &id, live).await.expect(202);
        up.becomes(&id, "ACTIVE").await;
        up.hosts_have_dropped(&cloud).await;
        on(&up, "a", "live").await;
        up.act(&id, json!({"shelve": null})).await;
        up.becomes(&id, "SHELVED_OFFLOADED").await;
        on(&up, "", "offloaded").await;
        assert_eq!(up.port_now(&port).await["binding:vif_type"], "unbound");
        up.act(&id, json!({"unshelve": null})).await;
        let server = up.becomes(&id, "ACTIVE").await;
        let host = server["OS-EXT-SRV-ATTR:host"].as_str().expect("a host").to_owned();
        on(&up, &host, "unshelved").await;
        let other = if host == "a" { "b" } else { "a" };
        up.nodes.kill(&host).await;
        up.force_down(&host, true).await;
        admin(&up, "2.90", &id, json!({"evacuate": {}})).await.expect(200);
        up.becomes(&id, "ACTIVE").await;
        assert_eq!(up.port_now(&port).await["binding:host_id"], other);
        cloud.audit("evacuated").await;
        up.start_node(&cloud, &host).await;
        up.force_down(&host, false).await;
        up.hosts_have_dropped(&cloud).await;
        on(&up, other, "back").await;
        cloud.sweep(&up, "moved").await;
        assert!(up.ports().await.is_empty());
    }
}

#[tokio::test]
async fn a_boot_that_fails_everywhere_leaves_no_port() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let mine = up.port(ANN, &net, json!({})).await;
        up.restart_failing(&cloud, "a", &[("define", None)]).await;
        up.restart_failing(&cloud, "b", &[("define", None)]).await;
        let made =
            ask(&cloud, &up, "vgpu", json!([{"uuid": net}, {"port": mine}])).await.expect(202);
        let id = made["server"]["id"].as_str().expect("an id").to_owned();
        up.becomes(&id, "ERROR").await;
        let left = up.ports().await;
        assert_eq!(left.len(), 1);
        assert_eq!((&left[0]["id"], &left[0]["device_id"]), (&json!(mine), &json!("")));
        cloud.sweep(&up, "failed").await;
    }
}

#[tokio::test]
async fn what_cannot_be_is_said_in_novas_words() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let unknown = "11111111-1111-4111-8111-111111111111";
        let words = format!("Network {unknown} could not be found.");
        ask(&cloud, &up, "plain", json!([{"uuid": unknown}])).await.refused(400, &words);
        let words = format!("Port id {unknown} could not be found.");
        ask(&cloud, &up, "plain", json!([{"port": unknown}])).await.refused(400, &words);
        let blue = up.net(BOB, "blue", "10.1.0.0/24").await;
        ask(&cloud, &up, "plain", json!([{"uuid": blue}])).await.refused(400, "could not be found");
        let bare = json!({"network": {"name": "bare"}});
        let bare = up.neutron(BOB, "POST /networks", Some(bare)).await.expect(201);
        let bare = bare["network"]["id"].clone();
        let mut wish = up.wish(&cloud, "one", "plain");
        wish["server"]["networks"] = json!([{"uuid": bare}]);
        let answer = up.call(BOB, "2.90", "POST /servers", Some(wish.clone())).await;
        answer.refused(400, "requires a subnet in order to boot instances on.");
        let port = up.port(BOB, bare.as_str().expect("an id"), json!({})).await;
        wish["server"]["networks"] = json!([{"port": port}]);
        let answer = up.call(BOB, "2.90", "POST /servers", Some(wish)).await;
        answer.refused(400, "requires a FixedIP in order to be used.");

        let auto = ask(&cloud, &up, "plain", json!("auto")).await.expect(202);
        let none = up.becomes(auto["server"]["id"].as_str().expect("an id"), "ACTIVE").await;
        assert_eq!(none["addresses"], json!({}), "a project without networks");
        let net = up.net(ANN, "private", "10.0.0.0/29").await;
        let auto = ask(&cloud, &up, "plain", json!("auto")).await.expect(202);
        let one = up.becomes(auto["server"]["id"].as_str().expect("an id"), "ACTIVE").await;
        assert!(one["addresses"]["private"].is_array(), "{one}");
        up.net(ANN, "second", "10.2.0.0/24").await;
        let words = "Multiple possible networks found, use a Network ID to be more specific.";
        ask(&cloud, &up, "plain", json!("auto")).await.refused(409, words);

        let mine = up.port(ANN, &net, json!({})).await;
        let mut wish = up.wish(&cloud, "many", "plain");
        wish["server"]["max_count"] = json!(2);
        for (line, words) in [
            (json!({"port": mine}), "multiple instances with a single configured port ID"),
            (json!({"uuid": net, "fixed_ip": "10.0.0.5"}), "max_count cannot be greater than 1"),
        ] {
            wish["server"]["networks"] = json!([line]);
            up.call(ANN, "2.90", "POST /servers", Some(wish.clone())).await.refused(400, words);
        }
        wish["server"]["networks"] = json!([{"uuid": net}]);
        // One address is the network's own, one is a port's and one a server's.
        wish["server"]["max_count"] = json!(3);
        wish["server"]["min_count"] = json!(3);
        let full = up.call(ANN, "2.90", "POST /servers", Some(wish.clone())).await;
        full.refused(400, "No fixed IP addresses available for network");
        wish["server"]["max_count"] = json!(2);
        wish["server"]["min_count"] = json!(2);
        up.call(ANN, "2.90", "POST /servers", Some(wish)).await.expect(202);
        up.settle().await;
        let mut wish = up.wish(&cloud, "grouped", "plain");
        wish["server"]["security_groups"] = json!([{"name": "web"}]);
        let answer = up.call(ANN, "2.90", "POST /servers", Some(wish)).await;
        answer.refused(400, "Security group web not found.");
        cloud.sound(&up, "refusals").await;
        cloud.sweep(&up, "refusals").await;
    }
}

#[tokio::test]
async fn interfaces_and_groups_come_and_go_under_a_running_guest() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let id = up.active(&cloud, "one", "vgpu").await;
        let at = format!("/servers/{id}/os-interface");
        let to = format!("POST {at}");
        let post = |body: Value| up.call(ANN, "2.90", &to, Some(body));
        for (body, status, words) in [
            (json!({"interfaceAttachment": {"net_id": "x"}}), 400, "net_id"),
            (json!({"interfaceAttachment": {"colour": "x"}}), 400, "colour"),
            (json!({"interfaceAttachment": {"net_id": net, "port_id": net}}), 400, "both"),
        ] {
            post(body).await.refused(status, words);
        }
        let wish = json!({"net_id": net, "fixed_ips": [{"ip_address": "10.0.0.9"}], "tag": "t"});
        let made = post(json!({"interfaceAttachment": wish})).await.expect(200);
        let shown = &made["interfaceAttachment"];
        assert_eq!(shown["fixed_ips"][0]["ip_address"], "10.0.0.9");
        assert_eq!(shown["tag"], "t");
        let mac = shown["mac_addr"].as_str().expect("a mac").to_owned();
        crate::kit::patiently("the guest to have it", async || {
            xml(&cloud, "a", &id).contains(&mac)
        })
        .await;
        assert_eq!(up.server(&id).await["status"], "ACTIVE");
        assert!(cloud.files("a", "running").contains(&id), "it never stopped");
        let any = post(json!({})).await.expect(200);
        let second = any["interfaceAttachment"]["port_id"].as_str().expect("an id").to_owned();
        let mine = up.port(ANN, &net, json!({})).await;
        post(json!({"interfaceAttachment": {"port_id": mine}})).await.expect(200);
        cloud.sound(&up, "attached").await;

        let group = json!({"security_group": {"name": "web"}});
        up.neutron(ANN, "POST /security-groups", Some(group)).await.expect(201);
        up.act(&id, json!({"addSecurityGroup": {"name": "web"}})).await;
        let names = up.server(&id).await["security_groups"].clone();
        assert_eq!(names, json!([{"name": "default"}, {"name": "web"}]));
        let path = format!("/servers/{id}/os-security-groups");
        let groups = up.get(ANN, "2.90", &path).await.expect(200);
        assert_eq!(groups["security_groups"].as_array().map(Vec::len), Some(2));
        up.act(&id, json!({"removeSecurityGroup": {"name": "web"}})).await;
        let answer = up.try_act(&id, json!({"removeSecurityGroup": {"name": "web"}})).await;
        answer.refused(404, "not associated with the instance");
        let answer = up.try_act(&id, json!({"addSecurityGroup": {"name": "no"}})).await;
        answer.refused(404, "not found");

        let drop = |port: &str| format!("DELETE {at}/{port}");
        up.call(ANN, "2.90", &drop(&second), None).await.expect(202);
        assert!(up.port_now(&second).await.is_null(), "it was made for the server");
        up.call(ANN, "2.90", &drop(&mine), None).await.expect(202);
        assert_eq!(up.port_now(&mine).await["device_id"], "", "it was there before");
        up.call(ANN, "2.90", &drop(&mine), None).await.refused(404, "Port id");
        cloud.sound(&up, "detached").await;
        let missing = up.get(ADMIN, "2.90", &format!("{at}/{mine}")).await;
        missing.refused(404, "does not have a port with id");
        cloud.sweep(&up, "interfaces").await;
    }
}

/// Statements of a boot and of a look at the server. A server without networks pays for none.
#[tokio::test]
async fn what_a_port_costs() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let meter = Meter::counting();
        let store = up.compute.store.with_meter(meter.clone());
        let counted = client(Compute { store, ..up.compute.clone() });
        let mut costs = Vec::new();
        for networks in [json!([{"uuid": net}]), json!("none"), json!([{"uuid": net}])] {
            let mut wish = up.wish(&cloud, "one", "plain");
            wish["server"]["networks"] = networks;
            meter.take();
            let made = counted.call(ANN, "2.90", "POST /servers", Some(wish)).await.expect(202);
            let boot = meter.take();
            let id = made["server"]["id"].as_str().expect("an id").to_owned();
            up.becomes(&id, "ACTIVE").await;
            meter.take();
            counted.get(ANN, "2.90", &format!("/servers/{id}")).await.expect(200);
            costs.push((boot, meter.take()));
        }
        let [_, (none, bare), (port, shown)] = costs[..] else { panic!("{costs:?}") };
        println!("{}: a boot {none} statements, with a port {port}", cloud.name);
        assert_eq!((port - none, shown - bare), (13, 2));
        assert_eq!(bare, 2, "the server and its group");
        cloud.sweep(&up, "counted").await;
    }
}

#[tokio::test]
async fn servers_are_found_by_their_addresses() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[])])).await {
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let mut ids = Vec::new();
        for last in [20, 21] {
            let nic = json!([{"uuid": net, "fixed_ip": format!("10.0.0.{last}")}]);
            ids.push(active(&cloud, &up, "plain", nic, "a").await);
        }
        active(&cloud, &up, "plain", json!("none"), "a").await;
        for (query, wanted) in [
            ("ip=10.0.0.20", vec![&ids[0]]),
            ("ip=10.0.0.2", vec![&ids[1], &ids[0]]),
            ("ip=10.0.0.2&limit=1", vec![&ids[1]]),
            ("ip=10.0.0.20&ip6=0.21", vec![&ids[1], &ids[0]]),
            ("ip=10.0.0.20&name=nobody", vec![]),
            ("ip=192.0.2.1", vec![]),
            ("ip=%25", vec![]),
        ] {
            let path = format!("/servers?{query}");
            let list = up.get(ANN, "2.90", &path).await.expect(200);
            let found = list["servers"].as_array().expect("a list").iter();
            let found: Vec<&str> = found.filter_map(|server| server["id"].as_str()).collect();
            assert_eq!(found, wanted, "{query}");
        }
        let others = up.get(BOB, "2.90", "/servers?ip=10.0.0.20").await.expect(200);
        assert_eq!(others["servers"], json!([]), "of another project");
    }
}

#[tokio::test]
async fn a_change_says_less_of_addresses_before_2_75() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[])])).await {
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let id = active(&cloud, &up, "plain", json!([{"uuid": net}]), "a").await;
        let put = format!("PUT /servers/{id}");
        let action = format!("POST /servers/{id}/action");
        for (version, keys) in [("2.74", 2), ("2.75", 4)] {
            let rename = Some(json!({"server": {"name": "two"}}));
            let renamed = up.call(ANN, version, &put, rename).await.expect(200);
            let wish = Some(json!({"rebuild": {"imageRef": cloud.image}}));
            let rebuilt = up.call(ANN, version, &action, wish).await.expect(202);
            for said in [renamed, rebuilt] {
                let address = said["server"]["addresses"]["private"][0].as_object();
                assert_eq!(address.expect("an address").len(), keys, "{version}: {said}");
            }
            up.becomes(&id, "ACTIVE").await;
        }
    }
}
