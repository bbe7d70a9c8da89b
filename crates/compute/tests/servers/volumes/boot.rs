//! Servers boot from volumes, snapshots, images and blank volumes.

use kilonova_testkit::cinder::Failure;
use serde_json::json;

use super::{
    boot, clouds, finish, root, settled, shown, try_boot, try_detach, uuid_like, volume, wait_for,
    with_disks,
};
use crate::kit::{ADMIN, Cloud, hosts, wait_until};

#[tokio::test]
async fn a_server_boots_from_a_volume_of_every_source() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let metadata = json!({"hw_disk_bus": "scsi", "min_disk": "1", "min_ram": "0", "size": "1"});
        let bootable = json!({"bootable": "true", "volume_image_metadata": metadata});
        let existing = volume(&cinder, bootable);
        cinder.state().creating = 2;
        cinder.state().add_type("ceph");
        let kind = cinder.state().add_type("fast");
        let snapshot = cinder.state().add_snapshot(&existing);
        let image = cloud.image.to_string();
        let disk_before = cloud.used("DISK_GB").await;
        for (source, more) in [
            ("volume", json!({"uuid": existing})),
            ("snapshot", json!({"uuid": snapshot, "delete_on_termination": true})),
            (
                "image",
                json!({"uuid": image, "volume_size": 3, "delete_on_termination": true, "volume_type": "fast"}),
            ),
            (
                "blank",
                json!({"volume_size": 1, "delete_on_termination": true, "volume_type": kind}),
            ),
        ] {
            let data = json!({
                "source_type": "blank", "destination_type": "volume", "volume_size": 4,
                "delete_on_termination": true, "tag": "data",
            });
            let id =
                boot(&running, with_disks(&running, &cloud, json!([root(source, more), data])))
                    .await;
            let shown_server = running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(shown_server["image"], json!(""), "{source}");
            wait_until("both volumes are in use", async || {
                let state = cinder.state();
                state.attachments().values().filter(|one| one.status == "attached").count() == 2
            })
            .await;
            settled(&cloud).await;
            assert_eq!(
                cloud.used("DISK_GB").await,
                disk_before,
                "{source}: the root disk is a volume"
            );
            let list = shown(&running, &id, "2.89").await;
            assert_eq!(list.as_array().map(Vec::len), Some(2), "{source}: {list}");
            let name =
                if matches!(source, "volume" | "snapshot") { "/dev/sda" } else { "/dev/vda" };
            assert_eq!(
                (&list[0]["device"], &list[1]["tag"]),
                (&json!(name), &json!("data")),
                "{source}"
            );
            let root_volume = list[0]["volumeId"].as_str().expect("an id").to_owned();
            let refused = try_detach(&running, &id, &root_volume).await;
            refused.refused(400, "Cannot detach a root device volume");
            running.delete(&id).await;
            running.wait_until_gone(&id).await;
            cloud.finish_volume_work(&running).await;
            assert_eq!(
                cinder.state().volumes().len(),
                1,
                "{source}: only the first volume is left"
            );
            assert_eq!(cinder.state().status(&existing), "available", "{source}");
        }
        assert_eq!(cinder.state().snapshots().len(), 1);
        finish(&cloud, &running, &cinder, "booted").await;
    }
}

#[tokio::test]
async fn boots_that_cannot_work_are_refused_or_fail_and_leave_nothing() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let plain = volume(&cinder, json!({}));
        let bootable = volume(&cinder, json!({"bootable": "true"}));
        let used = volume(&cinder, json!({"bootable": "true", "status": "in-use"}));
        cinder.state().volume_mut(&used).status = "in-use".into();
        let small = json!({"bootable": "true", "volume_image_metadata": {"min_disk": "9"}});
        let small = volume(&cinder, small);
        let missing = uuid_like();
        let unseen = json!({
            "source_type": "image", "destination_type": "volume", "uuid": missing, "volume_size": 1,
        });
        let of = |id: &str| root("volume", json!({"uuid": id}));
        let image = cloud.image.to_string();
        for (disks, code, words) in [
            (json!([of(&missing)]), 400, format!("failed to get volume {missing}.")),
            (
                json!([
                    of(&bootable),
                    {"source_type": "volume", "destination_type": "volume", "uuid": bootable}
                ]),
                400,
                format!("Block Device Mapping is Invalid: volume {bootable} is named twice."),
            ),
            (json!([of(&plain)]), 400, format!("Block Device {plain} is not bootable.")),
            (json!([of(&used)]), 400, "Invalid volume: ".into()),
            (json!([of(&small)]), 400, "Volume is smaller than the minimum size".into()),
            (
                json!([root(
                    "image",
                    json!({"uuid": image, "volume_size": 1, "volume_type": "none"})
                )]),
                400,
                "Volume type none could not be found.".into(),
            ),
            (
                json!([root("snapshot", json!({"uuid": missing}))]),
                400,
                format!("failed to get snapshot {missing}."),
            ),
            (
                json!([of(&bootable), unseen]),
                400,
                format!("Block Device Mapping is Invalid: failed to get image {missing}."),
            ),
        ] {
            let answer = try_boot(&running, with_disks(&running, &cloud, disks)).await;
            answer.refused(code, &words);
        }
        let mut two = with_disks(&running, &cloud, json!([of(&bootable)]));
        two["server"]["min_count"] = json!(2);
        try_boot(&running, two)
            .await
            .refused(400, "Cannot attach one or more volumes to multiple instances");
        for failure in [Failure::Status(500), Failure::AnswerLost] {
            cinder.fail("POST attachments", failure, 1);
            let answer =
                try_boot(&running, with_disks(&running, &cloud, json!([of(&bootable)]))).await;
            answer.refused(503, "The volume service is temporarily unavailable");
            cloud.finish_volume_work(&running).await;
            assert_eq!(cinder.state().status(&bootable), "available", "{failure:?}");
        }
        for status in [403, 404, 409, 413] {
            cinder.fail("POST attachments", Failure::Status(status), 1);
            let answer =
                try_boot(&running, with_disks(&running, &cloud, json!([of(&bootable)]))).await;
            let why = format!("Block Device Mapping is Invalid: failed to get volume {bootable}.");
            answer.refused(400, &why);
            cloud.finish_volume_work(&running).await;
        }
        assert_eq!(running.servers().await.len(), 0);

        // If a volume cannot be created, the server fails, and its volumes are deleted.
        let from_image = || {
            root("image", json!({"uuid": image, "volume_size": 1, "delete_on_termination": true}))
        };
        cinder.state().creation_fails = true;
        let id = boot(&running, with_disks(&running, &cloud, json!([from_image()]))).await;
        let failed = running.wait_for_status(&id, "ERROR").await;
        assert!(crate::kit::fault(&failed).contains("did not finish being created"), "{failed}");
        cinder.state().creation_fails = false;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        // If Cinder cannot connect the host, the server fails too.
        cinder.fail("PUT attachments", Failure::Status(400), 1);
        let id = boot(&running, with_disks(&running, &cloud, json!([of(&bootable)]))).await;
        running.wait_for_status(&id, "ERROR").await;
        wait_for(&cinder, &bootable, "available").await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;

        // Several servers get a volume each.
        let mut three = with_disks(&running, &cloud, json!([from_image()]));
        three["server"]["min_count"] = json!(3);
        try_boot(&running, three).await.expect(202);
        wait_until("three servers are active", async || {
            let servers = running.servers().await;
            servers.len() == 3 && servers.iter().all(|server| server["status"] == "ACTIVE")
        })
        .await;
        settled(&cloud).await;
        assert_eq!(cinder.state().attachments().len(), 3);
        cinder.state().volume_mut(&used).status = "available".into();
        finish(&cloud, &running, &cinder, "failed boots").await;
    }
}

/// Without `cross_az_attach`, a server is in the zone of its volumes; only another zone than the default one pins it.
#[tokio::test]
async fn volumes_may_determine_the_zone() {
    for mut cloud in Cloud::all(hosts(&[("a", &[]), ("b", &[])])).await {
        let cinder = cloud.start_cinder().await;
        cloud.cross_az_attach = false;
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        let east = json!({"aggregate": {"name": "east", "availability_zone": "east"}});
        let made = running.admin("2.90", "POST /os-aggregates", east).await.expect(200);
        let path = format!("POST /os-aggregates/{}/action", made["aggregate"]["id"]);
        running.admin("2.90", &path, json!({"add_host": {"host": "b"}})).await.expect(200);
        let usual = volume(&cinder, json!({"bootable": "true"}));
        let far = volume(&cinder, json!({"bootable": "true", "availability_zone": "east"}));
        let of = |id: &str| root("volume", json!({"uuid": id}));
        let data = json!({"source_type": "volume", "destination_type": "volume", "uuid": far});

        let words =
            "The availability zone between the server and its attached volumes do not match: ";
        let both = with_disks(&running, &cloud, json!([of(&usual), data]));
        let why = format!("{words}Volumes are in different availability zones: nova,east.");
        try_boot(&running, both).await.refused(400, &why);
        let mut elsewhere = with_disks(&running, &cloud, json!([of(&usual)]));
        elsewhere["server"]["availability_zone"] = json!("east");
        let why = format!(
            "{words}Server and volumes are not in the same availability zone. Server is in: east. Volumes \
             are in: nova."
        );
        try_boot(&running, elsewhere).await.refused(400, &why);

        for (volume, host, pin) in [(&usual, None, json!(null)), (&far, Some("b"), json!("east"))] {
            let id = boot(&running, with_disks(&running, &cloud, json!([of(volume)]))).await;
            let server = running.wait_for_status(&id, "ACTIVE").await;
            if let Some(host) = host {
                assert_eq!(server["OS-EXT-SRV-ATTR:host"], host);
            }
            let shown = running.get(ADMIN, "2.96", &format!("/servers/{id}")).await.expect(200);
            assert_eq!(shown["server"]["pinned_availability_zone"], pin);
            running.delete(&id).await;
            running.wait_until_gone(&id).await;
        }
        // A new volume is created in the zone of the host, requested or not.
        for zone in [json!(null), json!("east")] {
            let new = json!({"volume_size": 1, "delete_on_termination": true});
            let mut request = with_disks(&running, &cloud, json!([root("blank", new)]));
            if !zone.is_null() {
                request["server"]["availability_zone"] = zone.clone();
            }
            let id = boot(&running, request).await;
            let server = running.wait_for_status(&id, "ACTIVE").await;
            let disk = shown(&running, &id, "2.89").await[0]["volumeId"].clone();
            let disk = disk.as_str().expect("an id").to_owned();
            let created_in = cinder.state().volumes()[&disk].more.get("availability_zone").cloned();
            assert_eq!(created_in.as_ref(), Some(&server["OS-EXT-AZ:availability_zone"]), "{zone}");
            running.delete(&id).await;
            running.wait_until_gone(&id).await;
        }
        finish(&cloud, &running, &cinder, "zones").await;
    }
}

/// In the older form of the mapping the name of a disk decides whether it is the root disk.
#[tokio::test]
async fn the_older_form_boots_from_the_disk_with_the_name_of_the_root_disk() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let data = volume(&cinder, json!({}));
        let bootable = volume(&cinder, json!({"bootable": "true"}));
        let mut request = running.boot_request(&cloud, "one", "plain");
        request["server"]["imageRef"] = json!("");
        request["server"]["block_device_mapping"] = json!([
            {"device_name": "vdb", "volume_id": data}, {"device_name": "vda", "volume_id": bootable},
        ]);
        let id = boot(&running, request).await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["image"], json!(""));
        try_detach(&running, &id, &bootable)
            .await
            .refused(400, "Cannot detach a root device volume");
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.finish_volume_work(&running).await;

        let mut request = running.boot_request(&cloud, "two", "plain");
        request["server"]["block_device_mapping"] =
            json!([{"device_name": "sda", "volume_id": data}]);
        let id = boot(&running, request.clone()).await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["image"]["id"], json!(cloud.image.to_string()), "the root disk is local");
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.finish_volume_work(&running).await;
        request["server"]["imageRef"] = json!("");
        try_boot(&running, request).await.refused(400, "Boot sequence");
        finish(&cloud, &running, &cinder, "older form").await;
    }
}

/// The service login does not delete a volume that Cinder keeps from the user who deletes the server.
#[tokio::test]
async fn volumes_are_deleted_as_the_user_who_deletes_the_server() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        for (deleter, by, is_denied) in [
            ("cat:red", "DELETE volumes (cat:red, service)", false),
            (ADMIN, "DELETE volumes (own-", false),
            ("cat:red", "DELETE volumes (cat:red, service)", true),
        ] {
            let new = json!({"volume_size": 1, "delete_on_termination": true});
            let id =
                boot(&running, with_disks(&running, &cloud, json!([root("blank", new)]))).await;
            running.wait_for_status(&id, "ACTIVE").await;
            settled(&cloud).await;
            cinder.take_calls();
            if is_denied {
                cinder.fail("DELETE volumes", Failure::Status(403), 1);
            }
            let path = format!("DELETE /servers/{id}");
            running.call(deleter, "2.90", &path, None).await.expect(204);
            running.wait_until_gone(&id).await;
            cloud.finish_volume_work(&running).await;
            let calls = cinder.take_calls();
            let deleted: Vec<_> =
                calls.iter().filter(|call| call.starts_with("DELETE volumes")).collect();
            assert!(deleted.len() == 1 && deleted[0].starts_with(by), "{deleter}: {deleted:?}");
            assert_eq!(cinder.state().volumes().len(), usize::from(is_denied), "{deleter}");
        }
        finish(&cloud, &running, &cinder, "deleters").await;
    }
}
