//! Deletion of servers whose host is down: the server is gone immediately, and its devices cannot be
//! claimed again until the host is back and has removed the guest.

use jiff::SignedDuration;
use kilonova_compute_app::reconcile::nudge;
use kilonova_node_api::Outcome;
use kilonova_store::testing::CrashPlan;
use kilonova_store::{Error, params};
use serde_json::json;

use crate::kit::{Cloud, FPGA, GPU, GPUS, RunningCloud, fault, hosts};

async fn execute(cloud: &Cloud, sql: &'static str) {
    let done = cloud.store.write(move |tx| tx.execute(sql, params![]));
    done.await.unwrap_or_else(|error: Error| panic!("{error}"));
}

async fn dirty(cloud: &Cloud) -> usize {
    cloud.column("SELECT uuid FROM attach_handles WHERE state = 'dirty'").await.len()
}

/// Reserved units of the devices.
async fn reserved(cloud: &Cloud) -> Vec<String> {
    let sql = "SELECT CAST(i.reserved AS TEXT) FROM inventories i
        JOIN deployables d ON d.provider_id = i.provider_id WHERE i.reserved > 0";
    cloud.column(sql).await
}

/// Checks that the server is gone, its allocations are released, and its devices are dirty.
async fn assert_deleted(cloud: &Cloud, running: &RunningCloud, id: &str, devices: usize) {
    assert!(running.server(id).await.is_null(), "the delete does not wait for the host");
    for class in ["VCPU", "MEMORY_MB", "DISK_GB", "VGPU", "FPGA"] {
        assert_eq!(cloud.used(class).await, 0, "{class}");
    }
    assert_eq!(cloud.column("SELECT uuid FROM arqs").await, Vec::<String>::new());
    assert_eq!(dirty(cloud).await, devices);
    cloud.audit("gone").await;
}

#[tokio::test]
async fn a_delete_frees_the_devices_when_the_host_returns() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU, FPGA])])).await {
        for (flavor, devices) in [
            ("vgpu", vec!["1"]),
            ("vgpu-pair", vec!["1", "1"]),
            ("both", vec!["1", "1"]),
            ("plain", vec![]),
        ] {
            let id = running.active_server(&cloud, "one", flavor).await;
            running.nodes.kill("a").await;
            running.force_down("a", true).await;
            running.delete(&id).await;
            assert_deleted(&cloud, &running, &id, devices.len()).await;
            assert_eq!(reserved(&cloud).await, devices, "{flavor}");
            assert_eq!(
                cloud.files("a", "running"),
                [id.as_str()],
                "the host has no new document yet"
            );
            running.start_node(&cloud, "a").await;
            running.wait_for_host_cleanup(&cloud).await;
            cloud.assert_empty(&running, flavor).await;
            running.force_down("a", false).await;
        }
        for n in 0..GPUS {
            running.active_server(&cloud, &format!("n{n}"), "vgpu").await;
        }
        cloud.assert_consistent(&running, "all in use").await;
        cloud.teardown(&running, "all in use").await;
    }
}

#[tokio::test]
async fn delete_in_every_state() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        for state in ["SHUTOFF", "BUILD", "stopping", "clearing"] {
            if matches!(state, "BUILD" | "clearing") {
                running.nodes.kill("a").await;
            }
            let id = running.boot(&cloud, "one", "vgpu").await;
            match state {
                "SHUTOFF" => {
                    running.wait_for_status(&id, "ACTIVE").await;
                    running.act(&id, json!({"os-stop": null})).await;
                    running.wait_for_status(&id, "SHUTOFF").await;
                }
                "stopping" => {
                    running.wait_for_status(&id, "ACTIVE").await;
                    running.nodes.kill("a").await;
                    running.act(&id, json!({"os-stop": null})).await;
                }
                "clearing" => {
                    let (step, message) = ("start".to_owned(), "no luck".to_owned());
                    running.report(&cloud, "a", &id, Outcome::Failed { step, message }).await;
                    let clearing = "SELECT subject FROM operations WHERE step = 'clear'";
                    assert_eq!(cloud.column(clearing).await, [id.as_str()]);
                }
                _ => {}
            }
            running.nodes.kill("a").await;
            running.force_down("a", true).await;
            running.delete(&id).await;
            assert_deleted(&cloud, &running, &id, 1).await;
            running.start_node(&cloud, "a").await;
            running.wait_for_host_cleanup(&cloud).await;
            cloud.assert_empty(&running, state).await;
            running.force_down("a", false).await;
        }
    }
}

#[tokio::test]
async fn a_host_that_is_silent_for_long_is_lost() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.kill().await;
        execute(&cloud, "UPDATE hosts SET last_seen = last_seen - 61000000").await;
        let mut running = RunningCloud::new(&cloud, CrashPlan::default()).await;
        running.delete(&id).await;
        assert_deleted(&cloud, &running, &id, 1).await;
        running.start_node(&cloud, "a").await;
        running.wait_for_host_cleanup(&cloud).await;
        cloud.assert_empty(&running, "the host is back").await;
    }
}

/// The time at which a host was last seen is written to the database only now and then.
#[tokio::test]
async fn lists_and_evacuations_agree_on_which_hosts_are_up() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        execute(&cloud, "UPDATE hosts SET last_seen = last_seen - 61000000").await;
        for (path, list) in [
            ("GET /os-services?binary=nova-compute", "services"),
            ("GET /os-hypervisors/detail", "hypervisors"),
        ] {
            let shown = running.call("admin", "2.90", path, None).await.expect(200);
            let states: Vec<_> = shown[list].as_array().expect(list).iter().collect();
            assert_eq!(states.len(), 2, "{path}");
            assert!(states.iter().all(|host| host["state"] == "up"), "{path}: {states:?}");
        }
        let body = Some(json!({"evacuate": {}}));
        let path = format!("POST /servers/{id}/action");
        let answer = running.call("admin", "2.90", &path, body).await;
        answer.refused(400, "Compute service of a is still in use.");
        cloud.teardown(&running, "both are up").await;
    }
}

#[tokio::test]
async fn a_pending_delete_ends_when_the_host_is_lost() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        for by_itself in [false, true] {
            let id = running.active_server(&cloud, "one", "vgpu").await;
            running.nodes.kill("a").await;
            running.delete(&id).await;
            nudge::run(running.compute.clone()).await.expect("the periodic task succeeds");
            assert_eq!(running.server(&id).await["OS-EXT-STS:task_state"], "deleting");
            running.force_down("a", true).await;
            if by_itself {
                execute(&cloud, "UPDATE operations SET updated_at = 0").await;
                nudge::run(running.compute.clone()).await.expect("the periodic task succeeds");
            } else {
                running.delete(&id).await;
            }
            assert_deleted(&cloud, &running, &id, 1).await;
            running.start_node(&cloud, "a").await;
            running.wait_for_host_cleanup(&cloud).await;
            cloud.assert_empty(&running, "dropped").await;
            running.force_down("a", false).await;
        }
    }
}

/// With `reclaim_instance_interval`, a server whose host is down is deleted permanently, as upstream.
#[tokio::test]
async fn a_soft_delete_does_not_wait_for_a_lost_host() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
        cloud.options.reclaim_instance_interval = SignedDuration::from_secs(3600);
        let mut running = cloud.start().await;
        running.wait_for_hosts().await;
        for (is_lost_before, by_itself) in [(true, false), (false, false), (false, true)] {
            let id = running.active_server(&cloud, "one", "vgpu").await;
            running.nodes.kill("a").await;
            if !is_lost_before {
                running.delete(&id).await;
                assert_eq!(running.server(&id).await["OS-EXT-STS:task_state"], "soft-deleting");
            }
            running.force_down("a", true).await;
            if by_itself {
                execute(&cloud, "UPDATE operations SET updated_at = 0").await;
                nudge::run(running.compute.clone()).await.expect("the periodic task succeeds");
            } else {
                running.delete(&id).await;
            }
            assert_deleted(&cloud, &running, &id, 1).await;
            running.start_node(&cloud, "a").await;
            running.wait_for_host_cleanup(&cloud).await;
            cloud.assert_empty(&running, "dropped").await;
            running.force_down("a", false).await;
        }
    }
}

/// The host is back and accepts servers, but fails to drop the guest deleted in its absence.
#[tokio::test]
async fn dirty_devices_are_not_claimed() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "stuck", "vgpu").await;
        let mdev = cloud.files("a", "mdevs");
        running.force_down("a", true).await;
        running.nodes.kill("a").await;
        running.delete(&id).await;
        running.restart_failing(&cloud, "a", &[("destroy", None)]).await;
        running.force_down("a", false).await;
        for n in 0..GPUS - 1 {
            running.active_server(&cloud, &format!("n{n}"), "vgpu").await;
        }
        let more = running.boot(&cloud, "one too many", "vgpu").await;
        let server = running.wait_for_status(&more, "ERROR").await;
        assert!(fault(&server).starts_with("No valid host was found."), "{server}");
        assert_eq!((dirty(&cloud).await, reserved(&cloud).await), (1, vec!["1".to_owned()]));
        assert!(cloud.files("a", "mdevs").contains(&mdev[0]), "the old guest still has its mdev");
        cloud.audit("one handle is dirty").await;
        running.nodes.kill("a").await;
        running.start_node(&cloud, "a").await;
        running.wait_for_host_cleanup(&cloud).await;
        running.active_server(&cloud, "in its place", "vgpu").await;
        assert_eq!(dirty(&cloud).await, 0);
        cloud.assert_consistent(&running, "dropped").await;
        cloud.teardown(&running, "dropped").await;
    }
}

#[tokio::test]
async fn the_delete_action_records_its_result() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.nodes.kill("a").await;
        running.force_down("a", true).await;
        running.delete(&id).await;
        let details = "SELECT e.details FROM operation_events e
            JOIN operations o ON o.id = e.operation_id WHERE o.kind = 'delete'";
        assert_eq!(
            cloud.column(details).await,
            ["The host is down; it removes the guest when it is back."]
        );
    }
}
