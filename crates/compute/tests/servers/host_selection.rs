//! The choice of a host: traits, requested hosts, zones, disabled hosts, and the fault without one.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::kit::{ADMIN, Cloud, FPGA, GPU, GPUS, Up, fault, hosts};

/// A call of the Placement API as an admin.
pub async fn placement(up: &Up, method: &str, path: &str, body: Value) -> Value {
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
    let answer = up.placement().send(request).await;
    assert!(answer.status.is_success(), "{method} {path}: {}", answer.body);
    answer.body
}

/// Adds a trait to a pGPU, as upstream's guide does.
async fn add_trait(up: &Up, provider: &str, name: &str) {
    placement(up, "PUT", &format!("/traits/{name}"), Value::Null).await;
    let path = format!("/resource_providers?name={provider}");
    let found = placement(up, "GET", &path, Value::Null).await;
    let id =
        found["resource_providers"][0]["uuid"].as_str().expect("the provider exists").to_owned();
    let path = format!("/resource_providers/{id}/traits");
    let mut traits = placement(up, "GET", &path, Value::Null).await;
    traits["traits"].as_array_mut().expect("the answer has traits").push(json!(name));
    placement(up, "PUT", &path, traits).await;
}

async fn flavor_with(up: &Up, id: &str, specs: Value) {
    up.flavor(id, json!({})).await;
    let path = format!("/flavors/{id}/os-extra_specs");
    up.admin("2.61", &format!("POST {path}"), json!({"extra_specs": specs})).await.expect(200);
}

/// The providers whose vGPUs are allocated.
async fn gpu_of(cloud: &Cloud) -> Vec<String> {
    let sql = "SELECT p.name FROM allocations a JOIN resource_providers p ON p.id = a.provider_id
        WHERE a.class = 'VGPU' ORDER BY p.name";
    cloud.column(sql).await
}

#[tokio::test]
async fn traits_choose_the_gpu() {
    for (cloud, up) in Cloud::all_running(hosts(&[("gpu1", &[GPU])])).await {
        let marked = "gpu1_pci_0000_85_00_0";
        add_trait(&up, marked, "CUSTOM_NVIDIA_11").await;
        let want = |how: &str| json!({"resources:VGPU": "1", "trait:CUSTOM_NVIDIA_11": how});
        flavor_with(&up, "with", want("required")).await;
        flavor_with(&up, "without", want("forbidden")).await;
        for (flavor, gpu) in [("with", marked), ("without", "gpu1_pci_0000_84_00_0")] {
            for n in 0..GPUS / 2 {
                up.active_server(&cloud, &format!("{flavor}{n}"), flavor).await;
            }
            assert_eq!(gpu_of(&cloud).await, vec![gpu; 4]);
            let more = up.boot(&cloud, "more", flavor).await;
            assert!(
                fault(&up.wait_for_status(&more, "ERROR").await)
                    .starts_with("No valid host was found.")
            );
            cloud.assert_consistent(&up, flavor).await;
            cloud.teardown(&up, flavor).await;
        }
    }
}

#[tokio::test]
async fn a_full_cloud_refuses_boots_and_claims_nothing() {
    for (cloud, up) in Cloud::all_running(hosts(&[("gpu1", &[GPU]), ("plain1", &[])])).await {
        for n in 0..GPUS {
            up.active_server(&cloud, &format!("n{n}"), "vgpu").await;
        }
        let id = up.boot(&cloud, "one too many", "vgpu").await;
        let server = up.wait_for_status(&id, "ERROR").await;
        assert!(fault(&server).starts_with("No valid host was found."), "{server}");
        assert_eq!(server["fault"]["code"], 500);
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], Value::Null);
        assert_eq!(cloud.used("VGPU").await, GPUS);
        assert_eq!(cloud.used("VCPU").await, GPUS);
        cloud.assert_consistent(&up, "full").await;
        let first = up.servers().await.pop().expect("the server exists");
        let first = first["id"].as_str().expect("the answer has an id");
        up.delete(first).await;
        up.wait_until_gone(first).await;
        up.active_server(&cloud, "in its place", "vgpu").await;
        cloud.teardown(&up, "full").await;
    }
}

#[tokio::test]
async fn an_admin_requests_a_host() {
    for (cloud, up) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU]), ("c", &[])])).await
    {
        let mut boot_request = up.boot_request(&cloud, "one", "vgpu");
        boot_request["server"]["host"] = json!("b");
        let answer =
            up.call(crate::kit::ANN, "2.90", "POST /servers", Some(boot_request.clone())).await;
        answer.expect(403);
        for (key, value, host) in [
            ("host", "b", "b"),
            ("hypervisor_hostname", "a", "a"),
            ("availability_zone", "nova:b", "b"),
        ] {
            let mut boot_request = up.boot_request(&cloud, "one", "vgpu");
            boot_request["server"][key] = json!(value);
            let made = up.admin("2.90", "POST /servers", boot_request).await.expect(202);
            let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
            assert_eq!(
                up.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"],
                host,
                "{key}"
            );
        }
        boot_request["server"]["host"] = json!("c");
        let made = up.admin("2.90", "POST /servers", boot_request).await.expect(202);
        let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
        assert!(
            fault(&up.wait_for_status(&id, "ERROR").await).starts_with("No valid host was found.")
        );
        for named in [
            json!({"host": "x"}),
            json!({"hypervisor_hostname": "x"}),
            json!({"host": "x", "hypervisor_hostname": "a"}),
            json!({"host": "x", "hypervisor_hostname": "x"}),
        ] {
            let mut boot_request = up.boot_request(&cloud, "two", "vgpu");
            for (key, value) in named.as_object().expect("the value is an object") {
                boot_request["server"][key] = value.clone();
            }
            let refused = up.admin("2.90", "POST /servers", boot_request).await;
            refused.refused(400, "Compute host x could not be found.");
        }
        let mut boot_request = up.boot_request(&cloud, "two", "vgpu");
        boot_request["server"]["host"] = json!("a");
        boot_request["server"]["hypervisor_hostname"] = json!("b");
        let refused = up.admin("2.90", "POST /servers", boot_request).await;
        refused.refused(400, "Compute host a could not be found.");
        cloud.assert_consistent(&up, "named hosts").await;
        cloud.teardown(&up, "named hosts").await;
    }
}

#[tokio::test]
async fn availability_zones_are_respected() {
    for (cloud, up) in Cloud::all_running(hosts(&[("a", &[]), ("gpu", &[GPU])])).await {
        let in_nova = json!({"availability_zone": "nova"});
        let id = up.boot_with(&cloud, "in", "plain", in_nova).await;
        up.wait_for_status(&id, "ACTIVE").await;
        let mut boot_request = up.boot_request(&cloud, "out", "plain");
        boot_request["server"]["availability_zone"] = json!("moon");
        let refused = up.admin("2.90", "POST /servers", boot_request).await.expect(400);
        let why = "The requested availability zone is not available";
        assert_eq!(refused["badRequest"]["message"], why);
        // Two zones, and a server that fits into one of them only.
        let body = json!({"aggregate": {"name": "east", "availability_zone": "east"}});
        let made = up.admin("2.90", "POST /os-aggregates", body).await.expect(200);
        let aggregate = &made["aggregate"]["id"];
        let path = format!("POST /os-aggregates/{aggregate}/action");
        up.admin("2.90", &path, json!({"add_host": {"host": "gpu"}})).await.expect(200);
        let in_nova = json!({"availability_zone": "nova"});
        let id = up.boot_with(&cloud, "far", "vgpu", in_nova).await;
        let server = up.wait_for_status(&id, "ERROR").await;
        assert!(
            fault(&server).contains(" hosts has room. It is not in availability zone nova. "),
            "{server}"
        );
        up.admin("2.90", &path, json!({"remove_host": {"host": "gpu"}})).await.expect(200);
        cloud.assert_consistent(&up, "zones").await;
        cloud.teardown(&up, "zones").await;
    }
}

#[tokio::test]
async fn a_disabled_or_dead_host_gets_no_server() {
    for (cloud, up) in Cloud::all_running(hosts(&[("a", &[FPGA])])).await {
        let body = |word: &str| format!("PUT /os-services/{word}");
        let host = json!({"host": "a", "binary": "nova-compute"});
        up.admin("2.11", &body("disable"), host.clone()).await.expect(200);
        let id = up.boot(&cloud, "disabled", "fpga").await;
        assert!(
            fault(&up.wait_for_status(&id, "ERROR").await).starts_with("No valid host was found.")
        );
        up.admin("2.11", &body("enable"), host).await.expect(200);
        up.force_down("a", true).await;
        let id = up.boot(&cloud, "dead", "fpga").await;
        assert!(
            fault(&up.wait_for_status(&id, "ERROR").await).starts_with("No valid host was found.")
        );
        up.force_down("a", false).await;
        up.active_server(&cloud, "there again", "fpga").await;
        cloud.assert_consistent(&up, "services").await;
        cloud.teardown(&up, "services").await;
    }
}
