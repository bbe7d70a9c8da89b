//! Floating IPs.

use kilonova_network::ledger::{self, NetworkChange};
use serde_json::{Value, json};

use super::{Scene, network, put, subnet, text};
use crate::kit::apis;

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
