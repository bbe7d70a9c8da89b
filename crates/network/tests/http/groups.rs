//! Security groups.

use serde_json::json;

use crate::kit::apis;

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
