//! The disk of the database is full: every service says so, and goes on when there is room again.

use axum::body::Body;
use axum::http::Request;
use kilonova_store::Store;
use serde_json::{Value, json};

use crate::common::Answer;
use crate::kit::{ADMIN, ANN, Cloud, Up, hosts};

async fn pragma(store: &Store, sql: String) -> i64 {
    let row = store.write(move |tx| tx.row(&sql, &[])).await.expect("a pragma");
    row.expect("a row").int(0).expect("a number")
}

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMzndcA7TIh/GcN3SymR9QrlrfWCZOmWHUi/CxP2cNtm";

async fn create_provider(up: &Up, body: Value) -> Answer {
    let request = Request::builder()
        .method("POST")
        .uri("/resource_providers")
        .header("host", "cloud:1234")
        .header("x-auth-token", ADMIN)
        .header("content-type", "application/json")
        .header("openstack-api-version", "placement 1.39")
        .body(Body::from(body.to_string()))
        .expect("a request");
    up.placement().send(request).await
}

#[tokio::test]
async fn a_full_disk_is_said_by_every_service() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[])])).await {
        // Only SQLite can be told to have no room.
        if cloud.name != "sqlite" {
            continue;
        }
        let pages = pragma(&cloud.store, "PRAGMA page_count".into()).await;
        pragma(&cloud.store, format!("PRAGMA max_page_count = {pages}")).await;
        let long = "x".repeat(200);
        let mut said = std::collections::BTreeMap::new();
        for n in 0..200 {
            let metadata: Value = (0..10).map(|key| (format!("k{key}"), json!(long))).collect();
            let keypair = json!({"keypair": {"name": format!("k{n}"), "public_key": KEY}});
            let network = json!({"network": {"name": long, "description": long}});
            let mut wish = up.wish(&cloud, "one", "plain");
            wish["server"]["metadata"] = metadata;
            let provider = json!({"name": format!("p{n}{}", &long[..150])});
            for (service, answer) in [
                ("server", up.call(ANN, "2.90", "POST /servers", Some(wish)).await),
                ("keypair", up.call(ANN, "2.1", "POST /os-keypairs", Some(keypair)).await),
                ("network", up.neutron(ANN, "POST /networks", Some(network)).await),
                ("provider", create_provider(&up, provider).await),
            ] {
                assert!(
                    [200, 201, 202, 403, 503, 507].contains(&answer.status.as_u16()),
                    "{service}: {} {}",
                    answer.status,
                    answer.body
                );
                if answer.status == 507 {
                    assert!(answer.body.to_string().contains("storage is full"), "{}", answer.body);
                    said.insert(service, true);
                }
            }
            if said.len() == 4 {
                break;
            }
        }
        assert_eq!(said.len(), 4, "only these were full: {said:?}");
        pragma(&cloud.store, "PRAGMA max_page_count = 1000000000".into()).await;
        up.lift_quota().await;
        up.active(&cloud, "there is room", "plain").await;
        cloud.sound(&up, "room again").await;
    }
}
