//! The database's disk is full: every service reports it, and works again when there is space.

use axum::body::Body;
use axum::http::Request;
use kilonova_store::Store;
use serde_json::{Value, json};

use crate::common::Answer;
use crate::kit::{ADMIN, ANN, Cloud, RunningCloud, hosts};

async fn pragma(store: &Store, sql: String) -> i64 {
    let row = store.write(move |tx| tx.row(&sql, &[])).await.expect("the pragma succeeds");
    row.expect("the row exists").int(0).expect("the value is a number")
}

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMzndcA7TIh/GcN3SymR9QrlrfWCZOmWHUi/CxP2cNtm";

async fn create_provider(running: &RunningCloud, body: Value) -> Answer {
    let request = Request::builder()
        .method("POST")
        .uri("/resource_providers")
        .header("host", "cloud:1234")
        .header("x-auth-token", ADMIN)
        .header("content-type", "application/json")
        .header("openstack-api-version", "placement 1.39")
        .body(Body::from(body.to_string()))
        .expect("the request is valid");
    running.placement().send(request).await
}

#[tokio::test]
async fn every_service_reports_a_full_disk() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        // Only SQLite's space can be limited.
        if cloud.name != "sqlite" {
            continue;
        }
        let pages = pragma(&cloud.store, "PRAGMA page_count".into()).await;
        pragma(&cloud.store, format!("PRAGMA max_page_count = {pages}")).await;
        let long = "x".repeat(200);
        let mut text = std::collections::BTreeMap::new();
        for n in 0..200 {
            let metadata: Value = (0..10).map(|key| (format!("k{key}"), json!(long))).collect();
            let keypair = json!({"keypair": {"name": format!("k{n}"), "public_key": KEY}});
            let network = json!({"network": {"name": long, "description": long}});
            let mut boot_request = running.boot_request(&cloud, "one", "plain");
            boot_request["server"]["metadata"] = metadata;
            let provider = json!({"name": format!("p{n}{}", &long[..150])});
            for (service, answer) in [
                ("server", running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await),
                ("keypair", running.call(ANN, "2.1", "POST /os-keypairs", Some(keypair)).await),
                ("network", running.neutron(ANN, "POST /networks", Some(network)).await),
                ("provider", create_provider(&running, provider).await),
            ] {
                assert!(
                    [200, 201, 202, 403, 503, 507].contains(&answer.status.as_u16()),
                    "{service}: {} {}",
                    answer.status,
                    answer.body
                );
                if answer.status == 507 {
                    assert!(answer.body.to_string().contains("storage is full"), "{}", answer.body);
                    text.insert(service, true);
                }
            }
            if text.len() == 4 {
                break;
            }
        }
        assert_eq!(text.len(), 4, "only these services reported the full disk: {text:?}");
        pragma(&cloud.store, "PRAGMA max_page_count = 1000000000".into()).await;
        running.remove_quota_limits().await;
        running.active_server(&cloud, "there is room", "plain").await;
        cloud.assert_consistent(&running, "space is available").await;
    }
}
