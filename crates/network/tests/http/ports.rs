//! Ports and their addresses.

use serde_json::json;

use crate::kit::apis;

#[tokio::test]
async fn ports_get_distinct_addresses() {
    for api in apis().await {
        let net = api.network("ann:red", &["10.0.0.0/29", "fd00::/64"]).await;
        let mut seen = Vec::new();
        for _ in 0..5 {
            let port = api.make("ann:red", "port", json!({"network_id": net})).await;
            let ips = port["fixed_ips"].as_array().unwrap().clone();
            assert_eq!(ips.len(), 2, "one address of each family");
            seen.push(ips[0]["ip_address"].as_str().unwrap().to_owned());
            assert_eq!(port["security_groups"].as_array().unwrap().len(), 1);
            assert!(port["mac_address"].as_str().unwrap().starts_with("fa:16:3e:"));
            assert!(port.get("binding:host_id").is_none());
        }
        let expected = ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"];
        assert_eq!(seen, expected);
        let post = |more: serde_json::Value| {
            let mut body = json!({"network_id": net});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Some(json!({"port": body}))
        };
        let ip = |ip: &str| json!({"fixed_ips": [{"ip_address": ip}]});
        for (more, status, code) in [
            (json!({}), 409, "IpAddressGenerationFailure"),
            (ip("10.0.0.3"), 409, "IpAddressAlreadyAllocated"),
            (ip("10.0.0.7"), 400, "InvalidIpForNetwork"),
            (ip("10.9.0.7"), 400, "InvalidIpForNetwork"),
            (json!({"fixed_ips": [{"subnet_id": net}]}), 404, "SubnetNotFound"),
            (json!({"mac_address": "01:00:00:00:00:01"}), 400, "HTTPBadRequest"),
            (json!({"security_groups": [net]}), 404, "SecurityGroupNotFound"),
            (json!({"network_id": "11111111-1111-4111-8111-111111111111"}), 404, "NetworkNotFound"),
        ] {
            api.refused("ann:red", "POST /ports", post(more), status, code).await;
        }
        let found = api.ok("ann:red", "GET /ports?fixed_ips=ip_address%3D10.0.0.4", None).await;
        let port = found["ports"][0].clone();
        let path = |verb: &str| format!("{verb} /ports/{}", port["id"].as_str().unwrap());
        api.none("ann:red", &path("DELETE")).await;
        let again = api.make("ann:red", "port", json!({"network_id": net})).await;
        assert_eq!(again["fixed_ips"][0]["ip_address"], "10.0.0.4", "the search continues upwards");
        api.refused("bob:blue", &path("GET"), None, 404, "PortNotFound").await;
        let bare = json!({"network_id": net, "fixed_ips": [], "port_security_enabled": false});
        let bare = api.make("ann:red", "port", bare).await;
        assert_eq!((&bare["fixed_ips"], &bare["security_groups"]), (&json!([]), &json!([])));
        api.refused("ann:red", &format!("DELETE /networks/{net}"), None, 409, "NetworkInUse").await;
        api.audit().await;
    }
}

#[tokio::test]
async fn concurrent_ports_never_share_an_address() {
    for api in apis().await {
        let net = api.network("ann:red", &["10.0.0.0/27"]).await;
        let tasks: Vec<_> = (0..40)
            .map(|_| {
                let (api, net) = (api.clone(), net.clone());
                tokio::spawn(async move {
                    let body = json!({"port": {"network_id": net}});
                    api.call("ann:red", "POST /ports", Some(body)).await
                })
            })
            .collect();
        let (mut made, mut full) = (Vec::new(), 0);
        for task in tasks {
            let (status, body) = task.await.unwrap();
            match status {
                201 => made.push(body["port"]["fixed_ips"][0]["ip_address"].to_string()),
                409 => full += 1,
                other => panic!("{other} {body}"),
            }
        }
        made.sort();
        made.dedup();
        assert_eq!((made.len(), full), (29, 11));
        api.audit().await;
    }
}

#[tokio::test]
async fn no_dhcp_options_are_an_empty_list_or_null() {
    for api in apis().await {
        let net = api.network("ann:red", &["10.0.0.0/24"]).await;
        for none in [json!(null), json!([])] {
            let port = json!({"network_id": net, "extra_dhcp_opts": none});
            assert_eq!(api.make("ann:red", "port", port).await["extra_dhcp_opts"], json!([]));
        }
        let options = json!([{"opt_name": "mtu", "opt_value": "1400"}]);
        let port = Some(json!({"port": {"network_id": net, "extra_dhcp_opts": options}}));
        api.refused("ann:red", "POST /ports", port, 400, "HTTPBadRequest").await;
    }
}

#[tokio::test]
async fn only_the_network_owner_creates_service_ports() {
    for api in apis().await {
        let net = api.make("admin:ops", "network", json!({"shared": true})).await["id"].clone();
        let own = api.network("ann:red", &[]).await;
        for owner in ["network:dhcp", "network:router_interface", "network:floatingip"] {
            let body = json!({"port": {"network_id": net, "device_owner": owner}});
            api.refused("ann:red", "POST /ports", Some(body), 403, "PolicyNotAuthorized").await;
            let port = api.make("ann:red", "port", json!({"network_id": net})).await;
            let at = |verb: &str| format!("{verb} /ports/{}", port["id"].as_str().unwrap());
            let body = json!({"port": {"device_owner": owner}});
            api.refused("ann:red", &at("PUT"), Some(body.clone()), 403, "PolicyNotAuthorized")
                .await;
            api.ok("admin:ops", &at("PUT"), Some(body)).await;
            let other = json!({"port": {"name": "mine"}});
            api.ok("ann:red", &at("PUT"), Some(other)).await;
            let body = json!({"network_id": own, "device_owner": owner});
            let port = api.make("ann:red", "port", body).await;
            let at = |verb: &str| format!("{verb} /ports/{}", port["id"].as_str().unwrap());
            api.ok("ann:red", &at("PUT"), Some(json!({"port": {"name": "n"}}))).await;
            api.none("ann:red", &at("DELETE")).await;
        }
    }
}
