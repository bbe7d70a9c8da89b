//! Subnets and their DHCP ports.

use kilonova_network::ledger;
use serde_json::{Value, json};

use crate::kit::apis;

#[tokio::test]
async fn subnets_of_both_families() {
    for api in apis().await {
        let net = api.make("ann:red", "network", json!({"name": "n"})).await["id"].clone();
        let ipv4 = json!({"network_id": net, "ip_version": 4, "cidr": "10.0.0.0/24",
            "dns_nameservers": ["9.9.9.9"],
            "host_routes": [{"destination": "10.9.0.0/16", "nexthop": "10.0.0.254"}]});
        let subnet = api.make("ann:red", "subnet", ipv4).await;
        assert_eq!(subnet["gateway_ip"], "10.0.0.1");
        assert_eq!(subnet["allocation_pools"], json!([{"start": "10.0.0.2", "end": "10.0.0.254"}]));
        let ipv6 = json!({"network_id": net, "ip_version": 6, "cidr": "fd00::/64"});
        let ipv6 = api.make("ann:red", "subnet", ipv6).await;
        assert_eq!(ipv6["gateway_ip"], "fd00::1");
        let post = |more: serde_json::Value| {
            let mut body = json!({"network_id": net, "ip_version": 4, "cidr": "10.1.0.0/24"});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Some(json!({"subnet": body}))
        };
        let pool = |start: &str, end: &str| json!([{"start": start, "end": end}]);
        for (more, status, code) in [
            (json!({"cidr": "10.0.0.128/25"}), 400, "InvalidInput"),
            (json!({"cidr": "fd01::/64"}), 400, "InvalidInput"),
            (json!({"cidr": "10.1.0.0"}), 400, "HTTPBadRequest"),
            (json!({"gateway_ip": "fd00::1"}), 400, "InvalidInput"),
            (json!({"gateway_ip": "10.1.0.0"}), 400, "InvalidInput"),
            (
                json!({"allocation_pools": pool("10.1.0.9", "10.1.0.4")}),
                400,
                "InvalidAllocationPool",
            ),
            (
                json!({"allocation_pools": pool("10.1.0.9", "10.2.0.4")}),
                400,
                "OutOfBoundsAllocationPool",
            ),
            (
                json!({"allocation_pools": pool("10.1.0.1", "10.1.0.4")}),
                409,
                "GatewayConflictWithAllocationPools",
            ),
            (json!({"dns_nameservers": ["fd00::5"]}), 400, "InvalidInput"),
        ] {
            api.refused("ann:red", "POST /subnets", post(more), status, code).await;
        }
        let path = format!("PUT /subnets/{}", subnet["id"].as_str().unwrap());
        let set = json!({"subnet": {"gateway_ip": null, "enable_dhcp": false}});
        let changed = api.ok("ann:red", &path, Some(set)).await;
        assert_eq!(changed["subnet"]["gateway_ip"], json!(null));
        assert_eq!(changed["subnet"]["revision_number"], 2);
        let cidr = json!({"subnet": {"cidr": "10.7.0.0/24"}});
        api.refused("ann:red", &path, Some(cidr), 400, "HTTPBadRequest").await;
    }
}

#[tokio::test]
async fn subnets_with_dhcp_have_a_dhcp_port() {
    for api in apis().await {
        let net = api.network("ann:red", &[]).await;
        let list = format!("GET /ports?network_id={net}");
        let answering = async || {
            let ports = api.ok("ann:red", &list, None).await["ports"].clone();
            let ports = ports.as_array().unwrap().clone();
            let owners: Vec<_> = ports.iter().map(|port| port["device_owner"].clone()).collect();
            let ips = ports.iter().flat_map(|port| port["fixed_ips"].as_array().unwrap().clone());
            let ips: Vec<_> = ips.map(|ip| ip["ip_address"].clone()).collect();
            assert!(owners.iter().all(|owner| owner == "network:dhcp"), "{owners:?}");
            assert!(ports.len() < 2, "one DHCP port serves all subnets");
            (ports.first().cloned().unwrap_or(Value::Null), json!(ips))
        };
        assert_eq!(answering().await.1, json!([]));
        let subnet = async |cidr: &str, dhcp: bool| {
            let version = if cidr.contains(':') { 6 } else { 4 };
            let body = json!({"network_id": net, "cidr": cidr, "ip_version": version,
                "enable_dhcp": dhcp});
            api.make("ann:red", "subnet", body).await["id"].as_str().unwrap().to_owned()
        };
        let ipv4 = subnet("10.0.0.0/24", true).await;
        let ipv6 = subnet("fd00::/64", true).await;
        subnet("10.1.0.0/24", false).await;
        subnet("10.2.0.0/32", true).await;
        let (port, ips) = answering().await;
        assert_eq!(ips, json!(["10.0.0.254", "fd00::ffff:ffff:ffff:ffff"]));
        assert_eq!(port["status"], "ACTIVE");
        let quota = api.ok("admin", "GET /quotas/red/details", None).await;
        assert_eq!(quota["quota"]["port"]["used"], 0, "no quota counts the DHCP port");
        let at = |verb: &str| format!("{verb} /ports/{}", port["id"].as_str().unwrap());
        let body = json!({"port": {"fixed_ips": []}});
        api.refused("admin", &at("PUT"), Some(body), 409, "ServicePortInUse").await;

        let taken = json!({"network_id": net, "fixed_ips": [{"ip_address": "10.0.0.254"}]});
        let body = Some(json!({"port": taken}));
        api.refused("ann:red", "POST /ports", body, 409, "IpAddressAlreadyAllocated").await;
        let set = |dhcp: bool| Some(json!({"subnet": {"enable_dhcp": dhcp}}));
        let path = format!("PUT /subnets/{ipv4}");
        api.ok("ann:red", &path, set(false)).await;
        assert_eq!(answering().await.1, json!(["fd00::ffff:ffff:ffff:ffff"]));
        let last = api.make("ann:red", "port", taken).await;
        api.ok("ann:red", &path, set(true)).await;
        api.audit().await;
        api.none("ann:red", &format!("DELETE /ports/{}", last["id"].as_str().unwrap())).await;
        let ips = answering().await.1;
        assert_eq!(ips, json!(["10.0.0.253", "fd00::ffff:ffff:ffff:ffff"]), "the second highest");
        api.none("ann:red", &at("DELETE")).await;
        assert_eq!(answering().await.1, ips, "its successor has the same, although .254 is free");
        api.none("ann:red", &format!("DELETE /subnets/{ipv6}")).await;
        assert_eq!(answering().await.1, json!(["10.0.0.253"]));
        api.none("ann:red", &format!("DELETE /subnets/{ipv4}")).await;
        assert_eq!(answering().await.0, Value::Null, "the DHCP port is deleted");
        subnet("10.3.0.0/24", true).await;
        api.audit().await;
        api.none("ann:red", &format!("DELETE /networks/{net}")).await;
        api.audit().await;
    }
}

#[tokio::test]
async fn a_deleted_dhcp_port_has_a_successor_that_hosts_do_not_notice() {
    for api in apis().await {
        let net = api.network("ann:red", &[]).await;
        for (version, cidr) in [(4, "10.0.0.0/24"), (6, "fd00::/64")] {
            let subnet = json!({"network_id": net, "ip_version": version, "cidr": cidr});
            api.make("ann:red", "subnet", subnet).await;
        }
        api.make("ann:red", "port", json!({"network_id": net})).await;
        let list = async |query: &str| {
            let path = format!("GET /ports?network_id={net}{query}");
            api.ok("admin:ops", &path, None).await["ports"].as_array().unwrap().clone()
        };
        let id = |thing: &Value| thing["id"].as_str().unwrap().to_owned();
        api.store.write(ledger::take_changes).await.unwrap();
        for who in ["ann:red", "admin:ops"] {
            let old = list("&device_owner=network:dhcp").await;
            assert_eq!(old.len(), 1);
            let at = |verb: &str| format!("{verb} /ports/{}", id(&old[0]));
            api.refused("bob:blue", &at("DELETE"), None, 404, "PortNotFound").await;
            api.none(who, &at("DELETE")).await;
            api.refused("admin:ops", &at("GET"), None, 404, "PortNotFound").await;
            let new = list("&device_owner=network:dhcp").await;
            assert_eq!(new.len(), 1, "the network still has one DHCP port");
            assert_ne!(new[0]["id"], old[0]["id"]);
            for key in ["mac_address", "fixed_ips", "device_id", "project_id", "status"] {
                assert_eq!(new[0][key], old[0][key], "{key}");
            }
            let change = Some(json!({"port": {"name": "x"}}));
            let path = format!("PUT /ports/{}", id(&new[0]));
            api.refused("admin:ops", &path, change, 409, "ServicePortInUse").await;
            api.audit().await;
        }
        assert_eq!(api.store.write(ledger::take_changes).await.unwrap(), []);
        let old = id(&list("&device_owner=network:dhcp").await[0]);
        let delete = format!("DELETE /ports/{old}");
        let (one, two) =
            tokio::join!(api.call("ann:red", &delete, None), api.call("ann:red", &delete, None));
        let mut statuses = [one.0, two.0];
        statuses.sort_unstable();
        assert!(matches!(statuses, [204, 404 | 409]), "{one:?} {two:?}");
        assert_eq!(list("&device_owner=network:dhcp").await.len(), 1);
        api.audit().await;

        // The order in which scripts empty a project.
        for port in list("").await {
            api.none("admin:ops", &format!("DELETE /ports/{}", id(&port))).await;
        }
        let subnets = api.ok("admin:ops", &format!("GET /subnets?network_id={net}"), None).await;
        for subnet in subnets["subnets"].as_array().unwrap() {
            api.none("admin:ops", &format!("DELETE /subnets/{}", id(subnet))).await;
        }
        assert_eq!(list("").await, [] as [Value; 0]);
        api.none("admin:ops", &format!("DELETE /networks/{net}")).await;
        api.audit().await;
    }
}

#[tokio::test]
async fn host_routes_are_limited_and_distinct() {
    for api in apis().await {
        let net = api.network("ann:red", &[]).await;
        let route = |number: usize| json!({"destination": format!("10.9.{number}.0/24"), "nexthop": "10.0.0.7"});
        let subnet = |routes: Vec<Value>| json!({"network_id": net, "cidr": "10.0.0.0/24", "ip_version": 4, "host_routes": routes});
        let post = |routes| Some(json!({"subnet": subnet(routes)}));
        let (status, body) =
            api.call("ann:red", "POST /subnets", post(vec![route(1), route(2), route(1)])).await;
        let words = "Invalid input for host_routes. Reason: Duplicate hostroute '{'destination': \
                     '10.9.1.0/24', 'nexthop': '10.0.0.7'}'.";
        assert_eq!((status, &body["NeutronError"]["message"]), (400, &json!(words)));
        let most = (0..21).map(route).collect();
        api.refused("ann:red", "POST /subnets", post(most), 400, "HTTPBadRequest").await;
        let made = api.make("ann:red", "subnet", subnet((0..20).map(route).collect())).await;
        assert_eq!(made["host_routes"].as_array().unwrap().len(), 20);
    }
}

#[tokio::test]
async fn name_servers_and_host_routes_keep_their_spelling() {
    for api in apis().await {
        let net = api.network("ann:red", &[]).await;
        let body = |more: Value| {
            let mut body = json!({"network_id": net, "cidr": "FD00:0::/64", "ip_version": 6});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        for twice in [
            json!({"dns_nameservers": ["FD00::5", "fd00::5"]}),
            json!({"host_routes": [{"destination": "FD09::/64", "nexthop": "FD00::7"},
                {"destination": "fd09::/64", "nexthop": "fd00::7"}]}),
        ] {
            let post = Some(json!({"subnet": body(twice)}));
            api.refused("ann:red", "POST /subnets", post, 400, "HTTPBadRequest").await;
        }
        let sent = json!({"dns_nameservers": ["FD00:0::5", "fd00::6"], "gateway_ip": "FD00::9",
            "host_routes": [{"destination": "FD09:0::/64", "nexthop": "FD00::7"}]});
        let made = api.make("ann:red", "subnet", body(sent)).await;
        assert_eq!(made["dns_nameservers"], json!(["FD00:0::5", "fd00::6"]));
        let routes = json!([{"destination": "FD09:0::/64", "nexthop": "fd00::7"}]);
        assert_eq!(made["host_routes"], routes);
        assert_eq!((&made["cidr"], &made["gateway_ip"]), (&json!("fd00::/64"), &json!("fd00::9")));
        let path = format!("/subnets/{}", made["id"].as_str().unwrap());
        let shown = api.ok("ann:red", &format!("GET {path}"), None).await["subnet"].clone();
        assert_eq!(shown["dns_nameservers"], made["dns_nameservers"]);
        assert_eq!(shown["host_routes"], routes);
    }
}
