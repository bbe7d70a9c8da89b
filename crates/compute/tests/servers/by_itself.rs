//! What guests and hosts do by themselves: guests that stop or are stopped on their host, hosts that
//! lose power, guests of servers that are no more.

use std::time::Duration;

use kilonova_compute::{Options, Orphans};
use kilonova_ids::ServerId;
use serde_json::{Value, json};

use crate::kit::{Cloud, FPGA, GPU, Up, fault, hosts, patiently};
use crate::servers::actions::{actions, fine};

async fn restart(cloud: &Cloud, up: &mut Up, host: &str) {
    up.nodes.kill(host).await;
    up.start_node(cloud, host).await;
}

/// A host whose node looks at its guests all the time.
async fn watchful(cloud: &Cloud, up: &mut Up) {
    up.nodes.power_sync = Some(Duration::from_millis(10));
    restart(cloud, up, "a").await;
}

async fn power_is(up: &Up, id: &str, power: i64) -> Value {
    patiently("a power state", async || up.server(id).await["OS-EXT-STS:power_state"] == power)
        .await;
    up.rest(id).await
}

async fn begin(up: &Up, id: &str, action: &str, status: &str) {
    up.act(id, json!({action: null})).await;
    up.becomes(id, status).await;
}

async fn last_action(up: &Up, id: &str) -> (String, Value, Vec<(String, String)>) {
    actions(up, id).await.pop().expect("an action")
}

#[tokio::test]
async fn what_a_guest_does_becomes_its_server_s_state() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        watchful(&cloud, &mut up).await;
        let id = up.active(&cloud, "one", "vgpu").await;
        let guest: ServerId = id.parse().expect("an id");
        let stopped = fine("stop", "compute_stop_instance");

        up.nodes.hypervisor("a").stop(guest).await.expect("stops");
        assert_eq!(power_is(&up, &id, 4).await["status"], "SHUTOFF");
        assert_eq!(last_action(&up, &id).await, stopped);
        cloud.sound(&up, "stopped by itself").await;

        up.nodes.hypervisor("a").start(guest).await.expect("starts");
        patiently("a guest that is stopped again", async || {
            cloud.files("a", "running").is_empty() && actions(&up, &id).await.len() == 3
        })
        .await;
        up.becomes(&id, "SHUTOFF").await;
        assert_eq!(last_action(&up, &id).await, stopped);
        cloud.sound(&up, "started by somebody").await;
        begin(&up, &id, "os-start", "ACTIVE").await;

        up.nodes.hypervisor("a").pause(guest).await.expect("pauses");
        assert_eq!(power_is(&up, &id, 3).await["status"], "ACTIVE");
        up.nodes.hypervisor("a").unpause(guest).await.expect("goes on");
        up.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        assert_eq!(power_is(&up, &id, 1).await["status"], "ACTIVE");

        up.nodes.hypervisor("a").suspend(guest).await.expect("suspends");
        assert_eq!(power_is(&up, &id, 4).await["status"], "SHUTOFF");
        assert_eq!(last_action(&up, &id).await, stopped);
        begin(&up, &id, "os-start", "ACTIVE").await;

        begin(&up, &id, "pause", "PAUSED").await;
        up.nodes.hypervisor("a").destroy(guest).await.expect("is gone");
        assert_eq!(power_is(&up, &id, 4).await["status"], "SHUTOFF");
        assert_eq!(last_action(&up, &id).await, stopped);
        begin(&up, &id, "os-start", "ACTIVE").await;

        begin(&up, &id, "suspend", "SUSPENDED").await;
        up.nodes.hypervisor("a").resume(guest).await.expect("goes on");
        assert_eq!(power_is(&up, &id, 1).await["status"], "SUSPENDED");
        begin(&up, &id, "resume", "ACTIVE").await;
        cloud.sound(&up, "resumed").await;
        cloud.sweep(&up, "at the end").await;
    }
}

/// Guests stop and mediated devices are gone; the files of domains and saved memory are not.
async fn power_cut(cloud: &Cloud, up: &mut Up) {
    up.nodes.kill("a").await;
    for folder in ["running", "mdevs"] {
        for file in cloud.files("a", folder) {
            let path = cloud.nodes().join("a").join(folder).join(file);
            std::fs::remove_file(path).expect("removed");
        }
    }
}

fn resuming() -> Options {
    Options { resume_guests_state_on_host_boot: true, ..Options::default() }
}

#[tokio::test]
async fn after_a_power_cut_servers_are_shut_off_and_keep_their_devices() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU, FPGA])])).await {
        let pair = up.active(&cloud, "pair", "vgpu-pair").await;
        let fpga = up.active(&cloud, "fpga", "fpga").await;
        let saved = up.active(&cloud, "saved", "vgpu").await;
        begin(&up, &saved, "suspend", "SUSPENDED").await;
        let before = cloud.files("a", "mdevs");
        power_cut(&cloud, &mut up).await;
        up.start_node(&cloud, "a").await;
        for id in [&pair, &fpga] {
            assert_eq!(power_is(&up, id, 4).await["status"], "SHUTOFF");
            assert_eq!(last_action(&up, id).await, fine("stop", "compute_stop_instance"));
        }
        patiently("the mdevs", async || cloud.files("a", "mdevs") == before).await;
        cloud.sound(&up, "after the power cut").await;
        for id in [&pair, &fpga] {
            begin(&up, id, "os-start", "ACTIVE").await;
        }
        begin(&up, &saved, "resume", "ACTIVE").await;
        cloud.sound(&up, "started").await;
        cloud.sweep(&up, "started").await;
    }
}

#[tokio::test]
async fn after_a_power_cut_servers_that_ran_are_started_where_that_is_wanted() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU, FPGA])])).await {
        cloud.options = resuming();
        let mut up = cloud.start().await;
        up.hosts_are_there().await;
        let pair = up.active(&cloud, "pair", "vgpu-pair").await;
        let fpga = up.active(&cloud, "fpga", "fpga").await;
        let rescued = up.active(&cloud, "rescued", "vgpu").await;
        up.try_act(&rescued, json!({"rescue": null})).await.expect(200);
        up.becomes(&rescued, "RESCUE").await;
        let stopped = up.active(&cloud, "stopped", "vgpu").await;
        begin(&up, &stopped, "os-stop", "SHUTOFF").await;
        let before = cloud.files("a", "mdevs");
        power_cut(&cloud, &mut up).await;
        up.nodes.power_sync = Some(Duration::from_millis(10));
        up.start_node(&cloud, "a").await;
        patiently("the guests to run", async || {
            cloud.files("a", "running").len() == 3 && cloud.files("a", "mdevs") == before
        })
        .await;
        for (id, status) in [(&pair, "ACTIVE"), (&fpga, "ACTIVE"), (&rescued, "RESCUE")] {
            assert_eq!(power_is(&up, id, 1).await["status"], status);
        }
        assert_eq!(last_action(&up, &pair).await, fine("start", "compute_start_instance"));
        up.becomes(&stopped, "SHUTOFF").await;
        cloud.sound(&up, "after the power cut").await;

        // A guest that stops while its host is up is not started again.
        let guest: ServerId = pair.parse().expect("an id");
        up.nodes.hypervisor("a").stop(guest).await.expect("stops");
        assert_eq!(power_is(&up, &pair, 4).await["status"], "SHUTOFF");
        cloud.sweep(&up, "after the power cut").await;
    }
}

/// A server whose device cannot be made again is not `ACTIVE`, and says why.
#[tokio::test]
async fn a_device_that_is_lost_in_a_power_cut_is_the_reason() {
    for resume in [true, false] {
        for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
            cloud.options =
                Options { resume_guests_state_on_host_boot: resume, ..Options::default() };
            let mut up = cloud.start().await;
            up.hosts_are_there().await;
            let id = up.active(&cloud, "one", "vgpu").await;
            power_cut(&cloud, &mut up).await;
            up.restart_failing(&cloud, "a", &[("create_mdev", None)]).await;
            if !resume {
                assert_eq!(power_is(&up, &id, 4).await["status"], "SHUTOFF");
                up.act(&id, json!({"os-start": null})).await;
            }
            patiently("the start to fail", async || up.server(&id).await["status"] == "ERROR")
                .await;
            let server = up.becomes(&id, "ERROR").await;
            assert!(fault(&server).contains("a: create_mdev: "), "{server}");
            let (action, message, events) = last_action(&up, &id).await;
            assert_eq!((action.as_str(), message), ("start", json!("Error")));
            assert_eq!(events, [("compute_start_instance".into(), "Error".into())]);
            cloud.audit("failed").await;

            restart(&cloud, &mut up, "a").await;
            up.act(&id, json!({"reboot": {"type": "HARD"}})).await;
            up.becomes(&id, "ACTIVE").await;
            cloud.sound(&up, "mended").await;
            cloud.sweep(&up, "mended").await;
        }
    }
}

/// A host has a guest that the database knows as deleted, and has no document of.
#[tokio::test]
async fn guests_of_deleted_servers_go_where_that_is_wanted() {
    for action in [Orphans::Noop, Orphans::Log, Orphans::Reap] {
        for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
            cloud.options =
                Options { running_deleted_instance_action: action, ..Options::default() };
            let mut up = cloud.start().await;
            up.hosts_are_there().await;
            let id = up.active(&cloud, "one", "plain").await;
            up.nodes.kill("a").await;
            up.force_down("a", true).await;
            up.delete(&id).await;
            up.goes(&id).await;
            cloud.execute("DELETE FROM documents").await;
            up.force_down("a", false).await;
            up.nodes.power_sync = Some(Duration::from_millis(10));
            up.start_node(&cloud, "a").await;
            let other = up.active(&cloud, "two", "plain").await;
            if action == Orphans::Reap {
                let domains = [format!("{other}.xml")];
                patiently("the guest to go", async || cloud.files("a", "domains") == domains).await;
                up.hosts_have_dropped(&cloud).await;
                cloud.sweep(&up, "reaped").await;
            } else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                assert_eq!(cloud.files("a", "domains").len(), 2);
            }
        }
    }
}
