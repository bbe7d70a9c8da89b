//! Upstream's `VGPULiveMigrationTests` and `VGPULiveMigrationTestsLMFailed`: a guest with a vGPU of
//! one of two types goes to another host while it runs, or does not.

use kilonova_compute::reconcile::{confirm, nudge, rest};
use serde_json::{Value, json};

use super::eyes::{devices, holds};
use super::gpus::{
    FIRST, NVIDIA_11, NVIDIA_12, ONE_EACH, flavor, gpu, hosts, is_on, mdev_usage, restart_as,
};
use crate::kit::{ADMIN, Answer, Cloud, Up, patiently};
use crate::servers::moving::admin;

const VGPU: &[(&str, i64)] = &[("VGPU", 1)];

/// Two hosts with both types, and a flavor for the first type.
async fn clouds(more: &str) -> Vec<(Cloud, Up)> {
    let source = format!("{ONE_EACH}{more}");
    let topology = hosts(&[("src", "both", &source), ("dest", "both", ONE_EACH)]);
    let clouds = Cloud::all_up(topology).await;
    for (_, up) in &clouds {
        let wanted = json!({"resources:VGPU": "1", "trait:CUSTOM_NVIDIA_11": "required"});
        flavor(up, "eleven", 64, wanted).await;
    }
    clouds
}

async fn live(up: &Up, version: &str, id: &str, host: Option<&str>) -> Answer {
    let wish = json!({"host": host, "block_migration": "auto"});
    admin(up, version, id, json!({"os-migrateLive": wish})).await
}

async fn both(cloud: &Cloud, up: &Up, source: usize, dest: usize) {
    mdev_usage(cloud, up, "src", "VGPU", source).await;
    mdev_usage(cloud, up, "dest", "VGPU", dest).await;
}

async fn migrations(up: &Up, id: &str) -> Vec<Value> {
    let path = format!("/os-migrations?instance_uuid={id}");
    let list = up.get(ADMIN, "2.80", &path).await.expect(200);
    list["migrations"].as_array().expect("a list").clone()
}

/// A host whose hypervisor is too old: it does not say that it can.
const OLD: &str = "\ntraits = [\"COMPUTE_NODE\", \"COMPUTE_ACCELERATORS\"]\n";

#[tokio::test]
async fn live_migration_fails_on_old_source() {
    for (mut cloud, mut up) in clouds("").await {
        let old = format!("{ONE_EACH}{OLD}");
        restart_as(&mut cloud, &mut up, hosts(&[("src", "both", &old)])).await;
        let id = up.active_on(&cloud, "src", "eleven").await;
        let words = format!(
            "Unable to migrate {id}: Either libvirt or QEMU version for compute service source are \
             too old than the supported ones"
        );
        live(&up, "2.90", &id, None).await.refused(400, &words);
        assert_eq!(up.server(&id).await["status"], "ACTIVE");
        assert_eq!(migrations(&up, &id).await, Vec::<Value>::new());
        both(&cloud, &up, 1, 0).await;
        cloud.sound(&up, "an old source").await;
        // A guest without a vGPU goes.
        let plain = up.active_on(&cloud, "src", "plain").await;
        live(&up, "2.90", &plain, None).await.expect(202);
        assert_eq!(up.becomes(&plain, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "dest");
        up.hosts_have_dropped(&cloud).await;
        cloud.sweep(&up, "an old source").await;
    }
}

#[tokio::test]
async fn live_migration_fails_on_old_destination() {
    for (mut cloud, mut up) in clouds("").await {
        let old = format!("{ONE_EACH}{OLD}");
        restart_as(&mut cloud, &mut up, hosts(&[("dest", "both", &old)])).await;
        let id = up.active_on(&cloud, "src", "eleven").await;
        for host in [None, Some("dest")] {
            let refused = live(&up, "2.30", &id, host).await;
            refused.refused(400, "No valid host was found.");
            live(&up, "2.90", &id, host).await.expect(202);
            assert_eq!(up.becomes(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "src");
            assert_eq!(migrations(&up, &id).await[0]["status"], "error");
            both(&cloud, &up, 1, 0).await;
            cloud.sound(&up, "an old destination").await;
        }
        admin(&up, "2.90", &id, json!({"migrate": null})).await.expect(202);
        up.becomes(&id, "VERIFY_RESIZE").await;
        assert_eq!(up.server(&id).await["OS-EXT-SRV-ATTR:host"], "dest", "shut off it goes");
        cloud.sweep(&up, "an old destination").await;
    }
}

#[tokio::test]
async fn live_migration_fails_due_to_non_supported_mdev_types() {
    for (mut cloud, mut up) in clouds("").await {
        let other = hosts(&[("src", "both", NVIDIA_11), ("dest", "both", NVIDIA_12)]);
        restart_as(&mut cloud, &mut up, other).await;
        let id = up.active_on(&cloud, "src", "vgpu").await;
        let before = devices(&cloud, "src", &id);
        assert_eq!(before[0].mdev_type, "nvidia-11");
        for host in [None, Some("dest")] {
            live(&up, "2.30", &id, host).await.refused(400, "No valid host was found.");
            live(&up, "2.90", &id, host).await.expect(202);
            assert_eq!(up.becomes(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "src");
            assert_eq!(migrations(&up, &id).await[0]["status"], "error");
            assert_eq!(devices(&cloud, "src", &id), before);
            both(&cloud, &up, 1, 0).await;
            cloud.sound(&up, "no such type there").await;
        }
        cloud.sweep(&up, "no such type there").await;
    }
}

/// Where there is a choice, the host that has the type is chosen.
#[tokio::test]
async fn live_migration_goes_where_the_type_is() {
    let topology = hosts(&[
        ("src", "both", NVIDIA_11),
        ("other", "both", NVIDIA_12),
        ("dest", "both", NVIDIA_11),
    ]);
    for (cloud, up) in Cloud::all_up(topology).await {
        for _ in 0..3 {
            let id = up.active_on(&cloud, "src", "vgpu").await;
            live(&up, "2.90", &id, None).await.expect(202);
            assert_eq!(up.becomes(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "dest");
            up.hosts_have_dropped(&cloud).await;
            both(&cloud, &up, 0, 1).await;
            cloud.sound(&up, "there").await;
            cloud.sweep(&up, "there").await;
        }
    }
}

#[tokio::test]
async fn live_migrate_server() {
    for (cloud, up) in clouds("").await {
        let id = up.active_on(&cloud, "src", "eleven").await;
        let before = devices(&cloud, "src", &id);
        both(&cloud, &up, 1, 0).await;
        live(&up, "2.90", &id, None).await.expect(202);
        assert_eq!(up.becomes(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "dest");
        assert_eq!(migrations(&up, &id).await[0]["status"], "completed");
        up.hosts_have_dropped(&cloud).await;
        both(&cloud, &up, 0, 1).await;
        is_on(&cloud, &up, &id, "dest", FIRST, "VGPU").await;
        assert_ne!(devices(&cloud, "dest", &id), before, "a device of the new host");
        holds(&cloud, &up, &id, VGPU).await;
        cloud.sound(&up, "gone over").await;
        cloud.sweep(&up, "gone over").await;
    }
}

/// `VGPULiveMigrationTestsLMFailed.test_live_migrate_server`: while the guest is on its way both
/// sides are held, whatever looks after the cloud meanwhile; after the failure only the old one.
#[tokio::test]
async fn live_migrate_server_fails() {
    for (cloud, mut up) in clouds("times_ms = { migrate = 60000 }").await {
        let id = up.active_on(&cloud, "src", "eleven").await;
        let before = devices(&cloud, "src", &id);
        live(&up, "2.90", &id, None).await.expect(202);
        patiently("a guest on its way", async || {
            let path = format!("/servers/{id}/migrations");
            let list = up.get(ADMIN, "2.80", &path).await.expect(200);
            list["migrations"][0]["memory_processed_bytes"].as_i64() > Some(0)
        })
        .await;
        both(&cloud, &up, 1, 1).await;
        for _ in 0..2 {
            nudge::run(up.compute.clone()).await.expect("runs");
            confirm::run(up.compute.clone()).await.expect("runs");
            rest::run(up.compute.clone()).await.expect("runs");
            up.restart_failing(&cloud, "dest", &[]).await;
            both(&cloud, &up, 1, 1).await;
            assert_eq!(super::eyes::used(&up, &gpu("dest", FIRST), "VGPU").await, 1);
            cloud.audit("on its way").await;
        }
        assert_eq!(up.server(&id).await["status"], "MIGRATING");
        let quick = hosts(&[("src", "both", ONE_EACH)]).hosts.remove(0);
        up.nodes.kill("src").await;
        up.nodes.start_failing(&quick, &[("migrate", None)]);
        assert_eq!(up.becomes(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "src");
        assert_eq!(migrations(&up, &id).await[0]["status"], "failed");
        up.hosts_have_dropped(&cloud).await;
        both(&cloud, &up, 1, 0).await;
        assert_eq!(devices(&cloud, "src", &id), before);
        holds(&cloud, &up, &id, VGPU).await;
        cloud.sound(&up, "failed").await;
        cloud.sweep(&up, "failed").await;
    }
}
