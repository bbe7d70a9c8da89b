//! Images of servers' disks: where their bytes come from, what they say of themselves, and which
//! backups are kept.

use kilonova_ids::ImageId;
use serde_json::{Value, json};

use crate::kit::{ANN, Cloud, GPU, Up, hosts};

async fn take(up: &Up, id: &str, action: Value) -> ImageId {
    let image = up.try_act(id, action).await.expect(202)["image_id"].take();
    up.becomes(id, "ACTIVE").await;
    image.as_str().expect("an id").parse().expect("a uuid")
}

async fn image(cloud: &Cloud, id: ImageId) -> Option<kilonova_image::ImageRecord> {
    cloud.store.read(move |tx| kilonova_image::find(tx, id)).await.expect("a query")
}

#[tokio::test]
async fn an_image_has_the_bytes_of_the_disk() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        let wish = json!({"createImage": {"name": "picture", "metadata": {"for": "tests"}}});
        let taken = take(&up, &id, wish).await;
        let found = image(&cloud, taken).await.expect("an image");
        assert_eq!(found.status.as_str(), "active");
        assert_eq!(found.name.as_deref(), Some("picture"));
        let says = |key: &str| found.properties.get(key).map(String::as_str);
        assert_eq!(says("image_type"), Some("snapshot"));
        assert_eq!(says("instance_uuid"), Some(id.as_str()));
        assert_eq!(says("base_image_ref"), Some(cloud.image.to_string().as_str()));
        assert_eq!(says("for"), Some("tests"));
        let images = up.compute.images.clone().expect("images");
        let bytes = std::fs::read_to_string(images.path(&found).expect("bytes")).expect("text");
        assert!(bytes.contains(&format!("server={id}\nimage={}", cloud.image)), "{bytes}");

        let other = up.boot_with(&cloud, "two", "vgpu", json!({"imageRef": taken})).await;
        up.becomes(&other, "ACTIVE").await;
        cloud.sweep(&up, "images").await;
    }
}

#[tokio::test]
async fn before_2_45_the_image_is_named_by_its_address() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[])])).await {
        let id = up.active(&cloud, "one", "plain").await;
        let path = format!("POST /servers/{id}/action");
        let wish = json!({"createImage": {"name": "old"}});
        let answer = up.call(ANN, "2.44", &path, Some(wish)).await;
        assert_eq!(answer.status, 202);
        let place = answer.headers.get("location").expect("a place").to_str().expect("text");
        assert!(place.contains("/image/images/"), "{place}");
        up.becomes(&id, "ACTIVE").await;
        for wish in [
            json!({"createImage": {}}),
            json!({"createImage": {"name": "x", "a": 1}}),
            json!({"createBackup": {"name": "x", "backup_type": "d"}}),
            json!({"createBackup": {"name": "x", "backup_type": "d", "rotation": -1}}),
        ] {
            let answer = up.try_act(&id, wish.clone()).await;
            assert_eq!(answer.status, 400, "{wish}: {}", answer.body);
        }
        cloud.sweep(&up, "named").await;
    }
}

#[tokio::test]
async fn backups_beyond_the_rotation_go_the_oldest_first() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[])])).await {
        let id = up.active(&cloud, "one", "plain").await;
        let backup = |kind: &str, kept: i64| json!({"createBackup": {"name": kind, "backup_type": kind, "rotation": kept}});
        let weekly = take(&up, &id, backup("weekly", 1)).await;
        let mut daily = Vec::new();
        for _ in 0..4 {
            daily.push(take(&up, &id, backup("daily", 2)).await);
        }
        let mut there = Vec::new();
        for id in &daily {
            there.push(image(&cloud, *id).await.is_some());
        }
        assert_eq!(there, [false, false, true, true]);
        assert!(image(&cloud, weekly).await.is_some(), "of another type");
        let answer = up.try_act(&id, backup("daily", 0)).await.expect(202);
        assert!(answer.is_null(), "no backup is kept: {answer}");
        up.becomes(&id, "ACTIVE").await;
        assert!(image(&cloud, daily[3]).await.is_none());
        cloud.sweep(&up, "rotated").await;
    }
}

#[tokio::test]
async fn a_server_that_goes_takes_the_image_in_the_making_with_it() {
    let slow = "times_ms = { snapshot = 3000 }";
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[slow])])).await {
        let id = up.active(&cloud, "one", "plain").await;
        up.try_act(&id, json!({"createImage": {"name": "late"}})).await.expect(202);
        assert_eq!(up.server(&id).await["OS-EXT-STS:task_state"], "image_snapshot_pending");
        up.delete(&id).await;
        up.goes(&id).await;
        cloud.empty(&up, "gone with its image").await;
    }
}
