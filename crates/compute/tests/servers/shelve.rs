//! Shelved and soft-deleted servers: the claims they keep and release, and their restoration.

use jiff::SignedDuration;
use kilonova_compute_app::Options;
use kilonova_compute_app::reconcile::rest;
use kilonova_node_api::{DESTROY_STEP, Outcome};
use serde_json::{Value, json};

use super::instance_actions::{actions, succeeded};
use super::resize::{failure, host_of};
use crate::kit::{ADMIN, ANN, Answer, Cloud, GPU, GPUS, RunningCloud, hosts, wait_until};

fn shelve() -> Value {
    json!({"shelve": null})
}

/// Running clouds with these options.
pub async fn clouds(options: Options) -> Vec<(Cloud, RunningCloud)> {
    let mut all = Vec::new();
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        cloud.options = options.clone();
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        all.push((cloud, running));
    }
    all
}

async fn admin(running: &RunningCloud, id: &str, action: Value) -> Answer {
    running.call(ADMIN, "2.91", &format!("POST /servers/{id}/action"), Some(action)).await
}

#[tokio::test]
async fn an_offloaded_server_releases_its_devices_and_claims_others() {
    for (cloud, running) in clouds(Options::default()).await {
        let id = running.active_server(&cloud, "one", "vgpu4").await;
        running.act(&id, shelve()).await;
        let server = running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        assert!(server["OS-EXT-SRV-ATTR:host"].is_null(), "{server}");
        assert_eq!((cloud.used("VGPU").await, cloud.used("VCPU").await), (0, 0));
        cloud.assert_consistent(&running, "shelved").await;
        let kept = "SELECT id FROM images WHERE name = 'one-shelved'";
        assert_eq!(cloud.column(kept).await.len(), 1);

        running.act(&id, json!({"unshelve": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(cloud.used("VGPU").await, 4);
        cloud.assert_consistent(&running, "unshelved").await;
        assert!(cloud.column(kept).await.is_empty(), "the shelve image is deleted");
        cloud.teardown(&running, "unshelved").await;
    }
}

#[tokio::test]
async fn unshelve_to_a_zone_and_to_a_host() {
    for (cloud, running) in clouds(Options::default()).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        for host in ["b", "a"] {
            running.act(&id, shelve()).await;
            running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
            let action = json!({"unshelve": {"availability_zone": "nova", "host": host}});
            assert_eq!(admin(&running, &id, action).await.status, 202);
            let server = running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(server["OS-EXT-SRV-ATTR:host"], host);
        }
        running.act(&id, shelve()).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        for (action, code, part) in [
            (json!({"unshelve": {"availability_zone": "moon"}}), 400, "zone is not available"),
            (json!({"unshelve": {"host": "z"}}), 400, "Compute host z could not be found."),
            (json!({"unshelve": {}}), 400, "at least one"),
        ] {
            admin(&running, &id, action).await.refused(code, part);
        }
        let to_host = Some(json!({"unshelve": {"host": "a"}}));
        let path = format!("POST /servers/{id}/action");
        running.call(ANN, "2.91", &path, to_host).await.refused(403, "Policy");
        cloud.assert_consistent(&running, "refused").await;
        cloud.teardown(&running, "moved").await;
    }
}

/// A host that contradicts the zone of the server after the unshelve is refused before anything changes.
#[tokio::test]
async fn unshelve_to_a_host_outside_the_zone_is_refused() {
    for (cloud, running) in clouds(Options::default()).await {
        let east = json!({"aggregate": {"name": "east", "availability_zone": "east"}});
        let made = running.admin("2.90", "POST /os-aggregates", east).await.expect(200);
        let path = format!("POST /os-aggregates/{}/action", made["aggregate"]["id"]);
        running.admin("2.90", &path, json!({"add_host": {"host": "b"}})).await.expect(200);
        let pinned = json!({"availability_zone": "nova"});
        let id = running.boot_with(&cloud, "one", "vgpu", pinned).await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.act(&id, shelve()).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        for (unshelve, words) in [
            (json!({"host": "b"}), "Host \"b\" is not in the availability zone \"nova\"."),
            (
                json!({"host": "a", "availability_zone": "east"}),
                "Host \"a\" is not in the availability zone \"east\".",
            ),
        ] {
            admin(&running, &id, json!({"unshelve": unshelve})).await.refused(409, words);
        }
        let pin = async || {
            let shown = running.get(ADMIN, "2.96", &format!("/servers/{id}")).await.expect(200);
            shown["server"]["pinned_availability_zone"].clone()
        };
        assert_eq!(pin().await, "nova", "the refusals changed nothing");
        // Without a zone, every host is possible.
        let unpinned = json!({"unshelve": {"host": "b", "availability_zone": null}});
        assert_eq!(admin(&running, &id, unpinned).await.status, 202);
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "b");
        assert_eq!(pin().await, Value::Null);
        cloud.assert_consistent(&running, "unpinned").await;
        cloud.teardown(&running, "zones").await;
    }
}

/// The image of a shelved server is deleted when it is unshelved, so an evacuation recreates the disk from the server's own
/// image.
#[tokio::test]
async fn an_unshelved_server_can_be_evacuated() {
    for (cloud, running) in clouds(Options::default()).await {
        let id = running.active_server_on(&cloud, "a", "vgpu").await;
        admin(&running, &id, shelve()).await.expect(202);
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        let shelved = cloud.column("SELECT id FROM images WHERE name = 'one-shelved'").await;
        assert_eq!(shelved.len(), 1);
        admin(&running, &id, json!({"unshelve": {"host": "a"}})).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        running.force_down("a", true).await;
        admin(&running, &id, json!({"evacuate": {}})).await.expect(200);
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "b");
        let body = cloud.column("SELECT body FROM documents WHERE host = 'b'").await.concat();
        assert!(body.contains(&cloud.image.to_string()) && !body.contains(&shelved[0]), "{body}");
        running.force_down("a", false).await;
        cloud.teardown(&running, "evacuated").await;
    }
}

#[tokio::test]
async fn without_room_the_server_stays_shelved() {
    for (cloud, mut running) in clouds(Options::default()).await {
        running.remove_quota_limits().await;
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.act(&id, shelve()).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        let mut others = Vec::new();
        for _ in 0..GPUS * 2 {
            others.push(running.boot(&cloud, "other", "vgpu").await);
        }
        running.wait_all_idle().await;
        running.act(&id, json!({"unshelve": null})).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        let sql = "SELECT message FROM operations WHERE kind = 'unshelve'";
        let why = cloud.column(sql).await.remove(0);
        assert!(why.starts_with("No valid host was found."), "{why}");
        cloud.assert_consistent(&running, "no room").await;
        running.delete(&others[0]).await;
        running.wait_until_gone(&others[0]).await;
        for host in ["a", "b"] {
            running.restart_failing(&cloud, host, &[("define", Some(1))]).await;
        }
        running.wait_all_idle().await;
        running.act(&id, json!({"unshelve": null})).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        assert_eq!(cloud.used("VGPU").await, GPUS * 2 - 1, "a failed attempt leaves no claim");
        cloud.assert_consistent(&running, "the destination failed").await;
        running.act(&id, json!({"unshelve": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&running, "room is available").await;
        cloud.teardown(&running, "room").await;
    }
}

#[tokio::test]
async fn a_shelved_server_keeps_its_host_until_it_is_offloaded() {
    let options =
        Options { shelved_offload_time: SignedDuration::from_secs(3600), ..Options::default() };
    for (cloud, mut running) in clouds(options).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.act(&id, shelve()).await;
        running.wait_for_status(&id, "SHELVED").await;
        assert_eq!(cloud.used("VGPU").await, 1, "the server keeps its devices");
        let zone = json!({"unshelve": {"availability_zone": "nova"}});
        admin(&running, &id, zone).await.refused(409, "must be SHELVED_OFFLOADED");
        // The guest is only started (upstream: `unshelve_instance` in `nova/conductor/manager.py`).
        let host = host_of(&running, &id).await;
        running.nodes.kill(&host).await;
        running.act(&id, json!({"unshelve": null})).await;
        let server = running.server(&id).await;
        assert_eq!(server["OS-EXT-STS:task_state"], "powering-on", "{server}");
        running.start_node(&cloud, &host).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let last = actions(&running, &id).await.pop();
        assert_eq!(last, Some(succeeded("unshelve", "compute_start_instance")));
        cloud.assert_consistent(&running, "the host is back").await;

        running.act(&id, shelve()).await;
        running.wait_for_status(&id, "SHELVED").await;
        rest::shelved(running.compute.clone()).await.expect("the periodic task succeeds");
        running.wait_for_status(&id, "SHELVED").await;
        cloud.execute("UPDATE resting SET since = since - 4000000000").await;
        rest::shelved(running.compute.clone()).await.expect("the periodic task succeeds");
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        cloud.assert_consistent(&running, "its time has passed").await;

        running.act(&id, json!({"unshelve": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.act(&id, shelve()).await;
        running.wait_for_status(&id, "SHELVED").await;
        assert_eq!(admin(&running, &id, json!({"shelveOffload": null})).await.status, 202);
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        cloud.teardown(&running, "offloaded").await;
    }
}

#[tokio::test]
async fn a_soft_deleted_server_can_be_restored_until_it_is_reclaimed() {
    let options = Options {
        reclaim_instance_interval: SignedDuration::from_secs(3600),
        ..Options::default()
    };
    for (cloud, running) in clouds(options).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        for _ in 0..2 {
            running.delete(&id).await;
            running.wait_for_status(&id, "SOFT_DELETED").await;
        }
        assert_eq!(cloud.used("VGPU").await, 1, "the server keeps its devices");
        cloud.assert_consistent(&running, "deleted").await;
        running.act(&id, json!({"restore": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&running, "restored").await;

        running.delete(&id).await;
        running.wait_for_status(&id, "SOFT_DELETED").await;
        rest::run(running.compute.clone()).await.expect("the periodic task succeeds");
        running.wait_for_status(&id, "SOFT_DELETED").await;
        cloud.execute("UPDATE resting SET since = since - 4000000000").await;
        rest::run(running.compute.clone()).await.expect("the periodic task succeeds");
        running.wait_until_gone(&id).await;
        cloud.assert_empty(&running, "its time has passed").await;

        let id = running.active_server(&cloud, "two", "vgpu").await;
        running.delete(&id).await;
        running.act(&id, json!({"forceDelete": null})).await;
        running.wait_until_gone(&id).await;
        cloud.assert_empty(&running, "deleted permanently").await;
    }
}

#[tokio::test]
async fn a_delete_does_not_wait_for_the_shelve_image() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
        cloud.options.reclaim_instance_interval = SignedDuration::from_secs(3600);
        let mut running = cloud.start().await;
        running.wait_for_hosts().await;
        for action in [json!({"createImage": {"name": "picture"}}), json!({"shelve": null})] {
            let id = running.active_server(&cloud, "one", "vgpu").await;
            running.nodes.kill("a").await;
            running.act(&id, action.clone()).await;
            running.delete(&id).await;
            running.start_node(&cloud, "a").await;
            running.wait_for_status(&id, "SOFT_DELETED").await;
            cloud.assert_consistent(&running, &action.to_string()).await;
            running.act(&id, json!({"restore": null})).await;
            running.wait_for_status(&id, "ACTIVE").await;
            cloud.assert_consistent(&running, "restored").await;
        }
        cloud.teardown(&running, "restored").await;
    }
}

/// A host that has neither the guest nor its disk has nothing to restore.
#[tokio::test]
async fn a_server_whose_guest_is_gone_is_deleted_at_once() {
    let options = Options {
        reclaim_instance_interval: SignedDuration::from_secs(3600),
        ..Options::default()
    };
    for (cloud, mut running) in clouds(options).await {
        for stopped in [false, true] {
            let id = running.active_server(&cloud, "one", "vgpu").await;
            if stopped {
                running.act(&id, json!({"os-stop": null})).await;
                running.wait_for_status(&id, "SHUTOFF").await;
            }
            let host = host_of(&running, &id).await;
            running.nodes.kill(&host).await;
            let node = cloud.nodes().join(&host);
            std::fs::remove_file(node.join(format!("domains/{id}.xml")))
                .expect("the file is removed");
            std::fs::remove_file(node.join(format!("console/{id}.log")))
                .expect("the file is removed");
            if !stopped {
                std::fs::remove_file(node.join("running").join(&id)).expect("the file is removed");
            }
            running.delete(&id).await;
            running.start_node(&cloud, &host).await;
            running.wait_until_gone(&id).await;
            running.wait_for_host_cleanup(&cloud).await;
            cloud.assert_empty(&running, "deleted permanently").await;
        }
    }
}

/// The image of a shelved server has its data, also if its host has lost the guest and its disk.
#[tokio::test]
async fn a_shelved_server_whose_guest_is_gone_keeps_its_image() {
    let options = Options {
        reclaim_instance_interval: SignedDuration::from_secs(3600),
        shelved_offload_time: SignedDuration::from_secs(3600),
        ..Options::default()
    };
    for (cloud, mut running) in clouds(options).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.act(&id, shelve()).await;
        running.wait_for_status(&id, "SHELVED").await;
        let host = host_of(&running, &id).await;
        running.nodes.kill(&host).await;
        let node = cloud.nodes().join(&host);
        std::fs::remove_file(node.join(format!("domains/{id}.xml"))).expect("the file is removed");
        std::fs::remove_file(node.join(format!("console/{id}.log"))).expect("the file is removed");
        running.delete(&id).await;
        running.start_node(&cloud, &host).await;
        running.wait_for_status(&id, "SHELVED").await;
        let why = failure(&running, &id).await;
        assert!(why.contains("neither the guest nor its root disk"), "{why}");
        let kept = "SELECT id FROM images WHERE name = 'one-shelved'";
        assert_eq!(cloud.column(kept).await.len(), 1, "the image is kept");
        admin(&running, &id, json!({"shelveOffload": null})).await.expect(202);
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        running.act(&id, json!({"unshelve": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.wait_for_host_cleanup(&cloud).await;
        cloud.teardown(&running, "unshelved").await;
    }
}

/// The source of a confirmed resize reports on its own guest only: it neither ends nor undoes a soft deletion.
#[tokio::test]
async fn a_soft_deletion_ignores_the_source_of_a_finished_move() {
    let options = Options {
        reclaim_instance_interval: SignedDuration::from_secs(3600),
        ..Options::default()
    };
    for (cloud, mut running) in clouds(options).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let source = host_of(&running, &id).await;
        admin(&running, &id, json!({"migrate": null})).await.expect(202);
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        let own = host_of(&running, &id).await;
        running.nodes.kill(&source).await;
        admin(&running, &id, json!({"confirmResize": null})).await.expect(204);
        running.wait_for_status(&id, "ACTIVE").await;
        running.nodes.kill(&own).await;
        running.delete(&id).await;
        let failed =
            Outcome::Failed { step: DESTROY_STEP.to_owned(), message: "it is busy".to_owned() };
        running.report(&cloud, &source, &id, failed).await;
        running.start_node(&cloud, &source).await;
        wait_until("the source has removed its guest", async || {
            cloud.column("SELECT host FROM documents").await == std::slice::from_ref(&own)
        })
        .await;
        let shown = running.server(&id).await;
        assert_eq!(shown["OS-EXT-STS:task_state"], "soft-deleting", "{shown}");
        running.start_node(&cloud, &own).await;
        running.wait_for_status(&id, "SOFT_DELETED").await;
        running.wait_for_host_cleanup(&cloud).await;
        assert_eq!(cloud.used("VGPU").await, 1, "only the server's own host is claimed");
        running.act(&id, json!({"restore": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.teardown(&running, "restored").await;
    }
}

/// A reset of the state does not end the wait for the confirmation, in which a server is deleted at once.
#[tokio::test]
async fn a_resized_server_is_deleted_at_once_after_a_reset() {
    let options = Options {
        reclaim_instance_interval: SignedDuration::from_secs(3600),
        ..Options::default()
    };
    for (cloud, running) in clouds(options).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        admin(&running, &id, json!({"migrate": null})).await.expect(202);
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        let reset = json!({"os-resetState": {"state": "active"}});
        admin(&running, &id, reset).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        running.wait_for_host_cleanup(&cloud).await;
        cloud.assert_empty(&running, "deleted permanently").await;
    }
}

#[tokio::test]
async fn a_pending_delete_cannot_be_restored() {
    let options = Options {
        reclaim_instance_interval: SignedDuration::from_secs(3600),
        ..Options::default()
    };
    for (cloud, mut running) in clouds(options).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running
            .restart_nodes(&cloud, async |running| {
                running.delete(&id).await;
                for state in ["active", "error"] {
                    let answer =
                        admin(running, &id, json!({"os-resetState": {"state": state}})).await;
                    answer.refused(409, "removed from its host");
                }
            })
            .await;
        running.wait_for_status(&id, "SOFT_DELETED").await;
        cloud.assert_consistent(&running, "deleted").await;
        assert_eq!(admin(&running, &id, json!({"forceDelete": null})).await.status, 202);
        running.wait_until_gone(&id).await;
        cloud.assert_empty(&running, "deleted permanently").await;
    }
}
