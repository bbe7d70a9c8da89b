//! Security groups, their rules, address pairs and port security, over HTTP and on both stores.

use serde_json::{Value, json};

use crate::kit::apis;

#[tokio::test]
async fn an_administrator_sees_the_default_group_of_the_filtered_project() {
    for api in apis().await {
        let all = async |query: &str| {
            let list = api.ok("admin:ops", &format!("GET /{query}"), None).await;
            let key = query.split('?').next().unwrap().replace('-', "_");
            list[key].as_array().unwrap().clone()
        };
        let one = "0d4fb9ea9ee04d839c0ffb1bb4dbe9cd";
        let two = "0d4fb9ea-9ee0-4d83-9c0f-fb1bb4dbe9ce";
        for path in ["security-groups", "security-group-rules"] {
            let others = format!("GET /{path}?project_id={one}");
            api.ok("ann:red", &others, None).await;
        }
        for group in all("security-groups").await {
            assert_ne!(group["project_id"], one, "others create no group");
        }
        let groups = all(&format!("security-groups?project_id={one}")).await;
        assert_eq!((groups.len(), &groups[0]["name"]), (1, &json!("default")));
        let rules = all(&format!("security-group-rules?tenant_id={two}")).await;
        assert_eq!(rules.len(), 4);
        let groups = all(&format!("security-groups?project_id={two}")).await;
        assert_eq!((groups.len(), &groups[0]["id"]), (1, &rules[0]["security_group_id"]));
        assert!(all("security-groups?project_id=misspelled").await.is_empty());
        let own = api.ok("ann:red", "GET /security-groups?project_id=red", None).await;
        assert_eq!(own["security_groups"].as_array().unwrap().len(), 1);
        api.audit().await;
    }
}

#[tokio::test]
async fn rules_are_stored_in_upstreams_spelling() {
    for api in apis().await {
        let group = api.make("ann:red", "security_group", json!({"name": "web"})).await;
        let body = |more: Value| {
            let mut rule = json!({"security_group_id": group["id"], "direction": "ingress"});
            rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            rule
        };
        let kind = "security_group_rule";
        let rule = body(json!({"remote_ip_prefix": "10.0.0.5/24", "protocol": "tcp"}));
        let rule = api.make("ann:red", kind, rule).await;
        assert_eq!(rule["remote_ip_prefix"], "10.0.0.5/24");
        assert_eq!(rule["normalized_cidr"], "10.0.0.0/24");
        let six = json!({"ethertype": "IPv6", "remote_ip_prefix": "FD00:0::5/64"});
        let six = api.make("ann:red", kind, body(six)).await;
        assert_eq!(six["remote_ip_prefix"], "fd00::5/64");
        assert_eq!(six["normalized_cidr"], "fd00::/64");
        for (sent, stored) in [("icmpv6", "ipv6-icmp"), ("1", "58")] {
            let rule = json!({"ethertype": "IPv6", "protocol": sent});
            let rule = api.make("ann:red", kind, body(rule)).await;
            assert_eq!(rule["protocol"], stored);
            api.none(
                "ann:red",
                &format!("DELETE /security-group-rules/{}", rule["id"].as_str().unwrap()),
            )
            .await;
        }
        let every = json!({"protocol": "udp", "port_range_min": 1, "port_range_max": 65535});
        let every = api.make("ann:red", kind, body(every)).await;
        assert_eq!(
            (&every["port_range_min"], &every["port_range_max"]),
            (&Value::Null, &Value::Null)
        );
        for made in [
            json!({"protocol": "icmp", "ethertype": "IPv6"}),
            json!({"protocol": "rsvp"}),
            json!({"protocol": "ip"}),
            json!({}),
        ] {
            api.make("ann:red", kind, body(made)).await;
        }
        let path = "POST /security-group-rules";
        for equal in [
            json!({"protocol": "udp"}),
            json!({"protocol": 17, "remote_ip_prefix": "0.0.0.0/0"}),
            json!({"protocol": "ipv6-icmp", "ethertype": "IPv6", "remote_ip_prefix": "::/0"}),
            json!({"protocol": "58", "ethertype": "IPv6"}),
            json!({"protocol": 46, "description": "d"}),
            json!({"protocol": "any"}),
        ] {
            let body = Some(json!({kind: body(equal)}));
            api.refused("ann:red", path, body, 409, "SecurityGroupRuleExists").await;
        }
        let conflict = "SecurityGroupEthertypeConflictWithProtocol";
        for protocol in ["ipv6-encap", "icmpv6", "ipv6-icmp", "58", "60"] {
            let body = Some(json!({kind: body(json!({"protocol": protocol}))}));
            api.refused("ann:red", path, body, 400, conflict).await;
        }
        let ports = json!({"protocol": "gre", "port_range_min": 7, "port_range_max": 7});
        let (_, answer) = api.call("ann:red", path, Some(json!({kind: body(ports)}))).await;
        assert_eq!(
            answer["NeutronError"]["message"],
            "Ports cannot be specified for protocol 47. Ports are only supported for DCCP, SCTP, \
             TCP, UDP, UDPLITE."
        );
        for (query, found) in [
            ("protocol=TCP", 1),
            ("ethertype=ipv4&protocol=UDP", 1),
            ("ethertype=ipv6&protocol=tcp", 0),
            ("remote_ip_prefix=FD00:0::5%2F64", 1),
            ("protocol=None&direction=ingress&ethertype=IPV4", 1),
        ] {
            let id = group["id"].as_str().unwrap();
            let list = format!("GET /security-group-rules?security_group_id={id}&{query}");
            let list = api.ok("ann:red", &list, None).await;
            assert_eq!(list["security_group_rules"].as_array().unwrap().len(), found, "{query}");
        }
        for wrong in ["protocol=nonsense", "ethertype=IPX"] {
            let list = format!("GET /security-group-rules?{wrong}");
            api.refused("ann:red", &list, None, 400, "HTTPBadRequest").await;
        }
    }
}

#[tokio::test]
async fn address_pairs_have_a_mac_address_and_keep_their_host_bits() {
    for api in apis().await {
        let net = api.network("ann:red", &["10.0.0.0/24"]).await;
        let other = "fa:16:3e:00:00:99";
        let pairs = json!([{"ip_address": "10.1.0.5/24"},
            {"ip_address": "10.1.0.5/24", "mac_address": other}]);
        let port = json!({"network_id": net, "allowed_address_pairs": pairs});
        let port = api.make("ann:red", "port", port).await;
        let mac = port["mac_address"].as_str().unwrap();
        let shown = json!([{"ip_address": "10.1.0.5/24", "mac_address": mac},
            {"ip_address": "10.1.0.5/24", "mac_address": other}]);
        assert_eq!(port["allowed_address_pairs"], shown);
        let path = format!("PUT /ports/{}", port["id"].as_str().unwrap());
        let twice = |first: Value, second: Value| {
            Some(json!({"port": {"network_id": net, "allowed_address_pairs": [first, second]}}))
        };
        let ip = json!({"ip_address": "10.1.0.7"});
        let duplicate = "DuplicateAddressPairInRequest";
        let body = twice(ip.clone(), ip.clone());
        api.refused("ann:red", "POST /ports", body, 400, duplicate).await;
        let body = json!({"port": {"allowed_address_pairs":
            [ip, {"ip_address": "10.1.0.7", "mac_address": mac}]}});
        let (status, answer) = api.call("ann:red", &path, Some(body)).await;
        let message = format!(
            "Request contains duplicate address pair: mac_address {mac} ip_address 10.1.0.7."
        );
        assert_eq!((status, &answer["NeutronError"]["message"]), (400, &json!(message)));
        // The addresses keep their spelling, but two spellings are the same address.
        let spelled = json!([{"ip_address": "FD01:0::7", "mac_address": other},
            {"ip_address": "FD02:0::7/64", "mac_address": other}]);
        let set = Some(json!({"port": {"allowed_address_pairs": spelled}}));
        let set = api.ok("ann:red", &path, set).await;
        assert_eq!(set["port"]["allowed_address_pairs"], spelled);
        for (one, two) in [("FD01::7", "fd01::7"), ("FD02::7/64", "fd02::7/64")] {
            let body = twice(json!({"ip_address": one}), json!({"ip_address": two}));
            api.refused("ann:red", "POST /ports", body, 400, duplicate).await;
        }
        let body = json!({"port": {"allowed_address_pairs": [{"ip_address": "10.1.0.7", "x": 1}]}});
        let (status, answer) = api.call("ann:red", &path, Some(body)).await;
        let message = answer["NeutronError"]["message"].as_str().unwrap();
        assert_eq!(status, 400, "{answer}");
        assert!(message.contains("Unrecognized attribute(s) 'x'"), "{message}");
    }
}

#[tokio::test]
async fn port_security_is_disabled_only_without_groups() {
    for api in apis().await {
        let net = api.network("ann:red", &["10.0.0.0/24"]).await;
        let pairs = json!([{"ip_address": "10.1.0.5"}]);
        let port = json!({"network_id": net, "allowed_address_pairs": pairs});
        let port = api.make("ann:red", "port", port).await;
        let at = |verb: &str| format!("{verb} /ports/{}", port["id"].as_str().unwrap());
        let put = at("PUT");
        let disable = |more: Value| {
            let mut body = json!({"port_security_enabled": false});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Some(json!({"port": body}))
        };
        let groups = &port["security_groups"];
        for (more, status, kind) in [
            (json!({}), 409, "AddressPairAndPortSecurityRequired"),
            (json!({"allowed_address_pairs": []}), 409, "PortSecurityPortHasSecurityGroup"),
            (
                json!({"allowed_address_pairs": [], "security_groups": groups}),
                400,
                "PortSecurityAndIPRequiredForSecurityGroups",
            ),
        ] {
            api.refused("ann:red", &put, disable(more), status, kind).await;
        }
        let shown = api.ok("ann:red", &at("GET"), None).await["port"].clone();
        assert_eq!((&shown["security_groups"], &shown["revision_number"]), (groups, &json!(1)));
        let all = disable(json!({"allowed_address_pairs": [], "security_groups": null}));
        let shown = api.ok("ann:red", &put, all).await["port"].clone();
        assert_eq!(shown["security_groups"], json!([]));
        let shown = api.ok("ann:red", &put, disable(json!({"name": "n"}))).await["port"].clone();
        assert_eq!((&shown["port_security_enabled"], &shown["name"]), (&json!(false), &json!("n")));
        let enable = Some(json!({"port": {"port_security_enabled": true}}));
        let shown = api.ok("ann:red", &put, enable).await["port"].clone();
        assert_eq!(shown["security_groups"], json!([]));
        let new = json!({"network_id": net, "security_groups": groups});
        let new = disable(new);
        let kind = "PortSecurityAndIPRequiredForSecurityGroups";
        api.refused("ann:red", "POST /ports", new, 400, kind).await;
    }
}

#[tokio::test]
async fn a_group_changes_with_its_rules() {
    for api in apis().await {
        let make = async |name: &str| {
            let group = api.make("ann:red", "security_group", json!({"name": name})).await;
            group["id"].as_str().unwrap().to_owned()
        };
        let (web, peer) = (make("web").await, make("peer").await);
        let shown = async || {
            let path = format!("GET /security-groups/{web}");
            api.ok("ann:red", &path, None).await["security_group"].clone()
        };
        let first = shown().await;
        assert_eq!(first["revision_number"], 1);
        let rule = |more: Value| {
            let mut rule = json!({"security_group_id": web, "direction": "ingress"});
            rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            rule
        };
        let kind = "security_group_rule";
        let made = api.make("ann:red", kind, rule(json!({"protocol": "tcp"}))).await;
        let second = shown().await;
        assert_eq!(second["revision_number"], 2);
        assert!(second["updated_at"].as_str() >= first["updated_at"].as_str());
        let path = format!("DELETE /security-group-rules/{}", made["id"].as_str().unwrap());
        api.none("ann:red", &path).await;
        assert_eq!(shown().await["revision_number"], 3);
        api.make("ann:red", kind, rule(json!({"remote_group_id": peer}))).await;
        assert_eq!(shown().await["revision_number"], 4);
        api.none("ann:red", &format!("DELETE /security-groups/{peer}")).await;
        let last = shown().await;
        assert_eq!(last["revision_number"], 5, "the group has lost a rule");
        assert_eq!(last["security_group_rules"].as_array().unwrap().len(), 2);
    }
}
