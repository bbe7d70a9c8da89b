//! Resize and cold migration: to another host, on the same host, confirm, revert, and failures.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use kilonova_compute_app::reconcile::{confirm, nudge};
use kilonova_node_api::{Outcome, REMOVED_STEP};
use kilonova_testkit::shared;
use serde_json::{Value, json};

use crate::kit::{ADMIN, Answer, Cloud, FPGA, GPU, RunningCloud, hosts};
use crate::servers::host_selection::send;

fn resize(flavor: &str) -> Value {
    json!({"resize": {"flavorRef": flavor}})
}

pub async fn confirm_resize(running: &RunningCloud, cloud: &Cloud, id: &str) {
    running.try_act(id, json!({"confirmResize": null})).await.expect(204);
    running.wait_for_host_cleanup(cloud).await;
}

pub async fn admin(running: &RunningCloud, version: &str, id: &str, action: Value) -> Answer {
    running.call(ADMIN, version, &format!("POST /servers/{id}/action"), Some(action)).await
}

async fn migrate(running: &RunningCloud, id: &str) {
    admin(running, "2.56", id, json!({"migrate": null})).await.expect(202);
}

async fn revert(running: &RunningCloud, id: &str) {
    admin(running, "2.90", id, json!({"revertResize": null})).await.expect(202);
}

pub async fn host_of(running: &RunningCloud, id: &str) -> String {
    running.server(id).await["OS-EXT-SRV-ATTR:host"]
        .as_str()
        .expect("the server has a host")
        .to_owned()
}

/// Status of the newest migration.
async fn status(cloud: &Cloud) -> String {
    let all = cloud.column("SELECT status FROM moves ORDER BY number DESC LIMIT 1").await;
    all.into_iter().next().unwrap_or_default()
}

/// The failure recorded in the newest action.
pub async fn failure(running: &RunningCloud, id: &str) -> String {
    let path = format!("/servers/{id}/os-instance-actions");
    let list = running.get(ADMIN, "2.90", &path).await.expect(200);
    let newest = list["instanceActions"][0]["request_id"]
        .as_str()
        .expect("the server has an action")
        .to_owned();
    let shown = running.get(ADMIN, "2.90", &format!("{path}/{newest}")).await.expect(200);
    let events =
        shown["instanceAction"]["events"].as_array().expect("the action has events").clone();
    let last = events.iter().rfind(|event| event["result"] == "Error");
    last.and_then(|event| event["details"].as_str()).unwrap_or_default().to_owned()
}

/// The stores share the combinations of a flavor and a running or stopped server.
#[tokio::test]
async fn cold_migration_is_confirmed_or_reverted() {
    let topology = hosts(&[("a", &[GPU, FPGA]), ("b", &[GPU, FPGA])]);
    for (share, (cloud, running)) in shared(Cloud::all_running(topology).await) {
        let flavors = ["plain", "vgpu", "vgpu-pair", "profile", "fpga", "both"];
        for (at, flavor) in flavors.into_iter().enumerate() {
            for stopped in [false, true] {
                if !share.has(at + usize::from(stopped)) {
                    continue;
                }
                let id = running.active_server(&cloud, "one", flavor).await;
                if stopped {
                    running.act(&id, json!({"os-stop": null})).await;
                    running.wait_for_status(&id, "SHUTOFF").await;
                }
                let rests = if stopped { "SHUTOFF" } else { "ACTIVE" };
                let first = host_of(&running, &id).await;
                migrate(&running, &id).await;
                let moved = running.wait_for_status(&id, "VERIFY_RESIZE").await;
                assert_eq!(moved["progress"], 0, "{moved}");
                assert_ne!(moved["OS-EXT-SRV-ATTR:host"], first.as_str());
                assert_eq!(moved["OS-EXT-STS:power_state"], if stopped { 4 } else { 1 });
                cloud.assert_consistent(&running, "moved").await;
                running.act(&id, json!({"revertResize": null})).await;
                running.wait_for_status(&id, rests).await;
                assert_eq!(host_of(&running, &id).await, first);
                assert_eq!(status(&cloud).await, "reverted");
                cloud.assert_consistent(&running, "reverted").await;
                migrate(&running, &id).await;
                running.wait_for_status(&id, "VERIFY_RESIZE").await;
                confirm_resize(&running, &cloud, &id).await;
                running.wait_for_status(&id, rests).await;
                assert_ne!(host_of(&running, &id).await, first);
                assert_eq!(status(&cloud).await, "confirmed");
                cloud.assert_consistent(&running, "confirmed").await;
                cloud.teardown(&running, flavor).await;
            }
        }
    }
}

#[tokio::test]
async fn resize_claims_and_releases_devices() {
    let topology = hosts(&[("a", &[GPU, FPGA]), ("b", &[GPU, FPGA])]);
    for (cloud, running) in Cloud::all_running(topology).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        for (flavor, vgpus, fpgas) in
            [("vgpu", 1, 0), ("vgpu4", 4, 0), ("fpga", 0, 1), ("both", 1, 1), ("plain", 0, 0)]
        {
            running.act(&id, resize(flavor)).await;
            let server = running.wait_for_status(&id, "VERIFY_RESIZE").await;
            assert_eq!(server["flavor"]["original_name"], flavor);
            cloud.assert_consistent(&running, flavor).await;
            confirm_resize(&running, &cloud, &id).await;
            running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!((cloud.used("VGPU").await, cloud.used("FPGA").await), (vgpus, fpgas));
            cloud.assert_consistent(&running, flavor).await;
        }
        cloud.teardown(&running, "resized").await;
    }
}

/// The vCPUs, MiB and GiB in use on each host, and its number of servers, as `os-hypervisors` shows them. The
/// statistics, `os-hosts` and Placement have to agree.
async fn usage(running: &RunningCloud) -> BTreeMap<String, ([i64; 3], i64)> {
    let number = |value: &Value| value.as_i64().unwrap_or_else(|| panic!("{value} is a number"));
    let list = running.get(ADMIN, "2.87", "/os-hypervisors/detail").await.expect(200);
    let (mut usages, mut sums) = (BTreeMap::new(), [0; 4]);
    for shown in list["hypervisors"].as_array().expect("the answer is a list") {
        let text = |key: &str| shown[key].as_str().expect("the value is a text").to_owned();
        let (id, host) = (text("id"), text("hypervisor_hostname"));
        let used = ["vcpus_used", "memory_mb_used", "local_gb_used"].map(|key| number(&shown[key]));
        let path = format!("/resource_providers/{id}/usages");
        let placement = send(running, "GET", &path, Value::Null).await.expect(200);
        let classes = ["VCPU", "MEMORY_MB", "DISK_GB"];
        assert_eq!(used, classes.map(|class| number(&placement["usages"][class])), "{host}");
        let hosts = running.get(ADMIN, "2.1", &format!("/os-hosts/{host}")).await.expect(200);
        let now = &hosts["host"][1]["resource"];
        assert_eq!(now["project"], "(used_now)");
        assert_eq!(used, ["cpu", "memory_mb", "disk_gb"].map(|key| number(&now[key])), "{host}");
        let one = running.get(ADMIN, "2.87", &format!("/os-hypervisors/{id}")).await.expect(200);
        assert_eq!(&one["hypervisor"], shown);
        let servers = number(&shown["running_vms"]);
        let all = [used[0], used[1], used[2], servers];
        sums.iter_mut().zip(all).for_each(|(sum, one)| *sum += one);
        usages.insert(host, (used, servers));
    }
    let all = running.get(ADMIN, "2.87", "/os-hypervisors/statistics").await.expect(200);
    let all = &all["hypervisor_statistics"];
    let keys = ["vcpus_used", "memory_mb_used", "local_gb_used", "running_vms"];
    assert_eq!(sums, keys.map(|key| number(&all[key])));
    usages
}

#[tokio::test]
async fn both_hosts_show_the_claims_of_a_resize() {
    const NONE: [i64; 3] = [0, 0, 0];
    const SMALL: [i64; 3] = [1, 64, 1];
    const LARGE: [i64; 3] = [3, 256, 7];
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        let large = json!({"vcpus": 3, "ram": 256, "disk": 4, "OS-FLV-EXT-DATA:ephemeral": 2,
            "swap": 1024});
        running.flavor("large", large).await;
        let id = running.active_server(&cloud, "one", "plain").await;
        let first = host_of(&running, &id).await;
        let other = if first == "a" { "b" } else { "a" };
        let shown = |source: [i64; 3], on_source: i64, dest: [i64; 3], on_dest: i64| {
            let dest = (other.to_owned(), (dest, on_dest));
            BTreeMap::from([(first.clone(), (source, on_source)), dest])
        };
        assert_eq!(usage(&running).await, shown(SMALL, 1, NONE, 0));
        running.act(&id, resize("large")).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        assert_eq!(host_of(&running, &id).await, other);
        assert_eq!(usage(&running).await, shown(SMALL, 0, LARGE, 1), "the source keeps its claim");
        running.act(&id, json!({"revertResize": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.wait_for_host_cleanup(&cloud).await;
        assert_eq!(usage(&running).await, shown(SMALL, 1, NONE, 0), "reverted");
        running.act(&id, resize("large")).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        confirm_resize(&running, &cloud, &id).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(usage(&running).await, shown(NONE, 0, LARGE, 1), "confirmed");
        cloud.teardown(&running, "resized").await;
        assert_eq!(usage(&running).await, shown(NONE, 0, NONE, 0));
    }
}

/// The destination of a move that is being prepared has a claim, although the server is still on the source.
#[tokio::test]
async fn a_destination_shows_the_claim_of_a_resize_in_progress() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        running.flavor("large", json!({"vcpus": 3})).await;
        let id = running.active_server(&cloud, "one", "plain").await;
        let first = host_of(&running, &id).await;
        running.act(&id, resize("large")).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        let vcpus = async || {
            let mut usages = usage(&running).await;
            let ([source, ..], _) = usages.remove(&first).expect("the source is listed");
            let ([dest, ..], _) = usages.into_values().next().expect("the destination is listed");
            [source, dest]
        };
        assert_eq!(vcpus().await, [1, 3]);
        cloud.execute("UPDATE servers SET host = (SELECT source_host FROM moves), vcpus = 1").await;
        assert_eq!(vcpus().await, [1, 3], "the server's row has changed, and no claim");
        cloud.execute("UPDATE servers SET host = (SELECT dest_host FROM moves), vcpus = 3").await;
        confirm_resize(&running, &cloud, &id).await;
        cloud.teardown(&running, "resized").await;
    }
}

#[tokio::test]
async fn a_host_shows_both_claims_of_a_resize_on_itself() {
    for mut cloud in Cloud::all(hosts(&[("a", &[])])).await {
        cloud.options.allow_resize_to_same_host = true;
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        running.flavor("large", json!({"vcpus": 3, "ram": 256})).await;
        let id = running.active_server(&cloud, "one", "plain").await;
        running.act(&id, resize("large")).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        assert_eq!(usage(&running).await, BTreeMap::from([("a".to_owned(), ([4, 320, 2], 1))]));
        running.act(&id, json!({"revertResize": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.wait_for_host_cleanup(&cloud).await;
        assert_eq!(usage(&running).await, BTreeMap::from([("a".to_owned(), ([1, 64, 1], 1))]));
        cloud.teardown(&running, "resized").await;
    }
}

#[tokio::test]
async fn resize_to_the_same_host() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.act(&id, resize("vgpu-pair")).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let why = failure(&running, &id).await;
        assert!(why.starts_with("No valid host was found. "), "{why}");
        cloud.assert_consistent(&running, "refused").await;
        running.kill().await;
        cloud.options.allow_resize_to_same_host = true;
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        for stopped in [false, true] {
            let rests = if stopped { "SHUTOFF" } else { "ACTIVE" };
            if stopped {
                running.act(&id, json!({"os-stop": null})).await;
                running.wait_for_status(&id, "SHUTOFF").await;
            }
            running.act(&id, resize("vgpu-pair")).await;
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            assert_eq!(cloud.used("VGPU").await, 3, "both hosts have a claim");
            cloud.assert_consistent(&running, "resized").await;
            running.act(&id, json!({"revertResize": null})).await;
            let server = running.wait_for_status(&id, rests).await;
            assert_eq!(server["flavor"]["original_name"], "vgpu");
            assert_eq!(cloud.used("VGPU").await, 1);
            cloud.assert_consistent(&running, "reverted").await;
        }
        running.act(&id, resize("vgpu-pair")).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        confirm_resize(&running, &cloud, &id).await;
        running.wait_for_status(&id, "SHUTOFF").await;
        assert_eq!(cloud.used("VGPU").await, 2);
        cloud.assert_consistent(&running, "confirmed").await;
        running.act(&id, resize("plain")).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        cloud.teardown(&running, "deleted during a resize").await;
    }
}

#[tokio::test]
async fn a_failed_rollback_keeps_its_claim_until_it_succeeds() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
        cloud.options.allow_resize_to_same_host = true;
        let mut running = cloud.start().await;
        running.wait_for_hosts().await;
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.act(&id, resize("vgpu-pair")).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        running.restart_failing(&cloud, "a", &[("start", Some(1))]).await;
        running.act(&id, json!({"revertResize": null})).await;
        running.wait_for_status(&id, "ERROR").await;
        cloud.audit("not rolled back").await;
        assert_eq!(cloud.used("VGPU").await, 3);
        running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(cloud.used("VGPU").await, 1);
        cloud.assert_consistent(&running, "undone").await;
        cloud.teardown(&running, "undone").await;
    }
}

#[tokio::test]
async fn a_failed_destination_is_followed_by_the_next_host_or_the_source() {
    let topology = hosts(&[("a", &[GPU]), ("b", &[GPU]), ("c", &[GPU])]);
    for (cloud, mut running) in Cloud::all_running(topology).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let first = host_of(&running, &id).await;
        let others: Vec<&str> = ["a", "b", "c"].into_iter().filter(|host| *host != first).collect();
        running.restart_failing(&cloud, others[0], &[("start", None)]).await;
        for _ in 0..4 {
            migrate(&running, &id).await;
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            assert_eq!(host_of(&running, &id).await, others[1]);
            cloud.assert_consistent(&running, "moved").await;
            running.act(&id, json!({"revertResize": null})).await;
            running.wait_for_status(&id, "ACTIVE").await;
        }
        running.restart_failing(&cloud, others[1], &[("create_mdev", None)]).await;
        migrate(&running, &id).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!((host_of(&running, &id).await, status(&cloud).await), (first, "error".into()));
        let why = failure(&running, &id).await;
        assert!(why.starts_with("No valid host was found. "), "{why}");
        cloud.assert_consistent(&running, "the host is back").await;
        cloud.teardown(&running, "the host is back").await;
    }
}

#[tokio::test]
async fn a_guest_that_cannot_be_stopped_is_not_migrated() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let host = host_of(&running, &id).await;
        running.restart_failing(&cloud, &host, &[("stop", Some(1))]).await;
        migrate(&running, &id).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(host_of(&running, &id).await, host);
        let why = failure(&running, &id).await;
        assert!(why.contains(": stop: "), "{why}");
        cloud.assert_consistent(&running, "still on its host").await;
        cloud.teardown(&running, "still on its host").await;
    }
}

#[tokio::test]
async fn delete_in_every_phase_of_a_migration() {
    let topology = hosts(&[("a", &[GPU]), ("b", &[GPU])]);
    for (cloud, mut running) in Cloud::all_running(topology).await {
        for (phase, new_side) in [
            ("stop_source", false),
            ("make_dest", true),
            ("finished", true),
            ("drop_dest", true),
            ("ask_source", false),
        ] {
            let id = running.active_server(&cloud, "one", "vgpu-pair").await;
            let old = running.server(&id).await["OS-EXT-SRV-ATTR:host"] == "a";
            // The migration waits at the step of the host that is down.
            let away = if old == new_side { "b" } else { "a" };
            let moved = matches!(phase, "finished" | "drop_dest" | "ask_source");
            if moved {
                migrate(&running, &id).await;
                running.wait_for_status(&id, "VERIFY_RESIZE").await;
            }
            running.nodes.kill(away).await;
            match phase {
                "drop_dest" | "ask_source" => running.act(&id, json!({"revertResize": null})).await,
                "finished" => {}
                _ => migrate(&running, &id).await,
            }
            if phase != "finished" {
                crate::kit::wait_until(phase, async || {
                    let step = "SELECT step FROM operations WHERE outcome = 'open'";
                    cloud.column(step).await == [phase]
                })
                .await;
            }
            cloud.audit(phase).await;
            running.delete(&id).await;
            cloud.audit(phase).await;
            running.start_node(&cloud, away).await;
            running.wait_until_gone(&id).await;
            cloud.assert_empty(&running, phase).await;
        }
    }
}

#[tokio::test]
async fn a_lost_destination_is_given_up() {
    let topology = hosts(&[("a", &[GPU]), ("b", &[GPU])]);
    for (cloud, mut running) in Cloud::all_running(topology).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let first = host_of(&running, &id).await;
        let other = if first == "a" { "b" } else { "a" };
        running.nodes.kill(other).await;
        migrate(&running, &id).await;
        crate::kit::wait_until("the destination has a document", async || {
            let step = "SELECT step FROM operations WHERE outcome = 'open'";
            cloud.column(step).await == ["make_dest"]
        })
        .await;
        running.force_down(other, true).await;
        cloud.execute("UPDATE operations SET updated_at = 0").await;
        nudge::run(running.compute.clone()).await.expect("the periodic task succeeds");
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(host_of(&running, &id).await, first);
        let why = failure(&running, &id).await;
        assert!(why.contains(&format!("{other} went down.")), "{why}");
        cloud.audit("the destination is lost").await;
        running.force_down(other, false).await;
        running.start_node(&cloud, other).await;
        crate::kit::wait_until("the other host has dropped the guest", async || {
            cloud.column("SELECT host FROM documents").await.len() == 1
        })
        .await;
        cloud.assert_consistent(&running, "the host is back").await;
        cloud.teardown(&running, "the host is back").await;
    }
}

/// A source that is lost leaves the resize as it was. One that has not answered otherwise is asked again.
#[tokio::test]
async fn a_revert_whose_source_does_not_answer_ends() {
    let topology = hosts(&[("a", &[GPU]), ("b", &[GPU])]);
    for (cloud, mut running) in Cloud::all_running(topology).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        migrate(&running, &id).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        running.nodes.kill("a").await;
        revert(&running, &id).await;
        let step = "SELECT step FROM operations WHERE outcome = 'open'";
        let document = "SELECT CAST(generation AS TEXT) FROM documents WHERE host = 'a'";
        assert_eq!(cloud.column(step).await, ["ask_source"]);
        let asked = cloud.column(document).await;
        nudge::run(running.compute.clone()).await.expect("the periodic task succeeds");
        assert_eq!(cloud.column(document).await, asked, "the source has some time to answer");
        cloud.execute("UPDATE operations SET updated_at = 0").await;
        nudge::run(running.compute.clone()).await.expect("the periodic task succeeds");
        assert_ne!(cloud.column(document).await, asked, "the source is asked again");
        assert_eq!(cloud.column(step).await, ["ask_source"]);
        cloud.audit("asked again").await;

        running.force_down("a", true).await;
        cloud.execute("UPDATE operations SET updated_at = 0").await;
        nudge::run(running.compute.clone()).await.expect("the periodic task succeeds");
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        assert_eq!(status(&cloud).await, "finished");
        let why = failure(&running, &id).await;
        assert!(why.contains("a went down."), "{why}");
        assert_eq!(cloud.used("VGPU").await, 2, "both places are claimed");
        cloud.audit("the source is lost").await;

        running.force_down("a", false).await;
        running.start_node(&cloud, "a").await;
        revert(&running, &id).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(host_of(&running, &id).await, "a");
        running.wait_for_host_cleanup(&cloud).await;
        cloud.assert_consistent(&running, "reverted").await;
        cloud.teardown(&running, "reverted").await;
    }
}

#[tokio::test]
async fn resizes_are_confirmed_automatically() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        cloud.options.resize_confirm_window = SignedDuration::from_secs(3600);
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.act(&id, resize("vgpu4")).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        confirm::run(running.compute.clone()).await.expect("the periodic task succeeds");
        assert_eq!(running.server(&id).await["status"], "VERIFY_RESIZE");
        cloud.execute("UPDATE moves SET updated_at = updated_at - 3600000000").await;
        confirm::run(running.compute.clone()).await.expect("the periodic task succeeds");
        running.wait_for_status(&id, "ACTIVE").await;
        running.wait_for_host_cleanup(&cloud).await;
        cloud.assert_consistent(&running, "confirmed").await;
        cloud.teardown(&running, "confirmed").await;
    }
}

/// A reset deletes no disk: the migration stays finished, and is confirmed or reverted later.
#[tokio::test]
async fn reset_state_keeps_the_migration() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        for (end, code, host) in
            [("revertResize", 202, "a"), ("confirmResize", 204, "b"), ("", 0, "a")]
        {
            migrate(&running, &id).await;
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            for (state, shown) in [("error", "ERROR"), ("active", "ACTIVE")] {
                let reset = json!({"os-resetState": {"state": state}});
                admin(&running, "2.90", &id, reset).await.expect(202);
                running.wait_for_status(&id, shown).await;
                assert_eq!(status(&cloud).await, "finished");
            }
            assert_eq!(cloud.column("SELECT host FROM documents").await.len(), 2);
            assert_eq!(cloud.used("VGPU").await, 2, "both places are claimed");
            cloud.assert_consistent(&running, "reset").await;
            let words = "confirm or revert that first";
            for other in [json!({"migrate": null}), resize("vgpu4"), json!({"shelve": null})] {
                admin(&running, "2.90", &id, other).await.refused(409, words);
            }
            cloud.assert_consistent(&running, "refused").await;
            if end.is_empty() {
                break;
            }
            admin(&running, "2.90", &id, json!({end: null})).await.expect(code);
            running.wait_for_status(&id, "ACTIVE").await;
            running.wait_for_host_cleanup(&cloud).await;
            assert_eq!(host_of(&running, &id).await, host);
            assert_eq!(cloud.used("VGPU").await, 1, "{end}");
            cloud.assert_consistent(&running, end).await;
            let words = format!("Cannot '{end}' instance {id} while it is in vm_state active");
            admin(&running, "2.90", &id, json!({end: null})).await.refused(409, &words);
        }
        cloud.teardown(&running, "reset").await;
    }
}

/// The source may have the only guest of a resized server whose destination has removed it, in every state that a reset
/// sets.
#[tokio::test]
async fn a_reset_server_without_a_guest_is_not_confirmed() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        for state in ["error", "active"] {
            let id = running.active_server_on(&cloud, "a", "vgpu").await;
            migrate(&running, &id).await;
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            let reset = json!({"os-resetState": {"state": state}});
            admin(&running, "2.90", &id, reset).await.expect(202);
            let removed =
                Outcome::Failed { step: REMOVED_STEP.to_owned(), message: "it is gone".to_owned() };
            running.report(&cloud, "b", &id, removed).await;
            let shown = running.wait_for_status(&id, "ERROR").await;
            assert_eq!(shown["OS-EXT-STS:power_state"], 0, "{state}: {shown}");
            let confirm = admin(&running, "2.90", &id, json!({"confirmResize": null})).await;
            confirm.refused(409, "Revert the resize");
            assert_eq!(status(&cloud).await, "finished");
            revert(&running, &id).await;
            running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(host_of(&running, &id).await, "a");
            running.wait_for_host_cleanup(&cloud).await;
            cloud.assert_consistent(&running, state).await;
            cloud.teardown(&running, state).await;
        }
    }
}

/// A revert whose source no longer has the guest confirms the resize. Like a confirmation, it keeps the state that a
/// reset has set.
#[tokio::test]
async fn a_revert_that_ends_as_a_confirmation_keeps_a_reset_state() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        migrate(&running, &id).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        let reset = json!({"os-resetState": {"state": "error"}});
        admin(&running, "2.90", &id, reset).await.expect(202);
        running.nodes.kill("a").await;
        revert(&running, &id).await;
        running.report(&cloud, "a", &id, Outcome::Absent).await;
        let shown = running.server(&id).await;
        assert_eq!(shown["status"], "ERROR", "{shown}");
        assert_eq!(shown["OS-EXT-STS:task_state"], Value::Null, "{shown}");
        assert_eq!(host_of(&running, &id).await, "b");
        assert_eq!(status(&cloud).await, "confirmed");
        let why = failure(&running, &id).await;
        assert!(why.contains("a no longer has the guest"), "{why}");
        cloud.audit("confirmed").await;
        running.start_node(&cloud, "a").await;
        running.wait_for_host_cleanup(&cloud).await;
        cloud.teardown(&running, "confirmed").await;
    }
}

/// A flavor that was deleted and created again is another one, even with the same id and name.
#[tokio::test]
async fn a_resize_to_a_recreated_flavor_is_accepted() {
    const SAME: &str = "instances must change flavor!";
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let recreate = async |ram: u32| {
            running.call(ADMIN, "2.90", "DELETE /flavors/often", None).await.expect(202);
            running.flavor("often", json!({"ram": ram})).await;
        };
        running.flavor("often", json!({"ram": 64})).await;
        let id = running.active_server(&cloud, "one", "often").await;
        let specs = json!({"extra_specs": {"hw_rng:allowed": "True"}});
        running.admin("2.61", "POST /flavors/often/os-extra_specs", specs).await.expect(200);
        running.try_act(&id, resize("often")).await.refused(400, SAME);
        for ram in [64, 128] {
            recreate(ram).await;
            running.act(&id, resize("often")).await;
            let server = running.wait_for_status(&id, "VERIFY_RESIZE").await;
            assert_eq!(server["flavor"]["ram"], ram, "{server}");
            confirm_resize(&running, &cloud, &id).await;
            running.wait_for_status(&id, "ACTIVE").await;
            running.try_act(&id, resize("often")).await.refused(400, SAME);
        }
        // The row of a server of an earlier version has no number of its flavor.
        let old = "UPDATE servers SET spec = REPLACE(spec, '\"number\":', '\"unknown\":')";
        cloud.execute(old).await;
        running.try_act(&id, resize("often")).await.refused(400, SAME);
        recreate(96).await;
        running.act(&id, resize("often")).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        confirm_resize(&running, &cloud, &id).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&running, "recreated").await;
        cloud.teardown(&running, "recreated").await;
    }
}

#[tokio::test]
async fn invalid_resizes_are_refused() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let host = host_of(&running, &id).await;
        running.try_act(&id, resize("vgpu")).await.refused(400, "instances must change flavor!");
        running.try_act(&id, resize("none")).await.refused(400, "could not be found");
        running.try_act(&id, json!({"resize": {}})).await.refused(400, "flavorRef");
        running
            .try_act(&id, json!({"migrate": null}))
            .await
            .refused(403, "os-migrate-server:migrate");
        for verb in ["confirmResize", "revertResize"] {
            let words = format!("Cannot '{verb}' instance {id} while it is in vm_state active");
            running.try_act(&id, json!({verb: null})).await.refused(409, &words);
        }
        let to = |host: &str| json!({"migrate": {"host": host}});
        let same = admin(&running, "2.56", &id, to(&host)).await;
        same.refused(400, "Cannot migrate to the host where the server exists.");
        let none = admin(&running, "2.56", &id, to("nowhere")).await;
        none.refused(400, "Compute host nowhere could not be found.");
        running.force_down(&host, true).await;
        running
            .try_act(&id, resize("plain"))
            .await
            .refused(409, "Service is unavailable at this time.");
        running.force_down(&host, false).await;
        running.flavor("small", json!({"disk": 0})).await;
        running.try_act(&id, resize("small")).await.refused(400, "zero disk");
        let quota = json!({"quota_set": {"cores": 1}});
        running.admin("2.90", "PUT /os-quota-sets/red", quota).await.expect(200);
        running.flavor("large", json!({"vcpus": 2})).await;
        running.try_act(&id, resize("large")).await.refused(403, "Quota exceeded for cores");
        assert_eq!(running.wait_until_idle(&id).await["status"], "ACTIVE");
        cloud.assert_consistent(&running, "refused").await;
        cloud.teardown(&running, "refused").await;
    }
}

/// `os-resetState` changes the server's state, not the guest's.
#[tokio::test]
async fn a_server_reset_to_active_migrates_in_any_power_state() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU, FPGA]), ("b", &[GPU, FPGA])])).await {
        cloud.options.allow_resize_to_same_host = true;
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        for (action, rests) in [("pause", "PAUSED"), ("suspend", "SUSPENDED")] {
            for moved in [json!({"migrate": null}), resize("fpga")] {
                let id = running.active_server(&cloud, "one", "vgpu").await;
                running.act(&id, json!({action: null})).await;
                running.wait_for_status(&id, rests).await;
                let state = json!({"os-resetState": {"state": "active"}});
                admin(&running, "2.90", &id, state).await.expect(202);
                admin(&running, "2.90", &id, moved.clone()).await.expect(202);
                let server = running.wait_for_status(&id, "VERIFY_RESIZE").await;
                assert_eq!(server["OS-EXT-STS:power_state"], 1, "{action} {moved}");
                cloud.assert_consistent(&running, "moved").await;
                admin(&running, "2.90", &id, json!({"revertResize": null})).await.expect(202);
                running.wait_for_status(&id, "ACTIVE").await;
                cloud.assert_consistent(&running, "reverted").await;
                running.delete(&id).await;
                running.wait_until_gone(&id).await;
            }
        }
    }
}

/// A guest that was resized on its host has one root disk. A rebuild before the revert has replaced it, and the revert keeps
/// the new one.
#[tokio::test]
async fn a_revert_on_the_same_host_keeps_a_rebuild() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
        cloud.options.allow_resize_to_same_host = true;
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.act(&id, resize("vgpu-pair")).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        let reset = json!({"os-resetState": {"state": "active"}});
        admin(&running, "2.90", &id, reset).await.expect(202);
        running.act(&id, json!({"rebuild": {"imageRef": cloud.image}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        revert(&running, &id).await;
        let shown = running.wait_until_idle(&id).await;
        assert_eq!(shown["status"], "ACTIVE", "{shown}");
        assert_eq!(status(&cloud).await, "reverted");
        let operation = cloud.column("SELECT id FROM operations WHERE kind = 'rebuild'").await;
        let xml = cloud.nodes().join(format!("a/domains/{id}.xml"));
        let xml = std::fs::read_to_string(xml).expect("the domain XML exists");
        assert!(xml.contains(&format!("rebuilt='{}'", operation[0])), "{xml}");
        let flavor = "&quot;flavor&quot;:&quot;vgpu&quot;";
        assert!(xml.contains(flavor), "the metadata has the flavor: {xml}");
        assert!(!xml.contains("vgpu-pair"), "{xml}");
        cloud.assert_consistent(&running, "reverted").await;
        cloud.teardown(&running, "reverted").await;
    }
}

#[tokio::test]
async fn an_ephemeral_disk_does_not_shrink() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        for (name, size) in [("two", 2), ("one", 1), ("none", 0)] {
            running.flavor(name, json!({"OS-FLV-EXT-DATA:ephemeral": size})).await;
        }
        let id = running.active_server(&cloud, "one", "two").await;
        for (flavor, size) in [("one", 1), ("none", 0)] {
            let words =
                format!("Unable to resize disk down: the server has 2 GiB, the flavor {size} GiB.");
            running.try_act(&id, resize(flavor)).await.refused(400, &words);
        }
        assert_eq!(running.wait_until_idle(&id).await["status"], "ACTIVE");

        // The requested size counts, not the flavor's.
        let disks = json!({"block_device_mapping_v2": [
            {"source_type": "image", "destination_type": "local", "uuid": cloud.image,
                "boot_index": 0, "delete_on_termination": true},
            {"source_type": "blank", "destination_type": "local", "boot_index": -1,
                "delete_on_termination": true, "guest_format": "ext4", "volume_size": 1},
        ]});
        let id = running.boot_with(&cloud, "two", "two", disks).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let words = "Unable to resize disk down: the server has 1 GiB, the flavor 0 GiB.";
        running.try_act(&id, resize("none")).await.refused(400, words);
        running.act(&id, resize("one")).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        confirm_resize(&running, &cloud, &id).await;
        cloud.teardown(&running, "ephemeral").await;
    }
}

#[tokio::test]
async fn a_resize_leaves_the_memory_that_the_image_needs() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        running.flavor("large", json!({"ram": 256})).await;
        running.flavor("enough", json!({"ram": 128})).await;
        let id = running.active_server(&cloud, "one", "large").await;
        cloud.execute("UPDATE images SET min_ram = 128").await;
        let words = "Flavor's memory is too small for requested image: it has 64 MiB, the image \
                     needs 128.";
        running.try_act(&id, resize("plain")).await.refused(400, words);
        assert_eq!(running.wait_until_idle(&id).await["status"], "ACTIVE");
        running.act(&id, resize("enough")).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        confirm_resize(&running, &cloud, &id).await;
        cloud.teardown(&running, "memory").await;
    }
}
