//! Upstream's `AcceleratorServerOpsTest`: what can be done to a server with an accelerator, and,
//! unlike upstream, what is refused there: resize, suspend, and every migration.

use kilonova_compute::Options;
use serde_json::{Value, json};

use super::eyes::{arqs, has, has_nothing, holds, nothing_on, same};
use super::{FIRST, ONE, SECOND};
use crate::kit::{Cloud, GPU, Up, hosts};
use crate::servers::moving::{admin, confirmed};

/// Runs a scenario on a server with an accelerator, on each store, and sees that nothing is left of
/// it in the end.
async fn with_server(options: Options, scenario: impl AsyncFn(&Cloud, &mut Up, &str)) {
    let topology = hosts(&[("accel_host0", &[FIRST, GPU]), ("accel_host1", &[SECOND, GPU])]);
    for mut cloud in Cloud::all(topology).await {
        cloud.options = options.clone();
        let mut up = cloud.start().await;
        up.hosts_are_there().await;
        let id = up.active(&cloud, "accel_server1", "fpga").await;
        has(&cloud, &up, &id, ONE).await;
        scenario(&cloud, &mut up, &id).await;
        up.hosts_have_dropped(&cloud).await;
        cloud.sound(&up, "in the end").await;
        cloud.sweep(&up, "in the end").await;
        has_nothing(&up, &id).await;
        up.kill().await;
    }
}

/// Each action in its turn, with the state that it ends in: the requests are the same throughout.
async fn keeps(actions: &[(Value, &str)]) {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str| {
        let before = has(cloud, up, id, ONE).await;
        for (action, status) in actions {
            let answer = up.try_act(id, action.clone()).await;
            assert!(answer.status.is_success(), "{action}: {}", answer.body);
            up.becomes(id, status).await;
            same(&before, &has(cloud, up, id, ONE).await);
        }
    })
    .await;
}

async fn hosts_of(up: &Up, id: &str) -> (String, String) {
    let host = up.server(id).await["OS-EXT-SRV-ATTR:host"].as_str().expect("a host").to_owned();
    let other = if host == "accel_host0" { "accel_host1" } else { "accel_host0" };
    (host, other.to_owned())
}

#[tokio::test]
async fn soft_reboot_ok() {
    keeps(&[(json!({"reboot": {"type": "SOFT"}}), "ACTIVE")]).await;
}

#[tokio::test]
async fn hard_reboot_ok() {
    keeps(&[(json!({"reboot": {"type": "HARD"}}), "ACTIVE")]).await;
}

#[tokio::test]
async fn pause_unpause_ok() {
    keeps(&[(json!({"pause": {}}), "PAUSED"), (json!({"unpause": {}}), "ACTIVE")]).await;
}

#[tokio::test]
async fn stop_start_ok() {
    keeps(&[(json!({"os-stop": {}}), "SHUTOFF"), (json!({"os-start": {}}), "ACTIVE")]).await;
}

#[tokio::test]
async fn lock_unlock_ok() {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str| {
        let before = has(cloud, up, id, ONE).await;
        for (action, locked) in [("lock", true), ("unlock", false)] {
            up.act(id, json!({action: null})).await;
            assert_eq!(up.server(id).await["locked"], locked);
            same(&before, &has(cloud, up, id, ONE).await);
        }
    })
    .await;
}

#[tokio::test]
async fn backup_ok() {
    let backup = json!({"name": "Backup 1", "backup_type": "daily", "rotation": 1});
    let again = json!({"name": "Backup 2", "backup_type": "daily", "rotation": 1});
    keeps(&[
        (json!({"createBackup": backup}), "ACTIVE"),
        (json!({"createBackup": again}), "ACTIVE"),
    ])
    .await;
}

#[tokio::test]
async fn create_image_ok() {
    let image = json!({"name": "foo-image", "metadata": {"meta_var": "meta_val"}});
    keeps(&[(json!({"createImage": image}), "ACTIVE")]).await;
}

#[tokio::test]
async fn rescue_unrescue_ok() {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str| {
        let before = has(cloud, up, id, ONE).await;
        let rescue = json!({"adminPass": "MySecretPass", "rescue_image_ref": cloud.image});
        up.try_act(id, json!({"rescue": rescue})).await.expect(200);
        up.becomes(id, "RESCUE").await;
        same(&before, &has(cloud, up, id, ONE).await);
        up.act(id, json!({"unrescue": {}})).await;
        up.becomes(id, "ACTIVE").await;
        same(&before, &has(cloud, up, id, ONE).await);
    })
    .await;
}

#[tokio::test]
async fn evacuate_ok() {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str| {
        let (host, other) = hosts_of(up, id).await;
        assert_eq!(arqs(up, id).await[0]["hostname"], host.as_str());
        up.nodes.kill(&host).await;
        up.force_down(&host, true).await;
        let wish = json!({"evacuate": {"host": other}});
        admin(up, "2.94", id, wish).await.expect(200);
        up.becomes(id, "ACTIVE").await;
        holds(cloud, up, id, ONE).await;
        assert_eq!(arqs(up, id).await[0]["hostname"], other.as_str());
        up.start_node(cloud, &host).await;
        up.force_down(&host, false).await;
        crate::kit::patiently("the old host to drop it", async || {
            cloud.column("SELECT host FROM documents").await == [other.clone()]
        })
        .await;
        has(cloud, up, id, ONE).await;
    })
    .await;
}

#[tokio::test]
async fn rebuild_ok() {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str| {
        let before = has(cloud, up, id, ONE).await;
        let rebuild = json!({"imageRef": cloud.image, "OS-DCF:diskConfig": "AUTO"});
        up.act(id, json!({"rebuild": rebuild})).await;
        up.becomes(id, "ACTIVE").await;
        same(&before, &has(cloud, up, id, ONE).await);
    })
    .await;
}

#[tokio::test]
async fn shelve_and_unshelve_ok() {
    let options = Options { shelved_offload_time: 3600, ..Options::default() };
    with_server(options, async |cloud: &Cloud, up: &mut Up, id: &str| {
        let before = has(cloud, up, id, ONE).await;
        up.act(id, json!({"shelve": {}})).await;
        up.becomes(id, "SHELVED").await;
        same(&before, &arqs(up, id).await);
        up.act(id, json!({"unshelve": null})).await;
        up.becomes(id, "ACTIVE").await;
        same(&before, &has(cloud, up, id, ONE).await);
    })
    .await;
}

#[tokio::test]
async fn shelve_offload_and_unshelve_ok() {
    let options = Options { shelved_offload_time: -1, ..Options::default() };
    with_server(options, async |cloud: &Cloud, up: &mut Up, id: &str| {
        up.act(id, json!({"shelve": {}})).await;
        up.becomes(id, "SHELVED").await;
        assert_eq!(arqs(up, id).await.len(), 1);
        admin(up, "2.90", id, json!({"shelveOffload": {}})).await.expect(202);
        up.becomes(id, "SHELVED_OFFLOADED").await;
        has_nothing(up, id).await;
        for host in ["accel_host0", "accel_host1"] {
            nothing_on(up, host).await;
        }
        up.act(id, json!({"unshelve": null})).await;
        up.becomes(id, "ACTIVE").await;
        has(cloud, up, id, ONE).await;
    })
    .await;
}

/// Upstream's `test_resize_fails`.
#[tokio::test]
async fn resize_ok() {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str| {
        let before = has(cloud, up, id, ONE).await;
        let (host, other) = hosts_of(up, id).await;
        let away = json!({"resize": {"flavorRef": "plain", "OS-DCF:diskConfig": "AUTO"}});
        up.act(id, away.clone()).await;
        up.becomes(id, "VERIFY_RESIZE").await;
        holds(cloud, up, id, &[]).await;
        assert_eq!(super::eyes::used_on(up, &host, "FPGA").await, 1, "held until it is confirmed");
        up.act(id, json!({"revertResize": null})).await;
        up.becomes(id, "ACTIVE").await;
        same(&before, &has(cloud, up, id, ONE).await);
        up.act(id, away).await;
        up.becomes(id, "VERIFY_RESIZE").await;
        confirmed(up, cloud, id).await;
        up.becomes(id, "ACTIVE").await;
        has(cloud, up, id, &[]).await;
        assert_eq!(hosts_of(up, id).await.0, other);
        up.act(id, json!({"resize": {"flavorRef": "fpga"}})).await;
        up.becomes(id, "VERIFY_RESIZE").await;
        confirmed(up, cloud, id).await;
        up.becomes(id, "ACTIVE").await;
        has(cloud, up, id, ONE).await;
    })
    .await;
}

/// Upstream's `test_suspend_fails`.
#[tokio::test]
async fn suspend_ok() {
    keeps(&[(json!({"suspend": {}}), "SUSPENDED"), (json!({"resume": {}}), "ACTIVE")]).await;
}

/// Upstream's `test_migrate_fails`.
#[tokio::test]
async fn migrate_ok() {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str| {
        let (host, other) = hosts_of(up, id).await;
        admin(up, "2.90", id, json!({"migrate": null})).await.expect(202);
        up.becomes(id, "VERIFY_RESIZE").await;
        holds(cloud, up, id, ONE).await;
        assert_eq!(super::eyes::used_on(up, &host, "FPGA").await, 1, "held until it is confirmed");
        confirmed(up, cloud, id).await;
        up.becomes(id, "ACTIVE").await;
        assert_eq!(hosts_of(up, id).await.0, other);
        has(cloud, up, id, ONE).await;
    })
    .await;
}

/// Upstream's `test_live_migrate_fails`, which asks for a cold migration to a host; and a live one: a
/// vGPU goes along, an FPGA, whose state nobody can take along, is refused and stays as it was.
#[tokio::test]
async fn live_migrate_ok() {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str| {
        let (host, other) = hosts_of(up, id).await;
        admin(up, "2.90", id, json!({"migrate": {"host": other}})).await.expect(202);
        up.becomes(id, "VERIFY_RESIZE").await;
        confirmed(up, cloud, id).await;
        up.becomes(id, "ACTIVE").await;
        let before = has(cloud, up, id, ONE).await;
        let live = json!({"os-migrateLive": {"host": host, "block_migration": "auto"}});
        let refused = admin(up, "2.90", id, live.clone()).await;
        refused.refused(400, "cannot be moved while the server runs");
        same(&before, &has(cloud, up, id, ONE).await);
        up.delete(id).await;
        up.goes(id).await;
        let id = &up.active_on(cloud, &other, "profile").await;
        has(cloud, up, id, &[("VGPU", 1)]).await;
        admin(up, "2.90", id, live).await.expect(202);
        up.becomes(id, "ACTIVE").await;
        up.hosts_have_dropped(cloud).await;
        assert_eq!(hosts_of(up, id).await.0, host);
        has(cloud, up, id, &[("VGPU", 1)]).await;
    })
    .await;
}
