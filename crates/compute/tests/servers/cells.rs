//! NUMA cells of hosts: the agents' reports become inventory, and are stored for the scheduler.

use kilonova_compute_db::cells;
use kilonova_ids::HostName;
use kilonova_node_api::NumaCell;
use serde_json::{Value, json};

use super::host_selection::placement;
use crate::kit::{Cloud, RunningCloud, hosts, wait_until};

const TWO: &str = "numa = [\
    { shared = \"0-7\", dedicated = \"8-31\", threads = 2, socket = 0, memory_mb = 32768 }, \
    { dedicated = \"32-63\", socket = 1, memory_mb = 32768, pages = { 1048576 = 4 } }]";

/// The inventories of a host as (total, reserved, ratio), and its traits.
async fn root(running: &RunningCloud, host: &str) -> (Value, Value) {
    let path = format!("/resource_providers?name={host}");
    let found = placement(running, "GET", &path, Value::Null).await;
    let id = found["resource_providers"][0]["uuid"].as_str().expect("the provider exists");
    let path = format!("/resource_providers/{id}");
    let mut inventories =
        placement(running, "GET", &format!("{path}/inventories"), Value::Null).await;
    let traits = placement(running, "GET", &format!("{path}/traits"), Value::Null).await;
    let mut found = json!({});
    for class in ["VCPU", "PCPU"] {
        let one = inventories["inventories"][class].take();
        if !one.is_null() {
            found[class] = json!([one["total"], one["reserved"], one["allocation_ratio"]]);
        }
    }
    (found, traits["traits"].clone())
}

async fn stored(cloud: &Cloud, host: &str) -> Option<Vec<NumaCell>> {
    let host = HostName::verbatim(host);
    let read = cloud.store.read(move |tx| cells::of_host(tx, &host)).await;
    let text = read.expect("the data can be read").text;
    text.map(|text| serde_json::from_str(&text).expect("the cells are JSON"))
}

fn has(traits: &Value, name: &str) -> bool {
    traits.as_array().is_some_and(|traits| traits.contains(&json!(name)))
}

#[tokio::test]
async fn dedicated_cpus_are_pcpus_and_the_others_vcpus() {
    let all = "numa = [{ dedicated = \"0-63\", memory_mb = 65536 }]";
    let as_whole = "numa_in_placement = false";
    let topology = hosts(&[("a", &[TWO, as_whole]), ("b", &[]), ("c", &[all])]);
    for (cloud, mut running) in Cloud::all_running(topology).await {
        let (inventories, traits) = root(&running, "a").await;
        assert_eq!(inventories, json!({"VCPU": [8, 0, 4.0], "PCPU": [56, 0, 1.0]}));
        assert!(has(&traits, "HW_CPU_HYPERTHREADING"), "{traits}");
        let kept = stored(&cloud, "a").await.expect("the cells are stored");
        let topology = cells::topology(&kept).expect("the cells are consistent");
        assert_eq!(topology.cells.len(), 2);
        assert_eq!(topology.cells[0].siblings.len(), 16);
        assert_eq!(topology.cells[1].pages[1].total, 4);

        let (inventories, traits) = root(&running, "b").await;
        assert_eq!(inventories, json!({"VCPU": [64, 0, 4.0]}), "it reports no cells");
        assert!(!has(&traits, "HW_CPU_HYPERTHREADING"), "{traits}");
        assert_eq!(stored(&cloud, "b").await, None);
        let (inventories, _) = root(&running, "c").await;
        assert_eq!(inventories, json!({"PCPU": [64, 0, 1.0]}), "there are no shared CPUs");

        // A registration replaces stored cells that cannot be read.
        running.nodes.kill("a").await;
        cloud.execute("UPDATE hosts SET cells = '[{]' WHERE host = 'a'").await;
        running.start_node(&cloud, "a").await;
        let readable = "SELECT host FROM hosts WHERE host = 'a' AND cells <> '[{]'";
        wait_until("the cells are replaced", async || !cloud.column(readable).await.is_empty())
            .await;
        assert_eq!(stored(&cloud, "a").await.as_ref(), Some(&kept));

        // An agent of an earlier build takes over.
        running.nodes.kill("a").await;
        let earlier = hosts(&[("a", &[])]);
        let mut cloud = cloud;
        let known = cloud.topology.hosts.iter_mut().find(|host| host.name.as_str() == "a");
        *known.expect("the host is known") = earlier.hosts[0].clone();
        running.start_node(&cloud, "a").await;
        wait_until("the cells are gone", async || stored(&cloud, "a").await.is_none()).await;
        let (inventories, _) = root(&running, "a").await;
        assert_eq!(inventories, json!({"VCPU": [64, 0, 4.0]}));
        cloud.assert_consistent(&running, "cells").await;
    }
}

#[tokio::test]
async fn guests_without_dedicated_cpus_get_shared_ones_alone() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[TWO])])).await {
        let flavor = json!({"id": "wide", "name": "wide", "ram": 64, "vcpus": 9, "disk": 1});
        running.admin("2.1", "POST /flavors", json!({"flavor": flavor})).await.expect(200);
        // 8 CPUs at a ratio of 4, and max_unit 8.
        let id = running.boot_with(&cloud, "one", "wide", json!({})).await;
        let fault = running.wait_for_status(&id, "ERROR").await["fault"].clone();
        assert!(fault["message"].as_str().is_some_and(|m| m.contains("No valid host")), "{fault}");
        running.active_server(&cloud, "two", "plain").await;
        cloud.assert_consistent(&running, "shared CPUs").await;
    }
}
