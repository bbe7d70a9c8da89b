//! Routers and floating IPs over HTTP, in process, on both stores.

use kilonova_ids::{HostName, PortId, RouterId, SecurityGroupId, ServerId};
use kilonova_network::ledger::{self, Attach, NetworkChange, NewPorts, Place, PortSource};
use kilonova_store::testing::Meter;
use kilonova_wire::time;
use serde_json::{Value, json};

use crate::kit::{Api, apis, metered_apis};

/// An external network, a project's network behind a router, and a port there.
struct Scene {
    outside: String,
    net: String,
    subnet: String,
    router: String,
    port: String,
    fixed: String,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Creates a subnet on a network and returns its id.
async fn subnet(api: &Api, token: &str, net: &str, cidr: &str) -> String {
    let version = if cidr.contains(':') { 6 } else { 4 };
    let body = json!({"network_id": net, "cidr": cidr, "ip_version": version});
    text(&api.make(token, "subnet", body).await["id"])
}

async fn network(api: &Api, token: &str, body: Value, cidr: &str) -> (String, String) {
    let net = text(&api.make(token, "network", body).await["id"]);
    let subnet = subnet(api, token, &net, cidr).await;
    (net, subnet)
}

async fn put(api: &Api, token: &str, path: &str, body: Value) -> Value {
    api.ok(token, &format!("PUT /{path}"), Some(body)).await
}

impl Scene {
    async fn new(api: &Api) -> Self {
        let external = json!({"name": "outside", "router:external": true});
        let (outside, _) = network(api, "admin:ops", external, "198.51.100.0/24").await;
        let (net, subnet) = network(api, "ann:red", json!({"name": "in"}), "10.0.0.0/24").await;
        let gateway = json!({"name": "r", "external_gateway_info": {"network_id": outside}});
        let router = text(&api.make("ann:red", "router", gateway).await["id"]);
        let interface = format!("routers/{router}/add_router_interface");
        put(api, "ann:red", &interface, json!({"subnet_id": subnet})).await;
        let port = api.make("ann:red", "port", json!({"network_id": net})).await;
        let fixed = text(&port["fixed_ips"][0]["ip_address"]);
        Self { outside, net, subnet, router, port: text(&port["id"]), fixed }
    }

    async fn floating(&self, api: &Api, more: Value) -> Value {
        let mut body = json!({"floating_network_id": self.outside});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        api.make("ann:red", "floatingip", body).await
    }
}

/// Attaches a port of the project to a server.
async fn attach(api: &Api, server: ServerId, port: PortId) {
    let attached = move |tx: &mut kilonova_store::Tx<'_>| {
        let attach = Attach {
            server,
            project: "red",
            host: None,
            owner: "compute:nova",
            hostname: "vm",
            source: PortSource::Existing(port),
            tag: None,
            ordinal: 0,
            groups: &[],
        };
        let mut new = NewPorts::default();
        let (_, pending) = ledger::attach(tx, &attach, &mut new, time::now())?;
        pending.check(tx)
    };
    api.store.write(attached).await.unwrap();
}

#[tokio::test]
async fn a_router_connects_a_network_with_the_outside() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let path = format!("GET /routers/{}", scene.router);
        let shown = api.ok("ann:red", &path, None).await["router"].clone();
        assert_eq!(shown["external_gateway_info"]["network_id"], json!(scene.outside));
        assert_eq!(shown["external_gateway_info"]["enable_snat"], true);
        let fixed = &shown["external_gateway_info"]["external_fixed_ips"][0];
        assert!(text(&fixed["ip_address"]).starts_with("198.51.100."), "{shown}");
        assert_eq!(shown["status"], "ACTIVE");
        // Only administrators see these.
        assert!(shown.get("distributed").is_none() && shown.get("ha").is_none(), "{shown}");
        let admins = api.ok("admin:ops", &path, None).await["router"].clone();
        assert_eq!((&admins["distributed"], &admins["ha"]), (&json!(false), &json!(false)));

        let ports = format!("GET /ports?device_id={}", scene.router);
        let ports = api.ok("ann:red", &ports, None).await["ports"].clone();
        let port = &ports.as_array().unwrap()[0];
        assert_eq!(port["device_owner"], "network:router_interface");
        assert_eq!(port["fixed_ips"][0]["ip_address"], "10.0.0.1");
        // The gateway's port has no project.
        let ports = format!("GET /ports?device_id={}", scene.router);
        let all = api.ok("admin:ops", &ports, None).await["ports"].clone();
        let owners: Vec<&Value> =
            all.as_array().unwrap().iter().map(|port| &port["device_owner"]).collect();
        assert_eq!(owners, ["network:router_gateway", "network:router_interface"]);
        assert_eq!(all[0]["project_id"], "");

        for port in all.as_array().unwrap() {
            let path = format!("/ports/{}", text(&port["id"]));
            let delete = format!("DELETE {path}");
            api.refused("admin:ops", &delete, None, 409, "ServicePortInUse").await;
            let put = format!("PUT {path}");
            let body = Some(json!({"port": {"fixed_ips": []}}));
            api.refused("admin:ops", &put, body, 409, "ServicePortInUse").await;
            api.ok("admin:ops", &put, Some(json!({"port": {"name": "x"}}))).await;
        }
        let delete = format!("DELETE /routers/{}", scene.router);
        api.refused("ann:red", &delete, None, 409, "RouterInUse").await;
        let gateway = Some(json!({"subnet": {"gateway_ip": "10.0.0.9"}}));
        let path = format!("PUT /subnets/{}", scene.subnet);
        api.refused("ann:red", &path, gateway, 409, "GatewayIpInUse").await;
        let path = format!("PUT /networks/{}", scene.outside);
        let inside = Some(json!({"network": {"router:external": false}}));
        api.refused("admin:ops", &path, inside, 409, "ExternalNetworkInUse").await;
        let path = format!("DELETE /subnets/{}", scene.subnet);
        api.refused("ann:red", &path, None, 409, "SubnetInUse").await;
        api.audit().await;

        let gone = format!("routers/{}/remove_router_interface", scene.router);
        let removed = put(&api, "ann:red", &gone, json!({"subnet_id": scene.subnet})).await;
        assert_eq!(removed["subnet_ids"], json!([scene.subnet]));
        assert_eq!(removed["network_id"], json!(scene.net));
        api.none("ann:red", &delete).await;
        api.refused("ann:red", &delete, None, 404, "RouterNotFound").await;
        let ports = api.ok("admin:ops", "GET /ports?device_owner=network:router_gateway", None);
        assert_eq!(ports.await["ports"], json!([]));
        api.audit().await;
    }
}

#[tokio::test]
async fn interfaces_are_refused_in_upstreams_words() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let add = format!("PUT /routers/{}/add_router_interface", scene.router);
        let remove = format!("PUT /routers/{}/remove_router_interface", scene.router);
        let other = "0d4fb9ea-9ee0-4d83-9c0f-fb1bb4dbe9cd";
        let body = |key: &str, value: &str| Some(json!({key: value}));
        for (what, body, status, kind) in [
            (&add, Some(json!({})), 400, "BadRequest"),
            (
                &add,
                Some(json!({"subnet_id": scene.subnet, "port_id": scene.port})),
                400,
                "BadRequest",
            ),
            (&add, body("subnet_id", "x"), 400, "BadRequest"),
            (&add, body("subnet_id", &scene.subnet), 400, "BadRequest"),
            (&add, body("subnet_id", other), 404, "SubnetNotFound"),
            (&add, body("port_id", other), 404, "PortNotFound"),
            (&remove, Some(json!({})), 400, "BadRequest"),
            (&remove, body("port_id", other), 404, "RouterInterfaceNotFound"),
            (&remove, body("subnet_id", other), 404, "SubnetNotFound"),
        ] {
            api.refused("ann:red", what, body, status, kind).await;
        }
        // A prefix that overlaps with that of the first interface.
        let (_, overlapping) = network(&api, "ann:red", json!({}), "10.0.0.128/25").await;
        api.refused("ann:red", &add, body("subnet_id", &overlapping), 400, "BadRequest").await;
        api.refused(
            "ann:red",
            &remove,
            body("subnet_id", &overlapping),
            404,
            "RouterInterfaceNotFoundForSubnet",
        )
        .await;
        // A subnet without a gateway, and one of another project on a shared network.
        let net = text(&api.make("ann:red", "network", json!({})).await["id"]);
        let bare = json!({"network_id": net, "cidr": "10.7.0.0/24", "ip_version": 4,
            "gateway_ip": null});
        let bare = text(&api.make("ann:red", "subnet", bare).await["id"]);
        api.refused("ann:red", &add, body("subnet_id", &bare), 400, "BadRequest").await;
        let (_, shared) = network(&api, "admin:ops", json!({"shared": true}), "10.8.0.0/24").await;
        api.refused("ann:red", &add, body("subnet_id", &shared), 400, "BadRequest").await;
        // A port in use, and one that is free.
        let port = json!({"network_id": net, "device_id": "x"});
        let port = text(&api.make("ann:red", "port", port).await["id"]);
        api.refused("ann:red", &add, body("port_id", &port), 409, "PortInUse").await;
        let port = text(&api.make("ann:red", "port", json!({"network_id": net})).await["id"]);
        let added = put(&api, "ann:red", &add[5..], json!({"port_id": port})).await;
        assert_eq!(added["subnet_id"], json!(bare));
        let shown = api.ok("ann:red", &format!("GET /ports/{port}"), None).await["port"].clone();
        assert_eq!(shown["device_id"], json!(scene.router));
        let mismatch = Some(json!({"port_id": port, "subnet_id": scene.subnet}));
        api.refused("ann:red", &remove, mismatch, 409, "SubnetMismatchForPort").await;
        put(&api, "ann:red", &remove[5..], json!({"port_id": port})).await;
        api.refused("ann:red", &format!("GET /ports/{port}"), None, 404, "PortNotFound").await;
        api.audit().await;
    }
}

/// The port keeps its groups and pairs, but hosts neither filter it nor count its addresses as members' addresses.
#[tokio::test]
async fn a_port_that_becomes_an_interface_keeps_its_attributes() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let (server, guest) = (ServerId::new_v4(), scene.port.parse().unwrap());
        attach(&api, server, guest).await;
        let (net, _) = network(&api, "ann:red", json!({}), "10.9.0.0/24").await;
        let pairs = json!([{"ip_address": "10.10.0.7"}, {"ip_address": "FD01:0::7"},
            {"ip_address": "FD02:0::7/64"}]);
        let port = json!({"network_id": net, "allowed_address_pairs": pairs});
        let before = api.make("ann:red", "port", port).await;
        let group: SecurityGroupId = text(&before["security_groups"][0]).parse().unwrap();
        let members = async || {
            let read = move |tx: &mut kilonova_store::Tx<'_>| ledger::filters(tx, &[server]);
            let filters = api.store.read(read).await.unwrap();
            assert_eq!(filters.ports.iter().map(|one| one.port).collect::<Vec<_>>(), [guest]);
            let all = filters.members.iter().filter(|one| one.group == group);
            let all = all.flat_map(|one| &one.addresses).map(|one| one.address.to_string());
            all.collect::<Vec<_>>()
        };
        let fixed = text(&before["fixed_ips"][0]["ip_address"]);
        let pairs = ["10.10.0.7", "fd01::7", "fd02::"];
        let expected: Vec<_> = [scene.fixed.as_str(), &fixed].into_iter().chain(pairs).collect();
        assert_eq!(members().await, expected);
        api.store.write(ledger::take_changes).await.unwrap();

        let id = text(&before["id"]);
        let add = format!("routers/{}/add_router_interface", scene.router);
        put(&api, "ann:red", &add, json!({"port_id": id})).await;
        let after = api.ok("ann:red", &format!("GET /ports/{id}"), None).await["port"].clone();
        assert_eq!(after["device_owner"], "network:router_interface");
        for key in ["security_groups", "allowed_address_pairs", "port_security_enabled"] {
            assert_eq!(after[key], before[key], "{key}");
        }
        assert_eq!(after["port_security_enabled"], true);
        assert_eq!(members().await, [scene.fixed.as_str()]);
        let changes = api.store.write(ledger::take_changes).await.unwrap();
        assert!(changes.contains(&NetworkChange::Members(group)), "{changes:?}");
        api.audit().await;
    }
}

#[tokio::test]
async fn routers_have_no_agents() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let path = format!("GET /routers/{}/l3-agents", scene.router);
        assert_eq!(api.ok("admin:ops", &path, None).await, json!({"agents": []}));
        api.refused("ann:red", &path, None, 403, "PolicyNotAuthorized").await;
        for other in ["0d4fb9ea-9ee0-4d83-9c0f-fb1bb4dbe9cd", "x"] {
            let path = format!("GET /routers/{other}/l3-agents");
            api.refused("admin:ops", &path, None, 404, "RouterNotFound").await;
        }
    }
}

#[tokio::test]
async fn gateways_are_set_changed_and_cleared() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let path = format!("PUT /routers/{}", scene.router);
        let gateway = |value: Value| Some(json!({"router": {"external_gateway_info": value}}));
        let internal = gateway(json!({"network_id": scene.net}));
        api.refused("ann:red", &path, internal, 400, "BadRequest").await;
        // Only administrators may choose addresses and disable SNAT.
        let chosen = json!({"network_id": scene.outside,
            "external_fixed_ips": [{"ip_address": "198.51.100.77"}]});
        api.refused("ann:red", &path, gateway(chosen.clone()), 403, "PolicyNotAuthorized").await;
        let set = api.ok("admin:ops", &path, gateway(chosen)).await["router"].clone();
        let fixed = &set["external_gateway_info"]["external_fixed_ips"];
        assert_eq!(fixed[0]["ip_address"], "198.51.100.77");
        let snat = json!({"network_id": scene.outside, "enable_snat": false});
        api.refused("ann:red", &path, gateway(snat.clone()), 403, "PolicyNotAuthorized").await;
        let set = api.ok("admin:ops", &path, gateway(snat)).await["router"].clone();
        assert_eq!(set["external_gateway_info"]["enable_snat"], false);
        // The address remains the same. A request without `enable_snat` enables SNAT again.
        let same = &set["external_gateway_info"]["external_fixed_ips"];
        assert_eq!(same[0]["ip_address"], "198.51.100.77");
        let silent = gateway(json!({"network_id": scene.outside}));
        let set = api.ok("ann:red", &path, silent).await["router"].clone();
        assert_eq!(set["external_gateway_info"]["enable_snat"], true);
        let same = &set["external_gateway_info"]["external_fixed_ips"];
        assert_eq!(same[0]["ip_address"], "198.51.100.77");
        // A floating IP needs the gateway.
        let floating = scene.floating(&api, json!({"port_id": scene.port})).await;
        assert_eq!(floating["router_id"], json!(scene.router));
        // Other addresses on the same network change neither the port nor the floating IP.
        let port = async || {
            let path = "GET /ports?device_owner=network:router_gateway";
            let ports = api.ok("admin:ops", path, None).await["ports"].clone();
            assert_eq!(ports.as_array().unwrap().len(), 1);
            ports[0].clone()
        };
        let before = port().await;
        let other = json!({"network_id": scene.outside,
            "external_fixed_ips": [{"ip_address": "198.51.100.78"}]});
        let set = api.ok("admin:ops", &path, gateway(other)).await["router"].clone();
        let fixed = &set["external_gateway_info"]["external_fixed_ips"];
        assert_eq!(fixed.as_array().unwrap().len(), 1);
        assert_eq!(fixed[0]["ip_address"], "198.51.100.78");
        let after = port().await;
        assert_eq!((&after["id"], &after["fixed_ips"]), (&before["id"], fixed));
        // A request with the port's subnets and addresses, or with none, changes nothing.
        let subnet = &fixed[0]["subnet_id"];
        for same in [
            json!([{"ip_address": "198.51.100.78", "subnet_id": subnet}, {"subnet_id": subnet}]),
            json!([{"subnet_id": subnet}, {"ip_address": "198.51.100.78", "subnet_id": subnet}]),
            json!([{"subnet_id": subnet}]),
            json!([]),
        ] {
            let info = json!({"network_id": scene.outside, "external_fixed_ips": same});
            let set = api.ok("admin:ops", &path, gateway(info)).await["router"].clone();
            assert_eq!(&set["external_gateway_info"]["external_fixed_ips"], fixed, "{same}");
        }
        let used = json!({"network_id": scene.outside,
            "external_fixed_ips": [{"ip_address": floating["floating_ip_address"]}]});
        let kind = "IpAddressAlreadyAllocated";
        api.refused("admin:ops", &path, gateway(used), 409, kind).await;
        api.audit().await;
        let kind = "RouterExternalGatewayInUseByFloatingIp";
        api.refused("ann:red", &path, gateway(json!({})), 409, kind).await;
        api.refused("ann:red", &path, gateway(Value::Null), 409, kind).await;
        api.none("ann:red", &format!("DELETE /floatingips/{}", text(&floating["id"]))).await;
        let cleared = api.ok("ann:red", &path, gateway(json!({}))).await["router"].clone();
        assert_eq!(cleared["external_gateway_info"], Value::Null);
        for wrong in [
            json!({"network_id": "x"}),
            json!({"network_id": scene.outside, "enable_snat": "maybe"}),
            json!({"enable_snat": true}),
            json!({"network_id": scene.outside, "what": 1}),
            json!("x"),
        ] {
            api.refused("admin:ops", &path, gateway(wrong), 400, "HTTPBadRequest").await;
        }
        for unsupported in ["distributed", "ha"] {
            let body = Some(json!({"router": {unsupported: true}}));
            api.refused("admin:ops", &path, body, 400, "HTTPBadRequest").await;
        }
        api.audit().await;
    }
}

#[tokio::test]
async fn routes_lead_through_the_routers_subnets() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let path = format!("routers/{}", scene.router);
        let route = |to: &str, hop: &str| json!({"destination": to, "nexthop": hop});
        let all = |routes: &[Value]| json!({"router": {"routes": routes}});
        let (a, b) = (route("10.9.0.0/16", "10.0.0.7"), route("10.10.0.0/16", "10.0.0.8"));
        let set = put(&api, "ann:red", &path, all(std::slice::from_ref(&a))).await;
        assert_eq!(set["router"]["routes"], json!([a]));
        let to = format!("{path}/add_extraroutes");
        let added = put(&api, "ann:red", &to, all(&[a.clone(), b.clone()]));
        assert_eq!(added.await["router"]["routes"], json!([a, b]));
        let what = format!("PUT /{path}");
        for hop in ["192.0.2.1", "10.0.0.1"] {
            let body = Some(all(&[route("10.9.0.0/16", hop)]));
            api.refused("ann:red", &what, body, 400, "InvalidRoutes").await;
        }
        let what = format!("PUT /{path}/remove_router_interface");
        let body = Some(json!({"subnet_id": scene.subnet}));
        api.refused("ann:red", &what, body, 409, "RouterInterfaceInUseByRoute").await;
        let to = format!("{path}/remove_extraroutes");
        let gone = put(&api, "ann:red", &to, all(&[a, b])).await;
        assert_eq!(gone["router"]["routes"], json!([]));

        let many = |count: usize| -> Vec<Value> {
            (0..count).map(|at| route(&format!("10.20.{at}.0/24"), "10.0.0.7")).collect()
        };
        let what = format!("PUT /{path}");
        let twice = [many(2), many(1)].concat();
        let (status, body) = api.call("ann:red", &what, Some(all(&twice))).await;
        let words = "Invalid input for routes. Reason: Duplicate hostroute '{'destination': \
                     '10.20.0.0/24', 'nexthop': '10.0.0.7'}'.";
        assert_eq!((status, &body["NeutronError"]["message"]), (400, &json!(words)));
        // A duplicate of an added route is merged.
        let to = format!("{path}/add_extraroutes");
        let added = put(&api, "ann:red", &to, all(&twice)).await;
        assert_eq!(added["router"]["routes"], json!(many(2)));
        let set = put(&api, "ann:red", &path, all(&many(30))).await;
        assert_eq!(set["router"]["routes"].as_array().unwrap().len(), 30);
        api.refused("ann:red", &what, Some(all(&many(31))), 400, "HTTPBadRequest").await;
        api.audit().await;
    }
}

#[tokio::test]
async fn routes_need_a_routable_destination() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let path = format!("routers/{}", scene.router);
        let all = |routes: &[Value]| json!({"router": {"routes": routes}});
        for (to, why) in [
            ("10.1.2.3/16", "'10.1.2.3/16' is not a valid CIDR"),
            ("FD01::7/64", "'FD01::7/64' is not a valid CIDR"),
            ("10.1.0.0", "'10.1.0.0' is not a valid CIDR"),
            ("127.0.0.0/8", "'127.0.0.0/8' is not a routable CIDR"),
            ("::1/128", "'::1/128' is not a routable CIDR"),
        ] {
            for action in ["", "/add_extraroutes", "/remove_extraroutes"] {
                let body = Some(all(&[json!({"destination": to, "nexthop": "10.0.0.7"})]));
                let (status, body) =
                    api.call("ann:red", &format!("PUT /{path}{action}"), body).await;
                let words = format!("Invalid input for routes. Reason: {why}.");
                assert_eq!((status, &body["NeutronError"]["message"]), (400, &json!(words)));
            }
        }
        let subnet = format!("PUT /subnets/{}", scene.subnet);
        for to in ["10.1.2.3/16", "127.0.0.0/8"] {
            let routes = json!([{"destination": to, "nexthop": "10.0.0.7"}]);
            let body = Some(json!({"subnet": {"host_routes": routes}}));
            api.refused("ann:red", &subnet, body, 400, "HTTPBadRequest").await;
        }
    }
}

/// An earlier release accepted routes to loopback addresses.
#[tokio::test]
async fn routes_that_a_router_has_are_not_validated_again() {
    const STORED: &str = "UPDATE routers SET body = REPLACE(body, '10.9.0.0/16', '127.0.0.0/8')";
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let path = format!("routers/{}", scene.router);
        let route = |to: &str| json!({"destination": to, "nexthop": "10.0.0.7"});
        let all = |routes: &[Value]| json!({"router": {"routes": routes}});
        put(&api, "ann:red", &path, all(&[route("10.9.0.0/16")])).await;
        api.store.write(|tx| tx.execute(STORED, &[])).await.unwrap();
        let (old, new) = (route("127.0.0.0/8"), route("10.10.0.0/16"));
        let add = format!("{path}/add_extraroutes");
        let added = put(&api, "ann:red", &add, all(&[new.clone(), old.clone()])).await;
        assert_eq!(added["router"]["routes"], json!([old, new]));
        for other in ["127.0.0.0/16", "10.1.2.3/16"] {
            let body = Some(all(&[route(other)]));
            api.refused("ann:red", &format!("PUT /{add}"), body, 400, "HTTPBadRequest").await;
        }
        let many: Vec<Value> = (0..29).map(|at| route(&format!("10.20.{at}.0/24"))).collect();
        let what = format!("PUT /{add}");
        api.refused("ann:red", &what, Some(all(&many)), 400, "HTTPBadRequest").await;
        let remove = format!("{path}/remove_extraroutes");
        let left = put(&api, "ann:red", &remove, all(std::slice::from_ref(&new))).await;
        assert_eq!(left["router"]["routes"], json!([old]));
        let left = put(&api, "ann:red", &remove, all(&[old])).await;
        assert_eq!(left["router"]["routes"], json!([]));
        api.audit().await;
    }
}

#[tokio::test]
async fn destinations_keep_their_spelling() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let six = subnet(&api, "ann:red", &scene.net, "fd00::/64").await;
        let path = format!("routers/{}", scene.router);
        let interface = format!("{path}/add_router_interface");
        put(&api, "ann:red", &interface, json!({"subnet_id": six})).await;
        let route = |to: &str, hop: &str| json!({"destination": to, "nexthop": hop});
        let all = |routes: &[Value]| json!({"router": {"routes": routes}});
        let (add, remove) =
            (format!("{path}/add_extraroutes"), format!("{path}/remove_extraroutes"));
        // The next hop does not keep its spelling.
        let (sent, shown) = (route("FD01:0::/64", "FD00:0::7"), route("FD01:0::/64", "fd00::7"));
        let set = put(&api, "ann:red", &path, all(std::slice::from_ref(&sent))).await;
        assert_eq!(set["router"]["routes"], json!([shown]));
        let read = api.ok("ann:red", &format!("GET /{path}"), None).await;
        assert_eq!(read["router"]["routes"], json!([shown]));
        // Another spelling is the same route.
        let other = route("fd01::/64", "fd00::7");
        let what = format!("PUT /{path}");
        let twice = Some(all(&[sent, other.clone()]));
        api.refused("ann:red", &what, twice, 400, "HTTPBadRequest").await;
        let added = put(&api, "ann:red", &add, all(std::slice::from_ref(&other))).await;
        assert_eq!(added["router"]["routes"], json!([shown]));
        // Hosts get the usual spelling.
        let router: RouterId = scene.router.parse().unwrap();
        let host = HostName::verbatim("h1");
        let place = Place::On(host.clone());
        let placed = move |tx: &mut kilonova_store::Tx<'_>| {
            ledger::place_router(tx, router, &place, time::now())
        };
        api.store.write(placed).await.unwrap();
        let routers = api.store.read(move |tx| ledger::routers(tx, &host)).await.unwrap();
        assert_eq!(routers[0].routes, [("fd01::/64".to_owned(), "fd00::7".parse().unwrap())]);
        let gone = put(&api, "ann:red", &remove, all(&[other])).await;
        assert_eq!(gone["router"]["routes"], json!([]));
        api.audit().await;
        // So do guests, from the routes of their subnet.
        let (server, port) = (ServerId::new_v4(), scene.port.parse().unwrap());
        attach(&api, server, port).await;
        let routes = json!({"subnet": {"host_routes": [shown]}});
        let set = put(&api, "ann:red", &format!("subnets/{}", scene.subnet), routes).await;
        assert_eq!(set["subnet"]["host_routes"], json!([shown]));
        let ports = api.store.read(move |tx| ledger::of_server(tx, server)).await.unwrap();
        let routes = &ports[0].fixed[0].routes;
        assert_eq!(*routes, [("fd01::/64".to_owned(), "fd00::7".parse().unwrap())]);
    }
}

#[tokio::test]
async fn a_floating_address_stands_for_a_fixed_one() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let free = scene.floating(&api, json!({"description": "d"})).await;
        assert_eq!((&free["status"], &free["port_id"]), (&json!("DOWN"), &Value::Null));
        assert_eq!(free["port_details"], Value::Null);
        let path = format!("floatingips/{}", text(&free["id"]));
        let end = |port: Value| json!({"floatingip": {"port_id": port}});
        let set = put(&api, "ann:red", &path, end(json!(scene.port))).await["floatingip"].clone();
        assert_eq!(set["fixed_ip_address"], json!(scene.fixed));
        assert_eq!(set["router_id"], json!(scene.router));
        assert_eq!(set["port_details"]["network_id"], json!(scene.net));
        // A change of the description does not change the association.
        let body = json!({"floatingip": {"description": "e"}});
        let same = put(&api, "ann:red", &path, body).await["floatingip"].clone();
        assert_eq!((&same["port_id"], &same["description"]), (&json!(scene.port), &json!("e")));
        // A fixed address needs its port in the same request.
        let what = format!("PUT /{path}");
        let body = Some(json!({"floatingip": {"fixed_ip_address": scene.fixed}}));
        api.refused("ann:red", &what, body, 400, "BadRequest").await;
        let body = json!({"floatingip": {"fixed_ip_address": null}});
        let same = put(&api, "ann:red", &path, body).await["floatingip"].clone();
        assert_eq!(same["fixed_ip_address"], json!(scene.fixed));
        // An empty update ends the association.
        api.store.write(ledger::take_changes).await.unwrap();
        let ended = put(&api, "ann:red", &path, json!({"floatingip": {}})).await;
        let ended = &ended["floatingip"];
        for key in ["port_id", "fixed_ip_address", "router_id"] {
            assert_eq!(ended[key], Value::Null, "{key}");
        }
        assert_eq!(ended["description"], "e");
        let changes = api.store.write(ledger::take_changes).await.unwrap();
        let router = NetworkChange::Router(scene.router.parse().unwrap());
        assert!(changes.contains(&router), "{changes:?}");
        put(&api, "ann:red", &path, end(json!(scene.port))).await;
        // A second floating IP for the same fixed address is refused.
        let second = json!({"floatingip": {"floating_network_id": scene.outside,
            "port_id": scene.port}});
        let kind = "FloatingIPPortAlreadyAssociated";
        api.refused("ann:red", "POST /floatingips", Some(second), 409, kind).await;
        let what = format!("PUT /routers/{}/remove_router_interface", scene.router);
        let body = Some(json!({"subnet_id": scene.subnet}));
        api.refused("ann:red", &what, body, 409, "RouterInterfaceInUseByFloatingIP").await;
        for query in [
            format!("port_id={}", scene.port),
            format!("fixed_ip_address={}", scene.fixed),
            format!("floating_ip_address={}", text(&free["floating_ip_address"])),
            format!("router_id={}", scene.router),
            format!("floating_network_id={}&fields=id", scene.outside),
        ] {
            let list = api.ok("ann:red", &format!("GET /floatingips?{query}"), None).await;
            assert_eq!(list["floatingips"].as_array().unwrap().len(), 1, "{query}");
        }
        // Its own port cannot be deleted directly.
        let own = api.ok("admin:ops", "GET /ports?device_owner=network:floatingip", None).await;
        let own = text(&own["ports"][0]["id"]);
        let delete = format!("DELETE /ports/{own}");
        api.refused("admin:ops", &delete, None, 409, "ServicePortInUse").await;
        // It is disassociated when the port loses the fixed address, and when the port is deleted.
        let what = format!("ports/{}", scene.port);
        let other = json!({"port": {"fixed_ips": [{"ip_address": "10.0.0.99"}]}});
        put(&api, "ann:red", &what, other).await;
        let shown = api.ok("ann:red", &format!("GET /{path}"), None).await["floatingip"].clone();
        assert_eq!((&shown["port_id"], &shown["router_id"]), (&Value::Null, &Value::Null));
        put(&api, "ann:red", &path, end(json!(scene.port))).await;
        api.audit().await;
        api.none("ann:red", &format!("DELETE /{what}")).await;
        let shown = api.ok("ann:red", &format!("GET /{path}"), None).await["floatingip"].clone();
        assert_eq!(shown["port_id"], Value::Null);
        api.audit().await;
        api.none("ann:red", &format!("DELETE /{path}")).await;
        api.refused("ann:red", &format!("GET /{path}"), None, 404, "FloatingIPNotFound").await;
        let own = api.ok("admin:ops", "GET /ports?device_owner=network:floatingip", None).await;
        assert_eq!(own["ports"], json!([]));
        api.audit().await;
    }
}

#[tokio::test]
async fn floating_addresses_are_refused_in_upstreams_words() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let (lone, foreign) = network(&api, "ann:red", json!({}), "10.5.0.0/24").await;
        let lone = text(&api.make("ann:red", "port", json!({"network_id": lone})).await["id"]);
        let in_subnet = |id: &str| json!({"floating_network_id": scene.outside, "subnet_id": id});
        let two = json!({"network_id": scene.net,
            "fixed_ips": [{"ip_address": "10.0.0.50"}, {"ip_address": "10.0.0.51"}]});
        let two = text(&api.make("ann:red", "port", two).await["id"]);
        let unsorted = json!({"network_id": scene.net,
            "fixed_ips": [{"ip_address": "10.0.0.99"}, {"ip_address": "10.0.0.100"}, {"ip_address": "10.0.0.98"}]});
        let unsorted = api.make("ann:red", "port", unsorted).await;
        let shown =
            unsorted["fixed_ips"].as_array().unwrap().iter().map(|ip| text(&ip["ip_address"]));
        assert_eq!(shown.collect::<Vec<_>>(), ["10.0.0.100", "10.0.0.98", "10.0.0.99"]);
        let theirs = api.make("admin:blue", "port", json!({"network_id": scene.net})).await;
        let theirs = text(&theirs["id"]);
        let none = json!({"network_id": scene.net, "fixed_ips": []});
        let none = text(&api.make("ann:red", "port", none).await["id"]);
        let ipv6 =
            text(&api.make("admin:ops", "network", json!({"router:external": true})).await["id"]);
        subnet(&api, "admin:ops", &ipv6, "fd00::/64").await;
        let to = |port: &str| json!({"floating_network_id": scene.outside, "port_id": port});
        let missing = "0d4fb9ea-9ee0-4d83-9c0f-fb1bb4dbe9cd";
        for (token, body, status, kind) in [
            ("ann:red", json!({"floating_network_id": scene.net}), 400, "BadRequest"),
            ("ann:red", json!({"floating_network_id": missing}), 404, "NetworkNotFound"),
            ("ann:red", json!({"floating_network_id": ipv6}), 400, "BadRequest"),
            ("ann:red", json!({}), 400, "HTTPBadRequest"),
            ("ann:red", to(&lone), 404, "ExternalGatewayForFloatingIPNotFound"),
            ("ann:red", to(&two), 400, "BadRequest"),
            ("ann:red", to(&none), 400, "BadRequest"),
            ("ann:red", to(missing), 404, "PortNotFound"),
            ("ann:red", in_subnet(missing), 404, "SubnetNotFound"),
            ("ann:red", in_subnet(&foreign), 400, "InvalidInput"),
            ("ann:red", to(&theirs), 400, "BadRequest"),
            (
                "ann:red",
                json!({"floating_network_id": scene.outside, "fixed_ip_address": "10.0.0.50"}),
                400,
                "BadRequest",
            ),
            (
                "ann:red",
                json!({"floating_network_id": scene.outside, "floating_ip_address": "198.51.100.9"}),
                403,
                "PolicyNotAuthorized",
            ),
            (
                "admin:red",
                json!({"floating_network_id": scene.outside, "floating_ip_address": "192.0.2.9"}),
                400,
                "InvalidIpForNetwork",
            ),
        ] {
            let body = Some(json!({"floatingip": body}));
            api.refused(token, "POST /floatingips", body, status, kind).await;
        }
        let one = json!({"port_id": two, "fixed_ip_address": "10.0.0.51"});
        let one = scene.floating(&api, one).await;
        assert_eq!(one["fixed_ip_address"], "10.0.0.51");
        // Only an administrator associates it with a port of another project.
        let body = json!({"floatingip": {"floating_network_id": scene.outside, "port_id": theirs,
            "project_id": "red"}});
        let (status, made) = api.call("admin:ops", "POST /floatingips", Some(body)).await;
        assert_eq!((status, &made["floatingip"]["port_id"]), (201, &json!(theirs)), "{made}");
        assert_eq!(made["floatingip"]["router_id"], json!(scene.router));
        // Nobody associates it with a DHCP port.
        let dhcp = api.ok("admin:ops", "GET /ports?device_owner=network:dhcp", None).await;
        let mut ports = dhcp["ports"].as_array().unwrap().iter();
        let dhcp = ports.find(|port| port["network_id"] == json!(scene.net)).unwrap();
        let dhcp = text(&dhcp["id"]);
        let body = Some(json!({"floatingip": to(&dhcp)}));
        let (status, answer) = api.call("admin:ops", "POST /floatingips", body).await;
        let words =
            format!("Bad floatingip request: Port {dhcp} is unable to be assigned a floating IP.");
        assert_eq!((status, &answer["NeutronError"]["message"]), (400, &json!(words)));
        let chosen = json!({"floatingip": {"floating_network_id": scene.outside,
            "floating_ip_address": one["floating_ip_address"]}});
        let kind = "IpAddressAlreadyAllocated";
        api.refused("admin:red", "POST /floatingips", Some(chosen), 409, kind).await;
        api.audit().await;
    }
}

#[tokio::test]
async fn other_projects_see_and_change_neither() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let floating = text(&scene.floating(&api, json!({})).await["id"]);
        for (path, member) in [("routers", "router"), ("floatingips", "floatingip")] {
            let id = if member == "router" { &scene.router } else { &floating };
            let one = format!("/{path}/{id}");
            let list = api.ok("bob:blue", &format!("GET /{path}"), None).await;
            assert_eq!(list[path], json!([]));
            let change = Some(json!({member: {"description": "mine"}}));
            for (verb, body) in [("GET", None), ("PUT", change.clone()), ("DELETE", None)] {
                let (status, _) = api.call("bob:blue", &format!("{verb} {one}"), body).await;
                assert_eq!(status, 404, "{verb} {one}");
            }
            // A reader can only read.
            let reader = ("rea:red", "reader");
            assert_eq!(api.call_as(reader, &format!("GET {one}"), None).await.0, 200);
            for (verb, body) in [("PUT", change), ("DELETE", None)] {
                let (status, _) = api.call_as(reader, &format!("{verb} {one}"), body).await;
                assert_eq!(status, 403, "{verb} {one}");
            }
            let tags = Some(json!({"tags": ["blue"]}));
            let what = format!("PUT {one}/tags");
            assert_eq!(api.ok("ann:red", &what, tags.clone()).await["tags"], json!(["blue"]));
            assert_eq!(api.call_as(reader, &what, tags).await.0, 403);
        }
        for verb in ["add_router_interface", "remove_router_interface"] {
            let what = format!("PUT /routers/{}/{verb}", scene.router);
            let body = || Some(json!({"subnet_id": scene.subnet}));
            assert_eq!(api.call("bob:blue", &what, body()).await.0, 404);
            assert_eq!(api.call_as(("rea:red", "reader"), &what, body()).await.0, 403);
        }
    }
}

#[tokio::test]
async fn quotas_count_routers_and_floating_addresses() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let limits = Some(json!({"quota": {"router": 1, "floatingip": 1}}));
        api.ok("admin:ops", "PUT /quotas/red", limits).await;
        scene.floating(&api, json!({})).await;
        let router = Some(json!({"router": {}}));
        api.refused("ann:red", "POST /routers", router, 409, "OverQuota").await;
        let floating = Some(json!({"floatingip": {"floating_network_id": scene.outside}}));
        api.refused("ann:red", "POST /floatingips", floating, 409, "OverQuota").await;
        let details = api.ok("admin:ops", "GET /quotas/red/details", None).await["quota"].clone();
        assert_eq!(
            (&details["router"]["used"], &details["floatingip"]["used"]),
            (&json!(1), &json!(1))
        );
    }
}

#[tokio::test]
async fn concurrent_requests_never_give_an_address_two_floating_ones() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let one = |_: usize| {
            let (api, body) = (
                api.clone(),
                json!({"floatingip": {
                "floating_network_id": scene.outside, "port_id": scene.port}}),
            );
            async move { api.call("ann:red", "POST /floatingips", Some(body)).await.0 }
        };
        let all: Vec<_> = (0..6).map(one).map(tokio::spawn).collect();
        let mut statuses = Vec::new();
        for one in all {
            statuses.push(one.await.unwrap());
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409, 409, 409, 409, 409]);
        api.audit().await;
    }
}

/// Requests that are valid separately, but not together.
#[tokio::test]
async fn concurrent_requests_never_contradict_each_other() {
    for api in apis().await {
        for round in 0..12 {
            let external = json!({"router:external": true});
            let cidr = format!("198.51.{round}.0/24");
            let (outside, _) = network(&api, "admin:ops", external, &cidr).await;
            let cidr = format!("10.0.{round}.0/24");
            let (net, subnet) = network(&api, "admin:ops", json!({}), &cidr).await;
            let project = json!({"project_id": format!("p{round}")});
            let router = text(&api.make("admin:ops", "router", project).await["id"]);
            // Requested addresses do not move the cursor.
            let gateway = json!({"router": {"external_gateway_info": {"network_id": outside,
                "external_fixed_ips": [{"ip_address": format!("198.51.{round}.9")}]}}});
            let floating = json!({"floatingip": {"floating_network_id": outside,
                "floating_ip_address": format!("198.51.{round}.10")}});
            let internal = json!({"network": {"router:external": false}});
            let other = json!({"subnet": {"gateway_ip": format!("10.0.{round}.200"),
                "allocation_pools": [{"start": format!("10.0.{round}.2"),
                    "end": format!("10.0.{round}.9")}]}});
            let use_it = match round % 2 {
                0 => (format!("PUT /routers/{router}"), gateway),
                _ => ("POST /floatingips".to_owned(), floating),
            };
            let add = format!("PUT /routers/{router}/add_router_interface");
            let requests = [
                use_it,
                (format!("PUT /networks/{outside}"), internal),
                (add, json!({"subnet_id": subnet})),
                (format!("PUT /subnets/{subnet}"), other),
            ];
            let one = |(what, body): (String, Value)| {
                let api = api.clone();
                async move { api.call("admin:ops", &what, Some(body)).await }
            };
            let all: Vec<_> = requests.into_iter().map(one).map(tokio::spawn).collect();
            for (number, one) in all.into_iter().enumerate() {
                let (status, answer) = one.await.unwrap();
                let refused = [400, 409].contains(&status) && number != 2;
                assert!([200, 201].contains(&status) || refused, "{number}: {status} {answer}");
            }
            api.audit().await;
            let query = format!("GET /ports?network_id={net}&device_id={router}");
            let port = api.ok("admin:ops", &query, None).await["ports"][0].clone();
            let shown = api.ok("admin:ops", &format!("GET /subnets/{subnet}"), None).await;
            assert_eq!(port["fixed_ips"][0]["ip_address"], shown["subnet"]["gateway_ip"]);
        }
    }
}

/// Adds an interface while the host is deleted.
#[tokio::test]
async fn a_new_port_of_a_router_is_never_bound_to_a_host_that_goes() {
    for api in apis().await {
        for round in 0..12 {
            let cidr = |part: u8| format!("10.{part}.{round}.0/24");
            let (_, first) = network(&api, "admin:ops", json!({}), &cidr(0)).await;
            let (_, second) = network(&api, "admin:ops", json!({}), &cidr(1)).await;
            let project = json!({"project_id": format!("p{round}")});
            let router = text(&api.make("admin:ops", "router", project).await["id"]);
            let add = format!("PUT /routers/{router}/add_router_interface");
            api.ok("admin:ops", &add, Some(json!({"subnet_id": first}))).await;
            let id: RouterId = router.parse().unwrap();
            let host = HostName::verbatim("h1");
            let place = Place::On(host.clone());
            let placed = move |tx: &mut kilonova_store::Tx<'_>| {
                ledger::place_router(tx, id, &place, time::now())
            };
            api.store.write(placed).await.unwrap();
            let (own, body) = (api.clone(), Some(json!({"subnet_id": second})));
            let added = tokio::spawn(async move { own.call("admin:ops", &add, body).await.0 });
            let left = move |tx: &mut kilonova_store::Tx<'_>| {
                ledger::unplace_routers_of(tx, &host, time::now())
            };
            let store = api.store.clone();
            let left = tokio::spawn(async move { store.write(left).await });
            assert_eq!(added.await.unwrap(), 200);
            left.await.unwrap().unwrap();
            api.audit().await;
        }
    }
}

#[tokio::test]
async fn a_router_waits_for_a_host_and_its_ports_follow() {
    for api in apis().await {
        let scene = Scene::new(&api).await;
        let router: RouterId = scene.router.parse().unwrap();
        scene.floating(&api, json!({"port_id": scene.port})).await;
        let facts = api.store.write(move |tx| ledger::router_facts(tx, router)).await.unwrap();
        assert_eq!(facts.place, Place::Waiting);
        assert_eq!(facts.physical_networks.into_iter().collect::<Vec<_>>(), ["physnet1"]);
        let waiting = api.store.read(|tx| ledger::next_routers(tx, &[], None)).await.unwrap();
        assert_eq!(waiting, [router]);
        let host = HostName::verbatim("h1");
        let place = Place::On(host.clone());
        let placed = move |tx: &mut kilonova_store::Tx<'_>| {
            ledger::place_router(tx, router, &place, time::now())
        };
        api.store.write(placed).await.unwrap();
        let own = host.clone();
        let routers = api.store.read(move |tx| ledger::routers(tx, &own)).await.unwrap();
        assert_eq!(routers.len(), 1);
        let realized = &routers[0];
        assert!(realized.snat && realized.interfaces.len() == 2);
        let outside = realized.interfaces.iter().find(|one| one.external).unwrap();
        assert_eq!(outside.addresses[0].gateway, Some("198.51.100.1".parse().unwrap()));
        assert_eq!(realized.floating[0].fixed.to_string(), scene.fixed);
        let query = format!("GET /ports?device_id={}", scene.router);
        let ports = api.ok("admin:ops", &query, None).await["ports"].clone();
        for port in ports.as_array().unwrap() {
            assert_eq!(
                (&port["binding:host_id"], &port["status"]),
                (&json!("h1"), &json!("ACTIVE"))
            );
        }
        let list = api.ok("ann:red", "GET /floatingips", None).await;
        assert_eq!(list["floatingips"][0]["status"], "ACTIVE");
        api.audit().await;
        // No host realizes a router that is administratively down.
        let path = format!("routers/{}", scene.router);
        put(&api, "ann:red", &path, json!({"router": {"admin_state_up": false}})).await;
        let own = host.clone();
        let routers = api.store.read(move |tx| ledger::routers(tx, &own)).await.unwrap();
        assert!(routers.is_empty());
        // The host is deleted: the router waits again.
        let own = host.clone();
        api.store.write(move |tx| ledger::unplace_routers_of(tx, &own, time::now())).await.unwrap();
        let waiting = api.store.read(|tx| ledger::next_routers(tx, &[], None)).await.unwrap();
        assert_eq!(waiting, [router]);
        api.audit().await;
    }
}

/// The body of an IPv6 subnet with both modes set.
fn ipv6(net: &str, cidr: &str, mode: &str) -> Value {
    json!({"network_id": net, "cidr": cidr, "ip_version": 6, "ipv6_ra_mode": mode,
        "ipv6_address_mode": mode})
}

fn addresses(port: &Value) -> Vec<String> {
    let all = port["fixed_ips"].as_array().unwrap();
    all.iter().map(|fixed| text(&fixed["ip_address"])).collect()
}

#[tokio::test]
async fn a_new_subnet_waits_as_long_for_many_ports_as_for_one() {
    let meter = Meter::counting();
    for api in metered_apis(&meter).await {
        let (mut trips, mut statements) = (Vec::new(), Vec::new());
        for ports in [1, 40] {
            let (net, _) = network(&api, "ann:red", json!({}), "10.0.0.0/24").await;
            for _ in 0..ports {
                api.make("ann:red", "port", json!({"network_id": net})).await;
            }
            let _ = (meter.take(), meter.take_round_trips());
            api.make("ann:red", "subnet", ipv6(&net, "fd00:1::/64", "slaac")).await;
            statements.push(meter.take());
            trips.push(meter.take_round_trips());
            let list = api.ok("ann:red", &format!("GET /ports?network_id={net}"), None).await;
            let with_six = list["ports"].as_array().unwrap().iter().filter(|port| {
                addresses(port).iter().any(|address| address.starts_with("fd00:1::f816"))
            });
            assert_eq!(with_six.count(), ports);
        }
        assert_eq!(trips[0], trips[1]);
        assert!(statements[1] <= statements[0] + 3, "{statements:?}");
        api.audit().await;
    }
}

#[tokio::test]
async fn a_mac_address_determines_automatic_addresses() {
    for api in apis().await {
        let (net, _) = network(&api, "ann:red", json!({}), "10.0.0.0/24").await;
        let before = json!({"network_id": net, "mac_address": "fa:16:3e:00:00:01"});
        let before = text(&api.make("ann:red", "port", before).await["id"]);
        let made = api.make("ann:red", "subnet", ipv6(&net, "fd00:1::/64", "slaac")).await;
        let subnet = text(&made["id"]);
        assert_eq!(
            (&made["ipv6_ra_mode"], &made["ipv6_address_mode"]),
            (&json!("slaac"), &json!("slaac"))
        );
        let shown = api.ok("ann:red", &format!("GET /ports/{before}"), None).await["port"].clone();
        assert_eq!(addresses(&shown)[1], "fd00:1::f816:3eff:fe00:1", "{shown}");
        // A new port also gets its automatic address, unless it requests an empty list.
        let two = json!({"network_id": net, "mac_address": "fa:16:3e:00:00:02"});
        let two = api.make("ann:red", "port", two).await;
        assert_eq!(addresses(&two)[1..], ["fd00:1::f816:3eff:fe00:2"], "{two}");
        let three = json!({"network_id": net, "mac_address": "fa:16:3e:00:00:03",
            "fixed_ips": [{"ip_address": "10.0.0.77"}]});
        let three = api.make("ann:red", "port", three).await;
        assert_eq!(addresses(&three), ["10.0.0.77", "fd00:1::f816:3eff:fe00:3"]);
        let ipv4 = json!({"network_id": net, "mac_address": "fa:16:3e:00:00:04",
            "fixed_ips": [{"subnet_id": subnet}]});
        let ipv4 = api.make("ann:red", "port", ipv4).await;
        assert_eq!(addresses(&ipv4), ["fd00:1::f816:3eff:fe00:4"]);
        let wrong =
            json!({"port": {"network_id": net, "fixed_ips": [{"ip_address": "fd00:1::7"}]}});
        let kind = "AllocationOnAutoAddressSubnet";
        api.refused("ann:red", "POST /ports", Some(wrong), 400, kind).await;
        let none = json!({"network_id": net, "fixed_ips": []});
        assert_eq!(addresses(&api.make("ann:red", "port", none).await), Vec::<String>::new());
        // A new MAC address changes the automatic address.
        let path = format!("ports/{}", text(&three["id"]));
        let moved = json!({"port": {"mac_address": "fa:16:3e:00:00:33"}});
        let moved = put(&api, "admin:ops", &path, moved).await["port"].clone();
        assert_eq!(addresses(&moved), ["10.0.0.77", "fd00:1::f816:3eff:fe00:33"]);
        let back = json!({"port": {"fixed_ips": [{"ip_address": "10.0.0.78"}]}});
        let back = put(&api, "ann:red", &path, back).await["port"].clone();
        assert_eq!(addresses(&back), ["10.0.0.78", "fd00:1::f816:3eff:fe00:33"]);
        api.audit().await;
        // A router's interface uses the subnet, which therefore cannot be deleted.
        let router = text(&api.make("ann:red", "router", json!({})).await["id"]);
        let add = format!("routers/{router}/add_router_interface");
        put(&api, "ann:red", &add, json!({"subnet_id": subnet})).await;
        let delete = format!("DELETE /subnets/{subnet}");
        api.refused("ann:red", &delete, None, 409, "SubnetInUse").await;
        let remove = format!("routers/{router}/remove_router_interface");
        put(&api, "ann:red", &remove, json!({"subnet_id": subnet})).await;
        // Automatic addresses do not prevent the deletion of their subnet, and are released with
        // it.
        api.none("ann:red", &delete).await;
        let shown = api.ok("ann:red", &format!("GET /{path}"), None).await["port"].clone();
        assert_eq!(addresses(&shown), ["10.0.0.78"]);
        api.audit().await;
    }
}

#[tokio::test]
async fn ipv6_modes_are_validated_together() {
    for api in apis().await {
        let net = text(&api.make("ann:red", "network", json!({})).await["id"]);
        let body = |more: Value| {
            let mut body = json!({"network_id": net, "cidr": "fd00::/64", "ip_version": 6});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Some(json!({"subnet": body}))
        };
        for (more, kind) in [
            (json!({"ipv6_ra_mode": "x"}), "HTTPBadRequest"),
            (json!({"ipv6_ra_mode": "slaac", "enable_dhcp": false}), "BadRequest"),
            (
                json!({"ipv6_ra_mode": "slaac", "ipv6_address_mode": "dhcpv6-stateful"}),
                "InvalidInput",
            ),
            (json!({"ipv6_ra_mode": "slaac", "cidr": "fd00::/56"}), "InvalidInput"),
            (
                json!({"ipv6_address_mode": "slaac", "cidr": "10.0.0.0/24", "ip_version": 4}),
                "InvalidInput",
            ),
        ] {
            api.refused("ann:red", "POST /subnets", body(more), 400, kind).await;
        }
        let made = ipv6(&net, "fd00::/56", "dhcpv6-stateful");
        let made = text(&api.make("ann:red", "subnet", made).await["id"]);
        let port = api.make("ann:red", "port", json!({"network_id": net})).await;
        assert_eq!(addresses(&port), ["fd00::2"], "the next free address");
        let off = Some(json!({"subnet": {"enable_dhcp": false}}));
        api.refused("ann:red", &format!("PUT /subnets/{made}"), off, 400, "BadRequest").await;
        api.audit().await;
    }
}
