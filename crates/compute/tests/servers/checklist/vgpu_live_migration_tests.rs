//! Upstream's `VGPULiveMigrationTests` and `VGPULiveMigrationTestsLMFailed`: live migrations of a
//! guest with a vGPU of one of two types.

use kilonova_compute_app::reconcile::{confirm, nudge, rest};
use serde_json::{Value, json};

use super::gpus::{
    FIRST, NVIDIA_11, NVIDIA_12, ONE_EACH, assert_device_on, assert_mdev_usage, flavor, gpu, hosts,
    restart_with,
};
use super::inspect::{assert_holds, devices};
use crate::kit::{ADMIN, Answer, Cloud, Up, wait_until};
use crate::servers::resize::admin;

const VGPU: &[(&str, i64)] = &[("VGPU", 1)];

/// Two hosts with both types, and a flavor for the first type.
async fn clouds(more: &str) -> Vec<(Cloud, Up)> {
    let source = format!("{ONE_EACH}{more}");
    let topology = hosts(&[("src", "both", &source), ("dest", "both", ONE_EACH)]);
    let clouds = Cloud::all_running(topology).await;
    for (_, up) in &clouds {
        let wanted = json!({"resources:VGPU": "1", "trait:CUSTOM_NVIDIA_11": "required"});
        flavor(up, "eleven", 64, wanted).await;
    }
    clouds
}

async fn live(up: &Up, version: &str, id: &str, host: Option<&str>) -> Answer {
    let arguments = json!({"host": host, "block_migration": "auto"});
    admin(up, version, id, json!({"os-migrateLive": arguments})).await
}

async fn assert_usage(cloud: &Cloud, up: &Up, source: usize, dest: usize) {
    assert_mdev_usage(cloud, up, "src", "VGPU", source).await;
    assert_mdev_usage(cloud, up, "dest", "VGPU", dest).await;
}

async fn migrations(up: &Up, id: &str) -> Vec<Value> {
    let path = format!("/os-migrations?instance_uuid={id}");
    let list = up.get(ADMIN, "2.80", &path).await.expect(200);
    list["migrations"].as_array().expect("the answer has a list").clone()
}

/// The traits of a host whose hypervisor cannot live-migrate mediated devices.
const OLD: &str = "\ntraits = [\"COMPUTE_NODE\", \"COMPUTE_ACCELERATORS\"]\n";

#[tokio::test]
async fn live_migration_fails_on_old_source() {
    for (mut cloud, mut up) in clouds("").await {
        let old = format!("{ONE_EACH}{OLD}");
        restart_with(&mut cloud, &mut up, hosts(&[("src", "both", &old)])).await;
        let id = up.active_server_on(&cloud, "src", "eleven").await;
        let words = format!(
            "Unable to migrate {id}: Either libvirt or QEMU version for compute service source are \
             too old than the supported ones"
        );
        live(&up, "2.90", &id, None).await.refused(400, &words);
        assert_eq!(up.server(&id).await["status"], "ACTIVE");
        assert_eq!(migrations(&up, &id).await, Vec::<Value>::new());
        assert_usage(&cloud, &up, 1, 0).await;
        cloud.assert_consistent(&up, "an old source").await;
        // A guest without a vGPU migrates.
        let plain = up.active_server_on(&cloud, "src", "plain").await;
        live(&up, "2.90", &plain, None).await.expect(202);
        assert_eq!(up.wait_for_status(&plain, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "dest");
        up.wait_for_host_cleanup(&cloud).await;
        cloud.teardown(&up, "an old source").await;
    }
}

#[tokio::test]
async fn live_migration_fails_on_old_destination() {
    for (mut cloud, mut up) in clouds("").await {
        let old = format!("{ONE_EACH}{OLD}");
        restart_with(&mut cloud, &mut up, hosts(&[("dest", "both", &old)])).await;
        let id = up.active_server_on(&cloud, "src", "eleven").await;
        for host in [None, Some("dest")] {
            let refused = live(&up, "2.30", &id, host).await;
            refused.refused(400, "No valid host was found.");
            live(&up, "2.90", &id, host).await.expect(202);
            assert_eq!(up.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "src");
            assert_eq!(migrations(&up, &id).await[0]["status"], "error");
            assert_usage(&cloud, &up, 1, 0).await;
            cloud.assert_consistent(&up, "an old destination").await;
        }
        admin(&up, "2.90", &id, json!({"migrate": null})).await.expect(202);
        up.wait_for_status(&id, "VERIFY_RESIZE").await;
        assert_eq!(
            up.server(&id).await["OS-EXT-SRV-ATTR:host"],
            "dest",
            "a cold migration succeeds"
        );
        cloud.teardown(&up, "an old destination").await;
    }
}

#[tokio::test]
async fn live_migration_fails_due_to_non_supported_mdev_types() {
    for (mut cloud, mut up) in clouds("").await {
        let other = hosts(&[("src", "both", NVIDIA_11), ("dest", "both", NVIDIA_12)]);
        restart_with(&mut cloud, &mut up, other).await;
        let id = up.active_server_on(&cloud, "src", "vgpu").await;
        let before = devices(&cloud, "src", &id);
        assert_eq!(before[0].mdev_type, "nvidia-11");
        for host in [None, Some("dest")] {
            live(&up, "2.30", &id, host).await.refused(400, "No valid host was found.");
            live(&up, "2.90", &id, host).await.expect(202);
            assert_eq!(up.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "src");
            assert_eq!(migrations(&up, &id).await[0]["status"], "error");
            assert_eq!(devices(&cloud, "src", &id), before);
            assert_usage(&cloud, &up, 1, 0).await;
            cloud.assert_consistent(&up, "type not on the destination").await;
        }
        cloud.teardown(&up, "type not on the destination").await;
    }
}

/// Of several hosts, one that offers the type is chosen.
#[tokio::test]
async fn live_migration_chooses_a_host_with_the_type() {
    let topology = hosts(&[
        ("src", "both", NVIDIA_11),
        ("other", "both", NVIDIA_12),
        ("dest", "both", NVIDIA_11),
    ]);
    for (cloud, up) in Cloud::all_running(topology).await {
        for _ in 0..3 {
            let id = up.active_server_on(&cloud, "src", "vgpu").await;
            live(&up, "2.90", &id, None).await.expect(202);
            assert_eq!(up.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "dest");
            up.wait_for_host_cleanup(&cloud).await;
            assert_usage(&cloud, &up, 0, 1).await;
            cloud.assert_consistent(&up, "migrated").await;
            cloud.teardown(&up, "migrated").await;
        }
    }
}

#[tokio::test]
async fn live_migrate_server() {
    for (cloud, up) in clouds("").await {
        let id = up.active_server_on(&cloud, "src", "eleven").await;
        let before = devices(&cloud, "src", &id);
        assert_usage(&cloud, &up, 1, 0).await;
        live(&up, "2.90", &id, None).await.expect(202);
        assert_eq!(up.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "dest");
        assert_eq!(migrations(&up, &id).await[0]["status"], "completed");
        up.wait_for_host_cleanup(&cloud).await;
        assert_usage(&cloud, &up, 0, 1).await;
        assert_device_on(&cloud, &up, &id, "dest", FIRST, "VGPU").await;
        assert_ne!(devices(&cloud, "dest", &id), before, "the device is on the new host");
        assert_holds(&cloud, &up, &id, VGPU).await;
        cloud.assert_consistent(&up, "migrated").await;
        cloud.teardown(&up, "migrated").await;
    }
}

/// `VGPULiveMigrationTestsLMFailed.test_live_migrate_server`: during the migration both hosts hold a
/// device, whatever periodic tasks run; after the failure only the source does.
#[tokio::test]
async fn live_migrate_server_fails() {
    for (cloud, mut up) in clouds("times_ms = { migrate = 60000 }").await {
        let id = up.active_server_on(&cloud, "src", "eleven").await;
        let before = devices(&cloud, "src", &id);
        live(&up, "2.90", &id, None).await.expect(202);
        wait_until("the migration runs", async || {
            let path = format!("/servers/{id}/migrations");
            let list = up.get(ADMIN, "2.80", &path).await.expect(200);
            list["migrations"][0]["memory_processed_bytes"].as_i64() > Some(0)
        })
        .await;
        assert_usage(&cloud, &up, 1, 1).await;
        for _ in 0..2 {
            nudge::run(up.compute.clone()).await.expect("the periodic task succeeds");
            confirm::run(up.compute.clone()).await.expect("the periodic task succeeds");
            rest::run(up.compute.clone()).await.expect("the periodic task succeeds");
            up.restart_failing(&cloud, "dest", &[]).await;
            assert_usage(&cloud, &up, 1, 1).await;
            assert_eq!(super::inspect::used(&up, &gpu("dest", FIRST), "VGPU").await, 1);
            cloud.audit("migrating").await;
        }
        assert_eq!(up.server(&id).await["status"], "MIGRATING");
        let quick = hosts(&[("src", "both", ONE_EACH)]).hosts.remove(0);
        up.nodes.kill("src").await;
        up.nodes.start_failing(&quick, &[("migrate", None)]);
        assert_eq!(up.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "src");
        assert_eq!(migrations(&up, &id).await[0]["status"], "failed");
        up.wait_for_host_cleanup(&cloud).await;
        assert_usage(&cloud, &up, 1, 0).await;
        assert_eq!(devices(&cloud, "src", &id), before);
        assert_holds(&cloud, &up, &id, VGPU).await;
        cloud.assert_consistent(&up, "failed").await;
        cloud.teardown(&up, "failed").await;
    }
}
