//! Upstream's `VGPULiveMigrationTests` and `VGPULiveMigrationTestsLMFailed`: live migrations of a
//! guest with a vGPU of one of two types.

use kilonova_compute_app::reconcile::{confirm, nudge, rest};
use serde_json::{Value, json};

use super::gpus::{
    FIRST, NVIDIA_11, NVIDIA_12, ONE_EACH, assert_device_on, assert_mdev_usage, flavor, gpu, hosts,
    restart_with,
};
use super::inspect::{assert_holds, devices};
use crate::kit::{ADMIN, Answer, Cloud, RunningCloud, wait_until};
use crate::servers::resize::admin;

const VGPU: &[(&str, i64)] = &[("VGPU", 1)];

/// Two hosts with both types, and a flavor for the first type.
async fn clouds(more: &str) -> Vec<(Cloud, RunningCloud)> {
    let source = format!("{ONE_EACH}{more}");
    let topology = hosts(&[("src", "both", &source), ("dest", "both", ONE_EACH)]);
    let clouds = Cloud::all_running(topology).await;
    for (_, running) in &clouds {
        let wanted = json!({"resources:VGPU": "1", "trait:CUSTOM_NVIDIA_11": "required"});
        flavor(running, "eleven", 64, wanted).await;
    }
    clouds
}

async fn live(running: &RunningCloud, version: &str, id: &str, host: Option<&str>) -> Answer {
    let arguments = json!({"host": host, "block_migration": "auto"});
    admin(running, version, id, json!({"os-migrateLive": arguments})).await
}

async fn assert_usage(cloud: &Cloud, running: &RunningCloud, source: usize, dest: usize) {
    assert_mdev_usage(cloud, running, "src", "VGPU", source).await;
    assert_mdev_usage(cloud, running, "dest", "VGPU", dest).await;
}

async fn migrations(running: &RunningCloud, id: &str) -> Vec<Value> {
    let path = format!("/os-migrations?instance_uuid={id}");
    let list = running.get(ADMIN, "2.80", &path).await.expect(200);
    list["migrations"].as_array().expect("the answer has a list").clone()
}

/// The traits of a host whose hypervisor cannot live-migrate mediated devices.
const OLD: &str = "\ntraits = [\"COMPUTE_NODE\", \"COMPUTE_ACCELERATORS\"]\n";

#[tokio::test]
async fn live_migration_fails_on_old_source() {
    for (mut cloud, mut running) in clouds("").await {
        let old = format!("{ONE_EACH}{OLD}");
        restart_with(&mut cloud, &mut running, hosts(&[("src", "both", &old)])).await;
        let id = running.active_server_on(&cloud, "src", "eleven").await;
        let words = format!(
            "Unable to migrate {id}: Either libvirt or QEMU version for compute service source are \
             too old than the supported ones"
        );
        live(&running, "2.90", &id, None).await.refused(400, &words);
        assert_eq!(running.server(&id).await["status"], "ACTIVE");
        assert_eq!(migrations(&running, &id).await, Vec::<Value>::new());
        assert_usage(&cloud, &running, 1, 0).await;
        cloud.assert_consistent(&running, "an old source").await;
        // A guest without a vGPU migrates.
        let plain = running.active_server_on(&cloud, "src", "plain").await;
        live(&running, "2.90", &plain, None).await.expect(202);
        assert_eq!(running.wait_for_status(&plain, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "dest");
        running.wait_for_host_cleanup(&cloud).await;
        cloud.teardown(&running, "an old source").await;
    }
}

#[tokio::test]
async fn live_migration_fails_on_old_destination() {
    for (mut cloud, mut running) in clouds("").await {
        let old = format!("{ONE_EACH}{OLD}");
        restart_with(&mut cloud, &mut running, hosts(&[("dest", "both", &old)])).await;
        let id = running.active_server_on(&cloud, "src", "eleven").await;
        for host in [None, Some("dest")] {
            let refused = live(&running, "2.30", &id, host).await;
            refused.refused(400, "No valid host was found.");
            live(&running, "2.90", &id, host).await.expect(202);
            assert_eq!(running.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "src");
            assert_eq!(migrations(&running, &id).await[0]["status"], "error");
            assert_usage(&cloud, &running, 1, 0).await;
            cloud.assert_consistent(&running, "an old destination").await;
        }
        admin(&running, "2.90", &id, json!({"migrate": null})).await.expect(202);
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        assert_eq!(
            running.server(&id).await["OS-EXT-SRV-ATTR:host"],
            "dest",
            "a cold migration succeeds"
        );
        cloud.teardown(&running, "an old destination").await;
    }
}

#[tokio::test]
async fn live_migration_fails_due_to_non_supported_mdev_types() {
    for (mut cloud, mut running) in clouds("").await {
        let other = hosts(&[("src", "both", NVIDIA_11), ("dest", "both", NVIDIA_12)]);
        restart_with(&mut cloud, &mut running, other).await;
        let id = running.active_server_on(&cloud, "src", "vgpu").await;
        let before = devices(&cloud, "src", &id);
        assert_eq!(before[0].mdev_type, "nvidia-11");
        for host in [None, Some("dest")] {
            live(&running, "2.30", &id, host).await.refused(400, "No valid host was found.");
            live(&running, "2.90", &id, host).await.expect(202);
            assert_eq!(running.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "src");
            assert_eq!(migrations(&running, &id).await[0]["status"], "error");
            assert_eq!(devices(&cloud, "src", &id), before);
            assert_usage(&cloud, &running, 1, 0).await;
            cloud.assert_consistent(&running, "type not on the destination").await;
        }
        cloud.teardown(&running, "type not on the destination").await;
    }
}

/// The scheduler selects a host that offers the type.
#[tokio::test]
async fn live_migration_chooses_a_host_with_the_type() {
    let topology = hosts(&[
        ("src", "both", NVIDIA_11),
        ("other", "both", NVIDIA_12),
        ("dest", "both", NVIDIA_11),
    ]);
    for (cloud, running) in Cloud::all_running(topology).await {
        for _ in 0..3 {
            let id = running.active_server_on(&cloud, "src", "vgpu").await;
            live(&running, "2.90", &id, None).await.expect(202);
            assert_eq!(
                running.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"],
                "dest"
            );
            running.wait_for_host_cleanup(&cloud).await;
            assert_usage(&cloud, &running, 0, 1).await;
            cloud.assert_consistent(&running, "migrated").await;
            cloud.teardown(&running, "migrated").await;
        }
    }
}

#[tokio::test]
async fn live_migrate_server() {
    for (cloud, running) in clouds("").await {
        let id = running.active_server_on(&cloud, "src", "eleven").await;
        let before = devices(&cloud, "src", &id);
        assert_usage(&cloud, &running, 1, 0).await;
        live(&running, "2.90", &id, None).await.expect(202);
        assert_eq!(running.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "dest");
        assert_eq!(migrations(&running, &id).await[0]["status"], "completed");
        running.wait_for_host_cleanup(&cloud).await;
        assert_usage(&cloud, &running, 0, 1).await;
        assert_device_on(&cloud, &running, &id, "dest", FIRST, "VGPU").await;
        assert_ne!(devices(&cloud, "dest", &id), before, "the device is on the new host");
        assert_holds(&cloud, &running, &id, VGPU).await;
        cloud.assert_consistent(&running, "migrated").await;
        cloud.teardown(&running, "migrated").await;
    }
}

/// `VGPULiveMigrationTestsLMFailed.test_live_migrate_server`: during the migration a device is claimed on
/// both hosts, regardless of periodic tasks; after the failure, only on the source.
#[tokio::test]
async fn live_migrate_server_fails() {
    for (cloud, mut running) in clouds("times_ms = { migrate = 60000 }").await {
        let id = running.active_server_on(&cloud, "src", "eleven").await;
        let before = devices(&cloud, "src", &id);
        live(&running, "2.90", &id, None).await.expect(202);
        wait_until("the migration runs", async || {
            let path = format!("/servers/{id}/migrations");
            let list = running.get(ADMIN, "2.80", &path).await.expect(200);
            list["migrations"][0]["memory_processed_bytes"].as_i64() > Some(0)
        })
        .await;
        assert_usage(&cloud, &running, 1, 1).await;
        for _ in 0..2 {
            nudge::run(running.compute.clone()).await.expect("the periodic task succeeds");
            confirm::run(running.compute.clone()).await.expect("the periodic task succeeds");
            rest::run(running.compute.clone()).await.expect("the periodic task succeeds");
            running.restart_failing(&cloud, "dest", &[]).await;
            assert_usage(&cloud, &running, 1, 1).await;
            assert_eq!(super::inspect::used(&running, &gpu("dest", FIRST), "VGPU").await, 1);
            cloud.audit("migrating").await;
        }
        assert_eq!(running.server(&id).await["status"], "MIGRATING");
        let quick = hosts(&[("src", "both", ONE_EACH)]).hosts.remove(0);
        running.nodes.kill("src").await;
        running.nodes.start_failing(&quick, &[("migrate", None)]);
        assert_eq!(running.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "src");
        assert_eq!(migrations(&running, &id).await[0]["status"], "failed");
        running.wait_for_host_cleanup(&cloud).await;
        assert_usage(&cloud, &running, 1, 0).await;
        assert_eq!(devices(&cloud, "src", &id), before);
        assert_holds(&cloud, &running, &id, VGPU).await;
        cloud.assert_consistent(&running, "failed").await;
        cloud.teardown(&running, "failed").await;
    }
}
