//! Agents, availability zones and the addresses that are left, as administrators see them.

use serde_json::json;

use crate::kit::apis;

#[tokio::test]
async fn networks_and_routers_are_in_the_only_availability_zone() {
    for api in apis().await {
        for member in ["network", "router"] {
            let hints = json!({"availability_zone_hints": ["nova"]});
            let made = api.make("ann:red", member, hints).await;
            assert_eq!(made["availability_zone_hints"], json!(["nova"]));
            assert_eq!(made["availability_zones"], json!(["nova"]));
            let path = format!("POST /{member}s");
            let other = json!({member: {"availability_zone_hints": ["nova", "west"]}});
            let (status, body) = api.call("ann:red", &path, Some(other)).await;
            let error = &body["NeutronError"];
            assert_eq!((status, &error["type"]), (404, &json!("AvailabilityZoneNotFound")));
            assert_eq!(error["message"], "AvailabilityZone west could not be found.");
            for wrong in [json!(["nova", "nova"]), json!("nova"), json!([7])] {
                let body = Some(json!({member: {"availability_zone_hints": wrong}}));
                api.refused("ann:red", &path, body, 400, "HTTPBadRequest").await;
            }
        }
        for (query, found) in [
            ("", vec!["network", "router"]),
            ("?resource=router", vec!["router"]),
            ("?name=nova&state=available", vec!["network", "router"]),
            ("?state=unavailable", vec![]),
        ] {
            let path = format!("GET /availability_zones{query}");
            let list = api.ok("ann:red", &path, None).await["availability_zones"].clone();
            let list: Vec<_> =
                list.as_array().unwrap().iter().map(|zone| zone["resource"].clone()).collect();
            assert_eq!(list, found, "{query}");
        }
        let wrong = "GET /availability_zones?colour=red";
        api.refused("ann:red", wrong, None, 400, "HTTPBadRequest").await;
    }
}

#[tokio::test]
async fn administrators_see_address_availability() {
    for api in apis().await {
        let net = api.network("ann:red", &["10.0.0.0/29", "fd00::/64"]).await;
        api.make("ann:red", "port", json!({"network_id": net})).await;
        let path = "GET /network-ip-availabilities";
        let all = api.ok("admin", path, None).await["network_ip_availabilities"].clone();
        let one = &all.as_array().unwrap()[0];
        assert_eq!((&one["network_id"], &one["used_ips"]), (&json!(net), &json!(2)));
        let ipv4 = &one["subnet_ip_availability"][0];
        assert_eq!((&ipv4["total_ips"], &ipv4["used_ips"]), (&json!(5), &json!(1)), "{ipv4}");
        let query = format!("{path}?ip_version=4&network_id={net}");
        let only = api.ok("admin", &query, None).await["network_ip_availabilities"].clone();
        assert_eq!((&only[0]["total_ips"], &only[0]["used_ips"]), (&json!(5), &json!(1)), "{only}");
        let query = format!("{path}?ip_version=4&project_id=blue");
        assert_eq!(api.ok("admin", &query, None).await["network_ip_availabilities"], json!([]));
        let shown = api.ok("admin", &format!("{path}/{net}"), None).await;
        assert_eq!(shown["network_ip_availability"], *one);
        let other = api.network("ann:red", &["10.1.0.0/29"]).await;
        let page = api.ok("admin", &format!("{path}?limit=1"), None).await;
        assert_eq!(page["network_ip_availabilities"][0]["network_id"], net);
        let next = page["network_ip_availabilities_links"][0]["href"].as_str().unwrap();
        assert!(next.ends_with(&format!("limit=1&marker={net}")), "{next}");
        let (_, query) = next.split_once('?').unwrap();
        let rest = api.ok("admin", &format!("{path}?{query}"), None).await;
        let rest = rest["network_ip_availabilities"].as_array().unwrap().clone();
        assert_eq!((rest.len(), &rest[0]["network_id"]), (1, &json!(other)));
        assert_eq!(api.ok("ann:red", path, None).await["network_ip_availabilities"], json!([]));
        api.refused("ann:red", &format!("{path}/{net}"), None, 404, "NetworkNotFound").await;
        let missing = format!("{path}/11111111-1111-4111-8111-111111111111");
        api.refused("admin", &missing, None, 404, "NetworkNotFound").await;
    }
}

#[tokio::test]
async fn agents_cannot_be_changed_because_there_are_none() {
    for api in apis().await {
        for token in ["admin", "ann:red"] {
            let body = Some(json!({"agent": {"admin_state_up": false}}));
            api.refused(token, "PUT /agents/x", body, 404, "AgentNotFound").await;
            api.refused(token, "DELETE /agents/x", None, 404, "AgentNotFound").await;
        }
    }
}
