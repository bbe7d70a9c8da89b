//! Upstream's `VGPUMultipleTypesTests` and `VGPULimitMultipleTypesTests`: two GPUs offer different
//! vGPU types.

use serde_json::json;

use super::gpus::{
    FIRST, ONE_EACH, SECOND, TWO_AT_MOST, assert_device_on, assert_mdev_usage, flavor, gpu, hosts,
    restart_with,
};
use super::inspect::{assert_holds, devices, inventory, provider, tree, used};
use crate::kit::{Cloud, fault};

const VGPU: &[(&str, i64)] = &[("VGPU", 1)];

/// The second GPU is configured for a type that it does not have.
#[tokio::test]
async fn create_servers_with_vgpu() {
    for (cloud, running) in Cloud::all_running(hosts(&[("host1", "one", ONE_EACH)])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        assert_holds(&cloud, &running, &id, VGPU).await;
        assert_device_on(&cloud, &running, &id, "host1", FIRST, "VGPU").await;
        assert_eq!(tree(&running, "host1").await.len(), 2, "the host and its first GPU");
        assert_eq!(provider(&running, &gpu("host1", SECOND)).await, None);
        cloud.teardown(&running, "one type").await;
    }
}

/// The traits of the types are set by the host; upstream's operator sets them by hand.
#[tokio::test]
async fn create_servers_with_specific_type() {
    for (mut cloud, mut running) in Cloud::all_running(hosts(&[("host1", "one", ONE_EACH)])).await {
        restart_with(&mut cloud, &mut running, hosts(&[("host1", "both", ONE_EACH)])).await;
        for (address, total, number) in [(FIRST, 16, "11"), (SECOND, 8, "12")] {
            assert_eq!(inventory(&running, &gpu("host1", address), "VGPU").await["total"], total);
            let wanted = format!("trait:CUSTOM_NVIDIA_{number}");
            flavor(&running, number, 64, json!({"resources:VGPU": "1", wanted: "required"})).await;
            let id = running.active_server(&cloud, number, number).await;
            assert_holds(&cloud, &running, &id, VGPU).await;
            assert_device_on(&cloud, &running, &id, "host1", address, "VGPU").await;
            let seen = devices(&cloud, "host1", &id).remove(0);
            assert_eq!(seen.mdev_type, format!("nvidia-{number}"));
        }
        cloud.assert_consistent(&running, "two types").await;
        cloud.teardown(&running, "two types").await;
    }
}

/// `VGPULimitMultipleTypesTests.test_create_servers_with_vgpu`. Upstream drops a GPU that holds more
/// than `max_instances`; here it offers `max_instances`.
#[tokio::test]
async fn create_servers_with_vgpu_limited() {
    for (mut cloud, mut running) in Cloud::all_running(hosts(&[("host1", "both", ONE_EACH)])).await
    {
        for (address, total) in [(FIRST, 16), (SECOND, 8)] {
            assert_eq!(inventory(&running, &gpu("host1", address), "VGPU").await["total"], total);
        }
        restart_with(&mut cloud, &mut running, hosts(&[("host1", "both", TWO_AT_MOST)])).await;
        for (address, total) in [(FIRST, 2), (SECOND, 8)] {
            assert_eq!(inventory(&running, &gpu("host1", address), "VGPU").await["total"], total);
        }
        let wanted = json!({"resources:VGPU": "1", "trait:CUSTOM_NVIDIA_11": "required"});
        flavor(&running, "eleven", 64, wanted).await;
        for name in ["one", "two"] {
            let id = running.active_server(&cloud, name, "eleven").await;
            assert_holds(&cloud, &running, &id, VGPU).await;
        }
        let id = running.boot(&cloud, "three", "eleven").await;
        let server = running.wait_for_status(&id, "ERROR").await;
        assert!(fault(&server).starts_with("No valid host was found."), "{server}");
        let id = running.active_server(&cloud, "four", "vgpu").await;
        assert_device_on(&cloud, &running, &id, "host1", SECOND, "VGPU").await;
        assert_eq!(used(&running, &gpu("host1", FIRST), "VGPU").await, 2);
        assert_mdev_usage(&cloud, &running, "host1", "VGPU", 3).await;
        cloud.assert_consistent(&running, "limited").await;
        cloud.teardown(&running, "limited").await;
    }
}
