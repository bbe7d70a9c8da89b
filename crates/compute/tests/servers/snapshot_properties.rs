//! The properties of a snapshot: the caller's metadata and id.

use serde_json::json;

use crate::kit::{Cloud, GPU, hosts};

#[tokio::test]
async fn metadata_of_the_caller_replaces_properties_but_not_a_backups_type() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let metadata = json!({"image_type": "test", "backup_type": "mine", "for": "tests"});
        for (action, image_type, backup_type) in [
            (json!({"createImage": {"name": "i", "metadata": metadata}}), "test", "mine"),
            (
                json!({"createBackup": {"name": "b", "backup_type": "daily", "rotation": 1,
                    "metadata": metadata}}),
                "test",
                "daily",
            ),
        ] {
            let made = running.try_act(&id, action).await.expect(202)["image_id"].take();
            let image = made.as_str().expect("the answer has an id").parse();
            let image = image.expect("the value is a UUID");
            running.wait_for_status(&id, "ACTIVE").await;
            let found = cloud.store.read(move |tx| kilonova_image::find(tx, image)).await;
            let found = found.expect("the query succeeds").expect("the image exists");
            let property = |key: &str| found.properties.get(key).map(String::as_str);
            assert_eq!(property("image_type"), Some(image_type));
            assert_eq!(property("backup_type"), Some(backup_type));
            assert_eq!(property("for"), Some("tests"));
            assert_eq!(property("instance_uuid"), Some(id.as_str()));
        }
    }
}

#[tokio::test]
async fn an_image_names_the_user_who_asked_for_it() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        assert_eq!(running.server(&id).await["user_id"], "ann");
        let act = format!("POST /servers/{id}/action");
        let backup = json!({"name": "backup", "backup_type": "daily", "rotation": 1});
        for (name, status, action) in [
            ("image", "ACTIVE", json!({"createImage": {"name": "image"}})),
            ("backup", "ACTIVE", json!({"createBackup": backup})),
            ("one-shelved", "SHELVED_OFFLOADED", json!({"shelve": null})),
        ] {
            running.call("eve:red", "2.90", &act, Some(action)).await.is(202);
            running.wait_for_status(&id, status).await;
            let images = cloud.store.read(|tx| kilonova_image::of_owner(tx, "red", 10)).await;
            let images = images.expect("the query succeeds");
            let image = images.iter().find(|image| image.name.as_deref() == Some(name));
            let image = image.expect("the image exists");
            assert_eq!(image.properties.get("user_id").map(String::as_str), Some("eve"), "{name}");
        }
        cloud.teardown(&running, "images of another user").await;
    }
}
