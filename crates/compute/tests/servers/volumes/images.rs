//! Images of volume-backed servers, and servers that boot from them.

use kilonova_store::testing::CrashPlan;
use kilonova_testkit::cinder::{Failure, FakeCinder};
use kilonova_testkit::shared;
use serde_json::{Value, json};

use super::{
    actions_of, attach, boot, clouds, crash_points, finish, root, settled, shown, try_boot,
    uuid_like, volume, wait_for, with_disks,
};
use crate::kit::{ADMIN, ANN, Answer, BOB, Cloud, GPU, RunningCloud, hosts};

/// A volume that a server boots from.
fn bootable(cinder: &FakeCinder) -> String {
    let metadata = json!({"hw_disk_bus": "scsi", "min_disk": "1", "min_ram": "0", "size": "1"});
    volume(
        cinder,
        json!({"bootable": "true", "volume_image_metadata": metadata, "description": "d"}),
    )
}

/// An active server with a root volume and a data volume.
async fn server(
    cloud: &Cloud,
    running: &RunningCloud,
    cinder: &FakeCinder,
) -> (String, [String; 2]) {
    cinder.state().add_type("ceph");
    let (disk, data) = (bootable(cinder), volume(cinder, json!({})));
    let entries = json!([root("volume", json!({"uuid": disk, "delete_on_termination": true}))]);
    let id = boot(running, with_disks(running, cloud, entries)).await;
    running.wait_for_status(&id, "ACTIVE").await;
    attach(running, cinder, &id, &data).await;
    wait_for(cinder, &disk, "in-use").await;
    settled(cloud).await;
    (id, [disk, data])
}

async fn try_image(running: &RunningCloud, id: &str, version: &str) -> Answer {
    let body = json!({"createImage": {"name": "snap", "metadata": {"mine": "yes"}}});
    running.call(ANN, version, &format!("POST /servers/{id}/action"), Some(body)).await
}

async fn image(running: &RunningCloud, id: &str) -> String {
    let answer = try_image(running, id, "2.90").await.expect(202);
    answer["image_id"].as_str().expect("the answer has an id").to_owned()
}

/// The image as Nova's own path shows it.
async fn image_of(running: &RunningCloud, id: &str) -> Value {
    running.get(ANN, "2.35", &format!("/images/{id}")).await.expect(200)["image"].clone()
}

/// Deletes all unwanted snapshots, regardless of when they are due.
async fn sweep(cloud: &Cloud, running: &RunningCloud) {
    for _ in 0..20 {
        cloud.execute("UPDATE volume_snapshots SET due_at = 0").await;
        kilonova_compute_app::volumes::sweep_snapshots(running.compute.clone())
            .await
            .expect("the sweep runs");
        if cloud.column("SELECT id FROM volume_snapshots").await.is_empty() {
            return;
        }
    }
    panic!("snapshots are left: {:?}", cloud.column("SELECT state FROM volume_snapshots").await);
}

fn snapshots(cinder: &FakeCinder) -> Vec<Value> {
    cinder.state().snapshots().values().cloned().collect()
}

/// The user deletes the snapshots and the volumes that are left.
async fn clear(cinder: &FakeCinder) {
    cinder.state().forget_snapshots();
}

#[tokio::test]
async fn an_image_of_volumes_names_their_snapshots_and_boots() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let (id, [disk, data]) = server(&cloud, &running, &cinder).await;
        cinder.take_calls();
        let made = image(&running, &id).await;
        let calls = cinder.take_calls();
        assert!(calls.iter().all(|call| call.ends_with("(ann:red, service)")), "{calls:?}");
        assert_eq!(cloud.column("SELECT id FROM volume_snapshots").await, [""; 0]);
        assert_eq!(actions_of(&running, &id, "createImage").await, [""], "it succeeded");
        assert_eq!(running.server(&id).await["OS-EXT-STS:task_state"], Value::Null);

        let snapshot_of = |of: &str| {
            let all = snapshots(&cinder);
            let found = all.into_iter().find(|one| one["volume_id"] == of).expect("a snapshot");
            assert_eq!(found["name"], "snapshot for snap");
            found["id"].clone()
        };
        let (first, second) = (snapshot_of(&disk), snapshot_of(&data));
        let shown_image = image_of(&running, &made).await;
        assert_eq!(
            (&shown_image["status"], &shown_image["minDisk"]),
            (&json!("ACTIVE"), &json!(2))
        );
        let metadata = &shown_image["metadata"];
        assert_eq!((&metadata["mine"], &metadata["bdm_v2"]), (&json!("yes"), &json!("True")));
        assert_eq!(metadata["root_device_name"], "/dev/sda");
        assert_eq!(metadata["hw_disk_bus"], "scsi", "the properties of its image are inherited");
        let mapping = metadata["block_device_mapping"].as_str().expect("the volumes are named");
        let mapping: Value = serde_json::from_str(mapping).expect("it is JSON");
        let entry = |snapshot: &Value, index: Value, name: &str, size: i64, delete: bool| {
            json!({
                "source_type": "snapshot", "destination_type": "volume", "snapshot_id": snapshot,
                "boot_index": index, "device_name": name, "disk_bus": "scsi", "device_type": "disk",
                "volume_size": size, "delete_on_termination": delete, "guest_format": null,
                "image_id": null, "volume_id": null, "no_device": null, "tag": null,
                "volume_type": null,
            })
        };
        let expected = json!([
            entry(&first, json!(0), "/dev/sda", 2, true),
            entry(&second, Value::Null, "/dev/sdc", 2, false),
        ]);
        assert_eq!(mapping, expected);

        // A server boots from it, with volumes of its own.
        let mut request = running.boot_request(&cloud, "two", "plain");
        request["server"]["imageRef"] = json!(made);
        let two = boot(&running, request.clone()).await;
        let server = running.wait_for_status(&two, "ACTIVE").await;
        assert_eq!(server["image"], json!(""));
        settled(&cloud).await;
        let list = shown(&running, &two, "2.89").await;
        let names: Vec<&Value> =
            list.as_array().expect("a list").iter().map(|one| &one["device"]).collect();
        assert_eq!(names, ["/dev/sda", "/dev/sdc"]);
        for (at, snapshot) in [&first, &second].into_iter().enumerate() {
            let id = list[at]["volumeId"].as_str().expect("an id");
            assert_eq!(cinder.state().volumes()[id].more["snapshot_id"], *snapshot);
        }
        let deletes: Vec<&Value> = list
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| &one["delete_on_termination"])
            .collect();
        assert_eq!(deletes, [&json!(true), &json!(false)]);
        // A volume of the request replaces one of the image's volumes.
        let blank = json!({
            "source_type": "blank", "destination_type": "volume", "volume_size": 5, "boot_index": -1,
            "device_name": "/dev/sdc", "delete_on_termination": true,
        });
        let local = json!({
            "source_type": "image", "destination_type": "local", "uuid": made, "boot_index": 0,
        });
        request["server"]["block_device_mapping_v2"] = json!([local, blank]);
        let three = boot(&running, request.clone()).await;
        running.wait_for_status(&three, "ACTIVE").await;
        settled(&cloud).await;
        let list = shown(&running, &three, "2.89").await;
        assert_eq!(list.as_array().map(Vec::len), Some(2), "{list}");
        // An image that names volumes is for new servers only.
        let rebuild = json!({"rebuild": {"imageRef": made}});
        let plain = running.active_server(&cloud, "plain", "plain").await;
        running.try_act(&plain, rebuild).await.refused(400, "");
        let rescue = json!({"rescue": {"rescue_image_ref": made}});
        running.try_act(&plain, rescue).await.refused(400, "a new server");
        // The image outlives its server; without its snapshots no server boots from it.
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        clear(&cinder).await;
        request["server"]["block_device_mapping_v2"] = json!([]);
        try_boot(&running, request).await.refused(400, "failed to get snapshot");
        let old = try_image(&running, &two, "2.44").await;
        let location = old.headers["location"].to_str().expect("a URL").to_owned();
        assert!(location.contains("/images/"), "{location}");
        clear(&cinder).await;
        finish(&cloud, &running, &cinder, "images").await;
    }
}

#[tokio::test]
async fn an_image_of_volumes_is_complete_in_glance() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
        let (glance, cinder) = (cloud.start_glance().await, cloud.start_cinder().await);
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        let (id, _) = server(&cloud, &running, &cinder).await;
        let made = image(&running, &id).await;
        let stored = glance.images()[&made].shown.clone();
        assert_eq!((&stored["status"], &stored["size"]), (&json!("active"), &json!(0)));
        assert_eq!((&stored["disk_format"], &stored["owner"]), (&json!("raw"), &json!("red")));
        assert_eq!((&stored["bdm_v2"], &stored["mine"]), (&json!("True"), &json!("yes")));
        let mapping = stored["block_device_mapping"].as_str().expect("the volumes are named");
        assert_eq!(mapping.matches("snapshot_id").count(), 2);
        assert_eq!(cloud.column("SELECT id FROM glance_images").await, [""; 0]);
        let mut request = running.boot_request(&cloud, "two", "plain");
        request["server"]["imageRef"] = json!(made);
        let filled = |image: &str| {
            json!([{
                "source_type": "image", "destination_type": "volume", "uuid": image, "volume_size": 1,
                "delete_on_termination": true,
            }])
        };
        let missing = uuid_like();
        request["server"]["block_device_mapping_v2"] = filled(&missing);
        let why = format!("Block Device Mapping is Invalid: failed to get image {missing}.");
        try_boot(&running, request.clone()).await.refused(400, &why);
        request["server"]["block_device_mapping_v2"] = filled(&cloud.image.to_string());
        let two = boot(&running, request).await;
        let booted = running.wait_for_status(&two, "ACTIVE").await;
        assert_eq!(booted["image"], json!(""));
        settled(&cloud).await;

        // A failure of Glance leaves neither an image nor a snapshot.
        let before = (glance.images().len(), snapshots(&cinder).len());
        for what in ["POST images", "PUT file", "GET show"] {
            for _ in 0..8 {
                glance.fail(what, kilonova_testkit::glance::Failure::Status(503));
            }
            let words = "The image service is temporarily unavailable";
            try_image(&running, &id, "2.90").await.refused(503, words);
            glance.recover();
            cloud.sweep_glance(&running).await;
            sweep(&cloud, &running).await;
            assert_eq!((glance.images().len(), snapshots(&cinder).len()), before, "{what}");
        }
        assert_eq!(actions_of(&running, &id, "createImage").await, ["Error", "Error", "Error", ""]);
        clear(&cinder).await;
        finish(&cloud, &running, &cinder, "glance").await;
    }
}

#[tokio::test]
async fn an_image_that_cannot_be_made_leaves_no_snapshot() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let (id, [_, data]) = server(&cloud, &running, &cinder).await;
        let words = "The volume service is temporarily unavailable";
        let nothing_left = async |when: &str| {
            sweep(&cloud, &running).await;
            assert!(snapshots(&cinder).is_empty(), "{when}: {:?}", snapshots(&cinder));
            let images = running.get(ANN, "2.35", "/images?name=snap").await.expect(200);
            assert_eq!(images["images"], json!([]), "{when}");
            assert_eq!(running.server(&id).await["OS-EXT-STS:task_state"], Value::Null, "{when}");
        };
        // The quota is checked before any snapshot is made.
        cinder.state().limit_snapshots(1);
        cinder.take_calls();
        let over = try_image(&running, &id, "2.90").await;
        over.refused(403, "Quota exceeded for resources: snapshots");
        assert!(!cinder.take_calls().iter().any(|call| call.starts_with("POST")), "no snapshot");
        cinder.state().limit_snapshots(100);
        for failure in [
            Failure::Status(500),
            Failure::Status(413),
            Failure::Lost,
            Failure::AnswerLost,
            Failure::AnswerStatus(504),
        ] {
            for first in [0, 1] {
                cinder.fail_after("POST snapshots", failure, first);
                let refused = try_image(&running, &id, "2.90").await;
                match failure {
                    Failure::Status(413) => refused.refused(403, "The server has failed."),
                    _ => refused.refused(503, words),
                }
                nothing_left(&format!("{failure:?} {first}")).await;
            }
        }
        for what in ["GET limits", "GET volumes"] {
            cinder.fail(what, Failure::Status(500), 1);
            try_image(&running, &id, "2.90").await.refused(503, words);
            nothing_left(what).await;
        }
        // A failed deletion is retried, even for a snapshot that is still being created.
        cinder.state().creating = 2;
        cinder.fail_after("POST snapshots", Failure::Status(500), 1);
        cinder.fail("DELETE snapshots", Failure::Status(500), 2);
        try_image(&running, &id, "2.90").await.refused(503, words);
        nothing_left("deletions fail").await;
        cinder.state().creating = 0;
        // A volume has been deleted in Cinder.
        let volumes = cinder.state().volumes().clone();
        cinder.state().volumes_mut().remove(&data);
        let missing = format!("Volume {data} could not be found.");
        try_image(&running, &id, "2.90").await.refused(404, &missing);
        *cinder.state().volumes_mut() = volumes;
        nothing_left("a volume is gone").await;

        let path = format!("POST /servers/{id}/action");
        let body = json!({"createImage": {"name": "snap"}});
        running.call(BOB, "2.90", &path, Some(body)).await.refused(404, "could not be found");
        let backup = json!({"createBackup": {"name": "b", "backup_type": "daily", "rotation": 1}});
        let refused = running.call(ADMIN, "2.90", &path, Some(backup)).await;
        refused.refused(400, "Backup is not supported for volume-backed instances.");
        let missing = json!({"rebuild": {"imageRef": uuid_like()}});
        assert!(!running.try_act(&id, missing).await.status.is_success());
        finish(&cloud, &running, &cinder, "failed images").await;
    }
}

/// Makes an image with a crash of everything at each write, before and after its commit.
#[tokio::test]
async fn no_crash_leaks_a_snapshot() {
    for (share, mut cloud) in shared(Cloud::all(hosts(&[("a", &[GPU])])).await) {
        let cinder = cloud.start_cinder().await;
        for with_glance in [false, true] {
            let glance = match with_glance {
                true => Some(cloud.start_glance().await),
                false => None,
            };
            crash_points(share, (6, 40), async |plan, when| {
                let when = format!("{when} {with_glance}");
                let died = crash(&cloud, &cinder, plan, &when).await;
                if let Some(glance) = &glance {
                    assert_eq!(glance.images().len(), 1, "{when}: {:?}", glance.images());
                }
                died
            })
            .await;
        }
    }
}

async fn crash(cloud: &Cloud, cinder: &FakeCinder, plan: CrashPlan, when: &str) -> bool {
    let mut running = cloud.start().await;
    running.wait_for_hosts().await;
    let (id, _) = server(cloud, &running, cinder).await;
    running.kill().await;
    running = cloud.start_with_plan(plan.clone()).await;
    running.wait_for_hosts().await;
    let answer = try_image(&running, &id, "2.90").await;
    let made = answer.status.is_success().then(|| answer.body["image_id"].clone());
    let died = plan.is_dead();
    running.kill().await;
    running = cloud.start().await;
    running.wait_for_hosts().await;
    sweep(cloud, &running).await;
    if cloud.glance.is_some() {
        cloud.sweep_glance(&running).await;
    }
    let images = running.get(ANN, "2.35", "/images?name=snap").await.expect(200)["images"].clone();
    let images = images.as_array().expect("a list").clone();
    // A successful answer is true; without one, the image is complete or nothing is left.
    assert!(made.is_none() || images.len() == 1, "{when}: {images:?}");
    assert_eq!(snapshots(cinder).len(), 2 * images.len(), "{when}");
    for image in &images {
        let id = image["id"].as_str().expect("an id");
        running.call(ANN, "2.35", &format!("DELETE /images/{id}"), None).await.expect(204);
    }
    clear(cinder).await;
    cloud.assert_consistent(&running, when).await;
    cloud.finish_volume_work(&running).await;
    finish(cloud, &running, cinder, when).await;
    cinder.state().volumes_mut().clear();
    running.kill().await;
    died
}
