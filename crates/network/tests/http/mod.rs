//! The network service over HTTP, in process, on both stores.

mod agents;
mod groups;
mod lists;
mod networks;
mod ports;
mod quotas;
mod subnets;

use serde_json::json;

use crate::kit::apis;

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

/// Paths of clients before OpenStack's SDK 0.55. (Upstream: pecan's `guess_content_type_from_ext`.)
#[tokio::test]
async fn paths_may_end_in_json() {
    for api in apis().await {
        let body = json!({"network": {"name": "a"}});
        let (status, made) = api.call("ann:red", "POST /networks.json", Some(body)).await;
        assert_eq!(status, 201, "{made}");
        let id = made["network"]["id"].as_str().expect("the network has an id").to_owned();
        let listed = api.ok("ann:red", "GET /networks.json?name=a", None).await;
        assert_eq!(listed["networks"][0]["id"], id);
        let path = format!("PUT /networks/{id}.json");
        let changed = api.ok("ann:red", &path, Some(json!({"network": {"name": "b"}}))).await;
        assert_eq!(changed["network"]["name"], "b");
        let own = api.ok("admin", "GET /quotas/red.json", None).await;
        assert_eq!(own, api.ok("admin", "GET /quotas/red", None).await);
    }
}

/// Attributes that are shown are read-only, and not unknown.
#[tokio::test]
async fn attributes_that_no_request_sets_are_read_only() {
    for api in apis().await {
        let net = api.make("ann:red", "network", json!({"name": "a"})).await;
        let path = format!("PUT /networks/{}", net["id"].as_str().expect("the network has an id"));
        for (name, why) in [
            ("status", "Cannot update read-only attribute status"),
            ("tenant_id", "Cannot update read-only attribute tenant_id"),
            ("colour", "Unrecognized attribute(s) 'colour'"),
        ] {
            let body = json!({"network": {name: "x"}});
            let (status, answer) = api.call("ann:red", &path, Some(body)).await;
            assert_eq!((status, &answer["NeutronError"]["message"]), (400, &json!(why)));
        }
        let body = json!({"network": {"id": net["id"]}});
        let (status, answer) = api.call("ann:red", "POST /networks", Some(body)).await;
        let why = "Attribute 'id' not allowed in POST";
        assert_eq!((status, &answer["NeutronError"]["message"]), (400, &json!(why)));
    }
}
