//! The selection of a host: traits, requested hosts, zones, disabled hosts, and the fault if there is none.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::kit::{ADMIN, Answer, Cloud, FPGA, GPU, GPUS, RunningCloud, fault, hosts};

/// A call of the Placement API as an admin.
pub async fn placement(running: &RunningCloud, method: &str, path: &str, body: Value) -> Value {
    let answer = send(running, method, path, body).await;
    assert!(answer.status.is_success(), "{method} {path}: {}", answer.body);
    answer.body
}

/// Like [`placement`], but returns the whole answer.
pub async fn send(running: &RunningCloud, method: &str, path: &str, body: Value) -> Answer {
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "cloud:1234")
        .header("x-auth-token", ADMIN)
        .header("content-type", "application/json")
        .header("openstack-api-version", "placement 1.39")
        .body(body)
        .expect("the request is valid");
    running.placement().send(request).await
}

/// Adds a trait to a pGPU, as upstream's guide does.
async fn add_trait(running: &RunningCloud, provider: &str, name: &str) {
    placement(running, "PUT", &format!("/traits/{name}"), Value::Null).await;
    let path = format!("/resource_providers?name={provider}");
    let found = placement(running, "GET", &path, Value::Null).await;
    let id =
        found["resource_providers"][0]["uuid"].as_str().expect("the provider exists").to_owned();
    let path = format!("/resource_providers/{id}/traits");
    let mut traits = placement(running, "GET", &path, Value::Null).await;
    traits["traits"].as_array_mut().expect("the answer has traits").push(json!(name));
    placement(running, "PUT", &path, traits).await;
}

async fn flavor_with(running: &RunningCloud, id: &str, specs: Value) {
    running.flavor(id, json!({})).await;
    let path = format!("/flavors/{id}/os-extra_specs");
    running.admin("2.61", &format!("POST {path}"), json!({"extra_specs": specs})).await.expect(200);
}

/// The providers whose vGPUs are allocated.
async fn gpu_of(cloud: &Cloud) -> Vec<String> {
    let sql = "SELECT p.name FROM allocations a JOIN resource_providers p ON p.id = a.provider_id
        WHERE a.class = 'VGPU' ORDER BY p.name";
    cloud.column(sql).await
}

#[tokio::test]
async fn traits_choose_the_gpu() {
    for (cloud, running) in Cloud::all_running(hosts(&[("gpu1", &[GPU])])).await {
        let marked = "gpu1_pci_0000_85_00_0";
        add_trait(&running, marked, "CUSTOM_NVIDIA_11").await;
        let want = |how: &str| json!({"resources:VGPU": "1", "trait:CUSTOM_NVIDIA_11": how});
        flavor_with(&running, "with", want("required")).await;
        flavor_with(&running, "without", want("forbidden")).await;
        for (flavor, gpu) in [("with", marked), ("without", "gpu1_pci_0000_84_00_0")] {
            for n in 0..GPUS / 2 {
                running.active_server(&cloud, &format!("{flavor}{n}"), flavor).await;
            }
            assert_eq!(gpu_of(&cloud).await, vec![gpu; 4]);
            let more = running.boot(&cloud, "more", flavor).await;
            assert!(
                fault(&running.wait_for_status(&more, "ERROR").await)
                    .starts_with("No valid host was found.")
            );
            cloud.assert_consistent(&running, flavor).await;
            cloud.teardown(&running, flavor).await;
        }
    }
}

#[tokio::test]
async fn a_full_cloud_refuses_boots_and_claims_nothing() {
    for (cloud, running) in Cloud::all_running(hosts(&[("gpu1", &[GPU]), ("plain1", &[])])).await {
        for n in 0..GPUS {
            running.active_server(&cloud, &format!("n{n}"), "vgpu").await;
        }
        let id = running.boot(&cloud, "one too many", "vgpu").await;
        let server = running.wait_for_status(&id, "ERROR").await;
        assert!(fault(&server).starts_with("No valid host was found."), "{server}");
        assert_eq!(server["fault"]["code"], 500);
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], Value::Null);
        assert_eq!(cloud.used("VGPU").await, GPUS);
        assert_eq!(cloud.used("VCPU").await, GPUS);
        cloud.assert_consistent(&running, "full").await;
        let first = running.servers().await.pop().expect("the server exists");
        let first = first["id"].as_str().expect("the answer has an id");
        running.delete(first).await;
        running.wait_until_gone(first).await;
        running.active_server(&cloud, "in its place", "vgpu").await;
        cloud.teardown(&running, "full").await;
    }
}

#[tokio::test]
async fn an_admin_requests_a_host() {
    for (cloud, running) in
        Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU]), ("c", &[])])).await
    {
        let mut boot_request = running.boot_request(&cloud, "one", "vgpu");
        boot_request["server"]["host"] = json!("b");
        let answer = running
            .call(crate::kit::ANN, "2.90", "POST /servers", Some(boot_request.clone()))
            .await;
        answer.expect(403);
        for (key, value, host) in [
            ("host", "b", "b"),
            ("hypervisor_hostname", "a", "a"),
            ("availability_zone", "nova:b", "b"),
        ] {
            let mut boot_request = running.boot_request(&cloud, "one", "vgpu");
            boot_request["server"][key] = json!(value);
            let made = running.admin("2.90", "POST /servers", boot_request).await.expect(202);
            let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
            assert_eq!(
                running.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"],
                host,
                "{key}"
            );
        }
        boot_request["server"]["host"] = json!("c");
        let made = running.admin("2.90", "POST /servers", boot_request).await.expect(202);
        let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
        assert!(
            fault(&running.wait_for_status(&id, "ERROR").await)
                .starts_with("No valid host was found.")
        );
        for named in [
            json!({"host": "x"}),
            json!({"hypervisor_hostname": "x"}),
            json!({"host": "x", "hypervisor_hostname": "a"}),
            json!({"host": "x", "hypervisor_hostname": "x"}),
        ] {
            let mut boot_request = running.boot_request(&cloud, "two", "vgpu");
            for (key, value) in named.as_object().expect("the value is an object") {
                boot_request["server"][key] = value.clone();
            }
            let refused = running.admin("2.90", "POST /servers", boot_request).await;
            refused.refused(400, "Compute host x could not be found.");
        }
        let mut boot_request = running.boot_request(&cloud, "two", "vgpu");
        boot_request["server"]["host"] = json!("a");
        boot_request["server"]["hypervisor_hostname"] = json!("b");
        let refused = running.admin("2.90", "POST /servers", boot_request).await;
        refused.refused(400, "Compute host a could not be found.");
        cloud.assert_consistent(&running, "named hosts").await;
        cloud.teardown(&running, "named hosts").await;
    }
}

#[tokio::test]
async fn availability_zones_are_respected() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("gpu", &[GPU])])).await {
        let in_nova = json!({"availability_zone": "nova"});
        let id = running.boot_with(&cloud, "in", "plain", in_nova).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let mut boot_request = running.boot_request(&cloud, "out", "plain");
        boot_request["server"]["availability_zone"] = json!("moon");
        let refused = running.admin("2.90", "POST /servers", boot_request).await.expect(400);
        let why = "The requested availability zone is not available";
        assert_eq!(refused["badRequest"]["message"], why);
        // Two zones, and a server that fits into one of them only.
        let body = json!({"aggregate": {"name": "east", "availability_zone": "east"}});
        let made = running.admin("2.90", "POST /os-aggregates", body).await.expect(200);
        let aggregate = &made["aggregate"]["id"];
        let path = format!("POST /os-aggregates/{aggregate}/action");
        running.admin("2.90", &path, json!({"add_host": {"host": "gpu"}})).await.expect(200);
        let in_nova = json!({"availability_zone": "nova"});
        let id = running.boot_with(&cloud, "far", "vgpu", in_nova).await;
        let server = running.wait_for_status(&id, "ERROR").await;
        assert!(
            fault(&server).contains(" hosts has room. It is not in availability zone nova. "),
            "{server}"
        );
        running.admin("2.90", &path, json!({"remove_host": {"host": "gpu"}})).await.expect(200);
        cloud.assert_consistent(&running, "zones").await;
        cloud.teardown(&running, "zones").await;
    }
}

#[tokio::test]
async fn a_disabled_or_dead_host_gets_no_server() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[FPGA])])).await {
        let body = |word: &str| format!("PUT /os-services/{word}");
        let host = json!({"host": "a", "binary": "nova-compute"});
        running.admin("2.11", &body("disable"), host.clone()).await.expect(200);
        let id = running.boot(&cloud, "disabled", "fpga").await;
        assert!(
            fault(&running.wait_for_status(&id, "ERROR").await)
                .starts_with("No valid host was found.")
        );
        running.admin("2.11", &body("enable"), host).await.expect(200);
        running.force_down("a", true).await;
        let id = running.boot(&cloud, "dead", "fpga").await;
        assert!(
            fault(&running.wait_for_status(&id, "ERROR").await)
                .starts_with("No valid host was found.")
        );
        running.force_down("a", false).await;
        running.active_server(&cloud, "there again", "fpga").await;
        cloud.assert_consistent(&running, "services").await;
        cloud.teardown(&running, "services").await;
    }
}
