//! Changes that no user requests: guests that stop or are stopped on their host, power cuts, and
//! guests of deleted servers.

use std::time::Duration;

use kilonova_compute_app::{Options, Orphans};
use kilonova_ids::ServerId;
use serde_json::{Value, json};

use crate::kit::{Cloud, FPGA, GPU, Up, fault, hosts, wait_until};
use crate::servers::instance_actions::{actions, succeeded};

async fn restart(cloud: &Cloud, up: &mut Up, host: &str) {
    up.nodes.kill(host).await;
    up.start_node(cloud, host).await;
}

/// Restarts the agent of host `a` with a continuous power sync.
async fn start_power_sync(cloud: &Cloud, up: &mut Up) {
    up.nodes.power_sync = Some(Duration::from_millis(10));
    restart(cloud, up, "a").await;
}

async fn wait_for_power_state(up: &Up, id: &str, power: i64) -> Value {
    wait_until("the power state is reported", async || {
        up.server(id).await["OS-EXT-STS:power_state"] == power
    })
    .await;
    up.wait_until_idle(id).await
}

async fn act_until(up: &Up, id: &str, action: &str, status: &str) {
    up.act(id, json!({action: null})).await;
    up.wait_for_status(id, status).await;
}

async fn last_action(up: &Up, id: &str) -> (String, Value, Vec<(String, String)>) {
    actions(up, id).await.pop().expect("the server has an action")
}

#[tokio::test]
async fn power_changes_on_the_host_update_the_server() {
    for (cloud, mut up) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        start_power_sync(&cloud, &mut up).await;
        let id = up.active_server(&cloud, "one", "vgpu").await;
        let guest: ServerId = id.parse().expect("the id is a UUID");
        let stopped = succeeded("stop", "compute_stop_instance");

        up.nodes.hypervisor("a").stop(guest).await.expect("the guest stops");
        assert_eq!(wait_for_power_state(&up, &id, 4).await["status"], "SHUTOFF");
        assert_eq!(last_action(&up, &id).await, stopped);
        cloud.assert_consistent(&up, "stopped on the host").await;

        up.nodes.hypervisor("a").start(guest).await.expect("the guest starts");
        wait_until("the guest is stopped again", async || {
            cloud.files("a", "running").is_empty() && actions(&up, &id).await.len() == 3
        })
        .await;
        up.wait_for_status(&id, "SHUTOFF").await;
        assert_eq!(last_action(&up, &id).await, stopped);
        cloud.assert_consistent(&up, "started on the host").await;
        act_until(&up, &id, "os-start", "ACTIVE").await;

        up.nodes.hypervisor("a").pause(guest).await.expect("the guest is paused");
        assert_eq!(wait_for_power_state(&up, &id, 3).await["status"], "ACTIVE");
        up.nodes.hypervisor("a").unpause(guest).await.expect("the guest continues");
        up.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        assert_eq!(wait_for_power_state(&up, &id, 1).await["status"], "ACTIVE");

        up.nodes.hypervisor("a").suspend(guest).await.expect("the guest is suspended");
        assert_eq!(wait_for_power_state(&up, &id, 4).await["status"], "SHUTOFF");
        assert_eq!(last_action(&up, &id).await, stopped);
        act_until(&up, &id, "os-start", "ACTIVE").await;

        act_until(&up, &id, "pause", "PAUSED").await;
        up.nodes.hypervisor("a").destroy(guest).await.expect("the guest is destroyed");
        assert_eq!(wait_for_power_state(&up, &id, 4).await["status"], "SHUTOFF");
        assert_eq!(last_action(&up, &id).await, stopped);
        act_until(&up, &id, "os-start", "ACTIVE").await;

        act_until(&up, &id, "suspend", "SUSPENDED").await;
        up.nodes.hypervisor("a").resume(guest).await.expect("the guest continues");
        assert_eq!(wait_for_power_state(&up, &id, 1).await["status"], "SUSPENDED");
        act_until(&up, &id, "resume", "ACTIVE").await;
        cloud.assert_consistent(&up, "resumed").await;
        cloud.teardown(&up, "at the end").await;
    }
}

/// Removes running guests and mediated devices; the files of domains and saved memory remain.
async fn power_cut(cloud: &Cloud, up: &mut Up) {
    up.nodes.kill("a").await;
    for folder in ["running", "mdevs"] {
        for file in cloud.files("a", folder) {
            let path = cloud.nodes().join("a").join(folder).join(file);
            std::fs::remove_file(path).expect("the file is removed");
        }
    }
}

fn resuming() -> Options {
    Options { resume_guests_state_on_host_boot: true, ..Options::default() }
}

#[tokio::test]
async fn after_a_power_cut_servers_are_shut_off_and_keep_their_devices() {
    for (cloud, mut up) in Cloud::all_running(hosts(&[("a", &[GPU, FPGA])])).await {
        let pair = up.active_server(&cloud, "pair", "vgpu-pair").await;
        let fpga = up.active_server(&cloud, "fpga", "fpga").await;
        let saved = up.active_server(&cloud, "saved", "vgpu").await;
        act_until(&up, &saved, "suspend", "SUSPENDED").await;
        let before = cloud.files("a", "mdevs");
        power_cut(&cloud, &mut up).await;
        up.start_node(&cloud, "a").await;
        for id in [&pair, &fpga] {
            assert_eq!(wait_for_power_state(&up, id, 4).await["status"], "SHUTOFF");
            assert_eq!(last_action(&up, id).await, succeeded("stop", "compute_stop_instance"));
        }
        wait_until("the mdevs exist", async || cloud.files("a", "mdevs") == before).await;
        cloud.assert_consistent(&up, "after the power cut").await;
        for id in [&pair, &fpga] {
            act_until(&up, id, "os-start", "ACTIVE").await;
        }
        act_until(&up, &saved, "resume", "ACTIVE").await;
        cloud.assert_consistent(&up, "started").await;
        cloud.teardown(&up, "started").await;
    }
}

#[tokio::test]
async fn after_a_power_cut_guests_resume_if_configured() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU, FPGA])])).await {
        cloud.options = resuming();
        let mut up = cloud.start().await;
        up.wait_for_hosts().await;
        let pair = up.active_server(&cloud, "pair", "vgpu-pair").await;
        let fpga = up.active_server(&cloud, "fpga", "fpga").await;
        let rescued = up.active_server(&cloud, "rescued", "vgpu").await;
        up.try_act(&rescued, json!({"rescue": null})).await.expect(200);
        up.wait_for_status(&rescued, "RESCUE").await;
        let stopped = up.active_server(&cloud, "stopped", "vgpu").await;
        act_until(&up, &stopped, "os-stop", "SHUTOFF").await;
        let before = cloud.files("a", "mdevs");
        power_cut(&cloud, &mut up).await;
        up.nodes.power_sync = Some(Duration::from_millis(10));
        up.start_node(&cloud, "a").await;
        wait_until("the guests run", async || {
            cloud.files("a", "running").len() == 3 && cloud.files("a", "mdevs") == before
        })
        .await;
        for (id, status) in [(&pair, "ACTIVE"), (&fpga, "ACTIVE"), (&rescued, "RESCUE")] {
            assert_eq!(wait_for_power_state(&up, id, 1).await["status"], status);
        }
        assert_eq!(last_action(&up, &pair).await, succeeded("start", "compute_start_instance"));
        up.wait_for_status(&stopped, "SHUTOFF").await;
        cloud.assert_consistent(&up, "after the power cut").await;

        // A guest that stops while its host is up is not started again.
        let guest: ServerId = pair.parse().expect("the id is a UUID");
        up.nodes.hypervisor("a").stop(guest).await.expect("the guest stops");
        assert_eq!(wait_for_power_state(&up, &pair, 4).await["status"], "SHUTOFF");
        cloud.teardown(&up, "after the power cut").await;
    }
}

/// A server whose device cannot be recreated goes to `ERROR` with the reason.
#[tokio::test]
async fn a_device_lost_in_a_power_cut_puts_the_server_in_error() {
    for resume in [true, false] {
        for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
            cloud.options =
                Options { resume_guests_state_on_host_boot: resume, ..Options::default() };
            let mut up = cloud.start().await;
            up.wait_for_hosts().await;
            let id = up.active_server(&cloud, "one", "vgpu").await;
            power_cut(&cloud, &mut up).await;
            up.restart_failing(&cloud, "a", &[("create_mdev", None)]).await;
            if !resume {
                assert_eq!(wait_for_power_state(&up, &id, 4).await["status"], "SHUTOFF");
                up.act(&id, json!({"os-start": null})).await;
            }
            wait_until("the start has failed", async || up.server(&id).await["status"] == "ERROR")
                .await;
            let server = up.wait_for_status(&id, "ERROR").await;
            assert!(fault(&server).contains("a: create_mdev: "), "{server}");
            let (action, message, events) = last_action(&up, &id).await;
            assert_eq!((action.as_str(), message), ("start", json!("Error")));
            assert_eq!(events, [("compute_start_instance".into(), "Error".into())]);
            cloud.audit("failed").await;

            restart(&cloud, &mut up, "a").await;
            up.act(&id, json!({"reboot": {"type": "HARD"}})).await;
            up.wait_for_status(&id, "ACTIVE").await;
            cloud.assert_consistent(&up, "recovered").await;
            cloud.teardown(&up, "recovered").await;
        }
    }
}

/// A host runs a guest whose server is deleted and which has no document.
#[tokio::test]
async fn guests_of_deleted_servers_are_reaped_if_configured() {
    for action in [Orphans::Noop, Orphans::Log, Orphans::Reap] {
        for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
            cloud.options =
                Options { running_deleted_instance_action: action, ..Options::default() };
            let mut up = cloud.start().await;
            up.wait_for_hosts().await;
            let id = up.active_server(&cloud, "one", "plain").await;
            up.nodes.kill("a").await;
            up.force_down("a", true).await;
            up.delete(&id).await;
            up.wait_until_gone(&id).await;
            cloud.execute("DELETE FROM documents").await;
            up.force_down("a", false).await;
            up.nodes.power_sync = Some(Duration::from_millis(10));
            up.start_node(&cloud, "a").await;
            let other = up.active_server(&cloud, "two", "plain").await;
            if action == Orphans::Reap {
                let domains = [format!("{other}.xml")];
                wait_until("the guest is removed", async || cloud.files("a", "domains") == domains)
                    .await;
                up.wait_for_host_cleanup(&cloud).await;
                cloud.teardown(&up, "reaped").await;
            } else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                assert_eq!(cloud.files("a", "domains").len(), 2);
            }
        }
    }
}
