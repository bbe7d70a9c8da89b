//! Version documents, negotiation, and what the layers put around every answer.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use crate::kit::{ADMIN, ANN, apis};

#[tokio::test]
async fn version_documents_need_no_token() {
    for api in apis().await {
        let request = |path: &str| {
            Request::get(path).header("host", "cloud:1234").body(Body::empty()).expect("a request")
        };
        let root = api.send(request("/")).await.expect(200);
        assert_eq!(root["versions"][0]["id"], "v2.1");
        for path in ["/v2.1", "/v2.1/"] {
            let version = &api.send(request(path)).await.expect(200)["version"];
            assert_eq!(version["status"], "CURRENT");
            assert_eq!(
                (&version["version"], &version["min_version"]),
                (&json!("2.104"), &json!("2.1"))
            );
            assert_eq!(version["links"][0]["href"], "http://cloud:1234/compute/v2.1/");
        }
        let answer = api.send(request("/v2.1/flavors")).await;
        assert_eq!(answer.status.as_u16(), 401);
        assert_eq!(answer.body["unauthorized"]["code"], 401);
    }
}

#[tokio::test]
async fn answers_name_their_version_and_refusals_say_why() {
    for api in apis().await {
        let answer = api.get(ANN, "2.61", "/flavors").await;
        assert_eq!(answer.headers["openstack-api-version"], "compute 2.61");
        assert_eq!(answer.headers["x-openstack-nova-api-version"], "2.61");
        assert!(answer.headers["vary"].to_str().is_ok_and(|vary| vary.contains("Nova-API")));
        assert!(answer.headers.contains_key("x-compute-request-id"));
        api.get(ANN, "2.999", "/flavors").await.refused(
            406,
            "Version 2.999 is not supported by the API. Minimum is 2.1 and maximum is 2.104.",
        );
        api.get(ANN, "two", "/flavors")
            .await
            .refused(400, "API Version String two is of invalid format");
        api.get(ANN, "2.1", "/nothing").await.refused(404, "could not be found");
        let answer = api.call(ADMIN, "2.1", "PATCH /flavors", None).await;
        assert_eq!(answer.body["badMethod"]["code"], 405);
    }
}

#[tokio::test]
async fn statements_are_understood_by_both_databases() {
    for api in apis().await {
        for list in kilonova_compute::statements() {
            assert_eq!(api.store.refused(list).await, Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn extensions_are_listed_and_shown() {
    for api in apis().await {
        let list = api.get(ANN, "2.1", "/extensions").await.expect(200);
        let list = list["extensions"].as_array().expect("a list");
        let named = |alias: &str| list.iter().filter(|one| one["alias"] == alias).count();
        assert_eq!(
            [named("os-server-groups"), named("os-migrations"), named("os-cells")],
            [1, 1, 0]
        );
        let one = api.get(ANN, "2.1", "/extensions/os-keypairs").await.expect(200);
        assert_eq!(one["extension"]["name"], "Keypairs");
        api.get(ANN, "2.1", "/extensions/os-nothing").await.refused(404, "os-nothing");
    }
}
