//! Error responses that upstream's test cases do not cover, in upstream's wording and order, as
//! compared with a running upstream.

use axum::http::header;
use serde_json::json;

use crate::common::http::Api;
use crate::common::stores;

#[tokio::test]
async fn an_empty_name_is_refused_in_a_body_and_ignored_in_a_query() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let host = api.provider("host", None, &[]).await;
        let child = api.provider("child", Some(&host), &[]).await;
        let refused = api.post("/resource_providers", json!({"name": ""})).await.is(400);
        assert!(refused.detail().contains("name is required"), "{}", refused.detail());
        let all = api.get("/resource_providers?name=").await.is(200);
        assert_eq!(all.body["resource_providers"].as_array().map(Vec::len), Some(2));
        let body = json!({"name": "child", "parent_provider_uuid": child});
        let refused = api.put(&format!("/resource_providers/{host}"), body).await.is(400);
        assert!(refused.detail().contains("creating loop"), "{}", refused.detail());
        let body = json!({"name": "child"});
        api.put(&format!("/resource_providers/{host}"), body).await.is(409);
    }
}

/// osc-placement prints the text after the last newline of `detail`.
#[tokio::test]
async fn the_line_that_osc_placement_prints_names_the_error() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let host = api.provider("host", None, &[("VCPU", 4)]).await;
        let printed =
            |detail: &str| detail.rsplit('\n').next().unwrap_or_default().trim().to_owned();
        let consumer = uuid::Uuid::new_v4();
        for (path, body, wrong) in [
            ("/resource_providers".to_owned(), json!({"name": 7}), "7 is not of type 'string'"),
            (
                format!("/resource_providers/{host}/aggregates"),
                json!({"aggregates": ["x"], "resource_provider_generation": 0}),
                "'x' is not a 'uuid'",
            ),
            (
                format!("/allocations/{consumer}"),
                json!({"allocations": {host.to_string(): {"resources": {"VCPU": 0}}}}),
                "JSON does not validate",
            ),
        ] {
            let method = if path == "/resource_providers" { "POST" } else { "PUT" };
            let refused = api.ask(method, &path, Some(body)).await.is(400);
            let printed = printed(refused.detail());
            assert!(printed.starts_with("JSON does not validate: "), "{printed}");
            assert!(printed.contains(wrong), "{printed}");
            assert!(printed.contains("Failed validating '"), "{printed}");
        }
        let path = "/usages?project_id=&user_id=u";
        let refused = api.get(path).await.is(400);
        assert!(printed(refused.detail()).contains("should be non-empty"), "{}", refused.detail());
    }
}

#[tokio::test]
async fn a_ratio_too_large_for_the_arithmetic_is_refused_on_both_sides_of_zero() {
    for (name, store, _guard) in stores().await {
        let api = Api::new(&store);
        let host = api.provider("host", None, &[("VCPU", 4)]).await;
        let inventory = format!("/resource_providers/{host}/inventories/VCPU");
        for ratio in [1e308, -1e308] {
            let generation =
                api.get(&inventory).await.is(200).body["resource_provider_generation"].clone();
            let body = json!({
                "resource_provider_generation": generation,
                "total": 4,
                "allocation_ratio": ratio,
            });
            let refused = api.put(&inventory, body).await.is(400);
            assert!(refused.detail().contains("allocation_ratio"), "{name}: {}", refused.detail());
        }
    }
}

#[tokio::test]
async fn the_error_nearest_to_the_root_is_reported() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        for (path, body, reason) in [
            ("/resource_providers", json!({"nme": 1}), "'name' is a required property"),
            ("/resource_providers", json!({"name": 1, "x": 1}), "('x' was unexpected)"),
            (
                "/resource_providers",
                json!({"name": "n", "parent_provider_uuid": "x"}),
                "'x' is not a 'uuid'",
            ),
            (
                "/resource_providers",
                json!({"name": "n", "parent_provider_uuid": 1}),
                "1 is not valid under any of the given schemas",
            ),
        ] {
            let refused = api.post(path, body).await.is(400);
            let wanted = format!("JSON does not validate: {reason}");
            let message = refused.detail();
            let fits = message.contains(&wanted)
                || message.contains("validate: Additional properties are");
            assert!(fits && message.contains(reason), "{message}");
        }
        let refused = api.at(10, "GET", "/allocation_candidates?limit=1", None).await.is(400);
        assert!(refused.detail().contains("'resources' is a required property"));
    }
}

#[tokio::test]
async fn the_list_form_of_allocations_requires_uuids_with_dashes() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        let host = api.provider("host", None, &[("VCPU", 4)]).await;
        let consumer = "/allocations/0b8ae9a1-6d8a-4f38-9f5e-5f1c0c0d1a77";
        let claim = |uuid: &str| {
            json!({
                "allocations": [{"resource_provider": {"uuid": uuid}, "resources": {"VCPU": 1}}],
                "project_id": "p",
                "user_id": "u",
            })
        };
        let bare = claim(&host.replace('-', ""));
        let refused = api.at(8, "PUT", consumer, Some(bare)).await.is(400);
        assert!(refused.detail().contains("that does not exist"), "{}", refused.detail());
        api.at(8, "PUT", consumer, Some(claim(&host))).await.is(204);
    }
}

#[tokio::test]
async fn faults_are_html_for_browsers_and_name_the_versions() {
    for (_, store, _guard) in stores().await {
        let api = Api::new(&store);
        for (accept, wanted) in
            [("text/html", "text/html"), ("text/plain", "text/plain"), ("*/*", "application/json")]
        {
            let headers = [("x-auth-token", "admin"), ("accept", accept)];
            let answer = api.send("GET", "/nothing", &headers, None).await.is(404);
            let shown = answer.headers[header::CONTENT_TYPE].to_str().expect("the header is text");
            assert!(shown.starts_with(wanted), "{accept}: {shown}");
        }
        let headers = [("openstack-api-version", "placement 1.99")];
        let answer = api.send("GET", "/", &headers, None).await.is(406);
        assert_eq!(answer.body["errors"][0]["max_version"], "1.39");
        assert_eq!(answer.body["errors"][0]["min_version"], "1.0");
        assert!(answer.body["errors"][0]["code"].is_null());
    }
}

/// For each request, upstream words the errors for an unknown class and for an inventory in use differently.
#[tokio::test]
async fn unknown_classes_and_inventories_in_use_have_the_words_of_their_request() {
    for (name, store, _guard) in stores().await {
        let api = Api::new(&store);
        let host = api.provider("host", None, &[("VCPU", 4)]).await;
        let inventories = format!("/resource_providers/{host}/inventories");
        let consumer = "0b8ae9a1-6d8a-4f38-9f5e-5f1c0c0d1a77";
        let claim = |class: &str| {
            json!({
                "allocations": {&host: {"resources": {class: 1}}},
                "project_id": "p", "user_id": "u",
                "consumer_generation": null, "consumer_type": "INSTANCE",
            })
        };
        let reshape = |class: &str, allocations: serde_json::Value| {
            let target = json!({
                "resource_provider_generation": 1,
                "inventories": {"VCPU": {"total": 4}, class: {"total": 4}},
            });
            json!({"inventories": {&host: target}, "allocations": allocations})
        };
        let unknown = "No such resource class CUSTOM_NO.";
        let sized = json!({"resource_provider_generation": 1, "total": 4});
        let one = format!("/allocations/{consumer}");
        let update = format!("{inventories}/CUSTOM_NO");
        for (method, path, body, status, begin) in [
            (
                "PUT",
                &*one,
                claim("CUSTOM_NO"),
                400,
                format!("Unable to allocate inventory for consumer {consumer}: "),
            ),
            (
                "POST",
                "/allocations",
                json!({consumer: claim("CUSTOM_NO")}),
                400,
                "Unable to allocate inventory ".into(),
            ),
            (
                "POST",
                "/reshaper",
                reshape("CUSTOM_NO", json!({})),
                400,
                "malformed reshaper data: ".into(),
            ),
            (
                "POST",
                "/reshaper",
                reshape("VCPU", json!({consumer: claim("CUSTOM_NO")})),
                400,
                "malformed reshaper data: ".into(),
            ),
            ("PUT", &*update, sized, 404, String::new()),
        ] {
            let refused = api.ask(method, path, Some(body)).await.is(status);
            let why = refused.detail();
            assert!(why.contains(&format!("{begin}{unknown}")), "{name} {method} {path}: {why}");
        }
        // A class that exists, but not at this provider.
        let sized = json!({"resource_provider_generation": 1, "total": 4});
        let refused = api.put(&format!("{inventories}/VGPU"), sized).await.is(400);
        assert!(refused.detail().contains("No inventory of class VGPU found."), "{name}");

        api.put(&one, claim("VCPU")).await.is(204);
        let used = format!("Inventory for 'VCPU' on resource provider '{host}' in use.");
        let refused = api.ask("DELETE", &inventories, None).await.is(409);
        assert_eq!(refused.code(), "placement.inventory.inuse", "{name}");
        let why = refused.detail();
        assert!(why.contains(&used) && !why.contains("update conflict"), "{name}: {why}");
        let generation =
            api.get(&inventories).await.is(200).body["resource_provider_generation"].clone();
        let body = json!({"resource_provider_generation": generation, "inventories": {}});
        let refused = api.put(&inventories, body).await.is(409);
        let wanted = format!("update conflict: {used}");
        assert!(refused.detail().contains(&wanted), "{name}: {}", refused.detail());
    }
}
