//! The network service over HTTP, in process, on both stores.

use kilonova_network::ledger;
use serde_json::{Value, json};

use crate::kit::{Api, apis};

#[tokio::test]
async fn version_documents_are_public_and_the_rest_requires_a_token() {
    for api in apis().await {
        let (status, body) = api.anonymous("/").await;
        assert_eq!(status, 200);
        assert_eq!(body["versions"][0]["links"][0]["href"], "http://localhost/network/v2.0/");
        assert_eq!(api.anonymous("/v2.0").await.0, 200);
        for path in ["/v2.0/networks", "/v2.0/networks/x", "/v2.0/quotas/p", "/v2.0/nothing"] {
            assert_eq!(api.anonymous(path).await.0, 401, "{path}");
        }
    }
}

#[tokio::test]
async fn unmanaged_collections_are_empty_and_refuse_creation() {
    for api in apis().await {
        for name in ["service-providers", "agents"] {
            let (status, body) = api.call("u:p", &format!("GET /{name}"), None).await;
            assert_eq!((status, body), (200, json!({name.replace('-', "_"): []})));
            let (status, body) = api.call("u:p", &format!("GET /{name}/a%20b"), None).await;
            assert_eq!(status, 404);
            assert!(body["NeutronError"]["message"].as_str().unwrap().contains("a b"));
        }
        // Rules cannot refuse what does not exist.
        for who in [("eve:red", "clerk"), ("ann:red", "member"), ("adm:red", "admin")] {
            let (status, body) = api.call_as(who, "GET /subnetpools", None).await;
            assert_eq!((status, body), (200, json!({"subnetpools": []})), "{who:?}");
            for verb in ["GET", "PUT", "DELETE"] {
                let sent = (verb == "PUT").then(|| json!({"subnetpool": {"name": "p"}}));
                let (status, body) =
                    api.call_as(who, &format!("{verb} /subnetpools/x"), sent).await;
                let error = &body["NeutronError"];
                assert_eq!((status, &error["type"]), (404, &json!("SubnetPoolNotFound")));
                assert_eq!(error["message"], "Subnet pool x could not be found.");
            }
        }
        for who in ["u:p", "admin"] {
            for (name, member) in [("subnetpools", "subnetpool"), ("service-providers", "x")] {
                let body = Some(json!({member: {"name": "p", "prefixes": ["10.0.0.0/8"]}}));
                api.refused(who, &format!("POST /{name}"), body, 404, "HTTPNotFound").await;
            }
        }
        for name in [
            "rbac-policies",
            "address-scopes",
            "address-groups",
            "trunks",
            "segments",
            "flavors",
            "nothing",
        ] {
            for token in ["u:p", "admin"] {
                for what in
                    [format!("GET /{name}"), format!("GET /{name}/x"), format!("DELETE /{name}/x")]
                {
                    api.refused(token, &what, None, 404, "HTTPNotFound").await;
                }
                let body = Some(json!({name: {}}));
                api.refused(token, &format!("POST /{name}"), body, 404, "HTTPNotFound").await;
            }
            let (_, body) = api.call("u:p", "GET /extensions", None).await;
            assert!(!body.to_string().contains(&format!("\"{name}\"")), "{body}");
        }
        let (_, body) = api.call("u:p", "GET /extensions/security-group", None).await;
        assert_eq!(body["extension"]["alias"], "security-group");
        api.refused("u:p", "GET /extensions/bgp", None, 404, "ExtensionNotFound").await;
    }
}

#[tokio::test]
async fn statements_prepare_on_both_databases() {
    for api in apis().await {
        for statements in kilonova_network::statements() {
            assert_eq!(api.store.refused(statements).await, Vec::<String>::new());
        }
    }
}

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
async fn each_project_has_a_default_group() {
    for api in apis().await {
        let list = api.ok("ann:red", "GET /security-groups", None).await;
        let groups = list["security_groups"].as_array().unwrap().clone();
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0]["name"], "default");
        assert_eq!(groups[0]["security_group_rules"].as_array().unwrap().len(), 4);
        let id = groups[0]["id"].as_str().unwrap().to_owned();
        let delete = format!("DELETE /security-groups/{id}");
        api.refused("ann:red", &delete, None, 409, "SecurityGroupCannotRemoveDefault").await;
        api.refused("bob:blue", &delete, None, 404, "SecurityGroupNotFound").await;
        let web = api.make("ann:red", "security_group", json!({"name": "web"})).await;
        assert_eq!(
            web["security_group_rules"].as_array().unwrap().len(),
            2,
            "all egress is allowed"
        );
        let rule = json!({"security_group_id": web["id"], "direction": "ingress",
            "protocol": "tcp", "port_range_min": 80, "port_range_max": 80,
            "remote_ip_prefix": "10.0.0.0/8"});
        let made = api.make("ann:red", "security_group_rule", rule.clone()).await;
        let post = |body| Some(json!({"security_group_rule": body}));
        let path = "POST /security-group-rules";
        api.refused("ann:red", path, post(rule.clone()), 409, "SecurityGroupRuleExists").await;
        for (key, value, code) in [
            ("port_range_max", json!(70), "SecurityGroupInvalidPortRange"),
            ("protocol", json!(null), "SecurityGroupProtocolRequiredWithPorts"),
            ("protocol", json!("nonsense"), "HTTPBadRequest"),
            ("port_range_min", json!(-16), "SecurityGroupInvalidPortValue"),
            ("port_range_max", json!("seventy"), "SecurityGroupInvalidPortValue"),
            ("port_range_max", json!(65536), "SecurityGroupInvalidPortValue"),
            ("ethertype", json!("IPv6"), "SecurityGroupRuleParameterConflict"),
            ("remote_group_id", web["id"].clone(), "SecurityGroupMultipleRemoteEntites"),
        ] {
            let mut wrong = rule.clone();
            wrong[key] = value;
            api.refused("ann:red", path, post(wrong), 400, code).await;
        }
        for unknown in ["bad_group_id", "11111111-1111-4111-8111-111111111111"] {
            for key in ["remote_group_id", "security_group_id"] {
                let mut wrong = json!({"security_group_id": web["id"], "direction": "ingress"});
                wrong[key] = json!(unknown);
                api.refused("ann:red", path, post(wrong), 404, "SecurityGroupNotFound").await;
            }
        }
        let net = api.network("ann:red", &["10.0.0.0/24"]).await;
        let port = json!({"network_id": net, "security_groups": [web["id"]]});
        let port = api.make("ann:red", "port", port).await;
        let delete = format!("DELETE /security-groups/{}", web["id"].as_str().unwrap());
        api.refused("ann:red", &delete, None, 409, "SecurityGroupInUse").await;
        api.none("ann:red", &format!("DELETE /ports/{}", port["id"].as_str().unwrap())).await;
        let rule = format!("DELETE /security-group-rules/{}", made["id"].as_str().unwrap());
        api.none("ann:red", &rule).await;
        api.none("ann:red", &delete).await;
    }
}

#[tokio::test]
async fn lists_are_filtered_sorted_trimmed_and_paged() {
    for api in apis().await {
        for name in ["c", "a", "b", "a"] {
            api.make("ann:red", "network", json!({"name": name, "tags": [name]})).await;
        }
        let names = async |api: &Api, query: &str| -> Vec<String> {
            let list = api.ok("ann:red", &format!("GET /networks?{query}"), None).await;
            let list = list["networks"].as_array().unwrap().clone();
            list.iter().map(|net| net["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&api, "name=a").await, ["a", "a"]);
        assert_eq!(names(&api, "name=a&name=b").await, ["a", "b", "a"]);
        assert_eq!(names(&api, "sort_key=name&sort_dir=desc").await, ["c", "b", "a", "a"]);
        assert_eq!(names(&api, "tags=b").await, ["b"]);
        assert_eq!(names(&api, "not-tags=a").await, ["c", "b"]);
        assert_eq!(names(&api, "admin_state_up=False").await, Vec::<String>::new());
        let page = api.ok("ann:red", "GET /networks?limit=2&fields=id", None).await;
        assert_eq!(page["networks"][0].as_object().unwrap().len(), 1);
        let next = page["networks_links"][0]["href"].as_str().unwrap();
        let (_, query) = next.split_once('?').unwrap();
        let rest = api.ok("ann:red", &format!("GET /networks?{query}"), None).await;
        assert_eq!(rest["networks"].as_array().unwrap().len(), 2);
        for wrong in ["colour=red", "sort_key=colour", "limit=x", "limit=2&marker=x"] {
            let path = format!("GET /networks?{wrong}");
            api.refused("ann:red", &path, None, 400, "HTTPBadRequest").await;
        }
        let id = rest["networks"][0]["id"].as_str().unwrap();
        let tags = format!("PUT /networks/{id}/tags");
        let set = api.ok("ann:red", &tags, Some(json!({"tags": ["x", "y"]}))).await;
        assert_eq!(set, json!({"tags": ["x", "y"]}));
        let bulk = json!({"networks": [{"name": "d"}, {"name": "e"}]});
        let (status, made) = api.call("ann:red", "POST /networks", Some(bulk)).await;
        assert_eq!((status, made["networks"].as_array().unwrap().len()), (201, 2));
    }
}

#[tokio::test]
async fn a_marker_need_not_pass_the_filters() {
    for api in apis().await {
        let mut ids = Vec::new();
        for name in ["c", "a", "b", "a"] {
            let net = api.make("ann:red", "network", json!({"name": name})).await;
            ids.push(net["id"].as_str().unwrap().to_owned());
        }
        let listed = async |query: &str| -> Vec<String> {
            let list = api.ok("ann:red", &format!("GET /networks?{query}"), None).await;
            let nets = list["networks"].as_array().unwrap().iter();
            nets.map(|net| net["id"].as_str().unwrap().to_owned()).collect()
        };
        let [c, first, b, second] = ids.as_slice() else { panic!("there are four networks") };
        for (query, expected) in [
            (format!("name=a&limit=5&marker={c}"), vec![first, second]),
            (format!("name=a&limit=1&marker={c}"), vec![first]),
            (format!("name=a&limit=5&marker={first}"), vec![second]),
            (format!("name=a&limit=5&marker={b}"), vec![second]),
            (format!("name=a&limit=5&marker={b}&page_reverse=True"), vec![first]),
            (format!("name=a&limit=5&marker={b}&sort_key=name&sort_dir=asc"), vec![]),
            (format!("name=c&limit=5&marker={b}&sort_key=name&sort_dir=asc"), vec![c]),
            // Without a limit, a marker has no effect.
            (format!("name=a&marker={b}"), vec![first, second]),
            ("name=a&marker=x".to_owned(), vec![first, second]),
            (format!("name=a&limit=0&marker={b}"), vec![first, second]),
        ] {
            assert_eq!(listed(&query).await.iter().collect::<Vec<_>>(), expected, "{query}");
        }
        // The database applies this filter of ports.
        let mut ports = Vec::new();
        for device in ["one", "two", "one"] {
            let body = json!({"network_id": c, "device_id": device});
            let port = api.make("ann:red", "port", body).await;
            ports.push(port["id"].as_str().unwrap().to_owned());
        }
        for (marker, expected) in [(&ports[0], &ports[2..]), (&ports[1], &ports[2..])] {
            let path = format!("GET /ports?device_id=one&limit=5&marker={marker}");
            let list = api.ok("ann:red", &path, None).await;
            let found = list["ports"].as_array().unwrap().iter();
            let found: Vec<&str> = found.map(|port| port["id"].as_str().unwrap()).collect();
            assert_eq!(found, expected, "{path}");
        }
        let other = "GET /ports?device_id=one&limit=5&marker=x";
        api.refused("ann:red", other, None, 400, "HTTPBadRequest").await;
    }
}

#[tokio::test]
async fn quotas_are_enforced() {
    for api in apis().await {
        let (_, body) = api.call("admin", "GET /quotas/p/details", None).await;
        assert_eq!(body["quota"]["port"], json!({"limit": 500, "used": 0, "reserved": 0}));
        assert_eq!(api.call("u:p", "GET /quotas/other", None).await.0, 403);
        assert_eq!(api.ok("admin", "GET /quotas", None).await, json!({"quotas": []}));
        let set = json!({"quota": {"network": 1}});
        assert_eq!(api.call("u:p", "PUT /quotas/p", Some(set.clone())).await.0, 403);
        let set = api.ok("admin", "PUT /quotas/p", Some(set)).await;
        assert_eq!(set["quota"]["network"], 1);
        api.make("u:p", "network", json!({})).await;
        let body = Some(json!({"network": {}}));
        api.refused("u:p", "POST /networks", body, 409, "OverQuota").await;
        api.none("admin", "DELETE /quotas/p").await;
        api.make("u:p", "network", json!({})).await;
        let delete = "DELETE /quotas/p";
        api.refused("admin", delete, None, 404, "TenantQuotaNotFound").await;
        let (_, body) = api.call("admin", delete, None).await;
        let message = "Quota for project p could not be found.";
        assert_eq!(body["NeutronError"]["message"], message);
    }
}

#[tokio::test]
async fn a_quota_below_the_usage_has_to_be_forced() {
    for api in apis().await {
        for _ in 0..2 {
            api.make("u:p", "network", json!({})).await;
        }
        let put = async |more: Value| {
            let mut quota = json!({"network": 1, "port": 7});
            quota.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            api.call("admin", "PUT /quotas/p", Some(json!({"quota": quota}))).await
        };
        let words = "Quota limit 1 for network must be greater than or equal to already used 2";
        // Only the boolean forces, as in upstream.
        for more in [json!({}), json!({"force": false}), json!({"force": "true"})] {
            let (status, body) = put(more.clone()).await;
            assert_eq!((status, &body["NeutronError"]["message"]), (400, &json!(words)), "{more}");
        }
        let quota = api.ok("admin", "GET /quotas/p", None).await["quota"].clone();
        assert_eq!((&quota["network"], &quota["port"]), (&json!(100), &json!(500)));
        for (more, limit) in [
            (json!({"network": 2, "check_limit": true}), 2),
            (json!({"network": -1}), -1),
            (json!({"force": true}), 1),
        ] {
            let (status, body) = put(more).await;
            assert_eq!((status, &body["quota"]["network"]), (200, &json!(limit)), "{body}");
        }
    }
}

#[tokio::test]
async fn changes_may_require_a_revision() {
    for api in apis().await {
        let net = api.make("ann:red", "network", json!({})).await["id"].clone();
        let net = net.as_str().unwrap();
        let put = format!("PUT /networks/{net}");
        let name = |name: &str| Some(json!({"network": {"name": name}}));
        let (status, body) =
            api.call_if("revision_number=1", "ann:red", &put, name("second")).await;
        assert_eq!((status, &body["network"]["revision_number"]), (200, &json!(2)), "{body}");
        let tag = format!("PUT /networks/{net}/tags/t");
        for (what, body) in
            [(&put, name("third")), (&tag, None), (&format!("DELETE /networks/{net}"), None)]
        {
            let (status, body) = api.call_if("\"revision_number=1\"", "ann:red", what, body).await;
            let error = &body["NeutronError"];
            assert_eq!((status, &error["type"]), (412, &json!("RevisionNumberConstraintFailed")));
            let words = "Constrained to 1, but current revision is 2";
            assert_eq!(error["message"], words, "{what}");
        }
        // Another project learns nothing.
        let (status, _) = api.call_if("revision_number=1", "bob:blue", &put, name("x")).await;
        assert_eq!(status, 404);
        let shown = api.ok("ann:red", &format!("GET /networks/{net}"), None).await;
        assert_eq!(shown["network"]["name"], "second", "the refused changes are undone");
        assert_eq!(shown["network"]["tags"], json!([]));
        let (status, body) = api.call_if("revision_number=x", "ann:red", &put, name("x")).await;
        let words = "Bad if-match request: Revision number etag must be in the format of \
                     revision_number=<int>.";
        assert_eq!((status, &body["NeutronError"]["message"]), (400, &json!(words)));
        let (status, body) = api.call_if("other", "ann:red", &put, name("x")).await;
        assert_eq!(status, 200, "{body}");
        let delete = format!("DELETE /networks/{net}");
        let (status, body) = api.call_if("revision_number=3", "ann:red", &delete, None).await;
        assert_eq!(status, 204, "{body}");
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
async fn subnets_are_filtered_by_the_sharing_of_their_network() {
    for api in apis().await {
        let shared = api.make("admin", "network", json!({"shared": true})).await["id"].clone();
        let own = api.make("ann:red", "network", json!({})).await["id"].clone();
        for (token, net) in [("admin", &shared), ("ann:red", &own)] {
            let subnet = json!({"network_id": net, "ip_version": 4, "cidr": "10.0.0.0/24"});
            let made = api.make(token, "subnet", subnet).await;
            assert!(made.get("shared").is_none(), "{made}");
        }
        for (query, expected) in [("shared=True", &shared), ("shared=false", &own)] {
            let list = api.ok("ann:red", &format!("GET /subnets?{query}"), None).await;
            let list = list["subnets"].as_array().unwrap().clone();
            assert_eq!((list.len(), &list[0]["network_id"]), (1, expected), "{query}");
            assert!(list[0].get("shared").is_none(), "{query}");
        }
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
async fn extensions_whose_behaviour_exists_are_listed() {
    for api in apis().await {
        for alias in [
            "availability_zone_filter",
            "empty-string-filtering",
            "filter-validation",
            "ip-substring-filtering",
            "network_availability_zone",
            "port-security-groups-filtering",
            "quota-check-limit",
            "quota-check-limit-default",
            "revision-if-match",
            "router_availability_zone",
            "stateful-security-group",
            "tag-ports-during-bulk-creation",
        ] {
            let path = format!("GET /extensions/{alias}");
            assert_eq!(api.ok("u:p", &path, None).await["extension"]["alias"], alias);
        }
        let net = api.network("ann:red", &["10.0.0.0/24"]).await;
        let group = api.make("ann:red", "security_group", json!({"stateful": false})).await;
        let groups = json!([group["id"]]);
        let ports = json!({"ports": [
            {"network_id": net, "name": "a", "tags": ["x"], "security_groups": groups},
            {"network_id": net, "tags": ["y"]}]});
        let (status, made) = api.call("ann:red", "POST /ports", Some(ports)).await;
        assert_eq!(status, 201, "{made}");
        assert_eq!(made["ports"][0]["tags"], json!(["x"]));
        assert_eq!(made["ports"][1]["tags"], json!(["y"]));
        let group = group["id"].as_str().unwrap();
        for (query, name) in [
            ("name=".to_owned(), ""),
            (format!("security_groups={group}"), "a"),
            ("fixed_ips=ip_address_substr%3D0.0.2".to_owned(), "a"),
        ] {
            let list = api.ok("ann:red", &format!("GET /ports?{query}"), None).await;
            let list = list["ports"].as_array().unwrap().clone();
            assert_eq!((list.len(), &list[0]["name"]), (1, &json!(name)), "{query}");
        }
        let list = api.ok("ann:red", "GET /security-groups?stateful=False", None).await;
        assert_eq!(list["security_groups"][0]["id"], group);
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
async fn an_administrator_deletes_a_default_group_and_rules_that_reference_it() {
    for api in apis().await {
        let list = api.ok("ann:red", "GET /security-groups", None).await;
        let id = list["security_groups"][0]["id"].as_str().unwrap().to_owned();
        let delete = format!("DELETE /security-groups/{id}");
        let net = api.network("ann:red", &["10.0.0.0/24"]).await;
        let port = api.make("ann:red", "port", json!({"network_id": net})).await;
        for token in ["ann:red", "admin"] {
            api.refused(token, &delete, None, 409, "SecurityGroupInUse").await;
        }
        api.none("ann:red", &format!("DELETE /ports/{}", port["id"].as_str().unwrap())).await;
        api.refused("ann:red", &delete, None, 409, "SecurityGroupCannotRemoveDefault").await;

        let web = api.make("ann:red", "security_group", json!({"name": "web"})).await;
        let rule = json!({"security_group_id": web["id"], "direction": "ingress",
            "remote_group_id": id});
        let rule = api.make("ann:red", "security_group_rule", rule).await;
        api.none("admin", &delete).await;
        let shown = format!("GET /security-group-rules/{}", rule["id"].as_str().unwrap());
        api.refused("ann:red", &shown, None, 404, "SecurityGroupRuleNotFound").await;
        let all = api.ok("admin", "GET /security-groups?project_id=red", None).await;
        assert_eq!(all["security_groups"].as_array().unwrap().len(), 1, "only web remains");

        let again = api.ok("ann:red", "GET /security-groups?name=default", None).await;
        assert_eq!(
            again["security_groups"].as_array().unwrap().len(),
            1,
            "the project gets a new default group"
        );
        assert_ne!(again["security_groups"][0]["id"], json!(id));
        api.audit().await;
    }
}

#[tokio::test]
async fn a_group_is_not_deleted_while_ports_are_created_with_it() {
    for api in apis().await {
        let net = api.network("ann:red", &["10.0.0.0/24"]).await;
        for _ in 0..8 {
            let list = api.ok("ann:red", "GET /security-groups?name=default", None).await;
            let id = list["security_groups"][0]["id"].as_str().unwrap().to_owned();
            let delete = format!("DELETE /security-groups/{id}");
            let body = || Some(json!({"port": {"network_id": net}}));
            let (deleted, made) = tokio::join!(
                api.call("admin", &delete, None),
                api.call("ann:red", "POST /ports", body()),
            );
            assert_eq!(made.0, 201, "{made:?}");
            assert!(matches!(deleted.0, 204 | 409), "{deleted:?}");
            let group = made.1["port"]["security_groups"][0].as_str().unwrap();
            api.ok("ann:red", &format!("GET /security-groups/{group}"), None).await;
            let port = made.1["port"]["id"].as_str().unwrap();
            api.none("ann:red", &format!("DELETE /ports/{port}")).await;
        }
        api.audit().await;
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
async fn agents_cannot_be_changed_because_there_are_none() {
    for api in apis().await {
        for token in ["admin", "ann:red"] {
            let body = Some(json!({"agent": {"admin_state_up": false}}));
            api.refused(token, "PUT /agents/x", body, 404, "AgentNotFound").await;
            api.refused(token, "DELETE /agents/x", None, 404, "AgentNotFound").await;
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

#[tokio::test]
async fn descriptions_may_have_several_lines() {
    for api in apis().await {
        let lines = "one\r\n\ttwo";
        let net = api.make("ann:red", "network", json!({"description": lines})).await;
        assert_eq!(net["description"], lines);
        for member in ["security_group", "router"] {
            let made = api.make("ann:red", member, json!({"description": lines})).await;
            assert_eq!(made["description"], lines);
        }
        let port = json!({"network_id": net["id"], "description": lines});
        assert_eq!(api.make("ann:red", "port", port).await["description"], lines);
        for wrong in [json!({"description": "a\u{1b}b"}), json!({"name": lines})] {
            let body = Some(json!({"network": wrong}));
            api.refused("ann:red", "POST /networks", body, 400, "HTTPBadRequest").await;
        }
    }
}

#[tokio::test]
async fn ports_are_found_by_any_of_several_addresses() {
    for api in apis().await {
        let net = api.network("ann:red", &["10.0.0.0/24", "fd00::/64"]).await;
        let mut ports = Vec::new();
        for _ in 0..3 {
            ports.push(api.make("ann:red", "port", json!({"network_id": net})).await);
        }
        let ip = |at: usize| ports[at]["fixed_ips"][0]["ip_address"].as_str().unwrap().to_owned();
        let subnet = ports[0]["fixed_ips"][0]["subnet_id"].as_str().unwrap();
        let (one, two) = (ip(0), ip(1));
        let mac = ports[2]["mac_address"].as_str().unwrap().to_uppercase();
        let either = format!("fixed_ips=ip_address%3D{one}&fixed_ips=ip_address%3D{two}");
        for (query, found) in [
            (either.clone(), vec![0, 1]),
            (format!("{either}&fixed_ips=subnet_id%3D{subnet}"), vec![0, 1]),
            (format!("{either}&fixed_ips=subnet_id%3D{net}"), vec![]),
            (format!("{either}&fixed_ips=ip_address_substr%3D{two}"), vec![1]),
            (format!("mac_address={mac}"), vec![2]),
            (format!("mac_address={}", mac.replace(':', "-")), vec![2]),
            ("mac_address=x".to_owned(), vec![]),
        ] {
            let list = api.ok("ann:red", &format!("GET /ports?{query}"), None).await;
            let ids: Vec<&Value> =
                list["ports"].as_array().unwrap().iter().map(|port| &port["id"]).collect();
            let found: Vec<&Value> = found.into_iter().map(|at: usize| &ports[at]["id"]).collect();
            assert_eq!(ids, found, "{query}");
        }
    }
}
