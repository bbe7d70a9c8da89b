//! Changes that no user requests: guests that stop or are stopped on their host, power cuts, and
//! guests of deleted servers.

use std::time::Duration;

use kilonova_compute_app::{Options, Orphans};
use kilonova_ids::ServerId;
use serde_json::{Value, json};

use crate::kit::{Cloud, FPGA, GPU, RunningCloud, fault, hosts, wait_until};
use crate::servers::instance_actions::{actions, succeeded};

async fn restart(cloud: &Cloud, running: &mut RunningCloud, host: &str) {
    running.nodes.kill(host).await;
    running.start_node(cloud, host).await;
}

/// Restarts the agent of host `a` with a continuous power sync.
async fn start_power_sync(cloud: &Cloud, running: &mut RunningCloud) {
    running.nodes.power_sync = Some(Duration::from_millis(10));
    restart(cloud, running, "a").await;
}

async fn wait_for_power_state(running: &RunningCloud, id: &str, power: i64) -> Value {
    wait_until("the power state is reported", async || {
        running.server(id).await["OS-EXT-STS:power_state"] == power
    })
    .await;
    running.wait_until_idle(id).await
}

async fn act_until(running: &RunningCloud, id: &str, action: &str, status: &str) {
    running.act(id, json!({action: null})).await;
    running.wait_for_status(id, status).await;
}

async fn last_action(running: &RunningCloud, id: &str) -> (String, Value, Vec<(String, String)>) {
    actions(running, id).await.pop().expect("the server has an action")
}

#[tokio::test]
async fn power_changes_on_the_host_update_the_server() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        start_power_sync(&cloud, &mut running).await;
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let guest: ServerId = id.parse().expect("the id is a UUID");
        let stopped = succeeded("stop", "compute_stop_instance");

        running.nodes.hypervisor("a").stop(guest).await.expect("the guest stops");
        assert_eq!(wait_for_power_state(&running, &id, 4).await["status"], "SHUTOFF");
        assert_eq!(last_action(&running, &id).await, stopped);
        cloud.assert_consistent(&running, "stopped on the host").await;

        running.nodes.hypervisor("a").start(guest).await.expect("the guest starts");
        wait_until("the guest is stopped again", async || {
            cloud.files("a", "running").is_empty() && actions(&running, &id).await.len() == 3
        })
        .await;
        running.wait_for_status(&id, "SHUTOFF").await;
        assert_eq!(last_action(&running, &id).await, stopped);
        cloud.assert_consistent(&running, "started on the host").await;
        act_until(&running, &id, "os-start", "ACTIVE").await;

        running.nodes.hypervisor("a").pause(guest).await.expect("the guest is paused");
        assert_eq!(wait_for_power_state(&running, &id, 3).await["status"], "ACTIVE");
        running.nodes.hypervisor("a").unpause(guest).await.expect("the guest continues");
        running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        assert_eq!(wait_for_power_state(&running, &id, 1).await["status"], "ACTIVE");

        running.nodes.hypervisor("a").suspend(guest).await.expect("the guest is suspended");
        assert_eq!(wait_for_power_state(&running, &id, 4).await["status"], "SHUTOFF");
        assert_eq!(last_action(&running, &id).await, stopped);
        act_until(&running, &id, "os-start", "ACTIVE").await;

        act_until(&running, &id, "pause", "PAUSED").await;
        running.nodes.hypervisor("a").destroy(guest).await.expect("the guest is destroyed");
        assert_eq!(wait_for_power_state(&running, &id, 4).await["status"], "SHUTOFF");
        assert_eq!(last_action(&running, &id).await, stopped);
        act_until(&running, &id, "os-start", "ACTIVE").await;

        act_until(&running, &id, "suspend", "SUSPENDED").await;
        running.nodes.hypervisor("a").resume(guest).await.expect("the guest continues");
        assert_eq!(wait_for_power_state(&running, &id, 1).await["status"], "SUSPENDED");
        act_until(&running, &id, "resume", "ACTIVE").await;
        cloud.assert_consistent(&running, "resumed").await;
        cloud.teardown(&running, "at the end").await;
    }
}

/// Removes running guests and mediated devices; the files of domains and saved memory remain.
async fn power_cut(cloud: &Cloud, running: &mut RunningCloud) {
    running.nodes.kill("a").await;
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
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU, FPGA])])).await {
        let pair = running.active_server(&cloud, "pair", "vgpu-pair").await;
        let fpga = running.active_server(&cloud, "fpga", "fpga").await;
        let saved = running.active_server(&cloud, "saved", "vgpu").await;
        act_until(&running, &saved, "suspend", "SUSPENDED").await;
        let before = cloud.files("a", "mdevs");
        power_cut(&cloud, &mut running).await;
        running.start_node(&cloud, "a").await;
        for id in [&pair, &fpga] {
            assert_eq!(wait_for_power_state(&running, id, 4).await["status"], "SHUTOFF");
            assert_eq!(last_action(&running, id).await, succeeded("stop", "compute_stop_instance"));
        }
        wait_until("the mdevs exist", async || cloud.files("a", "mdevs") == before).await;
        cloud.assert_consistent(&running, "after the power cut").await;
        for id in [&pair, &fpga] {
            act_until(&running, id, "os-start", "ACTIVE").await;
        }
        act_until(&running, &saved, "resume", "ACTIVE").await;
        cloud.assert_consistent(&running, "started").await;
        cloud.teardown(&running, "started").await;
    }
}

#[tokio::test]
async fn after_a_power_cut_guests_resume_if_configured() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU, FPGA])])).await {
        cloud.options = resuming();
        let mut running = cloud.start().await;
        running.wait_for_hosts().await;
        let pair = running.active_server(&cloud, "pair", "vgpu-pair").await;
        let fpga = running.active_server(&cloud, "fpga", "fpga").await;
        let rescued = running.active_server(&cloud, "rescued", "vgpu").await;
        running.try_act(&rescued, json!({"rescue": null})).await.expect(200);
        running.wait_for_status(&rescued, "RESCUE").await;
        let stopped = running.active_server(&cloud, "stopped", "vgpu").await;
        act_until(&running, &stopped, "os-stop", "SHUTOFF").await;
        let before = cloud.files("a", "mdevs");
        power_cut(&cloud, &mut running).await;
        running.nodes.power_sync = Some(Duration::from_millis(10));
        running.start_node(&cloud, "a").await;
        wait_until("the guests run", async || {
            cloud.files("a", "running").len() == 3 && cloud.files("a", "mdevs") == before
        })
        .await;
        for (id, status) in [(&pair, "ACTIVE"), (&fpga, "ACTIVE"), (&rescued, "RESCUE")] {
            assert_eq!(wait_for_power_state(&running, id, 1).await["status"], status);
        }
        assert_eq!(
            last_action(&running, &pair).await,
            succeeded("start", "compute_start_instance")
        );
        running.wait_for_status(&stopped, "SHUTOFF").await;
        cloud.assert_consistent(&running, "after the power cut").await;

        // A guest that stops while its host is up is not started again.
        let guest: ServerId = pair.parse().expect("the id is a UUID");
        running.nodes.hypervisor("a").stop(guest).await.expect("the guest stops");
        assert_eq!(wait_for_power_state(&running, &pair, 4).await["status"], "SHUTOFF");
        cloud.teardown(&running, "after the power cut").await;
    }
}

/// A server whose device cannot be recreated goes to `ERROR` with the reason, if it is started after the power cut.
#[tokio::test]
async fn a_device_lost_in_a_power_cut_puts_the_server_in_error() {
    for resume in [true, false] {
        for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
            cloud.options =
                Options { resume_guests_state_on_host_boot: resume, ..Options::default() };
            let mut running = cloud.start().await;
            running.wait_for_hosts().await;
            let id = running.active_server(&cloud, "one", "vgpu").await;
            power_cut(&cloud, &mut running).await;
            running.restart_failing(&cloud, "a", &[("create_mdev", None)]).await;
            if !resume {
                assert_eq!(wait_for_power_state(&running, &id, 4).await["status"], "SHUTOFF");
                running.act(&id, json!({"os-start": null})).await;
            }
            // A start that a user requests leaves the server as it was.
            let status = if resume { "ERROR" } else { "SHUTOFF" };
            wait_until("the start has failed", async || {
                let server = running.server(&id).await;
                server["status"] == status && server["OS-EXT-STS:task_state"].is_null()
            })
            .await;
            let server = running.wait_for_status(&id, status).await;
            assert_eq!(fault(&server).contains("a: create_mdev: "), resume, "{server}");
            let (action, message, events) = last_action(&running, &id).await;
            assert_eq!((action.as_str(), message), ("start", json!("Error")));
            assert_eq!(events, [("compute_start_instance".into(), "Error".into())]);
            cloud.audit("failed").await;

            restart(&cloud, &mut running, "a").await;
            running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
            running.wait_for_status(&id, "ACTIVE").await;
            cloud.assert_consistent(&running, "recovered").await;
            cloud.teardown(&running, "recovered").await;
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
            let mut running = cloud.start().await;
            running.wait_for_hosts().await;
            let id = running.active_server(&cloud, "one", "plain").await;
            running.nodes.kill("a").await;
            running.force_down("a", true).await;
            running.delete(&id).await;
            running.wait_until_gone(&id).await;
            cloud.execute("DELETE FROM documents").await;
            running.force_down("a", false).await;
            running.nodes.power_sync = Some(Duration::from_millis(10));
            running.start_node(&cloud, "a").await;
            let other = running.active_server(&cloud, "two", "plain").await;
            if action == Orphans::Reap {
                let domains = [format!("{other}.xml")];
                wait_until("the guest is removed", async || cloud.files("a", "domains") == domains)
                    .await;
                running.wait_for_host_cleanup(&cloud).await;
                cloud.teardown(&running, "reaped").await;
            } else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                assert_eq!(cloud.files("a", "domains").len(), 2);
            }
        }
    }
}
