//! Upstream's `VGPUReshapeTests`: VGPU inventory on the root provider, as upstream had it before
//! nested providers, moves to the GPUs' providers together with its allocations.

use kilonova_ids::ConsumerId;
use serde_json::{Value, json};

use super::gpus::{FIRST, NVIDIA_11, SECOND, assert_device_on, gpu, hosts_at, restart_with};
use super::inspect::{assert_holds, inventory, placement, provider, tree, used};
use crate::kit::{Cloud, RunningCloud, fault};

const THIRD: &str = "0000:81:02.0";

/// Sets an inventory of three vGPUs on the root provider by hand.
async fn add_root_inventory(running: &RunningCloud, root: &str) {
    let path = format!("/resource_providers/{root}/inventories");
    let mut all = placement(running, &format!("GET {path}"), None).await.expect(200);
    all["inventories"]["VGPU"] = json!({"total": 3, "max_unit": 3});
    placement(running, &format!("PUT {path}"), Some(all)).await.expect(200);
}

/// A consumer of an upstream Nova with one of these vGPUs.
async fn external_server(running: &RunningCloud, root: &str) -> String {
    let id = ConsumerId::new_v4().to_string();
    let resources = json!({"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1, "VGPU": 1});
    let body = json!({
        "allocations": {root: {"resources": resources}},
        "project_id": "red", "user_id": "ann", "consumer_generation": null,
    });
    placement(running, &format!("PUT /allocations/{id}"), Some(body)).await.expect(204);
    id
}

async fn allocations(running: &RunningCloud, id: &str) -> Value {
    placement(running, &format!("GET /allocations/{id}"), None).await.expect(200)["allocations"]
        .take()
}

#[tokio::test]
async fn create_servers_with_vgpu() {
    let addresses = [FIRST, SECOND, THIRD];
    for (mut cloud, mut running) in
        Cloud::all_running(hosts_at(&addresses, &[("compute1", "scarce", "")])).await
    {
        assert_eq!(tree(&running, "compute1").await.len(), 1, "no type is enabled");
        let root = provider(&running, "compute1").await.expect("the host has a provider");
        add_root_inventory(&running, &root).await;
        let old = [external_server(&running, &root).await, external_server(&running, &root).await];
        assert_eq!(used(&running, "compute1", "VGPU").await, 2);
        // Inventory without a device is never claimed for Kilonova's own servers.
        let id = running.boot(&cloud, "too early", "vgpu").await;
        let server = running.wait_for_status(&id, "ERROR").await;
        assert!(fault(&server).contains("the host's own provider has none"), "{server}");
        cloud.assert_consistent(&running, "before").await;

        let enabled = hosts_at(&addresses, &[("compute1", "scarce", NVIDIA_11)]);
        restart_with(&mut cloud, &mut running, enabled).await;
        assert_eq!(inventory(&running, "compute1", "VGPU").await, Value::Null);
        let mut places = Vec::new();
        for id in &old {
            let mut held = allocations(&running, id).await;
            let held = held.as_object_mut().expect("the value is an object");
            let plain = json!({"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1});
            assert_eq!(
                held.remove(&root).expect("the root provider has an allocation")["resources"],
                plain
            );
            assert_eq!(held.len(), 1, "{held:?}");
            for (provider, part) in held {
                assert_eq!(part["resources"], json!({"VGPU": 1}));
                places.push(provider.clone());
            }
        }
        assert_ne!(places[0], places[1], "a GPU with one vGPU is not allocated twice");
        cloud.assert_consistent(&running, "after").await;

        let mut free = Vec::new();
        for address in addresses {
            assert_eq!(inventory(&running, &gpu("compute1", address), "VGPU").await["total"], 1);
            if used(&running, &gpu("compute1", address), "VGPU").await == 0 {
                free.push(address);
            }
        }
        assert_eq!(free.len(), 1);
        let id = running.active_server(&cloud, "third", "vgpu").await;
        assert_holds(&cloud, &running, &id, &[("VGPU", 1)]).await;
        assert_device_on(&cloud, &running, &id, "compute1", free[0], "VGPU").await;
        cloud.assert_consistent(&running, "all in use").await;
        for id in &old {
            placement(&running, &format!("DELETE /allocations/{id}"), None).await.expect(204);
        }
        cloud.teardown(&running, "all deleted").await;
    }
}
