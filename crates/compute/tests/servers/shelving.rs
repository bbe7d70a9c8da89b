//! Shelved and deleted servers: what they keep, what they give back, and how they come back.

use kilonova_compute::Options;
use kilonova_compute::reconcile::rest;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Answer, Cloud, GPU, GPUS, Up, hosts};

fn shelve() -> Value {
    json!({"shelve": null})
}

/// Clouds in which these options hold.
async fn clouds(options: Options) -> Vec<(Cloud, Up)> {
    let mut all = Vec::new();
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        cloud.options = options.clone();
        let up = cloud.start().await;
        up.hosts_are_there().await;
        all.push((cloud, up));
    }
    all
}

async fn admin(up: &Up, id: &str, action: Value) -> Answer {
    up.call(ADMIN, "2.91", &format!("POST /servers/{id}/action"), Some(action)).await
}

#[tokio::test]
async fn a_shelved_server_gives_its_devices_back_and_gets_others() {
    for (cloud, up) in clouds(Options::default()).await {
        let id = up.active(&cloud, "one", "vgpu4").await;
        up.act(&id, shelve()).await;
        let server = up.becomes(&id, "SHELVED_OFFLOADED").await;
        assert!(server["OS-EXT-SRV-ATTR:host"].is_null(), "{server}");
        assert_eq!((cloud.used("VGPU").await, cloud.used("VCPU").await), (0, 0));
        cloud.sound(&up, "shelved").await;
        let kept = "SELECT id FROM images WHERE name = 'one-shelved'";
        assert_eq!(cloud.column(kept).await.len(), 1);

        up.act(&id, json!({"unshelve": null})).await;
        up.becomes(&id, "ACTIVE").await;
        assert_eq!(cloud.used("VGPU").await, 4);
        cloud.sound(&up, "unshelved").await;
        assert!(cloud.column(kept).await.is_empty(), "the image is of no use any more");
        cloud.sweep(&up, "unshelved").await;
    }
}

#[tokio::test]
async fn unshelve_to_a_zone_and_to_a_host() {
    for (cloud, up) in clouds(Options::default()).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        for host in ["b", "a"] {
            up.act(&id, shelve()).await;
            up.becomes(&id, "SHELVED_OFFLOADED").await;
            let wish = json!({"unshelve": {"availability_zone": "nova", "host": host}});
            assert_eq!(admin(&up, &id, wish).await.status, 202);
            let server = up.becomes(&id, "ACTIVE").await;
            assert_eq!(server["OS-EXT-SRV-ATTR:host"], host);
        }
        up.act(&id, shelve()).await;
        up.becomes(&id, "SHELVED_OFFLOADED").await;
        for (wish, code, part) in [
            (json!({"unshelve": {"availability_zone": "moon"}}), 400, "zone is not available"),
            (json!({"unshelve": {"host": "z"}}), 400, "Compute host z could not be found."),
            (json!({"unshelve": {}}), 400, "at least one"),
        ] {
            admin(&up, &id, wish).await.refused(code, part);
        }
        let to_host = Some(json!({"unshelve": {"host": "a"}}));
        let path = format!("POST /servers/{id}/action");
        up.call(ANN, "2.91", &path, to_host).await.refused(403, "Policy");
        cloud.sound(&up, "refused").await;
        cloud.sweep(&up, "moved").await;
    }
}

#[tokio::test]
async fn without_room_it_stays_on_its_shelf() {
    for (cloud, mut up) in clouds(Options::default()).await {
        up.lift_quota().await;
        let id = up.active(&cloud, "one", "vgpu").await;
        up.act(&id, shelve()).await;
        up.becomes(&id, "SHELVED_OFFLOADED").await;
        let mut others = Vec::new();
        for _ in 0..GPUS * 2 {
            others.push(up.boot(&cloud, "other", "vgpu").await);
        }
        up.settle().await;
        up.act(&id, json!({"unshelve": null})).await;
        up.becomes(&id, "SHELVED_OFFLOADED").await;
        let sql = "SELECT message FROM operations WHERE kind = 'unshelve'";
        let why = cloud.column(sql).await.remove(0);
        assert!(why.starts_with("No valid host was found."), "{why}");
        cloud.sound(&up, "no room").await;
        up.delete(&others[0]).await;
        up.goes(&others[0]).await;
        for host in ["a", "b"] {
            up.restart_failing(&cloud, host, &[("define", Some(1))]).await;
        }
        up.settle().await;
        up.act(&id, json!({"unshelve": null})).await;
        up.becomes(&id, "SHELVED_OFFLOADED").await;
        assert_eq!(cloud.used("VGPU").await, GPUS * 2 - 1, "a try that failed holds nothing");
        cloud.sound(&up, "failed there").await;
        up.act(&id, json!({"unshelve": null})).await;
        up.becomes(&id, "ACTIVE").await;
        cloud.sound(&up, "there is room").await;
        cloud.sweep(&up, "room").await;
    }
}

#[tokio::test]
async fn shelved_on_its_host_until_it_is_offloaded() {
    let options = Options { shelved_offload_time: 3600, ..Options::default() };
    for (cloud, up) in clouds(options).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        up.act(&id, shelve()).await;
        up.becomes(&id, "SHELVED").await;
        assert_eq!(cloud.used("VGPU").await, 1, "it keeps its devices");
        let zone = json!({"unshelve": {"availability_zone": "nova"}});
        admin(&up, &id, zone).await.refused(409, "must be SHELVED_OFFLOADED");
        up.act(&id, json!({"unshelve": null})).await;
        up.becomes(&id, "ACTIVE").await;
        cloud.sound(&up, "back").await;

        up.act(&id, shelve()).await;
        up.becomes(&id, "SHELVED").await;
        rest::shelved(up.compute.clone()).await.expect("looks");
        up.becomes(&id, "SHELVED").await;
        cloud.execute("UPDATE resting SET since = since - 4000000000").await;
        rest::shelved(up.compute.clone()).await.expect("looks");
        up.becomes(&id, "SHELVED_OFFLOADED").await;
        cloud.sound(&up, "its time is over").await;

        up.act(&id, json!({"unshelve": null})).await;
        up.becomes(&id, "ACTIVE").await;
        up.act(&id, shelve()).await;
        up.becomes(&id, "SHELVED").await;
        assert_eq!(admin(&up, &id, json!({"shelveOffload": null})).await.status, 202);
        up.becomes(&id, "SHELVED_OFFLOADED").await;
        cloud.sweep(&up, "offloaded").await;
    }
}

#[tokio::test]
async fn a_deleted_server_can_be_restored_until_its_time_is_over() {
    let options = Options { reclaim_instance_interval: 3600, ..Options::default() };
    for (cloud, up) in clouds(options).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        for _ in 0..2 {
            up.delete(&id).await;
            up.becomes(&id, "SOFT_DELETED").await;
        }
        assert_eq!(cloud.used("VGPU").await, 1, "it keeps its devices");
        cloud.sound(&up, "deleted").await;
        up.act(&id, json!({"restore": null})).await;
        up.becomes(&id, "ACTIVE").await;
        cloud.sound(&up, "restored").await;

        up.delete(&id).await;
        up.becomes(&id, "SOFT_DELETED").await;
        rest::run(up.compute.clone()).await.expect("looks");
        up.becomes(&id, "SOFT_DELETED").await;
        cloud.execute("UPDATE resting SET since = since - 4000000000").await;
        rest::run(up.compute.clone()).await.expect("looks");
        up.goes(&id).await;
        cloud.empty(&up, "its time is over").await;

        let id = up.active(&cloud, "two", "vgpu").await;
        up.delete(&id).await;
        up.act(&id, json!({"forceDelete": null})).await;
        up.goes(&id).await;
        cloud.empty(&up, "for good").await;
    }
}

#[tokio::test]
async fn a_deletion_does_not_wait_for_an_image_that_nobody_wants_any_more() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
        cloud.options.reclaim_instance_interval = 3600;
        let mut up = cloud.start().await;
        up.hosts_are_there().await;
        for action in [json!({"createImage": {"name": "picture"}}), json!({"shelve": null})] {
            let id = up.active(&cloud, "one", "vgpu").await;
            up.nodes.kill("a").await;
            up.act(&id, action.clone()).await;
            up.delete(&id).await;
            up.start_node(&cloud, "a").await;
            up.becomes(&id, "SOFT_DELETED").await;
            cloud.sound(&up, &action.to_string()).await;
            up.act(&id, json!({"restore": null})).await;
            up.becomes(&id, "ACTIVE").await;
            cloud.sound(&up, "restored").await;
        }
        cloud.sweep(&up, "restored").await;
    }
}

#[tokio::test]
async fn a_deletion_that_waits_for_its_host_is_not_called_off() {
    let options = Options { reclaim_instance_interval: 3600, ..Options::default() };
    for (cloud, mut up) in clouds(options).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        up.restart_nodes(&cloud, async |up| {
            up.delete(&id).await;
            for state in ["active", "error"] {
                let answer = admin(up, &id, json!({"os-resetState": {"state": state}})).await;
                answer.refused(409, "removed from its host");
            }
        })
        .await;
        up.becomes(&id, "SOFT_DELETED").await;
        cloud.sound(&up, "deleted").await;
        assert_eq!(admin(&up, &id, json!({"forceDelete": null})).await.status, 202);
        up.goes(&id).await;
        cloud.empty(&up, "for good").await;
    }
}
