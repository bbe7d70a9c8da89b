//! Hosts of an external Nova: it owns their root providers, and a released device is claimed again
//! only after its host has acknowledged.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use kilonova_compute_app::Options;
use kilonova_compute_app::attention::{self, Bounds};
use kilonova_store::params;
use kilonova_wire::noauth::NoAuth;
use serde_json::{Value, json};

use crate::common::Client;
use crate::kit::{Cloud, FPGA, GPU, RunningCloud, hosts, wait_until};
use crate::servers::host_selection::placement;

const ARQS: &str = "/v2/accelerator_requests";
const DIRTY: &str = "SELECT uuid FROM attach_handles WHERE state = 'dirty'";

/// A call of the accelerator API as Nova makes it, for an administrator.
async fn call_cyborg(
    running: &RunningCloud,
    method: &str,
    path: &str,
    body: Value,
) -> (u16, Value) {
    let compute = &running.compute;
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
        .expect("the request is valid");
    let answer = Client { router }.send(request).await;
    (answer.status.as_u16(), answer.body)
}

/// Creates an ARQ and binds it to the device on host `a`; returns the status and the instance.
async fn create_and_bind_arq(running: &RunningCloud) -> (u16, String) {
    let found =
        placement(running, "GET", "/resource_providers?resources=FPGA:1", Value::Null).await;
    let provider = found["resource_providers"][0]["uuid"].clone();
    let (_, made) =
        call_cyborg(running, "POST", ARQS, json!({"device_profile_name": "fpga"})).await;
    let arq = made["arqs"][0]["uuid"].as_str().expect("the answer has an ARQ").to_owned();
    let instance = uuid::Uuid::new_v4().to_string();
    let step = |path: &str, value: Value| json!({"path": path, "op": "add", "value": value});
    let steps = json!([
        step("/hostname", json!("a")),
        step("/device_rp_uuid", provider),
        step("/instance_uuid", json!(instance)),
    ]);
    (call_cyborg(running, "PATCH", ARQS, json!({ arq: steps })).await.0, instance)
}

async fn delete_arqs(running: &RunningCloud, instance: &str) {
    let path = format!("{ARQS}?instance={instance}");
    assert_eq!(call_cyborg(running, "DELETE", &path, Value::Null).await.0, 204);
}

async fn wait_until_clean(cloud: &Cloud) {
    wait_until("no handle is dirty", async || cloud.column(DIRTY).await.is_empty()).await;
}

#[tokio::test]
async fn a_device_of_a_dead_host_waits_for_the_host() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[FPGA])])).await {
        let (bound, instance) = create_and_bind_arq(&running).await;
        assert_eq!(bound, 202);
        delete_arqs(&running, &instance).await;
        // A live agent acknowledges immediately, before its long poll ends.
        let begun = tokio::time::Instant::now();
        wait_until_clean(&cloud).await;
        assert!(begun.elapsed() < Duration::from_secs(10));
        cloud.assert_empty(&running, "the host has acknowledged").await;
        let (bound, instance) = create_and_bind_arq(&running).await;
        assert_eq!(bound, 202);
        running.nodes.kill("a").await;
        delete_arqs(&running, &instance).await;
        let other = create_and_bind_arq(&running).await;
        assert_eq!(other.0, 202, "another device of the host");
        delete_arqs(&running, &other.1).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let left = cloud.column(DIRTY).await;
        assert_eq!(left.len(), 2, "{left:?}");
        cloud.audit("the host is dead").await;
        assert_eq!(
            waiting_notices(&cloud).await,
            Vec::<String>::new(),
            "the host has a minute to answer"
        );
        execute(&cloud, "UPDATE attach_handles SET updated_at = updated_at - 61000000").await;
        let notices_shown = waiting_notices(&cloud).await;
        assert_eq!(notices_shown.len(), 1, "{notices_shown:?}");
        assert!(
            notices_shown[0].contains("of host a (")
                && notices_shown[0].starts_with("2 of device "),
            "{notices_shown:?}"
        );
        running.start_node(&cloud, "a").await;
        wait_until_clean(&cloud).await;
        cloud.assert_empty(&running, "the host is back").await;
    }
}

async fn execute(cloud: &Cloud, sql: &'static str) {
    let done = cloud.store.write(move |tx| tx.execute(sql, params![]));
    done.await.unwrap_or_else(|error: kilonova_store::Error| panic!("{error}"));
}

/// The findings of `doctor` about devices that wait for their host.
async fn waiting_notices(cloud: &Cloud) -> Vec<String> {
    let findings =
        attention::collect(&cloud.store, &Bounds::default()).await.expect("the findings are read");
    let waiting =
        findings.into_iter().filter(|finding| finding.what.contains("have been waiting since"));
    waiting.map(|finding| finding.what).collect()
}

/// The broken rules with the rows that break them.
async fn broken_rules(cloud: &Cloud) -> Vec<String> {
    let findings = kilonova_compute_db::audit::run(&cloud.store).await.expect("the audit runs");
    let broken_rules = findings.into_iter().filter(|finding| !finding.rows.is_empty());
    broken_rules
        .map(|finding| {
            let remedy = finding.remedy.expect("the finding has a remedy");
            assert!(remedy.contains("[nova]"), "{remedy}");
            format!("{}: {}", finding.rule, finding.rows.join(", "))
        })
        .collect()
}

#[tokio::test]
async fn the_audit_names_arqs_without_an_allocation() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[FPGA])])).await {
        let (bound, instance) = create_and_bind_arq(&running).await;
        assert_eq!(bound, 202);
        assert_eq!(broken_rules(&cloud).await, Vec::<String>::new(), "bound a moment ago");
        execute(&cloud, "UPDATE arqs SET updated_at = updated_at - 660000000").await;
        let one = broken_rules(&cloud).await;
        assert_eq!(one.len(), 1, "{one:?}");
        assert!(one[0].contains("has an allocation") && one[0].contains(&instance), "{one:?}");
        let found =
            placement(&running, "GET", "/resource_providers?resources=FPGA:1", Value::Null).await;
        let provider =
            found["resource_providers"][0]["uuid"].as_str().expect("the provider exists");
        let mut parts = serde_json::Map::new();
        parts.insert(provider.to_owned(), json!({"resources": {"FPGA": 16}}));
        let other_consumer = uuid::Uuid::new_v4();
        let body = json!({
            "allocations": parts, "project_id": "p1", "user_id": "u1", "consumer_generation": null,
            "consumer_type": "INSTANCE",
        });
        placement(&running, "PUT", &format!("/allocations/{other_consumer}"), body).await;
        let both = broken_rules(&cloud).await;
        assert_eq!(both.len(), 2, "{both:?}");
        assert!(both[1].contains("leave room") && both[1].contains(provider), "{both:?}");
        delete_arqs(&running, &instance).await;
        assert_eq!(broken_rules(&cloud).await, Vec::<String>::new());
    }
}

/// The root provider of host `a` as Placement shows it, including its generation.
async fn root_provider(running: &RunningCloud) -> Value {
    let found = placement(running, "GET", "/resource_providers?name=a", Value::Null).await;
    let root_provider = found["resource_providers"][0].clone();
    let Some(id) = root_provider["uuid"].as_str() else { return Value::Null };
    let path = format!("/resource_providers/{id}");
    let inventories = placement(running, "GET", &format!("{path}/inventories"), Value::Null).await;
    let traits = placement(running, "GET", &format!("{path}/traits"), Value::Null).await;
    json!([root_provider["generation"], inventories["inventories"], traits["traits"]])
}

#[tokio::test]
async fn the_root_provider_belongs_to_nova() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
        cloud.options = Options { nova_elsewhere: true, ..Options::default() };
        let mut running = cloud.start().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(root_provider(&running).await, Value::Null, "the agent waits for nova-compute");
        let id = uuid::Uuid::new_v4().to_string();
        let body = json!({"name": "a", "uuid": id});
        placement(&running, "POST", "/resource_providers", body).await;
        let inventories = json!({"VCPU": {"total": 3}, "CUSTOM_OWN": {"total": 7}});
        let body = json!({"resource_provider_generation": 0, "inventories": inventories});
        placement(&running, "PUT", "/resource_classes/CUSTOM_OWN", Value::Null).await;
        placement(&running, "PUT", &format!("/resource_providers/{id}/inventories"), body).await;
        let body = json!({"resource_provider_generation": 1, "traits": ["HW_CPU_X86_AVX2"]});
        placement(&running, "PUT", &format!("/resource_providers/{id}/traits"), body).await;
        let novas = root_provider(&running).await;
        running.wait_for_hosts().await;
        let path = format!("/resource_providers?in_tree={id}");
        let tree = placement(&running, "GET", &path, Value::Null).await;
        let names: Vec<&str> = tree["resource_providers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["name"].as_str())
            .collect();
        assert_eq!(names.len(), 3, "{names:?}");
        assert_eq!(
            root_provider(&running).await,
            novas,
            "the registration does not change the root"
        );
        running.restart_nodes(&cloud, async |_| ()).await;
        running.wait_for_hosts().await;
        assert_eq!(root_provider(&running).await, novas, "nor does the next registration");
        cloud.audit("with devices below").await;
    }
}
