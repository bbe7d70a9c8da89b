//! Providers of a host that a client of the Placement API has changed: the host repairs them without a restart.

use std::time::Duration;

use serde_json::{Value, json};

use super::host_selection::{placement, send};
use crate::kit::{Cloud, RunningCloud, hosts, wait_until};

async fn root(running: &RunningCloud) -> Option<String> {
    let found = placement(running, "GET", "/resource_providers?name=a", Value::Null).await;
    found["resource_providers"][0]["uuid"].as_str().map(str::to_owned)
}

/// The total of a class at a provider; 0 without an inventory or without the provider.
async fn total(running: &RunningCloud, provider: &str, class: &str) -> i64 {
    let path = format!("/resource_providers/{provider}/inventories/{class}");
    send(running, "GET", &path, Value::Null).await.body["total"].as_i64().unwrap_or_default()
}

async fn epoch(cloud: &Cloud) -> Vec<String> {
    cloud.column("SELECT CAST(epoch AS TEXT) FROM hosts").await
}

#[tokio::test]
async fn providers_that_a_client_changes_are_repaired_without_a_restart() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        running.nodes.kill("a").await;
        running.nodes.rescan = Some(Duration::from_millis(60));
        running.start_node(&cloud, "a").await;
        let root = root(&running).await.expect("the provider exists");
        let base = format!("/resource_providers/{root}");
        wait_until("the host has ended its start", async || {
            let known = epoch(&cloud).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            epoch(&cloud).await == known
        })
        .await;
        let sizes = [total(&running, &root, "VCPU").await, total(&running, &root, "DISK_GB").await];
        assert_eq!(sizes, [64, 1000]);

        let path = format!("{base}/inventories/VCPU");
        let mut own = placement(&running, "GET", &path, Value::Null).await;
        own["total"] = json!(1);
        own["max_unit"] = json!(1);
        placement(&running, "PUT", &path, own).await;
        wait_until("the inventory has its size again", async || {
            total(&running, &root, "VCPU").await == 64
        })
        .await;

        placement(&running, "DELETE", &format!("{base}/inventories/DISK_GB"), Value::Null).await;
        wait_until("the inventory is there again", async || {
            total(&running, &root, "DISK_GB").await == 1000
        })
        .await;

        placement(&running, "DELETE", &format!("{base}/traits"), Value::Null).await;
        wait_until("the traits are there again", async || {
            let path = format!("{base}/traits");
            let found = placement(&running, "GET", &path, Value::Null).await;
            found["traits"].as_array().is_some_and(|traits| traits.contains(&json!("COMPUTE_NODE")))
        })
        .await;

        placement(&running, "DELETE", &base, Value::Null).await;
        wait_until("the provider is there again", async || {
            total(&running, &root, "VCPU").await == 64
        })
        .await;
        cloud.assert_consistent(&running, "repaired").await;

        // Only a change is followed by a registration.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let known = epoch(&cloud).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(epoch(&cloud).await, known);
    }
}
