//! Hosts of a Nova elsewhere: its providers are its own, and the devices below them are given to nobody
//! before the host has spoken.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use kilonova_compute::Options;
use kilonova_compute::attention::{self, Bounds};
use kilonova_store::params;
use kilonova_wire::noauth::NoAuth;
use serde_json::{Value, json};

use crate::common::Client;
use crate::kit::{Cloud, FPGA, GPU, Up, hosts, patiently};
use crate::servers::placing::placement;

const ARQS: &str = "/v2/accelerator_requests";
const DIRTY: &str = "SELECT uuid FROM attach_handles WHERE state = 'dirty'";

/// A call of the accelerator API as Nova makes it, for an administrator.
async fn accelerator(up: &Up, method: &str, path: &str, body: Value) -> (u16, Value) {
    let compute = &up.compute;
    let state = kilonova_accelerator::State::new(compute.store.clone(), compute.world.clone())
        .with_nodes(Arc::new(compute.clone()));
    let router = kilonova_wire::mount(
        kilonova_accelerator::routes(state),
        kilonova_accelerator::service(),
        "/accelerator",
        Arc::new(NoAuth),
    );
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "cloud:1234")
        .header("x-user-id", "nova")
        .header("x-project-id", "p1")
        .header("x-roles", "admin")
        .header("x-service-roles", "service")
        .body(if body.is_null() { Body::empty() } else { Body::from(body.to_string()) })
        .expect("a request");
    let answer = Client { router }.send(request).await;
    (answer.status.as_u16(), answer.body)
}

/// Makes a request and binds it to the device on host `a`; returns the answer and the instance.
async fn bind(up: &Up) -> (u16, String) {
    let found = placement(up, "GET", "/resource_providers?resources=FPGA:1", Value::Null).await;
    let provider = found["resource_providers"][0]["uuid"].clone();
    let (_, made) = accelerator(up, "POST", ARQS, json!({"device_profile_name": "fpga"})).await;
    let arq = made["arqs"][0]["uuid"].as_str().expect("a request").to_owned();
    let instance = uuid::Uuid::new_v4().to_string();
    let step = |path: &str, value: Value| json!({"path": path, "op": "add", "value": value});
    let steps = json!([
        step("/hostname", json!("a")),
        step("/device_rp_uuid", provider),
        step("/instance_uuid", json!(instance)),
    ]);
    (accelerator(up, "PATCH", ARQS, json!({ arq: steps })).await.0, instance)
}

async fn give_up(up: &Up, instance: &str) {
    let path = format!("{ARQS}?instance={instance}");
    assert_eq!(accelerator(up, "DELETE", &path, Value::Null).await.0, 204);
}

async fn nothing_is_dirty(cloud: &Cloud) {
    patiently("the host's word", async || cloud.column(DIRTY).await.is_empty()).await;
}

#[tokio::test]
async fn a_device_of_a_dead_host_waits_for_the_host() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[FPGA])])).await {
        let (bound, instance) = bind(&up).await;
        assert_eq!(bound, 202);
        give_up(&up, &instance).await;
        // An agent that lives speaks at once, and not when its next long poll ends.
        let begun = tokio::time::Instant::now();
        nothing_is_dirty(&cloud).await;
        assert!(begun.elapsed() < Duration::from_secs(10));
        cloud.empty(&up, "the host has spoken").await;
        let (bound, instance) = bind(&up).await;
        assert_eq!(bound, 202);
        up.nodes.kill("a").await;
        give_up(&up, &instance).await;
        let other = bind(&up).await;
        assert_eq!(other.0, 202, "another device of the host");
        give_up(&up, &other.1).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let left = cloud.column(DIRTY).await;
        assert_eq!(left.len(), 2, "{left:?}");
        cloud.audit("the host is dead").await;
        assert_eq!(waiting(&cloud).await, Vec::<String>::new(), "the host has a minute to answer");
        execute(&cloud, "UPDATE attach_handles SET updated_at = updated_at - 61000000").await;
        let told = waiting(&cloud).await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("of host a (") && told[0].starts_with("2 of device "), "{told:?}");
        up.start_node(&cloud, "a").await;
        nothing_is_dirty(&cloud).await;
        cloud.empty(&up, "the host is back").await;
    }
}

async fn execute(cloud: &Cloud, sql: &'static str) {
    let done = cloud.store.write(move |tx| tx.execute(sql, params![]));
    done.await.unwrap_or_else(|error: kilonova_store::Error| panic!("{error}"));
}

/// What `doctor` says of devices that wait for their host.
async fn waiting(cloud: &Cloud) -> Vec<String> {
    let notices = attention::look(&cloud.store, &Bounds::default()).await.expect("looked");
    let of_word = notices.into_iter().filter(|notice| notice.what.contains("wait since"));
    of_word.map(|notice| notice.what).collect()
}

/// The late rules that are broken, with what breaks them.
async fn broken(cloud: &Cloud) -> Vec<String> {
    let findings = kilonova_compute::audit::run(&cloud.store).await.expect("the audit runs");
    let broken = findings.into_iter().filter(|finding| !finding.rows.is_empty());
    broken
        .map(|finding| {
            let remedy = finding.remedy.expect("what to do about it");
            assert!(remedy.contains("[nova]"), "{remedy}");
            format!("{}: {}", finding.rule, finding.rows.join(", "))
        })
        .collect()
}

#[tokio::test]
async fn the_audit_names_what_an_instance_never_gave_up() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[FPGA])])).await {
        let (bound, instance) = bind(&up).await;
        assert_eq!(bound, 202);
        assert_eq!(broken(&cloud).await, Vec::<String>::new(), "bound a moment ago");
        execute(&cloud, "UPDATE arqs SET updated_at = updated_at - 660000000").await;
        let one = broken(&cloud).await;
        assert_eq!(one.len(), 1, "{one:?}");
        assert!(one[0].contains("has an allocation") && one[0].contains(&instance), "{one:?}");
        let found =
            placement(&up, "GET", "/resource_providers?resources=FPGA:1", Value::Null).await;
        let provider = found["resource_providers"][0]["uuid"].as_str().expect("a provider");
        let mut parts = serde_json::Map::new();
        parts.insert(provider.to_owned(), json!({"resources": {"FPGA": 16}}));
        let others = uuid::Uuid::new_v4();
        let body = json!({
            "allocations": parts, "project_id": "p1", "user_id": "u1", "consumer_generation": null,
            "consumer_type": "INSTANCE",
        });
        placement(&up, "PUT", &format!("/allocations/{others}"), body).await;
        let both = broken(&cloud).await;
        assert_eq!(both.len(), 2, "{both:?}");
        assert!(both[1].contains("leaves room") && both[1].contains(provider), "{both:?}");
        give_up(&up, &instance).await;
        assert_eq!(broken(&cloud).await, Vec::<String>::new());
    }
}

/// What Placement shows of the provider of host `a`, its generation included.
async fn root(up: &Up) -> Value {
    let found = placement(up, "GET", "/resource_providers?name=a", Value::Null).await;
    let root = found["resource_providers"][0].clone();
    let Some(id) = root["uuid"].as_str() else { return Value::Null };
    let path = format!("/resource_providers/{id}");
    let inventories = placement(up, "GET", &format!("{path}/inventories"), Value::Null).await;
    let traits = placement(up, "GET", &format!("{path}/traits"), Value::Null).await;
    json!([root["generation"], inventories["inventories"], traits["traits"]])
}

#[tokio::test]
async fn the_root_of_a_host_is_novas_own() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
        cloud.options = Options { nova_elsewhere: true, ..Options::default() };
        let mut up = cloud.start().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(root(&up).await, Value::Null, "the agent waits for nova-compute");
        let id = uuid::Uuid::new_v4().to_string();
        let body = json!({"name": "a", "uuid": id});
        placement(&up, "POST", "/resource_providers", body).await;
        let inventories = json!({"VCPU": {"total": 3}, "CUSTOM_OWN": {"total": 7}});
        let body = json!({"resource_provider_generation": 0, "inventories": inventories});
        placement(&up, "PUT", "/resource_classes/CUSTOM_OWN", Value::Null).await;
        placement(&up, "PUT", &format!("/resource_providers/{id}/inventories"), body).await;
        let body = json!({"resource_provider_generation": 1, "traits": ["HW_CPU_X86_AVX2"]});
        placement(&up, "PUT", &format!("/resource_providers/{id}/traits"), body).await;
        let novas = root(&up).await;
        up.hosts_are_there().await;
        let path = format!("/resource_providers?in_tree={id}");
        let tree = placement(&up, "GET", &path, Value::Null).await;
        let names: Vec<&str> = tree["resource_providers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["name"].as_str())
            .collect();
        assert_eq!(names.len(), 3, "{names:?}");
        assert_eq!(root(&up).await, novas, "nothing of the root is touched");
        up.restart_nodes(&cloud, async |_| ()).await;
        up.hosts_are_there().await;
        assert_eq!(root(&up).await, novas, "nor by the next registration");
        cloud.audit("with devices below").await;
    }
}
