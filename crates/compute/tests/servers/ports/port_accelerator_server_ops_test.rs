//! Upstream's `PortAcceleratorServerOpsTest`: actions on a server whose port has an accelerator.
//! Operations that upstream refuses work here, except attach and detach: devices are not hot-plugged.

use jiff::SignedDuration;
use kilonova_compute_app::Options;
use serde_json::{Value, json};

use super::inspect::{accelerator_port, active_server_with_ports, assert_bound, assert_free};
use super::{FIRST, SECOND};
use crate::kit::{ANN, Cloud, RunningCloud, hosts};
use crate::servers::resize::admin;

/// Runs a scenario on a server with such a port, on each store, and checks that only the port is left
/// at the end.
async fn with_server(
    options: Options,
    scenario: impl AsyncFn(&Cloud, &mut RunningCloud, &str, &str),
) {
    let topology = hosts(&[("accel_host0", &[FIRST]), ("accel_host1", &[SECOND])]);
    for mut cloud in Cloud::all(topology).await {
        cloud.options = options.clone();
        let mut running = cloud.start().await;
        running.wait_for_hosts().await;
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let port = accelerator_port(&running, &net, "fpga").await;
        let id = active_server_with_ports(&cloud, &running, "plain", &[&port]).await;
        assert_bound(&cloud, &running, &id, &port).await;
        scenario(&cloud, &mut running, &id, &port).await;
        running.wait_for_host_cleanup(&cloud).await;
        cloud.assert_consistent(&running, "at the end").await;
        cloud.teardown(&running, "at the end").await;
        assert_free(&cloud, &running, &port).await;
        running.kill().await;
    }
}

/// Runs the actions in order; the device stays the same.
async fn assert_keeps_devices(actions: &[(Value, &str)]) {
    with_server(
        Options::default(),
        async |cloud: &Cloud, running: &mut RunningCloud, id: &str, port: &str| {
            let before = assert_bound(cloud, running, id, port).await;
            for (action, status) in actions {
                let answer = running.try_act(id, action.clone()).await;
                assert!(answer.status.is_success(), "{action}: {}", answer.body);
                running.wait_for_status(id, status).await;
                assert_eq!(assert_bound(cloud, running, id, port).await, before, "{action}");
            }
        },
    )
    .await;
}

async fn host_of(running: &RunningCloud, id: &str) -> String {
    running.server(id).await["OS-EXT-SRV-ATTR:host"]
        .as_str()
        .expect("the server has a host")
        .to_owned()
}

#[tokio::test]
async fn delete_ok() {
    with_server(
        Options::default(),
        async |cloud: &Cloud, running: &mut RunningCloud, id: &str, port: &str| {
            running.delete(id).await;
            running.wait_until_gone(id).await;
            assert_free(cloud, running, port).await;
        },
    )
    .await;
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
    assert_keeps_devices(&[(json!({"lock": null}), "ACTIVE"), (json!({"unlock": null}), "ACTIVE")])
        .await;
}

#[tokio::test]
async fn backup_ok() {
    let backup = json!({"name": "Backup 1", "backup_type": "daily", "rotation": 1});
    assert_keeps_devices(&[(json!({"createBackup": backup}), "ACTIVE")]).await;
}

#[tokio::test]
async fn create_image_ok() {
    assert_keeps_devices(&[(json!({"createImage": {"name": "foo-image"}}), "ACTIVE")]).await;
}

#[tokio::test]
async fn rescue_unrescue_ok() {
    assert_keeps_devices(&[(json!({"rescue": {}}), "RESCUE"), (json!({"unrescue": {}}), "ACTIVE")])
        .await;
}

#[tokio::test]
async fn rebuild_instance() {
    with_server(
        Options::default(),
        async |cloud: &Cloud, running: &mut RunningCloud, id: &str, port: &str| {
            let before = assert_bound(cloud, running, id, port).await;
            running.act(id, json!({"rebuild": {"imageRef": cloud.image}})).await;
            running.wait_for_status(id, "ACTIVE").await;
            assert_eq!(assert_bound(cloud, running, id, port).await, before);
        },
    )
    .await;
}

/// Upstream refuses it.
#[tokio::test]
async fn resize_fails() {
    with_server(
        Options::default(),
        async |cloud: &Cloud, running: &mut RunningCloud, id: &str, port: &str| {
            running.flavor("larger", json!({"vcpus": 2, "ram": 128})).await;
            for (end, other) in [("revertResize", false), ("confirmResize", true)] {
                let (before, at) =
                    (assert_bound(cloud, running, id, port).await, host_of(running, id).await);
                running.act(id, json!({"resize": {"flavorRef": "larger"}})).await;
                running.wait_for_status(id, "VERIFY_RESIZE").await;
                assert_ne!(
                    assert_bound(cloud, running, id, port).await,
                    before,
                    "the device is on the new host"
                );
                let answer = running.try_act(id, json!({end: null})).await;
                assert!(answer.status.is_success(), "{}", answer.body);
                running.wait_for_status(id, "ACTIVE").await;
                running.wait_for_host_cleanup(cloud).await;
                assert_eq!(assert_bound(cloud, running, id, port).await != before, other, "{end}");
                assert_eq!(host_of(running, id).await != at, other, "{end}");
            }
        },
    )
    .await;
}

/// Resize on the same host.
#[tokio::test]
async fn resize_on_one_host() {
    let options = Options { allow_resize_to_same_host: true, ..Options::default() };
    with_server(
        options,
        async |cloud: &Cloud, running: &mut RunningCloud, id: &str, port: &str| {
            running.flavor("larger", json!({"vcpus": 2, "ram": 128})).await;
            for end in ["revertResize", "confirmResize"] {
                let before = assert_bound(cloud, running, id, port).await;
                running.act(id, json!({"resize": {"flavorRef": "larger"}})).await;
                running.wait_for_status(id, "VERIFY_RESIZE").await;
                assert_bound(cloud, running, id, port).await;
                let answer = running.try_act(id, json!({end: null})).await;
                assert!(answer.status.is_success(), "{}", answer.body);
                running.wait_for_status(id, "ACTIVE").await;
                running.wait_for_host_cleanup(cloud).await;
                let same = assert_bound(cloud, running, id, port).await == before;
                assert_eq!(same, end == "revertResize", "{end}");
            }
        },
    )
    .await;
}

/// Upstream refuses it.
#[tokio::test]
async fn suspend_fails() {
    assert_keeps_devices(&[
        (json!({"suspend": {}}), "SUSPENDED"),
        (json!({"resume": {}}), "ACTIVE"),
    ])
    .await;
}

/// Upstream refuses it.
#[tokio::test]
async fn migrate_fails() {
    with_server(
        Options::default(),
        async |cloud: &Cloud, running: &mut RunningCloud, id: &str, port: &str| {
            let at = host_of(running, id).await;
            admin(running, "2.90", id, json!({"migrate": null})).await.expect(202);
            running.wait_for_status(id, "VERIFY_RESIZE").await;
            assert_bound(cloud, running, id, port).await;
            admin(running, "2.90", id, json!({"confirmResize": null})).await.expect(204);
            running.wait_for_status(id, "ACTIVE").await;
            assert_ne!(host_of(running, id).await, at);
            running.wait_for_host_cleanup(cloud).await;
            assert_bound(cloud, running, id, port).await;
        },
    )
    .await;
}

/// Upstream refuses it; here a passthrough device is refused, because its state cannot be transferred.
#[tokio::test]
async fn live_migrate_fails() {
    with_server(
        Options::default(),
        async |cloud: &Cloud, running: &mut RunningCloud, id: &str, port: &str| {
            let before = assert_bound(cloud, running, id, port).await;
            let body = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
            admin(running, "2.90", id, body).await.refused(400, "cannot live-migrate");
            assert_eq!(assert_bound(cloud, running, id, port).await, before);
        },
    )
    .await;
}

/// Upstream refuses it.
#[tokio::test]
async fn shelve_fails() {
    let options =
        Options { shelved_offload_time: SignedDuration::from_secs(-1), ..Options::default() };
    with_server(
        options,
        async |cloud: &Cloud, running: &mut RunningCloud, id: &str, port: &str| {
            let before = assert_bound(cloud, running, id, port).await;
            running.act(id, json!({"shelve": {}})).await;
            running.wait_for_status(id, "SHELVED").await;
            assert_eq!(assert_bound(cloud, running, id, port).await, before);
            running.act(id, json!({"unshelve": null})).await;
            running.wait_for_status(id, "ACTIVE").await;
            assert_eq!(assert_bound(cloud, running, id, port).await, before);
        },
    )
    .await;
}

/// Upstream refuses it.
#[tokio::test]
async fn shelve_offload_fails() {
    with_server(
        Options::default(),
        async |cloud: &Cloud, running: &mut RunningCloud, id: &str, port: &str| {
            running.act(id, json!({"shelve": {}})).await;
            running.wait_for_status(id, "SHELVED_OFFLOADED").await;
            let now = running.show_port(port).await;
            assert_eq!((&now["binding:host_id"], &now["device_id"]), (&json!(""), &json!(id)));
            assert_eq!(now["binding:profile"], json!({}), "the port has no device");
            assert!(cloud.column("SELECT uuid FROM arqs").await.is_empty());
            cloud.audit("offloaded").await;
            running.act(id, json!({"unshelve": null})).await;
            running.wait_for_status(id, "ACTIVE").await;
            assert_bound(cloud, running, id, port).await;
        },
    )
    .await;
}

/// Upstream refuses it.
#[tokio::test]
async fn evacuate_fails() {
    with_server(
        Options::default(),
        async |cloud: &Cloud, running: &mut RunningCloud, id: &str, port: &str| {
            let at = host_of(running, id).await;
            running.nodes.kill(&at).await;
            running.force_down(&at, true).await;
            admin(running, "2.94", id, json!({"evacuate": {}})).await.expect(200);
            running.wait_for_status(id, "ACTIVE").await;
            assert_ne!(host_of(running, id).await, at);
            cloud.audit("evacuated").await;
            running.start_node(cloud, &at).await;
            running.force_down(&at, false).await;
            running.wait_for_host_cleanup(cloud).await;
            assert_bound(cloud, running, id, port).await;
        },
    )
    .await;
}

const REFUSED: &str = "Feature not supported with Ports that have accelerators.";

#[tokio::test]
async fn attach_interface_fails() {
    with_server(
        Options::default(),
        async |cloud: &Cloud, running: &mut RunningCloud, id: &str, port: &str| {
            let before = assert_bound(cloud, running, id, port).await;
            let net = running.show_port(port).await["network_id"]
                .as_str()
                .expect("the answer has an id")
                .to_owned();
            let other = accelerator_port(running, &net, "fpga").await;
            let body = json!({"interfaceAttachment": {"port_id": other}});
            let path = format!("POST /servers/{id}/os-interface");
            running.call(ANN, "2.90", &path, Some(body)).await.refused(400, REFUSED);
            assert_eq!(assert_bound(cloud, running, id, port).await, before);
            running.neutron(ANN, &format!("DELETE /ports/{other}"), None).await.expect(204);
        },
    )
    .await;
}

#[tokio::test]
async fn detach_interface_fails() {
    with_server(
        Options::default(),
        async |cloud: &Cloud, running: &mut RunningCloud, id: &str, port: &str| {
            let before = assert_bound(cloud, running, id, port).await;
            let path = format!("DELETE /servers/{id}/os-interface/{port}");
            running.call(ANN, "2.90", &path, None).await.refused(400, REFUSED);
            assert_eq!(assert_bound(cloud, running, id, port).await, before);
        },
    )
    .await;
}
