//! In place of upstream's tests with old compute services: agents that were built earlier, or that
//! speak another protocol, by the routes that agents call.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use kilonova_compute::Link;
use kilonova_compute::api::nodes;
use kilonova_wire::noauth::NoAuth;
use serde_json::{Value, json};

use super::eyes::{holds, provider};
use crate::kit::{Answer, Client, Cloud, Up, hosts};

async fn say(up: &Up, path: &str, message: &Value) -> Answer {
    let routes = nodes::routes(Link(up.compute.clone()));
    let router = kilonova_wire::mount(routes, nodes::service(), "/node", Arc::new(NoAuth));
    let request = Request::post(path)
        .header("host", "cloud:1234")
        .header("x-auth-token", "admin")
        .header("content-type", "application/json")
        .body(Body::from(message.to_string()))
        .expect("a request");
    (Client { router }).send(request).await
}

/// A registration as the first agents sent it: without what was added since.
fn first_words(host: &str) -> Value {
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
async fn an_agent_that_says_less_is_served() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("new", &[])])).await {
        up.nodes.kill("new").await;
        let session = say(&up, "/v1/register", &first_words("old")).await.expect(200);
        assert!(session["epoch"].as_i64() > Some(0), "{session}");
        let mut wish = up.wish(&cloud, "one", "fpga");
        wish["server"]["host"] = json!("old");
        let made = up.admin("2.90", "POST /servers", wish).await.expect(202);
        let id = made["server"]["id"].as_str().expect("an id");
        assert_eq!(up.server(id).await["OS-EXT-SRV-ATTR:host"], "old");
        let arqs = super::eyes::arqs(&up, id).await;
        assert_eq!((&arqs[0]["hostname"], &arqs[0]["state"]), (&json!("old"), &json!("Bound")));
        cloud.audit("an old agent").await;
    }
}

#[tokio::test]
async fn an_agent_of_another_protocol_is_refused() {
    for (cloud, up) in Cloud::all_up(hosts(&[("new", &[super::FIRST])])).await {
        let id = up.active(&cloud, "one", "fpga").await;
        for path in ["/v0/register", "/v2/register", "/register"] {
            assert_eq!(say(&up, path, &first_words("new")).await.status, 404, "{path}");
        }
        let mut wrong = first_words("other");
        wrong["devices"][0]["deployables"][0]["slots"][0]["type"] = json!("of_tomorrow");
        let refused = say(&up, "/v1/register", &wrong).await;
        assert!(refused.status.is_client_error(), "{}", refused.body);
        assert_eq!(provider(&up, "other").await, None);
        holds(&cloud, &up, &id, super::ONE).await;
        cloud.sound(&up, "refused").await;
        cloud.sweep(&up, "refused").await;
    }
}
