//! Upstream's `VGPUReshapeTests`: units of VGPU on the host's own provider, as upstream had them before
//! providers had children, become those of the GPUs, and what is held of them follows.

use kilonova_ids::ConsumerId;
use serde_json::{Value, json};

use super::eyes::{holds, inventory, placement, provider, tree, used};
use super::gpus::{FIRST, NVIDIA_11, SECOND, gpu, hosts_at, is_on, restart_as};
use crate::kit::{Cloud, Up, fault};

const THIRD: &str = "0000:81:02.0";

/// The host's own provider is given three vGPUs by hand.
async fn old_inventory(up: &Up, root: &str) {
    let path = format!("/resource_providers/{root}/inventories");
    let mut all = placement(up, &format!("GET {path}"), None).await.expect(200);
    all["inventories"]["VGPU"] = json!({"total": 3, "max_unit": 3});
    placement(up, &format!("PUT {path}"), Some(all)).await.expect(200);
}

/// A server of an upstream Nova, which has one of them.
async fn elsewhere(up: &Up, root: &str) -> String {
    let id = ConsumerId::new_v4().to_string();
    let resources = json!({"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1, "VGPU": 1});
    let body = json!({
        "allocations": {root: {"resources": resources}},
        "project_id": "red", "user_id": "ann", "consumer_generation": null,
    });
    placement(up, &format!("PUT /allocations/{id}"), Some(body)).await.expect(204);
    id
}

async fn allocations(up: &Up, id: &str) -> Value {
    placement(up, &format!("GET /allocations/{id}"), None).await.expect(200)["allocations"].take()
}

#[tokio::test]
async fn create_servers_with_vgpu() {
    let addresses = [FIRST, SECOND, THIRD];
    for (mut cloud, mut up) in
        Cloud::all_up(hosts_at(&addresses, &[("compute1", "scarce", "")])).await
    {
        assert_eq!(tree(&up, "compute1").await.len(), 1, "no type is enabled");
        let root = provider(&up, "compute1").await.expect("a host");
        old_inventory(&up, &root).await;
        let old = [elsewhere(&up, &root).await, elsewhere(&up, &root).await];
        assert_eq!(used(&up, "compute1", "VGPU").await, 2);
        // What is no device is not given to a server of ours, which would be without one.
        let id = up.boot(&cloud, "too early", "vgpu").await;
        let server = up.becomes(&id, "ERROR").await;
        assert!(fault(&server).contains("put on the host itself"), "{server}");
        cloud.sound(&up, "before").await;

        let enabled = hosts_at(&addresses, &[("compute1", "scarce", NVIDIA_11)]);
        restart_as(&mut cloud, &mut up, enabled).await;
        assert_eq!(inventory(&up, "compute1", "VGPU").await, Value::Null);
        let mut places = Vec::new();
        for id in &old {
            let mut held = allocations(&up, id).await;
            let held = held.as_object_mut().expect("an object");
            let plain = json!({"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1});
            assert_eq!(held.remove(&root).expect("the root's")["resources"], plain);
            assert_eq!(held.len(), 1, "{held:?}");
            for (provider, part) in held {
                assert_eq!(part["resources"], json!({"VGPU": 1}));
                places.push(provider.clone());
            }
        }
        assert_ne!(places[0], places[1], "a GPU of one vGPU is not given twice");
        cloud.sound(&up, "after").await;

        let mut free = Vec::new();
        for address in addresses {
            assert_eq!(inventory(&up, &gpu("compute1", address), "VGPU").await["total"], 1);
            if used(&up, &gpu("compute1", address), "VGPU").await == 0 {
                free.push(address);
            }
        }
        assert_eq!(free.len(), 1);
        let id = up.active(&cloud, "third", "vgpu").await;
        holds(&cloud, &up, &id, &[("VGPU", 1)]).await;
        is_on(&cloud, &up, &id, "compute1", free[0], "VGPU").await;
        cloud.sound(&up, "all in use").await;
        for id in &old {
            placement(&up, &format!("DELETE /allocations/{id}"), None).await.expect(204);
        }
        cloud.sweep(&up, "all gone").await;
    }
}
