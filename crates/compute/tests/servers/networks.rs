//! Servers on networks: their ports follow them through every operation and are cleaned up.

use kilonova_compute_app::Compute;
use kilonova_ids::NetworkId;
use kilonova_store::testing::Meter;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Answer, BOB, Cloud, GPU, RunningCloud, client, hosts};
use crate::servers::resize::admin;

/// Requests a server with these networks.
pub async fn create_with_networks(
    cloud: &Cloud,
    running: &RunningCloud,
    flavor: &str,
    networks: Value,
) -> Answer {
    let mut boot_request = running.boot_request(cloud, "one", flavor);
    boot_request["server"]["networks"] = networks;
    running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await
}

/// A server with these networks, running on a host.
pub async fn active_server_with_networks(
    cloud: &Cloud,
    running: &RunningCloud,
    flavor: &str,
    networks: Value,
    host: &str,
) -> String {
    let mut boot_request = running.boot_request(cloud, "one", flavor);
    boot_request["server"]["networks"] = networks;
    boot_request["server"]["availability_zone"] = json!(format!("nova:{host}"));
    let request = axum::http::Request::post("/v2.1/servers")
        .header("x-auth-token", "ann:red")
        .header("x-roles", "admin")
        .header("openstack-api-version", "compute 2.90")
        .body(axum::body::Body::from(boot_request.to_string()))
        .expect("the request is valid");
    let made = running.send(request).await.expect(202);
    let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
    running.wait_for_status(&id, "ACTIVE").await;
    id
}

/// The guest's XML on a host.
pub fn domain_xml(cloud: &Cloud, host: &str, id: &str) -> String {
    let path = cloud.nodes().join(host).join("domains").join(format!("{id}.xml"));
    std::fs::read_to_string(path).expect("the domain XML exists")
}

/// The quota is checked without a write first, and again in the transaction that creates the ports.
#[tokio::test]
async fn boots_keep_the_quota_of_ports() {
    const FULL: &str = "Maximum number of ports exceeded";
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let networks = || json!([{"uuid": net}]);
        for at_once in [false, true] {
            let quota = json!({"quota": {"port": 3}});
            running.neutron("admin", "PUT /quotas/red", Some(quota)).await.expect(200);
            let boot = || create_with_networks(&cloud, &running, "plain", networks());
            let answers = match at_once {
                false => [boot().await, boot().await, boot().await, boot().await, boot().await],
                true => tokio::join!(boot(), boot(), boot(), boot(), boot()).into(),
            };
            let accepted = answers.iter().filter(|answer| answer.status == 202).count();
            assert_eq!(accepted, 3, "{}, at once: {at_once}", cloud.name);
            for answer in answers.into_iter().filter(|answer| answer.status != 202) {
                answer.refused(403, FULL);
            }
            let servers = running.wait_all_idle().await;
            assert_eq!(servers.len(), 3);
            let id = servers[0]["id"].as_str().expect("it has an id");
            let path = format!("POST /servers/{id}/os-interface");
            let body = json!({"interfaceAttachment": {"net_id": net}});
            running.call(ANN, "2.90", &path, Some(body)).await.refused(403, FULL);
            let unlimited = json!({"quota": {"port": -1}});
            running.neutron("admin", "PUT /quotas/red", Some(unlimited)).await.expect(200);
            for server in &servers {
                let id = server["id"].as_str().expect("it has an id");
                running.delete(id).await;
                running.wait_until_gone(id).await;
            }
        }
        cloud.teardown(&running, "quota of ports").await;
    }
}

#[tokio::test]
async fn a_port_is_created_and_deleted_with_the_server() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let id = active_server_with_networks(
            &cloud,
            &running,
            "vgpu",
            json!([{"uuid": net, "tag": "nic"}]),
            "a",
        )
        .await;
        let ports = running.ports().await;
        assert_eq!(ports.len(), 1);
        let port = &ports[0];
        assert_eq!(port["device_id"], id.as_str());
        assert_eq!(port["device_owner"], "compute:nova");
        assert_eq!(port["binding:host_id"], "a");
        assert_eq!(port["status"], "ACTIVE");
        let ip = port["fixed_ips"][0]["ip_address"].as_str().expect("the value has an address");
        assert_eq!(ip, "10.0.0.2", "the first is the gateway's");
        let server = running.server(&id).await;
        assert_eq!(
            server["addresses"],
            json!({"private": [{"version": 4, "addr": ip, "OS-EXT-IPS:type": "fixed",
                "OS-EXT-IPS-MAC:mac_addr": port["mac_address"]}]})
        );
        assert_eq!(server["security_groups"], json!([{"name": "default"}]));
        let listed = running.servers().await;
        assert_eq!(listed[0]["addresses"], server["addresses"]);
        let ips = running.get(ANN, "2.90", &format!("/servers/{id}/ips")).await.expect(200);
        assert_eq!(ips, json!({"addresses": {"private": [{"version": 4, "addr": ip}]}}));
        let path = format!("/servers/{id}/ips/private");
        assert_eq!(running.get(ANN, "2.90", &path).await.expect(200)["private"][0]["addr"], ip);
        let domain_xml = domain_xml(&cloud, "a", &id);
        let mac = port["mac_address"].as_str().expect("the port has a MAC address");
        assert!(
            domain_xml.contains("<interface type='bridge'>") && domain_xml.contains(mac),
            "{domain_xml}"
        );
        let list =
            running.get(ANN, "2.90", &format!("/servers/{id}/os-interface")).await.expect(200);
        let shown = &list["interfaceAttachments"][0];
        assert_eq!((&shown["port_id"], &shown["tag"]), (&port["id"], &json!("nic")));
        let port_path =
            format!("DELETE /ports/{}", port["id"].as_str().expect("the answer has an id"));
        running.neutron(ANN, &port_path, None).await.refused(403, "delete_port");
        running.neutron("admin", &port_path, None).await.refused(409, "in use by server");
        running.neutron(ANN, &format!("DELETE /networks/{net}"), None).await.refused(409, "ports");
        cloud.assert_consistent(&running, "connected").await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        assert_eq!(running.ports().await, Vec::<Value>::new());
        running.neutron(ANN, &format!("DELETE /networks/{net}"), None).await.expect(204);
        cloud.teardown(&running, "networks").await;
    }
}

#[tokio::test]
async fn a_preexisting_port_is_kept() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let fixed_ip = json!({"fixed_ips": [{"ip_address": "10.0.0.77"}], "name": "mine"});
        let port = running.port(ANN, &net, fixed_ip).await;
        let id =
            active_server_with_networks(&cloud, &running, "plain", json!([{"port": port}]), "a")
                .await;
        let bound = running.show_port(&port).await;
        assert_eq!((&bound["device_id"], &bound["binding:host_id"]), (&json!(id), &json!("a")));
        let again = create_with_networks(&cloud, &running, "plain", json!([{"port": port}])).await;
        again.refused(409, &format!("Port {port} is still in use."));
        let taken = create_with_networks(
            &cloud,
            &running,
            "plain",
            json!([{"uuid": net, "fixed_ip": "10.0.0.77"}]),
        )
        .await;
        taken.refused(400, "Fixed IP address 10.0.0.77 is already in use");
        for (key, value) in [("device_id", json!("")), ("mac_address", json!("fa:16:3e:00:00:01"))]
        {
            let body = json!({"port": {key: value}});
            running
                .neutron("admin", &format!("PUT /ports/{port}"), Some(body))
                .await
                .refused(409, key);
        }
        cloud.assert_consistent(&running, "bound").await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        let free = running.show_port(&port).await;
        assert_eq!((&free["device_id"], &free["device_owner"]), (&json!(""), &json!("")));
        assert_eq!(free["binding:vif_type"], "unbound");
        assert_eq!(free["fixed_ips"][0]["ip_address"], "10.0.0.77");
        cloud.teardown(&running, "kept").await;
    }
}

#[tokio::test]
async fn ports_follow_every_migration() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let id = active_server_with_networks(&cloud, &running, "vgpu", json!([{"uuid": net}]), "a")
            .await;
        let port =
            running.ports().await[0]["id"].as_str().expect("the answer has an id").to_owned();
        let mac = running.show_port(&port).await["mac_address"]
            .as_str()
            .expect("the port has a MAC address")
            .to_owned();
        let on = async |running: &RunningCloud, host: &str, when: &str| {
            let now = running.show_port(&port).await;
            assert_eq!(now["binding:host_id"], host, "{when}");
            assert_eq!(now["fixed_ips"][0]["ip_address"], "10.0.0.2", "{when}");
            if !host.is_empty() {
                assert!(domain_xml(&cloud, host, &id).contains(&mac), "{when}");
            }
            cloud.assert_consistent(running, when).await;
        };
        for (end, host) in [("revertResize", "a"), ("confirmResize", "b")] {
            admin(&running, "2.90", &id, json!({"migrate": null})).await.expect(202);
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            on(&running, "b", "migrated").await;
            let answer = admin(&running, "2.90", &id, json!({end: null})).await;
            assert!(answer.status.is_success(), "{}", answer.body);
            running.wait_for_status(&id, "ACTIVE").await;
            running.wait_for_host_cleanup(&cloud).await;
            on(&running, host, end).await;
        }
        let live = json!({"os-migrateLive": {"host": "a", "block_migration": "auto"}});
        admin(&running, "2.90", &id, live).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        running.wait_for_host_cleanup(&cloud).await;
        on(&running, "a", "live").await;
        running.act(&id, json!({"shelve": null})).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        on(&running, "", "offloaded").await;
        assert_eq!(running.show_port(&port).await["binding:vif_type"], "unbound");
        running.act(&id, json!({"unshelve": null})).await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        let host =
            server["OS-EXT-SRV-ATTR:host"].as_str().expect("the server has a host").to_owned();
        on(&running, &host, "unshelved").await;
        let other = if host == "a" { "b" } else { "a" };
        running.nodes.kill(&host).await;
        running.force_down(&host, true).await;
        admin(&running, "2.90", &id, json!({"evacuate": {}})).await.expect(200);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(running.show_port(&port).await["binding:host_id"], other);
        cloud.audit("evacuated").await;
        running.start_node(&cloud, &host).await;
        running.force_down(&host, false).await;
        running.wait_for_host_cleanup(&cloud).await;
        on(&running, other, "back").await;
        cloud.teardown(&running, "moved").await;
        assert!(running.ports().await.is_empty());
    }
}

#[tokio::test]
async fn a_boot_that_fails_everywhere_leaves_no_port() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let mine = running.port(ANN, &net, json!({})).await;
        running.restart_failing(&cloud, "a", &[("define", None)]).await;
        running.restart_failing(&cloud, "b", &[("define", None)]).await;
        let made =
            create_with_networks(&cloud, &running, "vgpu", json!([{"uuid": net}, {"port": mine}]))
                .await
                .expect(202);
        let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
        running.wait_for_status(&id, "ERROR").await;
        let left = running.ports().await;
        assert_eq!(left.len(), 1);
        assert_eq!((&left[0]["id"], &left[0]["device_id"]), (&json!(mine), &json!("")));
        cloud.teardown(&running, "failed").await;
    }
}

#[tokio::test]
async fn invalid_networks_are_refused_with_novas_messages() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let unknown = "11111111-1111-4111-8111-111111111111";
        let words = format!("Network {unknown} could not be found.");
        create_with_networks(&cloud, &running, "plain", json!([{"uuid": unknown}]))
            .await
            .refused(400, &words);
        let words = format!("Port id {unknown} could not be found.");
        create_with_networks(&cloud, &running, "plain", json!([{"port": unknown}]))
            .await
            .refused(400, &words);
        let blue = running.network_with_subnet(BOB, "blue", "10.1.0.0/24").await;
        create_with_networks(&cloud, &running, "plain", json!([{"uuid": blue}]))
            .await
            .refused(400, "could not be found");
        let bare = json!({"network": {"name": "bare"}});
        let bare = running.neutron(BOB, "POST /networks", Some(bare)).await.expect(201);
        let bare = bare["network"]["id"].clone();
        let mut boot_request = running.boot_request(&cloud, "one", "plain");
        boot_request["server"]["networks"] = json!([{"uuid": bare}]);
        let answer = running.call(BOB, "2.90", "POST /servers", Some(boot_request.clone())).await;
        answer.refused(400, "requires a subnet in order to boot instances on.");
        let port = running.port(BOB, bare.as_str().expect("the answer has an id"), json!({})).await;
        boot_request["server"]["networks"] = json!([{"port": port}]);
        let answer = running.call(BOB, "2.90", "POST /servers", Some(boot_request)).await;
        answer.refused(400, "requires a FixedIP in order to be used.");

        let auto = create_with_networks(&cloud, &running, "plain", json!("auto")).await.expect(202);
        let none = running
            .wait_for_status(auto["server"]["id"].as_str().expect("the answer has an id"), "ACTIVE")
            .await;
        assert_eq!(none["addresses"], json!({}), "a project without networks");
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/29").await;
        let auto = create_with_networks(&cloud, &running, "plain", json!("auto")).await.expect(202);
        let one = running
            .wait_for_status(auto["server"]["id"].as_str().expect("the answer has an id"), "ACTIVE")
            .await;
        assert!(one["addresses"]["private"].is_array(), "{one}");
        running.network_with_subnet(ANN, "second", "10.2.0.0/24").await;
        let words = "Multiple possible networks found, use a Network ID to be more specific.";
        create_with_networks(&cloud, &running, "plain", json!("auto")).await.refused(409, words);
        // A network that is down does not count.
        let path = format!("PUT /networks/{net}");
        let up = |is_up: bool| Some(json!({"network": {"admin_state_up": is_up}}));
        running.neutron(ANN, &path, up(false)).await.expect(200);
        let auto = create_with_networks(&cloud, &running, "plain", json!("auto")).await.expect(202);
        let one = running
            .wait_for_status(auto["server"]["id"].as_str().expect("the answer has an id"), "ACTIVE")
            .await;
        assert!(one["addresses"]["second"].is_array(), "{one}");
        running.neutron(ANN, &path, up(true)).await.expect(200);

        let mine = running.port(ANN, &net, json!({})).await;
        let mut boot_request = running.boot_request(&cloud, "many", "plain");
        boot_request["server"]["max_count"] = json!(2);
        for (line, words) in [
            (json!({"port": mine}), "multiple instances with a single configured port ID"),
            (json!({"uuid": net, "fixed_ip": "10.0.0.5"}), "max_count cannot be greater than 1"),
        ] {
            boot_request["server"]["networks"] = json!([line]);
            running
                .call(ANN, "2.90", "POST /servers", Some(boot_request.clone()))
                .await
                .refused(400, words);
        }
        boot_request["server"]["networks"] = json!([{"uuid": net}]);
        // One address belongs to the network, one to a port and one to a server.
        boot_request["server"]["max_count"] = json!(3);
        boot_request["server"]["min_count"] = json!(3);
        let full = running.call(ANN, "2.90", "POST /servers", Some(boot_request.clone())).await;
        full.refused(400, "No fixed IP addresses available for network");
        boot_request["server"]["max_count"] = json!(2);
        boot_request["server"]["min_count"] = json!(2);
        running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await.expect(202);
        running.wait_all_idle().await;
        let mut boot_request = running.boot_request(&cloud, "grouped", "plain");
        boot_request["server"]["security_groups"] = json!([{"name": "web"}]);
        let answer = running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await;
        answer.refused(400, "Security group web not found.");
        cloud.assert_consistent(&running, "refusals").await;
        cloud.teardown(&running, "refusals").await;
    }
}

#[tokio::test]
async fn interfaces_and_groups_change_on_a_running_guest() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let at = format!("/servers/{id}/os-interface");
        let to = format!("POST {at}");
        let post = |body: Value| running.call(ANN, "2.90", &to, Some(body));
        for (body, status, words) in [
            (json!({"interfaceAttachment": {"net_id": "x"}}), 400, "net_id"),
            (json!({"interfaceAttachment": {"colour": "x"}}), 400, "colour"),
            (json!({"interfaceAttachment": {"net_id": net, "port_id": net}}), 400, "both"),
        ] {
            post(body).await.refused(status, words);
        }
        // A boot answers these with other codes.
        let unknown = NetworkId::new_v4();
        let in_use = running.port(ANN, &net, json!({"fixed_ips": [{"ip_address": "10.0.0.8"}]}));
        let in_use = in_use.await;
        let fixed = json!({"net_id": net, "fixed_ips": [{"ip_address": "10.0.0.8"}]});
        for (attachment, status, words) in [
            (json!({"port_id": unknown}), 404, format!("Port id {unknown} could not be found.")),
            (json!({"net_id": unknown}), 404, format!("Network {unknown} could not be found.")),
            (fixed, 409, "Fixed IP 10.0.0.8 is already in use.".to_owned()),
        ] {
            post(json!({"interfaceAttachment": attachment})).await.refused(status, &words);
        }
        running.neutron(ANN, &format!("DELETE /ports/{in_use}"), None).await.expect(204);
        let second_net = running.network_with_subnet(ANN, "second", "10.0.1.0/24").await;
        post(json!({})).await.refused(400, "Multiple possible networks found");
        let path = format!("DELETE /networks/{second_net}");
        running.neutron(ANN, &path, None).await.expect(204);
        let attachment =
            json!({"net_id": net, "fixed_ips": [{"ip_address": "10.0.0.9"}], "tag": "t"});
        let made = post(json!({"interfaceAttachment": attachment})).await.expect(200);
        let shown = &made["interfaceAttachment"];
        assert_eq!(shown["fixed_ips"][0]["ip_address"], "10.0.0.9");
        assert_eq!(shown["tag"], "t");
        let mac = shown["mac_addr"].as_str().expect("the port has a MAC address").to_owned();
        crate::kit::wait_until("the guest has the interface", async || {
            domain_xml(&cloud, "a", &id).contains(&mac)
        })
        .await;
        assert_eq!(running.server(&id).await["status"], "ACTIVE");
        assert!(cloud.files("a", "running").contains(&id), "the guest never stopped");
        let any = post(json!({})).await.expect(200);
        let second = any["interfaceAttachment"]["port_id"]
            .as_str()
            .expect("the answer has an id")
            .to_owned();
        let mine = running.port(ANN, &net, json!({})).await;
        post(json!({"interfaceAttachment": {"port_id": mine}})).await.expect(200);
        cloud.assert_consistent(&running, "attached").await;

        let group = json!({"security_group": {"name": "web"}});
        running.neutron(ANN, "POST /security-groups", Some(group)).await.expect(201);
        running.act(&id, json!({"addSecurityGroup": {"name": "web"}})).await;
        let names = running.server(&id).await["security_groups"].clone();
        assert_eq!(names, json!([{"name": "default"}, {"name": "web"}]));
        let path = format!("/servers/{id}/os-security-groups");
        let groups = running.get(ANN, "2.90", &path).await.expect(200);
        assert_eq!(groups["security_groups"].as_array().map(Vec::len), Some(2));
        running.act(&id, json!({"removeSecurityGroup": {"name": "web"}})).await;
        let answer = running.try_act(&id, json!({"removeSecurityGroup": {"name": "web"}})).await;
        answer.refused(404, "not associated with the instance");
        let answer = running.try_act(&id, json!({"addSecurityGroup": {"name": "no"}})).await;
        answer.refused(404, "not found");

        let drop = |port: &str| format!("DELETE {at}/{port}");
        running.call(ANN, "2.90", &drop(&second), None).await.expect(202);
        assert!(running.show_port(&second).await.is_null(), "the port was created for the server");
        running.call(ANN, "2.90", &drop(&mine), None).await.expect(202);
        assert_eq!(running.show_port(&mine).await["device_id"], "", "the port existed before");
        running.call(ANN, "2.90", &drop(&mine), None).await.refused(404, "Port id");
        cloud.assert_consistent(&running, "detached").await;
        // A shelved server keeps its ports and their groups.
        running.act(&id, json!({"shelve": null})).await;
        let shelved = running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        assert_eq!(shelved["security_groups"], json!([{"name": "default"}]));
        let missing = running.get(ADMIN, "2.90", &format!("{at}/{mine}")).await;
        missing.refused(404, "does not have a port with id");
        cloud.teardown(&running, "interfaces").await;
    }
}

/// Clients before version 7.2 of the OpenStack client find a group by Nova's proxy: by its path, then in the list.
#[tokio::test]
async fn groups_are_found_below_microversion_2_36() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let list = "/os-security-groups";
        let fresh = running.get(ANN, "2.35", list).await.expect(200);
        assert_eq!(fresh["security_groups"][0]["name"], "default", "{}", cloud.name);
        let body = json!({"security_group": {"name": "web", "description": "d"}});
        let made = running.neutron(ANN, "POST /security-groups", Some(body)).await.expect(201);
        let group = made["security_group"]["id"].clone();
        let rule = |more: Value| {
            let mut rule = json!({"security_group_id": group, "direction": "ingress"});
            let fields = more.as_object().expect("it is an object").clone();
            rule.as_object_mut().expect("it is an object").extend(fields);
            json!({"security_group_rule": rule})
        };
        let default = fresh["security_groups"][0]["id"].clone();
        for more in [
            json!({"protocol": "tcp", "port_range_min": 22, "port_range_max": 23,
                "remote_ip_prefix": "10.0.0.0/8"}),
            json!({"protocol": "icmp"}),
            json!({"protocol": "udp", "ethertype": "IPv6"}),
            json!({"remote_group_id": default}),
        ] {
            running.neutron(ANN, "POST /security-group-rules", Some(rule(more))).await.expect(201);
        }
        let all = running.get(ANN, "2.1", list).await.expect(200);
        let names = |all: &Value| {
            let all = all["security_groups"].as_array().expect("it is a list");
            all.iter().map(|one| one["name"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&all), [json!("default"), json!("web")]);
        let path = format!("{list}/{}", group.as_str().expect("the group has an id"));
        let mut shown = running.get(ANN, "2.35", &path).await.expect(200)["security_group"].clone();
        assert_eq!((&shown["id"], &shown["description"]), (&group, &json!("d")));
        let rules = shown["rules"].as_array_mut().expect("it is a list");
        for rule in &mut *rules {
            let rule = rule.as_object_mut().expect("it is an object");
            assert_eq!(rule.remove("parent_group_id"), Some(group.clone()));
            assert!(rule.remove("id").is_some());
        }
        let project = shown["tenant_id"].clone();
        assert_eq!(
            shown["rules"],
            json!([
                {"ip_protocol": "tcp", "from_port": 22, "to_port": 23, "group": {},
                    "ip_range": {"cidr": "10.0.0.0/8"}},
                {"ip_protocol": "icmp", "from_port": -1, "to_port": -1, "group": {},
                    "ip_range": {"cidr": "0.0.0.0/0"}},
                {"ip_protocol": "udp", "from_port": 1, "to_port": 65535, "group": {},
                    "ip_range": {"cidr": "0.0.0.0/0"}},
                {"ip_protocol": null, "from_port": null, "to_port": null,
                    "group": {"name": "default", "tenant_id": project}, "ip_range": {}},
            ])
        );
        running.get(ANN, "2.35", &format!("{list}/web")).await.refused(400, "should be uuid");
        running.get("eve:blue", "2.35", &path).await.refused(404, "does not exist");
        running.get(ANN, "2.36", list).await.refused(404, "not supported");
        running.get(ANN, "2.35", &format!("{list}?offset=x")).await.refused(400, "offset");
        running.get(ADMIN, "2.35", &path).await.expect(200);
        let page = running.get(ANN, "2.35", &format!("{list}?offset=1&limit=1")).await.expect(200);
        assert_eq!(names(&page), [json!("web")]);
        let end = running.get(ANN, "2.35", &format!("{list}?offset=2")).await.expect(200);
        assert_eq!(names(&end), [Value::Null; 0]);
        let other = running.get("eve:blue", "2.35", &format!("{list}?all_tenants=1")).await;
        assert_eq!(names(&other.expect(200)), [json!("default")]);
        let every = running.get(ADMIN, "2.35", &format!("{list}?all_tenants=1")).await.expect(200);
        assert!(names(&every).contains(&json!("web")), "{every}");
    }
}

/// Upstream: `NoUniqueMatch`.
#[tokio::test]
async fn an_ambiguous_name_of_a_group_is_a_conflict() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        for _ in 0..2 {
            let group = json!({"security_group": {"name": "web"}});
            running.neutron(ANN, "POST /security-groups", Some(group)).await.expect(201);
        }
        let networks = json!([{"uuid": net}]);
        let mut request = running.boot_request(&cloud, "two", "plain");
        request["server"]["networks"] = networks.clone();
        request["server"]["security_groups"] = json!([{"name": "web"}]);
        let why = "Multiple security groups found matching 'web'";
        running.call(ANN, "2.90", "POST /servers", Some(request)).await.refused(409, why);
        let id = active_server_with_networks(&cloud, &running, "plain", networks, "a").await;
        for action in ["addSecurityGroup", "removeSecurityGroup"] {
            running.try_act(&id, json!({action: {"name": "web"}})).await.refused(409, why);
        }
        cloud.teardown(&running, "ambiguous").await;
    }
}

/// A group is added to all ports of a server or to none.
#[tokio::test]
async fn groups_are_refused_where_they_cannot_apply() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let group = json!({"security_group": {"name": "web"}});
        running.neutron(ANN, "POST /security-groups", Some(group)).await.expect(201);
        let bare = running.active_server(&cloud, "bare", "plain").await;
        for action in ["addSecurityGroup", "removeSecurityGroup"] {
            running.try_act(&bare, json!({action: {"name": "web"}})).await.refused(
                404,
                &format!("instance_id {bare} could not be found as device id on any ports"),
            );
        }
        let open = json!({"port_security_enabled": false, "security_groups": []});
        let open = running.port(ANN, &net, open).await;
        let networks = json!([{"uuid": net}, {"port": open}]);
        let id = active_server_with_networks(&cloud, &running, "plain", networks, "a").await;
        let why = "Network requires port_security_enabled and subnet associated in order to apply \
                   security groups.";
        let answer = running.try_act(&id, json!({"addSecurityGroup": {"name": "web"}})).await;
        answer.refused(400, why);
        assert_eq!(running.server(&id).await["security_groups"], json!([{"name": "default"}]));
        running.act(&id, json!({"removeSecurityGroup": {"name": "default"}})).await;
        cloud.assert_consistent(&running, "groups").await;
        cloud.teardown(&running, "groups").await;
    }
}

/// Statements of a boot and of a GET. A server without networks needs none for ports.
#[tokio::test]
async fn statements_per_port() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let meter = Meter::counting();
        let store = running.compute.store.with_meter(meter.clone());
        let counted = client(Compute { store, ..running.compute.clone() });
        let mut costs = Vec::new();
        for networks in [json!([{"uuid": net}]), json!("none"), json!([{"uuid": net}])] {
            let mut boot_request = running.boot_request(&cloud, "one", "plain");
            boot_request["server"]["networks"] = networks;
            meter.take();
            let made =
                counted.call(ANN, "2.90", "POST /servers", Some(boot_request)).await.expect(202);
            let boot = meter.take();
            let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
            running.wait_for_status(&id, "ACTIVE").await;
            meter.take();
            counted.get(ANN, "2.90", &format!("/servers/{id}")).await.expect(200);
            costs.push((boot, meter.take()));
        }
        let [_, (none, bare), (port, shown)] = costs[..] else { panic!("{costs:?}") };
        println!("{}: a boot {none} statements, with a port {port}", cloud.name);
        assert_eq!((port - none, shown - bare), (13, 2));
        assert_eq!(bare, 2, "the server and its group");
        cloud.teardown(&running, "counted").await;
    }
}

#[tokio::test]
async fn servers_are_found_by_their_addresses() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let mut ids = Vec::new();
        for last in [20, 21] {
            let nic = json!([{"uuid": net, "fixed_ip": format!("10.0.0.{last}")}]);
            ids.push(active_server_with_networks(&cloud, &running, "plain", nic, "a").await);
        }
        active_server_with_networks(&cloud, &running, "plain", json!("none"), "a").await;
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
            let list = running.get(ANN, "2.90", &path).await.expect(200);
            let found = list["servers"].as_array().expect("the answer has a list").iter();
            let found: Vec<&str> = found.filter_map(|server| server["id"].as_str()).collect();
            assert_eq!(found, wanted, "{query}");
        }
        let others = running.get(BOB, "2.90", "/servers?ip=10.0.0.20").await.expect(200);
        assert_eq!(others["servers"], json!([]), "of another project");
    }
}

#[tokio::test]
async fn updates_show_fewer_address_keys_before_2_75() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let id =
            active_server_with_networks(&cloud, &running, "plain", json!([{"uuid": net}]), "a")
                .await;
        let put = format!("PUT /servers/{id}");
        let action = format!("POST /servers/{id}/action");
        for (version, keys) in [("2.74", 2), ("2.75", 4)] {
            let rename = Some(json!({"server": {"name": "two"}}));
            let renamed = running.call(ANN, version, &put, rename).await.expect(200);
            let rebuild = Some(json!({"rebuild": {"imageRef": cloud.image}}));
            let rebuilt = running.call(ANN, version, &action, rebuild).await.expect(202);
            for text in [renamed, rebuilt] {
                let address = text["server"]["addresses"]["private"][0].as_object();
                assert_eq!(
                    address.expect("the value has an address").len(),
                    keys,
                    "{version}: {text}"
                );
            }
            running.wait_for_status(&id, "ACTIVE").await;
        }
    }
}

#[tokio::test]
async fn fixed_addresses_are_added_and_removed() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/29").await;
        let other = running.network_with_subnet(ANN, "other", "10.1.0.0/29").await;
        let id =
            active_server_with_networks(&cloud, &running, "plain", json!([{"uuid": net}]), "a")
                .await;
        let path = format!("POST /servers/{id}/action");
        let act = async |action: Value| running.call(ANN, "2.43", &path, Some(action)).await;
        let add = |network: &str| json!({"addFixedIp": {"networkId": network}});
        let remove = |address: &str| json!({"removeFixedIp": {"address": address}});
        let shown = async || -> Vec<String> {
            let list = running.server(&id).await["addresses"]["private"].clone();
            let list = list.as_array().into_iter().flatten();
            list.filter_map(|address| address["addr"].as_str().map(str::to_owned)).collect()
        };
        act(add(&net)).await.expect(202);
        assert_eq!(shown().await, ["10.0.0.2", "10.0.0.3"]);
        kilonova_compute_app::reconcile::networks::run(running.compute.clone())
            .await
            .expect("the periodic task succeeds");
        let documents = cloud.column("SELECT body FROM documents").await;
        assert!(documents[0].contains("10.0.0.3"), "{documents:?}");
        act(remove("10.0.0.2")).await.expect(202);
        assert_eq!(shown().await, ["10.0.0.3"]);
        let words = format!("Instance {id} does not have fixed IP '10.0.0.2'.");
        act(remove("10.0.0.2")).await.refused(400, &words);

        // Of the five addresses, the network's DHCP port has one.
        for _ in 0..3 {
            act(add(&net)).await.expect(202);
        }
        let words = format!("No fixed IP addresses available for network: {net}");
        act(add(&net)).await.refused(400, &words);
        assert_eq!(shown().await.len(), 4);
        for address in shown().await {
            act(remove(&address)).await.expect(202);
        }
        let port = running.ports().await.into_iter().find(|port| port["device_id"] == id.as_str());
        assert_eq!(port.expect("the server keeps its port")["fixed_ips"], json!([]));

        let words = format!("Network could not be found for instance {id}.");
        act(add(&other)).await.refused(404, &words);
        act(json!({"addFixedIp": {}})).await.refused(400, "networkId");
        act(remove("here")).await.refused(400, "here");
        running.call(BOB, "2.43", &path, Some(add(&net))).await.refused(404, "");
        running.act(&id, json!({"lock": null})).await;
        act(add(&net)).await.refused(409, &format!("Instance {id} is locked"));
        running.act(&id, json!({"unlock": null})).await;
        cloud.teardown(&running, "changed").await;
    }
}

#[tokio::test]
async fn no_server_has_shares() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let path = format!("/servers/{id}/shares");
        let share = "e8debdc0-447a-4376-a10a-4cd9122d7986";
        running.get(ANN, "2.96", &path).await.refused(404, "not supported");
        let listed = running.get(ANN, "2.97", &path).await.expect(200);
        assert_eq!(listed, json!({"shares": []}));
        running.get(ANN, "2.97", &format!("{path}?limit=1")).await.refused(400, "limit");
        running.get(BOB, "2.97", &path).await.refused(404, "");
        let missing = format!("Share {share} could not be found.");
        for method in ["GET", "DELETE"] {
            let what = format!("{method} {path}/{share}");
            running.call(ANN, "2.97", &what, None).await.refused(404, &missing);
        }
        let post = format!("POST {path}");
        for (version, body, status, words) in [
            ("2.96", json!({"share": {"share_id": share}}), 404, "not supported"),
            ("2.97", json!({"share": {}}), 400, "share_id"),
            ("2.97", json!({"share": {"share_id": share, "tag": "a/b"}}), 400, "tag"),
            ("2.97", json!({"share": {"share_id": share}}), 409, "Feature not supported"),
        ] {
            running.call(ANN, version, &post, Some(body)).await.refused(status, words);
        }
        cloud.teardown(&running, "without shares").await;
    }
}
