//! In place of upstream's tests with old compute services: agents of an older version or with
//! another protocol, through the routes that agents call.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use kilonova_compute_nodes::{Link, api as nodes};
use kilonova_wire::noauth::NoAuth;
use serde_json::{Value, json};

use super::inspect::{assert_holds, provider};
use crate::kit::{Answer, Client, Cloud, RunningCloud, hosts};

async fn post_to_node_api(running: &RunningCloud, path: &str, message: &Value) -> Answer {
    let routes = nodes::routes(Link(running.compute.clone()));
    let router = kilonova_wire::mount(routes, nodes::service(), "/node", Arc::new(NoAuth));
    let request = Request::post(path)
        .header("host", "cloud:1234")
        .header("x-auth-token", "admin")
        .header("content-type", "application/json")
        .body(Body::from(message.to_string()))
        .expect("the request is valid");
    (Client { router }).send(request).await
}

/// A registration as the first agents sent it, without the fields added since.
fn first_registration(host: &str) -> Value {
    json!({
        "host": host, "hypervisor_type": "simulated", "hypervisor_version": 1_000_000,
        "host_ip": "192.0.2.1", "vcpus": 8, "memory_mb": 8192, "disk_gb": 100,
        "ratios": [4.0, 1.0, 1.0], "reserved_memory_mb": 512, "traits": ["COMPUTE_NODE"],
        "devices": [{
            "address": "0000:0c:00.0", "kind": "FPGA", "vendor_id": "ABCD", "product_id": "0001",
            "model": "", "numa_node": -1,
            "deployables": [{
                "name": "FakeDevice", "resource_class": "FPGA", "traits": ["CUSTOM_FAKE_DEVICE"],
                "driver": "fake", "slots": [{"type": "test_pci", "address": "0000:0c:00.1"}],
            }],
        }],
    })
}

#[tokio::test]
async fn an_agent_of_an_older_version_is_served() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("new", &[])])).await {
        running.nodes.kill("new").await;
        let session = post_to_node_api(&running, "/v1/register", &first_registration("old"))
            .await
            .expect(200);
        assert!(session["epoch"].as_i64() > Some(0), "{session}");
        let mut boot_request = running.boot_request(&cloud, "one", "fpga");
        boot_request["server"]["host"] = json!("old");
        let made = running.admin("2.90", "POST /servers", boot_request).await.expect(202);
        let id = made["server"]["id"].as_str().expect("the answer has an id");
        assert_eq!(running.server(id).await["OS-EXT-SRV-ATTR:host"], "old");
        let arqs = super::inspect::arqs(&running, id).await;
        assert_eq!((&arqs[0]["hostname"], &arqs[0]["state"]), (&json!("old"), &json!("Bound")));
        cloud.audit("an old agent").await;
    }
}

#[tokio::test]
async fn an_agent_of_another_protocol_is_refused() {
    for (cloud, running) in Cloud::all_running(hosts(&[("new", &[super::FIRST])])).await {
        let id = running.active_server(&cloud, "one", "fpga").await;
        for path in ["/v0/register", "/v2/register", "/register"] {
            assert_eq!(
                post_to_node_api(&running, path, &first_registration("new")).await.status,
                404,
                "{path}"
            );
        }
        let mut wrong = first_registration("other");
        wrong["devices"][0]["deployables"][0]["slots"][0]["type"] = json!("of_tomorrow");
        let refused = post_to_node_api(&running, "/v1/register", &wrong).await;
        assert!(refused.status.is_client_error(), "{}", refused.body);
        assert_eq!(provider(&running, "other").await, None);
        assert_holds(&cloud, &running, &id, super::ONE).await;
        cloud.assert_consistent(&running, "refused").await;
        cloud.teardown(&running, "refused").await;
    }
}
