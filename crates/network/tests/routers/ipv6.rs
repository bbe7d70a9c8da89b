//! Routers of IPv6 subnets.

use kilonova_store::testing::Meter;
use serde_json::{Value, json};

use super::{addresses, network, put, text};
use crate::kit::{apis, metered_apis};

/// The body of an IPv6 subnet with both modes set.
fn ipv6(net: &str, cidr: &str, mode: &str) -> Value {
    json!({"network_id": net, "cidr": cidr, "ip_version": 6, "ipv6_ra_mode": mode,
        "ipv6_address_mode": mode})
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
