//! Enforcement of Neutron's rules with their new defaults, over HTTP and on both stores.

use std::sync::Arc;

use kilonova_access::Enforcer;
use kilonova_network::RULES;
use kilonova_policy::{Defaults, Policy};
use kilonova_wire::Dialect;
use serde_json::{Value, json};

use crate::kit::{Api, apis, apis_with};

/// Token and roles: an unknown role, reader, member, manager and administrator of the project, a
/// member of another project, an administrator of another project, and a service.
const WHO: [(&str, &str); 8] = [
    ("eve:red", "clerk"),
    ("rea:red", "reader"),
    ("ann:red", "member"),
    ("max:red", "manager"),
    ("adm:red", "admin"),
    ("bob:blue", "member"),
    ("ops:ops", "admin"),
    ("svc:services", "service"),
];

/// Sends a request on resources of project `red` as each of [`WHO`] and checks the statuses.
async fn expect(api: &Api, what: &str, body: Option<&Value>, expected: [u16; 8]) {
    for (who, expected) in WHO.into_iter().zip(expected) {
        let (status, text) = api.call_as(who, what, body.cloned()).await;
        assert_eq!(status, expected, "{what} by {who:?}: {text}");
    }
}

/// Like [`expect`], but sends only the requests that have an expected refusal.
async fn refused(api: &Api, what: &str, expected: [Option<u16>; 8]) {
    for (who, expected) in WHO.into_iter().zip(expected) {
        let Some(expected) = expected else { continue };
        let (status, text) = api.call_as(who, what, None).await;
        assert_eq!(status, expected, "{what} by {who:?}: {text}");
    }
}

async fn count(api: &Api, who: (&str, &str), collection: &str) -> usize {
    let (status, body) = api.call_as(who, &format!("GET /{collection}"), None).await;
    assert_eq!(status, 200, "{collection} by {who:?}: {body}");
    body[collection.replace('-', "_")].as_array().unwrap().len()
}

#[tokio::test]
async fn each_role_does_what_upstream_lets_it_do() {
    for api in apis().await {
        let net = api.network("ann:red", &["10.0.0.0/24"]).await;
        let subnets = api.ok("ann:red", "GET /subnets", None).await;
        let subnet = subnets["subnets"][0]["id"].as_str().unwrap().to_owned();
        let port = api.make("ann:red", "port", json!({"network_id": net})).await;
        let port = port["id"].as_str().unwrap();
        let group = api.make("ann:red", "security_group", json!({"name": "web"})).await;
        let rule = group["security_group_rules"][0]["id"].as_str().unwrap();
        let group = group["id"].as_str().unwrap();

        let things = [
            ("network", "networks", net.as_str(), 200),
            ("subnet", "subnets", subnet.as_str(), 200),
            ("port", "ports", port, 200),
            ("security_group", "security-groups", group, 404),
        ];
        for (member, path, id, service) in things {
            let reads = [404, 200, 200, 200, 200, 404, 200, service];
            expect(&api, &format!("GET /{path}/{id}"), None, reads).await;
            // A service may change ports, may only read networks and subnets, and cannot see
            // security groups.
            let writes_service = match member {
                "port" => 200,
                _ if service == 200 => 403,
                _ => 404,
            };
            let writes = [404, 403, 200, 200, 200, 404, 200, writes_service];
            let body = json!({member: {"description": "x"}});
            expect(&api, &format!("PUT /{path}/{id}"), Some(&body), writes).await;
            // Only refusals, because a successful delete would end the test.
            let service_deletes = (member != "port").then_some(writes_service);
            let deletes =
                [Some(404), Some(403), None, None, None, Some(404), None, service_deletes];
            refused(&api, &format!("DELETE /{path}/{id}"), deletes).await;
            let tags = json!({"tags": ["t"]});
            let set = [404, 403, 200, 200, 200, 404, 200, if service == 200 { 403 } else { 404 }];
            expect(&api, &format!("PUT /{path}/{id}/tags"), Some(&tags), set).await;
            let drop = [404, 403, 204, 204, 204, 404, 204, if service == 200 { 403 } else { 404 }];
            expect(&api, &format!("DELETE /{path}/{id}/tags"), None, drop).await;
        }
        let reads = [404, 200, 200, 200, 200, 404, 200, 404];
        expect(&api, &format!("GET /security-group-rules/{rule}"), None, reads).await;
        let deletes = [Some(404), Some(403), None, None, None, Some(404), None, Some(404)];
        refused(&api, &format!("DELETE /security-group-rules/{rule}"), deletes).await;

        let body = json!({"network": {}});
        let made = [403, 403, 201, 201, 201, 201, 201, 403];
        expect(&api, "POST /networks", Some(&body), made).await;
        let body = json!({"security_group": {"name": "g"}});
        expect(&api, "POST /security-groups", Some(&body), made).await;
        let body = json!({"port": {"network_id": net}});
        let made = [404, 403, 201, 201, 201, 404, 201, 201];
        expect(&api, "POST /ports", Some(&body), made).await;
        let rules = [404, 403, 201, 409, 409, 404, 409, 404];
        let body = json!({"security_group_rule": {"security_group_id": group,
            "direction": "ingress", "protocol": "tcp"}});
        expect(&api, "POST /security-group-rules", Some(&body), rules).await;
        let cidr = json!({"subnet": {"network_id": net, "ip_version": 4, "cidr": "10.0.0.0/24"}});
        let subnets = [404, 403, 400, 400, 400, 404, 400, 403];
        expect(&api, "POST /subnets", Some(&cidr), subnets).await;

        // Each caller sees the quotas of its own project.
        for path in ["/quotas/red", "/quotas/red/default", "/quotas/red/details"] {
            let reads = [200, 200, 200, 200, 200, 403, 200, 403];
            expect(&api, &format!("GET {path}"), None, reads).await;
        }
        for key in ["project", "tenant"] {
            for (who, roles) in WHO {
                let (status, body) =
                    api.call_as((who, roles), &format!("GET /quotas/{key}"), None).await;
                let project = who.split_once(':').unwrap().1;
                let shown = json!({key: {format!("{key}_id"): project}});
                assert_eq!((status, body), (200, shown), "{who}");
            }
        }
        let body = json!({"quota": {"network": 50}});
        let set = [403, 403, 403, 403, 200, 403, 200, 403];
        expect(&api, "PUT /quotas/red", Some(&body), set).await;
        expect(&api, "GET /quotas", None, set).await;
        // The second administrator finds no limits.
        let deleted = [403, 403, 403, 403, 204, 403, 404, 403];
        expect(&api, "DELETE /quotas/red", None, deleted).await;
        let known = format!("GET /network-ip-availabilities/{net}");
        expect(&api, &known, None, [404, 404, 404, 404, 200, 404, 200, 200]).await;
        expect(&api, "GET /availability_zones", None, [403, 200, 200, 200, 200, 200, 200, 403])
            .await;
        expect(&api, "GET /extensions", None, [200; 8]).await;
        for collection in ["networks", "subnets", "ports", "security-groups"] {
            assert_eq!(count(&api, WHO[0], collection).await, 0, "{collection}");
            assert!(count(&api, WHO[1], collection).await > 0, "{collection}");
        }
    }
}

#[tokio::test]
async fn attributes_have_rules_of_their_own() {
    for api in apis().await {
        let (status, net) =
            api.call_as(WHO[6], "POST /networks", Some(json!({"network": {"shared": true}}))).await;
        assert_eq!(status, 201, "{net}");
        let net = net["network"]["id"].clone();
        let subnet = json!({"subnet": {"network_id": net, "ip_version": 4, "cidr": "10.0.0.0/24"}});
        assert_eq!(api.call_as(WHO[6], "POST /subnets", Some(subnet)).await.0, 201);
        let port = |more: Value| {
            let mut port = json!({"network_id": net});
            port.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"port": port})
        };
        for (more, expected) in [
            // Upstream also lets readers create ports on a shared network; here only members do.
            (json!({}), [403, 403, 201, 201, 201, 201, 201, 201]),
            (json!({"device_owner": "compute:x"}), [403, 403, 201, 201, 201, 201, 201, 201]),
            (json!({"device_owner": "network:dhcp"}), [403, 403, 403, 403, 201, 403, 201, 201]),
            (json!({"port_security_enabled": false}), [403, 403, 403, 403, 201, 403, 201, 201]),
            (json!({"binding:host_id": "h"}), [403, 403, 403, 403, 201, 403, 201, 201]),
            (
                json!({"fixed_ips": [{"ip_address": "10.0.0.77"}]}),
                [403, 403, 403, 403, 201, 403, 409, 409],
            ),
        ] {
            expect(&api, "POST /ports", Some(&port(more)), expected).await;
        }
        let flat = json!({"network": {"provider:network_type": "flat",
            "provider:physical_network": "physnet1"}});
        expect(&api, "POST /networks", Some(&flat), [403, 403, 403, 403, 201, 403, 409, 403]).await;
        for (body, expected) in [
            (json!({"network": {"shared": true}}), [403, 403, 403, 403, 201, 403, 201, 403]),
            (json!({"network": {"shared": false}}), [403, 403, 201, 201, 201, 201, 201, 403]),
            (
                json!({"network": {"router:external": true}}),
                [403, 403, 403, 403, 201, 403, 201, 403],
            ),
        ] {
            expect(&api, "POST /networks", Some(&body), expected).await;
        }
        // Views omit attributes that are hidden by a rule.
        let seen = |who| {
            let (api, path) = (&api, format!("GET /networks/{}", net.as_str().unwrap()));
            async move { api.call_as(who, &path, None).await.1["network"].clone() }
        };
        assert!(seen(WHO[2]).await.get("provider:network_type").is_none());
        assert_eq!(seen(WHO[6]).await["provider:network_type"], "vlan");
    }
}

#[tokio::test]
async fn the_operators_rules_apply() {
    let text = "create_network: role:planner\nget_network:provider:segmentation_id: role:reader\n\
                create_network:shared: role:planner\n";
    let own = kilonova_policy::read(text).expect("the file parses");
    let policy = Policy::build(RULES, &own, Defaults::default()).expect("the policy builds");
    let enforcer = Enforcer::new(Arc::new(policy), Dialect::Network);
    for api in apis_with(|networks| networks.with_policy(enforcer.clone())).await {
        let body = json!({"network": {"shared": true}});
        for who in [WHO[1], WHO[2], WHO[4]] {
            let (status, message) = api.call_as(who, "POST /networks", Some(body.clone())).await;
            assert_eq!(status, 403, "{message}");
            assert_eq!(message["NeutronError"]["type"], "PolicyNotAuthorized", "{message}");
        }
        let planner = ("pat:red", "planner,member,reader");
        let (status, made) = api.call_as(planner, "POST /networks", Some(body)).await;
        assert_eq!(status, 201, "{made}");
        assert_eq!(made["network"]["shared"], true);
        assert_eq!(made["network"]["provider:segmentation_id"], 100);
        assert!(made["network"].get("provider:network_type").is_none(), "{made}");
    }
}

/// The services with these rules.
async fn apis_under(text: &str) -> Vec<Api> {
    let own = kilonova_policy::read(text).expect("the file parses");
    let policy = Policy::build(RULES, &own, Defaults::default()).expect("the policy builds");
    let enforcer = Enforcer::new(Arc::new(policy), Dialect::Network);
    apis_with(|networks| networks.with_policy(enforcer.clone())).await
}

#[tokio::test]
async fn rules_see_the_attributes_of_resources_and_requests() {
    let text = "\
update_network: \"rule:admin_only or (rule:owner and not field:networks:name=~^locked)\"
delete_network: \"rule:admin_only or (rule:owner and field:networks:admin_state_up=false)\"
create_network: \"rule:admin_only or (rule:owner and not 'secret':%(name)s)\"
create_port: \"rule:admin_only or (rule:owner and not field:ports:dns_name=www)\"
update_router: \"rule:admin_only or (rule:owner and 'mine':%(description)s)\"
update_security_group: \"rule:admin_only or (rule:owner and not 'base':%(name)s)\"
create_security_group_rule: \"rule:admin_only or (rule:sg_owner and 'ingress':%(direction)s)\"
";
    for api in apis_under(text).await {
        let ann = WHO[2];
        let ask = async |what: &str, body: Value| api.call_as(ann, what, Some(body)).await.0;
        let named = |name: &str| json!({"network": {"name": name}});
        assert_eq!(ask("POST /networks", named("secret")).await, 403);
        let open = api.make("ann:red", "network", json!({"name": "open"})).await;
        let open = format!("/networks/{}", open["id"].as_str().unwrap());
        assert_eq!(ask(&format!("PUT {open}"), named("locked")).await, 403, "the request's name");
        assert_eq!(ask(&format!("PUT {open}"), named("wide")).await, 200);
        let (status, _) = api.call_as(WHO[6], &format!("PUT {open}"), Some(named("locked"))).await;
        assert_eq!(status, 200);
        assert_eq!(ask(&format!("PUT {open}"), json!({"network": {"mtu": 1400}})).await, 403);
        assert_eq!(api.call_as(ann, &format!("DELETE {open}"), None).await.0, 403);
        let down = json!({"network": {"admin_state_up": false}});
        assert_eq!(api.call_as(WHO[6], &format!("PUT {open}"), Some(down)).await.0, 200);
        assert_eq!(api.call_as(ann, &format!("DELETE {open}"), None).await.0, 204);

        let net = api.network("ann:red", &[]).await;
        let port = |name: &str| json!({"port": {"network_id": net, "dns_name": name}});
        assert_eq!(ask("POST /ports", port("www")).await, 403);
        assert_eq!(ask("POST /ports", port("ftp")).await, 201);
        for (description, status) in [("mine", 200), ("yours", 403)] {
            let router = json!({"description": description});
            let router = api.make("ann:red", "router", router).await;
            let path = format!("PUT /routers/{}", router["id"].as_str().unwrap());
            assert_eq!(ask(&path, json!({"router": {"name": "r"}})).await, status, "{description}");
        }
        for (name, status) in [("base", 403), ("web", 200)] {
            let group = api.make("ann:red", "security_group", json!({"name": name})).await;
            let id = group["id"].as_str().unwrap();
            let body = json!({"security_group": {"description": "x"}});
            assert_eq!(ask(&format!("PUT /security-groups/{id}"), body).await, status, "{name}");
            for (direction, status) in [("ingress", 201), ("egress", 403)] {
                let rule = json!({"security_group_rule": {"security_group_id": id,
                    "direction": direction, "protocol": "tcp"}});
                assert_eq!(ask("POST /security-group-rules", rule).await, status, "{direction}");
            }
        }
    }
}

#[tokio::test]
async fn lists_apply_rules_with_attributes() {
    let text = "\
get_network: \"rule:admin_only or (tenant_id:%(tenant_id)s and not 'secret':%(name)s)\"
get_network:provider:network_type: \"rule:admin_only or 'wide':%(name)s\"
get_port: \"rule:admin_only or (rule:owner and not field:ports:status=DOWN)\"
";
    for api in apis_under(text).await {
        for name in ["secret", "wide", "open"] {
            let net = api.make("ann:red", "network", json!({"name": name})).await;
            if name != "secret" {
                api.make("ann:red", "port", json!({"network_id": net["id"]})).await;
            }
        }
        let (status, found) = api.call_as(WHO[2], "GET /networks?sort_key=name", None).await;
        assert_eq!(status, 200, "{found}");
        let shown: Vec<_> = found["networks"].as_array().unwrap().iter().collect();
        assert_eq!(shown.len(), 2, "{found}");
        assert_eq!(
            (&shown[0]["name"], shown[0].get("provider:network_type")),
            (&json!("open"), None)
        );
        assert_eq!(
            (&shown[1]["name"], &shown[1]["provider:network_type"]),
            (&json!("wide"), &json!("vlan"))
        );
        assert_eq!(count(&api, WHO[2], "ports").await, 0);
        assert_eq!(count(&api, WHO[6], "ports").await, 2);
        assert_eq!(count(&api, WHO[6], "networks").await, 3);
        assert_eq!(count(&api, WHO[5], "networks").await, 0);
    }
}

#[tokio::test]
async fn rules_see_the_attributes_that_no_body_has() {
    let text = "\
update_network: \"rule:admin_only or (rule:owner and not field:networks:status=ACTIVE)\"
update_port: \"rule:admin_only or (rule:owner and not field:ports:status=DOWN)\"
update_router: \"rule:admin_only or (rule:owner and not field:routers:status=ACTIVE)\"
update_floatingip: \"rule:owner and not field:floatingips:floating_network_id=~^[0-9a-f]\"
delete_floatingip: \"rule:owner and field:floatingips:floating_ip_address=~^192[.] and 'None':%(port_id)s and \
'None':%(fixed_ip_address)s and 'None':%(router_id)s and 'DOWN':%(status)s\"
delete_security_group_rule: \"rule:sg_owner and not field:security_group_rules:security_group_id=~^[0-9a-f]\"
";
    for api in apis_under(text).await {
        let ann = WHO[2];
        let ask = async |what: String, body: Value| api.call_as(ann, &what, Some(body)).await.0;
        let net = api.network("ann:red", &[]).await;
        let port = api.make("ann:red", "port", json!({"network_id": net})).await;
        let router = api.make("ann:red", "router", json!({})).await;
        let outside = json!({"router:external": true});
        let outside = api.make("admin:ops", "network", outside).await["id"].clone();
        let subnet = json!({"network_id": outside, "cidr": "192.0.2.0/24", "ip_version": 4});
        api.make("admin:ops", "subnet", subnet).await;
        let floating =
            api.make("ann:red", "floatingip", json!({"floating_network_id": outside})).await;
        let id = |made: &Value| made["id"].as_str().unwrap().to_owned();
        let named = || json!({"name": "n"});
        let network = format!("PUT /networks/{net}");
        assert_eq!(ask(network, json!({"network": named()})).await, 403);
        let path = format!("PUT /ports/{}", id(&port));
        assert_eq!(ask(path, json!({"port": named()})).await, 403);
        let path = format!("PUT /routers/{}", id(&router));
        assert_eq!(ask(path, json!({"router": named()})).await, 403);
        let path = format!("/floatingips/{}", id(&floating));
        let body = json!({"floatingip": {"description": "d"}});
        assert_eq!(ask(format!("PUT {path}"), body).await, 403);
        assert_eq!(api.call_as(ann, &format!("DELETE {path}"), None).await.0, 204);
        let group = api.make("ann:red", "security_group", json!({"name": "g"})).await;
        let rule = id(&group["security_group_rules"][0]);
        let path = format!("DELETE /security-group-rules/{rule}");
        assert_eq!(api.call_as(ann, &path, None).await.0, 403);
    }
}

#[tokio::test]
async fn operators_grant_global_access_and_other_projects() {
    let text = "\
context_with_global_access: role:auditor
context_can_set_project_id: role:planner
get_network: \"rule:admin_only or rule:owner or role:auditor or role:advsvc\"
create_network: \"@\"
";
    for api in apis_under(text).await {
        let net = api.network("bob:blue", &[]).await;
        let create = json!({"network": {"project_id": "blue"}});
        for (role, reads, creates) in [
            ("auditor", 200, 400),
            ("planner", 404, 201),
            ("advsvc", 200, 201),
            ("member", 404, 400),
        ] {
            let who = ("ann:red", role);
            let (status, body) = api.call_as(who, &format!("GET /networks/{net}"), None).await;
            assert_eq!(status, reads, "{role}: {body}");
            let (status, body) = api.call_as(who, "POST /networks", Some(create.clone())).await;
            assert_eq!(status, creates, "{role}: {body}");
        }
    }
}
