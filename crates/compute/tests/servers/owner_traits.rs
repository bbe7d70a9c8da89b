//! Owner traits: in registrations, in the queries of upstream's scheduler, and on a card that flavors
//! and device profiles share.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::kit::{ADMIN, Cloud, FPGA, GPU, RunningCloud, hosts};

pub async fn placement(running: &RunningCloud, method: &str, path: &str, body: Value) -> Value {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "cloud:1234")
        .header("x-auth-token", ADMIN)
        .header("content-type", "application/json")
        .header("openstack-api-version", "placement 1.36")
        .body(if body.is_null() { Body::empty() } else { Body::from(body.to_string()) })
        .expect("the request is valid");
    let answer = running.placement().send(request).await;
    assert!(answer.status.is_success(), "{method} {path}: {}", answer.body);
    answer.body
}

/// Path and body of a provider's traits.
pub async fn traits(running: &RunningCloud, name: &str) -> (String, Value) {
    let found =
        placement(running, "GET", &format!("/resource_providers?name={name}"), Value::Null).await;
    let id = found["resource_providers"][0]["uuid"].as_str().expect("the provider exists");
    let path = format!("/resource_providers/{id}/traits");
    let body = placement(running, "GET", &path, Value::Null).await;
    (path, body)
}

fn has_trait(body: &Value, name: &str) -> bool {
    body["traits"].as_array().expect("the answer has traits").contains(&json!(name))
}

#[tokio::test]
async fn upstreams_scheduler_finds_hosts_and_devices() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[FPGA]), ("b", &[GPU])])).await {
        for (name, owners) in [
            ("a", &["OWNER_NOVA", "COMPUTE_ACCELERATORS"]),
            ("a_FakeDevice", &["OWNER_NOVA", "OWNER_CYBORG"]),
            ("b_pci_0000_84_00_0", &["OWNER_NOVA", "OWNER_CYBORG"]),
        ] {
            let (_, body) = traits(&running, name).await;
            assert!(owners.iter().all(|owner| has_trait(&body, owner)), "{name}: {body}");
        }
        let query = "/allocation_candidates?resources=MEMORY_MB:64,VCPU:1\
            &resourcesdevice_profile_0=FPGA:1&limit=1000\
            &root_required=COMPUTE_ACCELERATORS,OWNER_NOVA,!COMPUTE_STATUS_DISABLED";
        let found = placement(&running, "GET", query, Value::Null).await;
        assert_eq!(found["allocation_requests"].as_array().map(Vec::len), Some(1), "{found}");
        cloud.assert_consistent(&running, "owners").await;
    }
}

#[tokio::test]
async fn one_card_serves_flavors_and_profiles() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        cloud.profile("slice", &json!([{"resources:VGPU": "1"}])).await;
        for (id, specs) in [
            ("numbered", json!({"resources1:VGPU": "1"})),
            ("profiled", json!({"accel:device_profile": "slice"})),
        ] {
            running.flavor(id, json!({})).await;
            let path = format!("POST /flavors/{id}/os-extra_specs");
            running.admin("2.61", &path, json!({"extra_specs": specs})).await.expect(200);
        }
        for flavor in ["vgpu", "numbered", "profiled"] {
            running.active_server(&cloud, flavor, flavor).await;
        }
        assert_eq!(cloud.used("VGPU").await, 3);
        cloud.assert_consistent(&running, "one card").await;
        cloud.teardown(&running, "one card").await;
    }
}

#[tokio::test]
async fn traits_set_by_an_operator_survive_the_next_registration() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let gpu = "a_pci_0000_84_00_0";
        placement(&running, "PUT", "/traits/CUSTOM_MINE", Value::Null).await;
        let (path, mut body) = traits(&running, gpu).await;
        let list = body["traits"].as_array_mut().expect("the answer has traits");
        list.retain(|name| name != "OWNER_CYBORG");
        list.push(json!("CUSTOM_MINE"));
        placement(&running, "PUT", &path, body).await;
        running.restart_failing(&cloud, "a", &[]).await;
        let (_, body) = traits(&running, gpu).await;
        assert!(has_trait(&body, "CUSTOM_MINE"), "the trait that was set stays: {body}");
        assert!(has_trait(&body, "OWNER_CYBORG"), "the reported trait is restored: {body}");
        cloud.assert_consistent(&running, "set by an operator").await;
    }
}
