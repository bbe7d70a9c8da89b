//! Upstream's `PortAcceleratorServerOpsTest`: what can be done to a server whose port is an
//! accelerator, and, unlike upstream, what is refused there. A device is not plugged into a guest
//! that is there, nor out of it: that is refused here too.

use kilonova_compute::Options;
use serde_json::{Value, json};

use super::eyes::{accelerator, active, has, is_free};
use super::{FIRST, SECOND};
use crate::kit::{ANN, Cloud, Up, hosts};
use crate::servers::moving::admin;

/// Runs a scenario on a server with such a port, on each store, and sees that nothing is left of it
/// but the port.
async fn with_server(options: Options, scenario: impl AsyncFn(&Cloud, &mut Up, &str, &str)) {
    let topology = hosts(&[("accel_host0", &[FIRST]), ("accel_host1", &[SECOND])]);
    for mut cloud in Cloud::all(topology).await {
        cloud.options = options.clone();
        let mut up = cloud.start().await;
        up.hosts_are_there().await;
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let port = accelerator(&up, &net, "fpga").await;
        let id = active(&cloud, &up, "plain", &[&port]).await;
        has(&cloud, &up, &id, &port).await;
        scenario(&cloud, &mut up, &id, &port).await;
        up.hosts_have_dropped(&cloud).await;
        cloud.sound(&up, "in the end").await;
        cloud.sweep(&up, "in the end").await;
        is_free(&cloud, &up, &port).await;
        up.kill().await;
    }
}

/// Each action in its turn; the device is the same throughout.
async fn keeps(actions: &[(Value, &str)]) {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str, port: &str| {
        let before = has(cloud, up, id, port).await;
        for (action, status) in actions {
            let answer = up.try_act(id, action.clone()).await;
            assert!(answer.status.is_success(), "{action}: {}", answer.body);
            up.becomes(id, status).await;
            assert_eq!(has(cloud, up, id, port).await, before, "{action}");
        }
    })
    .await;
}

async fn host_of(up: &Up, id: &str) -> String {
    up.server(id).await["OS-EXT-SRV-ATTR:host"].as_str().expect("a host").to_owned()
}

#[tokio::test]
async fn delete_ok() {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str, port: &str| {
        up.delete(id).await;
        up.goes(id).await;
        is_free(cloud, up, port).await;
    })
    .await;
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
    keeps(&[(json!({"lock": null}), "ACTIVE"), (json!({"unlock": null}), "ACTIVE")]).await;
}

#[tokio::test]
async fn backup_ok() {
    let backup = json!({"name": "Backup 1", "backup_type": "daily", "rotation": 1});
    keeps(&[(json!({"createBackup": backup}), "ACTIVE")]).await;
}

#[tokio::test]
async fn create_image_ok() {
    keeps(&[(json!({"createImage": {"name": "foo-image"}}), "ACTIVE")]).await;
}

#[tokio::test]
async fn rescue_unrescue_ok() {
    keeps(&[(json!({"rescue": {}}), "RESCUE"), (json!({"unrescue": {}}), "ACTIVE")]).await;
}

#[tokio::test]
async fn rebuild_instance() {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str, port: &str| {
        let before = has(cloud, up, id, port).await;
        up.act(id, json!({"rebuild": {"imageRef": cloud.image}})).await;
        up.becomes(id, "ACTIVE").await;
        assert_eq!(has(cloud, up, id, port).await, before);
    })
    .await;
}

/// Upstream refuses it.
#[tokio::test]
async fn resize_fails() {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str, port: &str| {
        up.flavor("larger", json!({"vcpus": 2, "ram": 128})).await;
        for (end, other) in [("revertResize", false), ("confirmResize", true)] {
            let (before, at) = (has(cloud, up, id, port).await, host_of(up, id).await);
            up.act(id, json!({"resize": {"flavorRef": "larger"}})).await;
            up.becomes(id, "VERIFY_RESIZE").await;
            assert_ne!(has(cloud, up, id, port).await, before, "a device of the new host");
            let answer = up.try_act(id, json!({end: null})).await;
            assert!(answer.status.is_success(), "{}", answer.body);
            up.becomes(id, "ACTIVE").await;
            up.hosts_have_dropped(cloud).await;
            assert_eq!(has(cloud, up, id, port).await != before, other, "{end}");
            assert_eq!(host_of(up, id).await != at, other, "{end}");
        }
    })
    .await;
}

/// The same, where the server stays on its host.
#[tokio::test]
async fn resize_on_one_host() {
    let options = Options { allow_resize_to_same_host: true, ..Options::default() };
    with_server(options, async |cloud: &Cloud, up: &mut Up, id: &str, port: &str| {
        up.flavor("larger", json!({"vcpus": 2, "ram": 128})).await;
        for end in ["revertResize", "confirmResize"] {
            let before = has(cloud, up, id, port).await;
            up.act(id, json!({"resize": {"flavorRef": "larger"}})).await;
            up.becomes(id, "VERIFY_RESIZE").await;
            has(cloud, up, id, port).await;
            let answer = up.try_act(id, json!({end: null})).await;
            assert!(answer.status.is_success(), "{}", answer.body);
            up.becomes(id, "ACTIVE").await;
            up.hosts_have_dropped(cloud).await;
            let same = has(cloud, up, id, port).await == before;
            assert_eq!(same, end == "revertResize", "{end}");
        }
    })
    .await;
}

/// Upstream refuses it.
#[tokio::test]
async fn suspend_fails() {
    keeps(&[(json!({"suspend": {}}), "SUSPENDED"), (json!({"resume": {}}), "ACTIVE")]).await;
}

/// Upstream refuses it.
#[tokio::test]
async fn migrate_fails() {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str, port: &str| {
        let at = host_of(up, id).await;
        admin(up, "2.90", id, json!({"migrate": null})).await.expect(202);
        up.becomes(id, "VERIFY_RESIZE").await;
        has(cloud, up, id, port).await;
        admin(up, "2.90", id, json!({"confirmResize": null})).await.expect(204);
        up.becomes(id, "ACTIVE").await;
        assert_ne!(host_of(up, id).await, at);
        up.hosts_have_dropped(cloud).await;
        has(cloud, up, id, port).await;
    })
    .await;
}

/// Upstream refuses it; here what stands still on its way over is.
#[tokio::test]
async fn live_migrate_fails() {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str, port: &str| {
        let before = has(cloud, up, id, port).await;
        let body = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
        admin(up, "2.90", id, body).await.refused(400, "cannot be moved while the server runs");
        assert_eq!(has(cloud, up, id, port).await, before);
    })
    .await;
}

/// Upstream refuses it.
#[tokio::test]
async fn shelve_fails() {
    let options = Options { shelved_offload_time: -1, ..Options::default() };
    with_server(options, async |cloud: &Cloud, up: &mut Up, id: &str, port: &str| {
        let before = has(cloud, up, id, port).await;
        up.act(id, json!({"shelve": {}})).await;
        up.becomes(id, "SHELVED").await;
        assert_eq!(has(cloud, up, id, port).await, before);
        up.act(id, json!({"unshelve": null})).await;
        up.becomes(id, "ACTIVE").await;
        assert_eq!(has(cloud, up, id, port).await, before);
    })
    .await;
}

/// Upstream refuses it.
#[tokio::test]
async fn shelve_offload_fails() {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str, port: &str| {
        up.act(id, json!({"shelve": {}})).await;
        up.becomes(id, "SHELVED_OFFLOADED").await;
        let now = up.port_now(port).await;
        assert_eq!((&now["binding:host_id"], &now["device_id"]), (&json!(""), &json!(id)));
        assert_eq!(now["binding:profile"], json!({}), "nothing is held");
        assert!(cloud.column("SELECT uuid FROM arqs").await.is_empty());
        cloud.audit("offloaded").await;
        up.act(id, json!({"unshelve": null})).await;
        up.becomes(id, "ACTIVE").await;
        has(cloud, up, id, port).await;
    })
    .await;
}

/// Upstream refuses it.
#[tokio::test]
async fn evacuate_fails() {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str, port: &str| {
        let at = host_of(up, id).await;
        up.nodes.kill(&at).await;
        up.force_down(&at, true).await;
        admin(up, "2.94", id, json!({"evacuate": {}})).await.expect(200);
        up.becomes(id, "ACTIVE").await;
        assert_ne!(host_of(up, id).await, at);
        cloud.audit("evacuated").await;
        up.start_node(cloud, &at).await;
        up.force_down(&at, false).await;
        up.hosts_have_dropped(cloud).await;
        has(cloud, up, id, port).await;
    })
    .await;
}

const REFUSED: &str = "Feature not supported with Ports that have accelerators.";

#[tokio::test]
async fn attach_interface_fails() {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str, port: &str| {
        let before = has(cloud, up, id, port).await;
        let net = up.port_now(port).await["network_id"].as_str().expect("an id").to_owned();
        let other = accelerator(up, &net, "fpga").await;
        let body = json!({"interfaceAttachment": {"port_id": other}});
        let path = format!("POST /servers/{id}/os-interface");
        up.call(ANN, "2.90", &path, Some(body)).await.refused(400, REFUSED);
        assert_eq!(has(cloud, up, id, port).await, before);
        up.neutron(ANN, &format!("DELETE /ports/{other}"), None).await.expect(204);
    })
    .await;
}

#[tokio::test]
async fn detach_interface_fails() {
    with_server(Options::default(), async |cloud: &Cloud, up: &mut Up, id: &str, port: &str| {
        let before = has(cloud, up, id, port).await;
        let path = format!("DELETE /servers/{id}/os-interface/{port}");
        up.call(ANN, "2.90", &path, None).await.refused(400, REFUSED);
        assert_eq!(has(cloud, up, id, port).await, before);
    })
    .await;
}
