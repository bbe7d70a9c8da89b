//! Upstream's `AcceleratorServerOpsTest`: actions on a server with an accelerator. Resize, suspend
//! and cold migration, which upstream refuses, work here.

use jiff::SignedDuration;
use kilonova_compute_app::Options;
use serde_json::{Value, json};

use super::inspect::{
    arqs, assert_bound, assert_holds, assert_no_allocations_on, assert_no_claims,
    assert_same_handles,
};
use super::{FIRST, ONE, SECOND};
use crate::kit::{Cloud, GPU, RunningCloud, hosts};
use crate::servers::resize::{admin, confirm_resize};

/// Runs a scenario on a server with an accelerator, on each store, and checks that its end leaves
/// nothing behind.
async fn with_server(options: Options, scenario: impl AsyncFn(&Cloud, &mut RunningCloud, &str)) {
    let topology = hosts(&[("accel_host0", &[FIRST, GPU]), ("accel_host1", &[SECOND, GPU])]);
    for mut cloud in Cloud::all(topology).await {
        cloud.options = options.clone();
        let mut running = cloud.start().await;
        running.wait_for_hosts().await;
        let id = running.active_server(&cloud, "accel_server1", "fpga").await;
        assert_bound(&cloud, &running, &id, ONE).await;
        scenario(&cloud, &mut running, &id).await;
        running.wait_for_host_cleanup(&cloud).await;
        cloud.assert_consistent(&running, "at the end").await;
        cloud.teardown(&running, "at the end").await;
        assert_no_claims(&running, &id).await;
        running.kill().await;
    }
}

/// Runs the actions in order, each with its final status; the ARQs stay the same throughout.
async fn assert_keeps_devices(actions: &[(Value, &str)]) {
    with_server(Options::default(), async |cloud: &Cloud, running: &mut RunningCloud, id: &str| {
        let before = assert_bound(cloud, running, id, ONE).await;
        for (action, status) in actions {
            let answer = running.try_act(id, action.clone()).await;
            assert!(answer.status.is_success(), "{action}: {}", answer.body);
            running.wait_for_status(id, status).await;
            assert_same_handles(&before, &assert_bound(cloud, running, id, ONE).await);
        }
    })
    .await;
}

async fn hosts_of(running: &RunningCloud, id: &str) -> (String, String) {
    let host = running.server(id).await["OS-EXT-SRV-ATTR:host"]
        .as_str()
        .expect("the server has a host")
        .to_owned();
    let other = if host == "accel_host0" { "accel_host1" } else { "accel_host0" };
    (host, other.to_owned())
}

#[tokio::test]
async fn soft_reboot_ok() {
    assert_keeps_devices(&[(json!({"reboot": {"type": "SOFT"}}), "ACTIVE")]).await;
}

#[tokio::test]
async fn hard_reboot_ok() {
    assert_keeps_devices(&[(json!({"reboot": {"type": "HARD"}}), "ACTIVE")]).await;
}

#[tokio::test]
async fn pause_unpause_ok() {
    assert_keeps_devices(&[(json!({"pause": {}}), "PAUSED"), (json!({"unpause": {}}), "ACTIVE")])
        .await;
}

#[tokio::test]
async fn stop_start_ok() {
    assert_keeps_devices(&[
        (json!({"os-stop": {}}), "SHUTOFF"),
        (json!({"os-start": {}}), "ACTIVE"),
    ])
    .await;
}

#[tokio::test]
async fn lock_unlock_ok() {
    with_server(Options::default(), async |cloud: &Cloud, running: &mut RunningCloud, id: &str| {
        let before = assert_bound(cloud, running, id, ONE).await;
        for (action, locked) in [("lock", true), ("unlock", false)] {
            running.act(id, json!({action: null})).await;
            assert_eq!(running.server(id).await["locked"], locked);
            assert_same_handles(&before, &assert_bound(cloud, running, id, ONE).await);
        }
    })
    .await;
}

#[tokio::test]
async fn backup_ok() {
    let backup = json!({"name": "Backup 1", "backup_type": "daily", "rotation": 1});
    let again = json!({"name": "Backup 2", "backup_type": "daily", "rotation": 1});
    assert_keeps_devices(&[
        (json!({"createBackup": backup}), "ACTIVE"),
        (json!({"createBackup": again}), "ACTIVE"),
    ])
    .await;
}

#[tokio::test]
async fn create_image_ok() {
    let image = json!({"name": "foo-image", "metadata": {"meta_var": "meta_val"}});
    assert_keeps_devices(&[(json!({"createImage": image}), "ACTIVE")]).await;
}

#[tokio::test]
async fn rescue_unrescue_ok() {
    with_server(Options::default(), async |cloud: &Cloud, running: &mut RunningCloud, id: &str| {
        let before = assert_bound(cloud, running, id, ONE).await;
        let rescue = json!({"adminPass": "MySecretPass", "rescue_image_ref": cloud.image});
        running.try_act(id, json!({"rescue": rescue})).await.expect(200);
        running.wait_for_status(id, "RESCUE").await;
        assert_same_handles(&before, &assert_bound(cloud, running, id, ONE).await);
        running.act(id, json!({"unrescue": {}})).await;
        running.wait_for_status(id, "ACTIVE").await;
        assert_same_handles(&before, &assert_bound(cloud, running, id, ONE).await);
    })
    .await;
}

#[tokio::test]
async fn evacuate_ok() {
    with_server(Options::default(), async |cloud: &Cloud, running: &mut RunningCloud, id: &str| {
        let (host, other) = hosts_of(running, id).await;
        assert_eq!(arqs(running, id).await[0]["hostname"], host.as_str());
        running.nodes.kill(&host).await;
        running.force_down(&host, true).await;
        let action = json!({"evacuate": {"host": other}});
        admin(running, "2.94", id, action).await.expect(200);
        running.wait_for_status(id, "ACTIVE").await;
        assert_holds(cloud, running, id, ONE).await;
        assert_eq!(arqs(running, id).await[0]["hostname"], other.as_str());
        running.start_node(cloud, &host).await;
        running.force_down(&host, false).await;
        crate::kit::wait_until("the old host has dropped the guest", async || {
            cloud.column("SELECT host FROM documents").await == [other.clone()]
        })
        .await;
        assert_bound(cloud, running, id, ONE).await;
    })
    .await;
}

#[tokio::test]
async fn rebuild_ok() {
    with_server(Options::default(), async |cloud: &Cloud, running: &mut RunningCloud, id: &str| {
        let before = assert_bound(cloud, running, id, ONE).await;
        let rebuild = json!({"imageRef": cloud.image, "OS-DCF:diskConfig": "AUTO"});
        running.act(id, json!({"rebuild": rebuild})).await;
        running.wait_for_status(id, "ACTIVE").await;
        assert_same_handles(&before, &assert_bound(cloud, running, id, ONE).await);
    })
    .await;
}

#[tokio::test]
async fn shelve_and_unshelve_ok() {
    let options =
        Options { shelved_offload_time: SignedDuration::from_secs(3600), ..Options::default() };
    with_server(options, async |cloud: &Cloud, running: &mut RunningCloud, id: &str| {
        let before = assert_bound(cloud, running, id, ONE).await;
        running.act(id, json!({"shelve": {}})).await;
        running.wait_for_status(id, "SHELVED").await;
        assert_same_handles(&before, &arqs(running, id).await);
        running.act(id, json!({"unshelve": null})).await;
        running.wait_for_status(id, "ACTIVE").await;
        assert_same_handles(&before, &assert_bound(cloud, running, id, ONE).await);
    })
    .await;
}

#[tokio::test]
async fn shelve_offload_and_unshelve_ok() {
    let options =
        Options { shelved_offload_time: SignedDuration::from_secs(-1), ..Options::default() };
    with_server(options, async |cloud: &Cloud, running: &mut RunningCloud, id: &str| {
        running.act(id, json!({"shelve": {}})).await;
        running.wait_for_status(id, "SHELVED").await;
        assert_eq!(arqs(running, id).await.len(), 1);
        admin(running, "2.90", id, json!({"shelveOffload": {}})).await.expect(202);
        running.wait_for_status(id, "SHELVED_OFFLOADED").await;
        assert_no_claims(running, id).await;
        for host in ["accel_host0", "accel_host1"] {
            assert_no_allocations_on(running, host).await;
        }
        running.act(id, json!({"unshelve": null})).await;
        running.wait_for_status(id, "ACTIVE").await;
        assert_bound(cloud, running, id, ONE).await;
    })
    .await;
}

/// Upstream's `test_resize_fails`.
#[tokio::test]
async fn resize_ok() {
    with_server(Options::default(), async |cloud: &Cloud, running: &mut RunningCloud, id: &str| {
        let before = assert_bound(cloud, running, id, ONE).await;
        let (host, other) = hosts_of(running, id).await;
        let away = json!({"resize": {"flavorRef": "plain", "OS-DCF:diskConfig": "AUTO"}});
        running.act(id, away.clone()).await;
        running.wait_for_status(id, "VERIFY_RESIZE").await;
        assert_holds(cloud, running, id, &[]).await;
        assert_eq!(
            super::inspect::used_on(running, &host, "FPGA").await,
            1,
            "claimed until the resize is confirmed"
        );
        running.act(id, json!({"revertResize": null})).await;
        running.wait_for_status(id, "ACTIVE").await;
        assert_same_handles(&before, &assert_bound(cloud, running, id, ONE).await);
        running.act(id, away).await;
        running.wait_for_status(id, "VERIFY_RESIZE").await;
        confirm_resize(running, cloud, id).await;
        running.wait_for_status(id, "ACTIVE").await;
        assert_bound(cloud, running, id, &[]).await;
        assert_eq!(hosts_of(running, id).await.0, other);
        running.act(id, json!({"resize": {"flavorRef": "fpga"}})).await;
        running.wait_for_status(id, "VERIFY_RESIZE").await;
        confirm_resize(running, cloud, id).await;
        running.wait_for_status(id, "ACTIVE").await;
        assert_bound(cloud, running, id, ONE).await;
    })
    .await;
}

/// Upstream's `test_suspend_fails`.
#[tokio::test]
async fn suspend_ok() {
    assert_keeps_devices(&[
        (json!({"suspend": {}}), "SUSPENDED"),
        (json!({"resume": {}}), "ACTIVE"),
    ])
    .await;
}

/// Upstream's `test_migrate_fails`.
#[tokio::test]
async fn migrate_ok() {
    with_server(Options::default(), async |cloud: &Cloud, running: &mut RunningCloud, id: &str| {
        let (host, other) = hosts_of(running, id).await;
        admin(running, "2.90", id, json!({"migrate": null})).await.expect(202);
        running.wait_for_status(id, "VERIFY_RESIZE").await;
        assert_holds(cloud, running, id, ONE).await;
        assert_eq!(
            super::inspect::used_on(running, &host, "FPGA").await,
            1,
            "claimed until the migration is confirmed"
        );
        confirm_resize(running, cloud, id).await;
        running.wait_for_status(id, "ACTIVE").await;
        assert_eq!(hosts_of(running, id).await.0, other);
        assert_bound(cloud, running, id, ONE).await;
    })
    .await;
}

/// Upstream's `test_live_migrate_fails`, which requests a cold migration to a host; and a live
/// migration: a server with a vGPU migrates, one with an FPGA, whose state cannot be transferred,
/// is refused.
#[tokio::test]
async fn live_migrate_ok() {
    with_server(Options::default(), async |cloud: &Cloud, running: &mut RunningCloud, id: &str| {
        let (host, other) = hosts_of(running, id).await;
        admin(running, "2.90", id, json!({"migrate": {"host": other}})).await.expect(202);
        running.wait_for_status(id, "VERIFY_RESIZE").await;
        confirm_resize(running, cloud, id).await;
        running.wait_for_status(id, "ACTIVE").await;
        let before = assert_bound(cloud, running, id, ONE).await;
        let live = json!({"os-migrateLive": {"host": host, "block_migration": "auto"}});
        let refused = admin(running, "2.90", id, live.clone()).await;
        refused.refused(400, "cannot live-migrate");
        assert_same_handles(&before, &assert_bound(cloud, running, id, ONE).await);
        running.delete(id).await;
        running.wait_until_gone(id).await;
        let id = &running.active_server_on(cloud, &other, "profile").await;
        assert_bound(cloud, running, id, &[("VGPU", 1)]).await;
        admin(running, "2.90", id, live).await.expect(202);
        running.wait_for_status(id, "ACTIVE").await;
        running.wait_for_host_cleanup(cloud).await;
        assert_eq!(hosts_of(running, id).await.0, host);
        assert_bound(cloud, running, id, &[("VGPU", 1)]).await;
    })
    .await;
}
