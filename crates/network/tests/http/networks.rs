//! Networks and their segments.

use serde_json::{Value, json};

use crate::kit::apis;

#[tokio::test]
async fn networks_are_flat_or_vlans_with_a_unique_segment() {
    for api in apis().await {
        let net = api.make("ann:red", "network", json!({"name": "n"})).await;
        assert_eq!(net["status"], "ACTIVE");
        assert_eq!((&net["mtu"], &net["shared"]), (&json!(1500), &json!(false)));
        assert!(
            net.get("provider:network_type").is_none(),
            "provider attributes are for administrators"
        );
        let path = format!("GET /networks/{}", net["id"].as_str().unwrap());
        let seen = api.ok("admin", &path, None).await["network"].clone();
        assert_eq!(seen["provider:network_type"], "vlan");
        assert_eq!(seen["provider:segmentation_id"], 100);
        let second = api.make("ann:red", "network", json!({})).await;
        let path = format!("GET /networks/{}", second["id"].as_str().unwrap());
        assert_eq!(api.ok("admin", &path, None).await["network"]["provider:segmentation_id"], 101);
        let flat = json!({"provider:network_type": "flat", "provider:physical_network": "physnet1",
            "shared": true});
        api.make("admin", "network", flat.clone()).await;
        let post = |body| Some(json!({"network": body}));
        api.refused("admin", "POST /networks", post(flat), 409, "FlatNetworkInUse").await;
        let vlan = json!({"provider:network_type": "vlan", "provider:physical_network": "physnet1",
            "provider:segmentation_id": 100});
        api.refused("admin", "POST /networks", post(vlan.clone()), 409, "VlanIdInUse").await;
        api.refused("ann:red", "POST /networks", post(vlan), 403, "PolicyNotAuthorized").await;
        for (wrong, code) in [
            (json!({"provider:network_type": "flat"}), "InvalidInput"),
            (json!({"provider:segmentation_id": 7}), "InvalidInput"),
            (json!({"provider:physical_network": "nope"}), "InvalidInput"),
            (json!({"colour": "red"}), "HTTPBadRequest"),
            (json!({"mtu": 20}), "HTTPBadRequest"),
            (json!({"mtu": 9000}), "InvalidInput"),
            (json!({"name": 7}), "HTTPBadRequest"),
            (json!({"name": "x".repeat(256)}), "HTTPBadRequest"),
        ] {
            api.refused("admin", "POST /networks", post(wrong), 400, code).await;
        }
        let blue = api.ok("bob:blue", "GET /networks", None).await;
        assert_eq!(blue["networks"].as_array().unwrap().len(), 1, "only the shared one");
        api.refused(
            "bob:blue",
            &format!("DELETE /networks/{}", net["id"].as_str().unwrap()),
            None,
            404,
            "NetworkNotFound",
        )
        .await;
    }
}

#[tokio::test]
async fn networks_and_ports_change_with_their_subnets() {
    for api in apis().await {
        let net = api.network("ann:red", &["10.0.0.0/24"]).await;
        let port = api.make("ann:red", "port", json!({"network_id": net})).await;
        let revisions = async || {
            let shown = api.ok("ann:red", &format!("GET /networks/{net}"), None).await;
            let path = format!("GET /ports/{}", port["id"].as_str().unwrap());
            let port = api.ok("ann:red", &path, None).await;
            let revision = |view: &Value| view["revision_number"].as_i64().unwrap();
            (revision(&shown["network"]), revision(&port["port"]))
        };
        let subnet = |cidr: &str, version: u8| json!({"network_id": net, "cidr": cidr, "ip_version": version, "enable_dhcp": false});
        assert_eq!(revisions().await, (2, 1), "the network's first subnet was its first change");
        let ipv4 = api.make("ann:red", "subnet", subnet("10.1.0.0/24", 4)).await;
        assert_eq!(revisions().await, (3, 1));
        let path = format!("/subnets/{}", ipv4["id"].as_str().unwrap());
        let set = Some(json!({"subnet": {"name": "n"}}));
        api.ok("ann:red", &format!("PUT {path}"), set).await;
        assert_eq!(revisions().await, (4, 1));
        api.none("ann:red", &format!("DELETE {path}")).await;
        assert_eq!(revisions().await, (5, 1));
        let mut automatic = subnet("fd00::/64", 6);
        automatic["enable_dhcp"] = json!(true);
        automatic["ipv6_ra_mode"] = json!("slaac");
        automatic["ipv6_address_mode"] = json!("slaac");
        let automatic = api.make("ann:red", "subnet", automatic).await;
        assert_eq!(revisions().await, (6, 2), "the port has a new address");
        let path = format!("DELETE /subnets/{}", automatic["id"].as_str().unwrap());
        api.none("ann:red", &path).await;
        assert_eq!(revisions().await, (7, 3), "the port has lost the address");
        api.audit().await;
    }
}

#[tokio::test]
async fn an_updated_mtu_is_bounded() {
    for api in apis().await {
        let net = api.network("ann:red", &[]).await;
        let path = format!("PUT /networks/{net}");
        let mtu = |mtu: u16| Some(json!({"network": {"mtu": mtu}}));
        let (status, body) = api.call("ann:red", &path, mtu(1501)).await;
        let words = "Invalid input for operation: Requested MTU is too big, maximum is 1500.";
        assert_eq!((status, &body["NeutronError"]["message"]), (400, &json!(words)));
        assert_eq!(api.ok("ann:red", &path, mtu(1400)).await["network"]["mtu"], 1400);
    }
}

#[tokio::test]
async fn one_segment_is_equal_to_the_provider_attributes() {
    for api in apis().await {
        let segment = json!({"provider:network_type": "vlan",
            "provider:physical_network": "physnet1", "provider:segmentation_id": 300});
        let post = |more: Value| Some(json!({"network": more}));
        let one = json!({"segments": [segment]});
        let net = api.make("admin", "network", one.clone()).await;
        assert_eq!(net["provider:network_type"], "vlan");
        assert_eq!(net["provider:segmentation_id"], 300);
        assert!(net.get("segments").is_none(), "{net}");
        api.refused("admin", "POST /networks", post(one.clone()), 409, "VlanIdInUse").await;
        api.refused("ann:red", "POST /networks", post(one), 403, "PolicyNotAuthorized").await;
        for (wrong, kind) in [
            (json!({"segments": [segment, segment]}), "InvalidInput"),
            (json!({"segments": [{}]}), "InvalidInput"),
            (json!({"segments": [{"colour": "red"}]}), "HTTPBadRequest"),
            (
                json!({"segments": [segment], "provider:network_type": "vlan"}),
                "SegmentsSetInConjunctionWithProviders",
            ),
        ] {
            api.refused("admin", "POST /networks", post(wrong), 400, kind).await;
        }
        api.make("ann:red", "network", json!({"segments": null})).await;
        let path = format!("PUT /networks/{}", net["id"].as_str().unwrap());
        let same = Some(json!({"network": {"segments": [segment]}}));
        api.refused("admin", &path, same, 400, "HTTPBadRequest").await;
    }
}

/// Terraform sends 0 for a segment without an id.
#[tokio::test]
async fn a_segment_without_an_id_may_have_zero() {
    for api in apis().await {
        let segment = |kind: &str, id: Value| {
            json!({"segments": [{"provider:network_type": kind,
                "provider:physical_network": "physnet1", "provider:segmentation_id": id}]})
        };
        let flat = api.make("admin", "network", segment("flat", json!(0))).await;
        assert_eq!(flat["provider:network_type"], "flat");
        assert_eq!(flat["provider:segmentation_id"], Value::Null);
        for (id, chosen) in [(json!(0), 100), (json!(""), 101), (json!(false), 102)] {
            let vlan = api.make("admin", "network", segment("vlan", id)).await;
            assert_eq!(vlan["provider:segmentation_id"], chosen, "{vlan}");
        }
        for id in [json!("0"), json!(-1), json!(4095)] {
            let body = Some(json!({"network": segment("vlan", id)}));
            api.refused("admin", "POST /networks", body, 400, "HTTPBadRequest").await;
        }
    }
}

#[tokio::test]
async fn external_networks_are_visible_to_everybody() {
    for api in apis().await {
        let body = json!({"name": "outside", "router:external": true});
        let net = api.make("admin:ops", "network", body).await["id"].clone();
        let subnet = json!({"network_id": net, "cidr": "198.51.100.0/24", "ip_version": 4});
        let subnet = api.make("admin:ops", "subnet", subnet).await["id"].clone();
        let hidden =
            api.make("admin:ops", "network", json!({"name": "inside"})).await["id"].clone();
        for (query, found) in [
            ("", vec![net.clone()]),
            ("?name=outside", vec![net.clone()]),
            ("?router:external=True", vec![net.clone()]),
            ("?router:external=False", vec![]),
            ("?name=inside", vec![]),
        ] {
            let list = api.ok("ann:red", &format!("GET /networks{query}"), None).await;
            let ids: Vec<Value> =
                list["networks"].as_array().unwrap().iter().map(|net| net["id"].clone()).collect();
            assert_eq!(ids, found, "{query}");
        }
        let list = api.ok("ann:red", "GET /subnets", None).await;
        assert_eq!(list["subnets"][0]["id"], subnet);
        let at = |verb: &str, id: &Value| format!("{verb} /networks/{}", id.as_str().unwrap());
        api.refused("ann:red", &at("GET", &hidden), None, 404, "NetworkNotFound").await;
        api.refused("ann:red", &at("DELETE", &net), None, 403, "PolicyNotAuthorized").await;
        let body = Some(json!({"network": {"router:external": false}}));
        api.ok("admin:ops", &at("PUT", &net), body).await;
        let list = api.ok("ann:red", "GET /networks", None).await;
        assert_eq!(list["networks"], json!([]));
    }
}

#[tokio::test]
async fn unconfigured_physical_networks_are_refused() {
    for api in apis().await {
        for (kind, name) in [("flat", "flat"), ("vlan", "VLAN")] {
            let body = json!({"network": {"provider:network_type": kind,
                "provider:physical_network": "nope"}});
            let (status, body) = api.call("admin", "POST /networks", Some(body)).await;
            let words = format!(
                "Invalid input for operation: physical_network 'nope' unknown for {name} provider \
                 network."
            );
            assert_eq!((status, &body["NeutronError"]["message"]), (400, &json!(words)));
        }
    }
}

#[tokio::test]
async fn a_network_moves_to_another_vlan_while_no_port_is_bound() {
    for api in apis().await {
        let net = api.network("ann:red", &["10.0.0.0/24"]).await;
        let path = format!("/networks/{net}");
        let (get, put) = (format!("GET {path}"), format!("PUT {path}"));
        let body = |fields: Value| Some(json!({"network": fields}));
        let was = api.ok("admin", &get, None).await["network"].clone();
        let vlan = was["provider:segmentation_id"].clone();
        let same = json!({"name": "n", "provider:network_type": "vlan",
            "provider:physical_network": was["provider:physical_network"],
            "provider:segmentation_id": vlan});
        let shown = api.ok("admin", &put, body(same)).await["network"].clone();
        assert_eq!((&shown["name"], &shown["provider:segmentation_id"]), (&json!("n"), &vlan));
        for fields in [
            json!({"provider:network_type": "flat"}),
            json!({"provider:physical_network": "other"}),
        ] {
            let (status, answer) = api.call("admin", &put, body(fields)).await;
            let words = "Invalid input for operation: Plugin does not support updating the following \
                         provider network attributes: provider:network_type, \
                         provider:physical_network.";
            assert_eq!((status, &answer["NeutronError"]["message"]), (400, &json!(words)));
        }
        let moved = json!({"provider:segmentation_id": 300});
        api.refused("ann:red", &put, body(moved.clone()), 403, "PolicyNotAuthorized").await;
        let shown = api.ok("admin", &put, body(moved.clone())).await;
        assert_eq!(shown["network"]["provider:segmentation_id"], 300);
        assert_eq!(api.ok("admin", &get, None).await["network"]["provider:segmentation_id"], 300);
        // The old VLAN is free again, and the new one is not.
        let made = api.make("admin", "network", json!({})).await;
        assert_eq!(made["provider:segmentation_id"], vlan);
        let other = format!("PUT /networks/{}", made["id"].as_str().unwrap());
        api.refused("admin", &other, body(moved), 409, "VlanIdInUse").await;
        let shown = api.ok("admin", &other.replace("PUT", "GET"), None).await;
        assert_eq!(shown["network"]["provider:segmentation_id"], vlan);
        let flat =
            json!({"provider:network_type": "flat", "provider:physical_network": "physnet1"});
        let flat = api.make("admin", "network", flat).await;
        let put_flat = format!("PUT /networks/{}", flat["id"].as_str().unwrap());
        let third = json!({"provider:segmentation_id": 301});
        api.refused("admin", &put_flat, body(third.clone()), 400, "InvalidInput").await;

        let bound = json!({"network_id": net, "binding:host_id": "a"});
        api.make("admin", "port", bound).await;
        api.refused("admin", &put, body(third), 400, "InvalidInput").await;
        let present = json!({"provider:segmentation_id": 300});
        api.ok("admin", &put, body(present)).await;
        api.audit().await;
    }
}
