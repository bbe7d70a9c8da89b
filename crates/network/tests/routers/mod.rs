//! Routers and floating IPs over HTTP, in process, on both stores.

mod floating;
mod ipv6;
mod races;
mod routes;

use kilonova_ids::{HostName, PortId, RouterId, SecurityGroupId, ServerId};
use kilonova_network::ledger::{self, Attach, NetworkChange, NewPorts, Place, PortSource};
use kilonova_wire::time;
use serde_json::{Value, json};

use crate::kit::{Api, apis};

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
fn addresses(port: &Value) -> Vec<String> {
    let all = port["fixed_ips"].as_array().unwrap();
    all.iter().map(|fixed| text(&fixed["ip_address"])).collect()
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
