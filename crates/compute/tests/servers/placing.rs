//! Where a server may go, and the refusals when it may go nowhere.

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
        .expect("a request");
    let answer = up.placement().send(request).await;
    assert!(answer.status.is_success(), "{method} {path}: {}", answer.body);
    answer.body
}

/// Marks a pGPU with a trait, as the upstream guide does it.
async fn mark(up: &Up, provider: &str, name: &str) {
    placement(up, "PUT", &format!("/traits/{name}"), Value::Null).await;
    let path = format!("/resource_providers?name={provider}");
    let found = placement(up, "GET", &path, Value::Null).await;
    let id = found["resource_providers"][0]["uuid"].as_str().expect("a provider").to_owned();
    let path = format!("/resource_providers/{id}/traits");
    let mut traits = placement(up, "GET", &path, Value::Null).await;
    traits["traits"].as_array_mut().expect("traits").push(json!(name));
    placement(up, "PUT", &path, traits).await;
}

async fn flavor_with(up: &Up, id: &str, specs: Value) {
    up.flavor(id, json!({})).await;
    let path = format!("/flavors/{id}/os-extra_specs");
    up.admin("2.61", &format!("POST {path}"), json!({"extra_specs": specs})).await.expect(200);
}

/// The provider whose vGPU a server holds.
async fn gpu_of(cloud: &Cloud) -> Vec<String> {
    let sql = "SELECT p.name FROM allocations a JOIN resource_providers p ON p.id = a.provider_id
        WHERE a.class = 'VGPU' ORDER BY p.name";
    cloud.column(sql).await
}

#[tokio::test]
async fn traits_choose_the_gpu() {
    for (cloud, up) in Cloud::all_up(hosts(&[("gpu1", &[GPU])])).await {
        let marked = "gpu1_pci_0000_85_00_0";
        mark(&up, marked, "CUSTOM_NVIDIA_11").await;
        let want = |how: &str| json!({"resources:VGPU": "1", "trait:CUSTOM_NVIDIA_11": how});
        flavor_with(&up, "with", want("required")).await;
        flavor_with(&up, "without", want("forbidden")).await;
        for (flavor, gpu) in [("with", marked), ("without", "gpu1_pci_0000_84_00_0")] {
            for n in 0..GPUS / 2 {
                up.active(&cloud, &format!("{flavor}{n}"), flavor).await;
            }
            assert_eq!(gpu_of(&cloud).await, vec![gpu; 4]);
            let more = up.boot(&cloud, "more", flavor).await;
            assert!(
                fault(&up.becomes(&more, "ERROR").await).starts_with("No valid host was found.")
            );
            cloud.sound(&up, flavor).await;
            cloud.sweep(&up, flavor).await;
        }
    }
}

#[tokio::test]
async fn a_full_cloud_says_so_and_holds_nothing_for_the_refused() {
    for (cloud, up) in Cloud::all_up(hosts(&[("gpu1", &[GPU]), ("plain1", &[])])).await {
        for n in 0..GPUS {
            up.active(&cloud, &format!("n{n}"), "vgpu").await;
        }
        let id = up.boot(&cloud, "one too many", "vgpu").await;
        let server = up.becomes(&id, "ERROR").await;
        assert!(fault(&server).starts_with("No valid host was found."), "{server}");
        assert_eq!(server["fault"]["code"], 500);
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], Value::Null);
        assert_eq!(cloud.used("VGPU").await, GPUS);
        assert_eq!(cloud.used("VCPU").await, GPUS);
        cloud.sound(&up, "full").await;
        let first = up.servers().await.pop().expect("a server");
        let first = first["id"].as_str().expect("an id");
        up.delete(first).await;
        up.goes(first).await;
        up.active(&cloud, "in its place", "vgpu").await;
        cloud.sweep(&up, "full").await;
    }
}

#[tokio::test]
async fn an_admin_names_the_host() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU]), ("b", &[GPU]), ("c", &[])])).await {
        let mut wish = up.wish(&cloud, "one", "vgpu");
        wish["server"]["host"] = json!("b");
        let answer = up.call(crate::kit::ANN, "2.90", "POST /servers", Some(wish.clone())).await;
        answer.expect(403);
        for (key, value, host) in [
            ("host", "b", "b"),
            ("hypervisor_hostname", "a", "a"),
            ("availability_zone", "nova:b", "b"),
        ] {
            let mut wish = up.wish(&cloud, "one", "vgpu");
            wish["server"][key] = json!(value);
            let made = up.admin("2.90", "POST /servers", wish).await.expect(202);
            let id = made["server"]["id"].as_str().expect("an id").to_owned();
            assert_eq!(up.becomes(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], host, "{key}");
        }
        wish["server"]["host"] = json!("c");
        let made = up.admin("2.90", "POST /servers", wish).await.expect(202);
        let id = made["server"]["id"].as_str().expect("an id").to_owned();
        assert!(fault(&up.becomes(&id, "ERROR").await).starts_with("No valid host was found."));
        for named in [
            json!({"host": "x"}),
            json!({"hypervisor_hostname": "x"}),
            json!({"host": "x", "hypervisor_hostname": "a"}),
            json!({"host": "x", "hypervisor_hostname": "x"}),
        ] {
            let mut wish = up.wish(&cloud, "two", "vgpu");
            for (key, value) in named.as_object().expect("an object") {
                wish["server"][key] = value.clone();
            }
            let refused = up.admin("2.90", "POST /servers", wish).await;
            refused.refused(400, "Compute host x could not be found.");
        }
        let mut wish = up.wish(&cloud, "two", "vgpu");
        wish["server"]["host"] = json!("a");
        wish["server"]["hypervisor_hostname"] = json!("b");
        let refused = up.admin("2.90", "POST /servers", wish).await;
        refused.refused(400, "Compute host a could not be found.");
        cloud.sound(&up, "named hosts").await;
        cloud.sweep(&up, "named hosts").await;
    }
}

#[tokio::test]
async fn zones_are_kept_to() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[]), ("gpu", &[GPU])])).await {
        let in_nova = json!({"availability_zone": "nova"});
        let id = up.boot_with(&cloud, "in", "plain", in_nova).await;
        up.becomes(&id, "ACTIVE").await;
        let mut wish = up.wish(&cloud, "out", "plain");
        wish["server"]["availability_zone"] = json!("moon");
        let refused = up.admin("2.90", "POST /servers", wish).await.expect(400);
        let why = "The requested availability zone is not available";
        assert_eq!(refused["badRequest"]["message"], why);
        // Hosts in two zones, and a server that fits in the other one only.
        let body = json!({"aggregate": {"name": "east", "availability_zone": "east"}});
        let made = up.admin("2.90", "POST /os-aggregates", body).await.expect(200);
        let aggregate = &made["aggregate"]["id"];
        let path = format!("POST /os-aggregates/{aggregate}/action");
        up.admin("2.90", &path, json!({"add_host": {"host": "gpu"}})).await.expect(200);
        let in_nova = json!({"availability_zone": "nova"});
        let id = up.boot_with(&cloud, "far", "vgpu", in_nova).await;
        let server = up.becomes(&id, "ERROR").await;
        assert!(
            fault(&server).contains(" hosts has room. It is not in availability zone nova. "),
            "{server}"
        );
        up.admin("2.90", &path, json!({"remove_host": {"host": "gpu"}})).await.expect(200);
        cloud.sound(&up, "zones").await;
        cloud.sweep(&up, "zones").await;
    }
}

#[tokio::test]
async fn a_disabled_or_dead_host_gets_no_server() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[FPGA])])).await {
        let body = |word: &str| format!("PUT /os-services/{word}");
        let host = json!({"host": "a", "binary": "nova-compute"});
        up.admin("2.11", &body("disable"), host.clone()).await.expect(200);
        let id = up.boot(&cloud, "disabled", "fpga").await;
        assert!(fault(&up.becomes(&id, "ERROR").await).starts_with("No valid host was found."));
        up.admin("2.11", &body("enable"), host).await.expect(200);
        up.force_down("a", true).await;
        let id = up.boot(&cloud, "dead", "fpga").await;
        assert!(fault(&up.becomes(&id, "ERROR").await).starts_with("No valid host was found."));
        up.force_down("a", false).await;
        up.active(&cloud, "there again", "fpga").await;
        cloud.sound(&up, "services").await;
        cloud.sweep(&up, "services").await;
    }
}
