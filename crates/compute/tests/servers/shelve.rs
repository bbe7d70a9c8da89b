//! Shelved and soft-deleted servers: the claims they keep and release, and their restoration.

use jiff::SignedDuration;
use kilonova_compute_app::Options;
use kilonova_compute_app::reconcile::rest;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Answer, Cloud, GPU, GPUS, Up, hosts};

fn shelve() -> Value {
    json!({"shelve": null})
}

/// Running clouds with these options.
async fn clouds(options: Options) -> Vec<(Cloud, Up)> {
    let mut all = Vec::new();
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        cloud.options = options.clone();
        let up = cloud.start().await;
        up.wait_for_hosts().await;
        all.push((cloud, up));
    }
    all
}

async fn admin(up: &Up, id: &str, action: Value) -> Answer {
    up.call(ADMIN, "2.91", &format!("POST /servers/{id}/action"), Some(action)).await
}

#[tokio::test]
async fn an_offloaded_server_releases_its_devices_and_claims_others() {
    for (cloud, up) in clouds(Options::default()).await {
        let id = up.active_server(&cloud, "one", "vgpu4").await;
        up.act(&id, shelve()).await;
        let server = up.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        assert!(server["OS-EXT-SRV-ATTR:host"].is_null(), "{server}");
        assert_eq!((cloud.used("VGPU").await, cloud.used("VCPU").await), (0, 0));
        cloud.assert_consistent(&up, "shelved").await;
        let kept = "SELECT id FROM images WHERE name = 'one-shelved'";
        assert_eq!(cloud.column(kept).await.len(), 1);

        up.act(&id, json!({"unshelve": null})).await;
        up.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(cloud.used("VGPU").await, 4);
        cloud.assert_consistent(&up, "unshelved").await;
        assert!(cloud.column(kept).await.is_empty(), "the shelve image is deleted");
        cloud.teardown(&up, "unshelved").await;
    }
}

#[tokio::test]
async fn unshelve_to_a_zone_and_to_a_host() {
    for (cloud, up) in clouds(Options::default()).await {
        let id = up.active_server(&cloud, "one", "vgpu").await;
        for host in ["b", "a"] {
            up.act(&id, shelve()).await;
            up.wait_for_status(&id, "SHELVED_OFFLOADED").await;
            let action = json!({"unshelve": {"availability_zone": "nova", "host": host}});
            assert_eq!(admin(&up, &id, action).await.status, 202);
            let server = up.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(server["OS-EXT-SRV-ATTR:host"], host);
        }
        up.act(&id, shelve()).await;
        up.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        for (action, code, part) in [
            (json!({"unshelve": {"availability_zone": "moon"}}), 400, "zone is not available"),
            (json!({"unshelve": {"host": "z"}}), 400, "Compute host z could not be found."),
            (json!({"unshelve": {}}), 400, "at least one"),
        ] {
            admin(&up, &id, action).await.refused(code, part);
        }
        let to_host = Some(json!({"unshelve": {"host": "a"}}));
        let path = format!("POST /servers/{id}/action");
        up.call(ANN, "2.91", &path, to_host).await.refused(403, "Policy");
        cloud.assert_consistent(&up, "refused").await;
        cloud.teardown(&up, "moved").await;
    }
}

#[tokio::test]
async fn without_room_the_server_stays_shelved() {
    for (cloud, mut up) in clouds(Options::default()).await {
        up.remove_quota_limits().await;
        let id = up.active_server(&cloud, "one", "vgpu").await;
        up.act(&id, shelve()).await;
        up.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        let mut others = Vec::new();
        for _ in 0..GPUS * 2 {
            others.push(up.boot(&cloud, "other", "vgpu").await);
        }
        up.wait_all_idle().await;
        up.act(&id, json!({"unshelve": null})).await;
        up.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        let sql = "SELECT message FROM operations WHERE kind = 'unshelve'";
        let why = cloud.column(sql).await.remove(0);
        assert!(why.starts_with("No valid host was found."), "{why}");
        cloud.assert_consistent(&up, "no room").await;
        up.delete(&others[0]).await;
        up.wait_until_gone(&others[0]).await;
        for host in ["a", "b"] {
            up.restart_failing(&cloud, host, &[("define", Some(1))]).await;
        }
        up.wait_all_idle().await;
        up.act(&id, json!({"unshelve": null})).await;
        up.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        assert_eq!(cloud.used("VGPU").await, GPUS * 2 - 1, "a failed attempt holds no claim");
        cloud.assert_consistent(&up, "the destination failed").await;
        up.act(&id, json!({"unshelve": null})).await;
        up.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&up, "room is available").await;
        cloud.teardown(&up, "room").await;
    }
}

#[tokio::test]
async fn a_shelved_server_keeps_its_host_until_it_is_offloaded() {
    let options =
        Options { shelved_offload_time: SignedDuration::from_secs(3600), ..Options::default() };
    for (cloud, up) in clouds(options).await {
        let id = up.active_server(&cloud, "one", "vgpu").await;
        up.act(&id, shelve()).await;
        up.wait_for_status(&id, "SHELVED").await;
        assert_eq!(cloud.used("VGPU").await, 1, "the server keeps its devices");
        let zone = json!({"unshelve": {"availability_zone": "nova"}});
        admin(&up, &id, zone).await.refused(409, "must be SHELVED_OFFLOADED");
        up.act(&id, json!({"unshelve": null})).await;
        up.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&up, "the host is back").await;

        up.act(&id, shelve()).await;
        up.wait_for_status(&id, "SHELVED").await;
        rest::shelved(up.compute.clone()).await.expect("the periodic task succeeds");
        up.wait_for_status(&id, "SHELVED").await;
        cloud.execute("UPDATE resting SET since = since - 4000000000").await;
        rest::shelved(up.compute.clone()).await.expect("the periodic task succeeds");
        up.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        cloud.assert_consistent(&up, "its time has passed").await;

        up.act(&id, json!({"unshelve": null})).await;
        up.wait_for_status(&id, "ACTIVE").await;
        up.act(&id, shelve()).await;
        up.wait_for_status(&id, "SHELVED").await;
        assert_eq!(admin(&up, &id, json!({"shelveOffload": null})).await.status, 202);
        up.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        cloud.teardown(&up, "offloaded").await;
    }
}

#[tokio::test]
async fn a_soft_deleted_server_can_be_restored_until_it_is_reclaimed() {
    let options = Options {
        reclaim_instance_interval: SignedDuration::from_secs(3600),
        ..Options::default()
    };
    for (cloud, up) in clouds(options).await {
        let id = up.active_server(&cloud, "one", "vgpu").await;
        for _ in 0..2 {
            up.delete(&id).await;
            up.wait_for_status(&id, "SOFT_DELETED").await;
        }
        assert_eq!(cloud.used("VGPU").await, 1, "the server keeps its devices");
        cloud.assert_consistent(&up, "deleted").await;
        up.act(&id, json!({"restore": null})).await;
        up.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&up, "restored").await;

        up.delete(&id).await;
        up.wait_for_status(&id, "SOFT_DELETED").await;
        rest::run(up.compute.clone()).await.expect("the periodic task succeeds");
        up.wait_for_status(&id, "SOFT_DELETED").await;
        cloud.execute("UPDATE resting SET since = since - 4000000000").await;
        rest::run(up.compute.clone()).await.expect("the periodic task succeeds");
        up.wait_until_gone(&id).await;
        cloud.assert_empty(&up, "its time has passed").await;

        let id = up.active_server(&cloud, "two", "vgpu").await;
        up.delete(&id).await;
        up.act(&id, json!({"forceDelete": null})).await;
        up.wait_until_gone(&id).await;
        cloud.assert_empty(&up, "deleted permanently").await;
    }
}

#[tokio::test]
async fn a_delete_does_not_wait_for_the_shelve_image() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
        cloud.options.reclaim_instance_interval = SignedDuration::from_secs(3600);
        let mut up = cloud.start().await;
        up.wait_for_hosts().await;
        for action in [json!({"createImage": {"name": "picture"}}), json!({"shelve": null})] {
            let id = up.active_server(&cloud, "one", "vgpu").await;
            up.nodes.kill("a").await;
            up.act(&id, action.clone()).await;
            up.delete(&id).await;
            up.start_node(&cloud, "a").await;
            up.wait_for_status(&id, "SOFT_DELETED").await;
            cloud.assert_consistent(&up, &action.to_string()).await;
            up.act(&id, json!({"restore": null})).await;
            up.wait_for_status(&id, "ACTIVE").await;
            cloud.assert_consistent(&up, "restored").await;
        }
        cloud.teardown(&up, "restored").await;
    }
}

#[tokio::test]
async fn a_pending_delete_cannot_be_restored() {
    let options = Options {
        reclaim_instance_interval: SignedDuration::from_secs(3600),
        ..Options::default()
    };
    for (cloud, mut up) in clouds(options).await {
        let id = up.active_server(&cloud, "one", "vgpu").await;
        up.restart_nodes(&cloud, async |up| {
            up.delete(&id).await;
            for state in ["active", "error"] {
                let answer = admin(up, &id, json!({"os-resetState": {"state": state}})).await;
                answer.refused(409, "removed from its host");
            }
        })
        .await;
        up.wait_for_status(&id, "SOFT_DELETED").await;
        cloud.assert_consistent(&up, "deleted").await;
        assert_eq!(admin(&up, &id, json!({"forceDelete": null})).await.status, 202);
        up.wait_until_gone(&id).await;
        cloud.assert_empty(&up, "deleted permanently").await;
    }
}
