//! Version documents and microversions.

use http::{Method, StatusCode};

use crate::common::{Api, stores};

#[tokio::test]
async fn version_documents_need_no_token_and_link_to_themselves() {
    for (name, store, _guard) in stores().await {
        let mut api = Api::admin(&store);
        api.roles = "";
        let root = api.get("/").await;
        assert_eq!(root.status, StatusCode::OK, "{name}");
        let version = &root.body["versions"][0];
        assert_eq!(version["id"], "v2");
        assert_eq!(version["max_version"], "2.3");
        assert_eq!(version["links"][0]["href"], "http://cloud:8780/accelerator/v2");
        assert_eq!(root.body["default_version"], *version);
        for path in ["/v2", "/v2/"] {
            let v2 = api.get(path).await;
            assert_eq!(v2.body["id"], "v2.0");
            assert_eq!(v2.body["min_version"], "2.0");
            assert_eq!(v2.body["links"][0]["href"], "http://cloud:8780/accelerator/v2/");
        }
    }
}

#[tokio::test]
async fn the_version_header_is_read_in_all_its_forms() {
    for (name, store, _guard) in stores().await {
        let api = Api::admin(&store);
        for (asked, given) in [
            (None, "accelerator 2.0"),
            (Some("accelerator 2.3"), "accelerator 2.3"),
            (Some("2.3"), "accelerator 2.3"),
            (Some("accelerator latest"), "accelerator 2.3"),
            (Some("compute 2.90, accelerator 2.2"), "accelerator 2.2"),
        ] {
            let answer =
                Api { version: asked, ..Api::admin(&store) }.get("/v2/device_profiles").await;
            assert_eq!(answer.status, StatusCode::OK, "{name} {asked:?}");
            assert_eq!(answer.headers["openstack-api-version"], given);
            assert_eq!(answer.headers["openstack-api-minimum-version"], "2.0");
            assert_eq!(answer.headers["openstack-api-maximum-version"], "2.3");
            assert_eq!(answer.headers["vary"], "OpenStack-API-Version");
            assert!(answer.headers.contains_key("x-openstack-request-id"));
        }
        for (asked, text) in [
            (
                "accelerator 2.9",
                "Version 2.9 was requested but the minor version is not supported by this \
                 service. The supported version range is: [2.0, 2.3].",
            ),
            (
                "accelerator 1.0",
                "Mutually exclusive versions requested. Version 1.0 requested but not supported \
                 by this service. The supported version range is: [2.0, 2.3].",
            ),
            ("accelerator foo", "Invalid value for OpenStack-API-Version header"),
            ("compute 2.90", "Invalid value for OpenStack-API-Version header"),
        ] {
            let answer = api.at(asked).get("/v2/device_profiles").await;
            assert_eq!(answer.status, StatusCode::NOT_ACCEPTABLE, "{name} {asked}");
            assert_eq!(answer.fault(), text);
            assert!(!answer.headers.contains_key("openstack-api-version"));
            assert_eq!(answer.headers["openstack-api-maximum-version"], "2.3");
        }
    }
}

#[tokio::test]
async fn unknown_paths_are_404_and_unknown_methods_405() {
    for (name, store, _guard) in stores().await {
        let api = Api::admin(&store);
        assert_eq!(api.get("/v1").await.status, StatusCode::NOT_FOUND, "{name}");
        assert_eq!(api.get("/v2/nothing").await.status, StatusCode::NOT_FOUND, "{name}");
        let answer = api.raw(Method::PUT, "/v2/device_profiles/x", Vec::new()).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{name}");
        assert!(answer.headers.contains_key("allow"));
        let unreadable = api.get("/v2/device_profiles/%FF%FE").await;
        assert_eq!(unreadable.status, StatusCode::BAD_REQUEST, "{name}");
    }
}
