//! Volumes follow their server, and never become available meanwhile.

use kilonova_testkit::cinder::Failure;
use serde_json::json;

use super::{
    actions_of, attach, boot, clouds, finish, hosts_around, hosts_of, operate, root, settled,
    try_attach, try_detach, volume, wait_for, with_disks,
};
use crate::kit::{ANN, wait_until};

#[tokio::test]
async fn a_deleted_server_gives_its_volumes_back() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let (kept, gone) = (volume(&cinder, json!({})), volume(&cinder, json!({})));
        attach(&running, &cinder, &id, &kept).await;
        let ends = json!({"volumeId": gone, "delete_on_termination": true});
        try_attach(&running, &id, "2.79", ends).await.expect(200);
        wait_for(&cinder, &gone, "in-use").await;
        cinder.expire(ANN);
        cinder.fail("DELETE attachments", Failure::AnswerLost, 1);
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        wait_for(&cinder, &kept, "available").await;
        wait_for(&cinder, &gone, "").await;
        finish(&cloud, &running, &cinder, "deleted").await;
    }
}

#[tokio::test]
async fn volumes_follow_their_server_and_are_never_free() {
    for (cloud, running, cinder) in clouds(&["a", "b"]).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let (from, to) = hosts_around(&running, &id).await;
        let disk = volume(&cinder, json!({}));
        cinder.state().use_iscsi(&disk);
        attach(&running, &cinder, &id, &disk).await;
        settled(&cloud).await;
        for (end, host) in [("revertResize", &from), ("confirmResize", &to)] {
            operate(&running, &id, json!({"migrate": null})).await;
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            wait_for(&cinder, &disk, "in-use").await;
            settled(&cloud).await;
            assert_eq!(hosts_of(&cinder, &disk).concat(), to, "before {end}");
            let ended = running.try_act(&id, json!({end: null})).await;
            assert!(ended.status.is_success(), "{end}: {}", ended.body);
            running.wait_for_status(&id, "ACTIVE").await;
            wait_for(&cinder, &disk, "in-use").await;
            settled(&cloud).await;
            assert_eq!(hosts_of(&cinder, &disk).concat(), *host, "after {end}");
            let connected = |name: &str| cloud.files(name, "volumes").len();
            let other = if *host == from { &to } else { &from };
            wait_until("only the server's host has the volume", async || {
                (connected(host), connected(other)) == (1, 0)
            })
            .await;
        }
        running.act(&id, json!({"shelve": null})).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        settled(&cloud).await;
        assert_eq!(
            (hosts_of(&cinder, &disk), &*cinder.state().status(&disk)),
            (vec!["-".to_owned()], "reserved")
        );
        let more = volume(&cinder, json!({}));
        attach(&running, &cinder, &id, &more).await;
        assert_eq!(hosts_of(&cinder, &more), ["-"]);
        running.act(&id, json!({"unshelve": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        wait_for(&cinder, &disk, "in-use").await;
        settled(&cloud).await;
        let host =
            running.server(&id).await["OS-EXT-SRV-ATTR:host"].as_str().expect("a host").to_owned();
        assert_eq!(
            (hosts_of(&cinder, &disk), hosts_of(&cinder, &more)),
            (vec![host.clone()], vec![host])
        );
        assert_eq!(cinder.state().take_freed(), [""; 0], "never free");
        finish(&cloud, &running, &cinder, "moved").await;
    }
}

#[tokio::test]
async fn an_evacuated_server_takes_its_volumes_from_the_dead_host() {
    for (cloud, mut running, cinder) in clouds(&["a", "b"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let (from, to) = hosts_around(&running, &id).await;
        let disk = volume(&cinder, json!({}));
        attach(&running, &cinder, &id, &disk).await;
        settled(&cloud).await;
        running.nodes.kill(&from).await;
        running.force_down(&from, true).await;
        operate(&running, &id, json!({"evacuate": {}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        wait_for(&cinder, &disk, "in-use").await;
        settled(&cloud).await;
        assert_eq!(hosts_of(&cinder, &disk).concat(), to);
        assert_eq!(cinder.state().take_freed(), [""; 0], "never free");
        running.start_node(&cloud, &from).await;
        running.force_down(&from, false).await;
        running.wait_for_host_cleanup(&cloud).await;
        assert_eq!(cloud.files(&from, "volumes"), [""; 0]);
        assert_eq!(hosts_of(&cinder, &disk), [to]);
        finish(&cloud, &running, &cinder, "evacuated").await;
    }
}

/// The system on the volume may have no signed boot loader.
#[tokio::test]
async fn a_root_volume_that_has_been_started_gets_no_optional_secure_boot() {
    for (cloud, mut running, cinder) in clouds(&["a", "b"]).await {
        let metadata = json!({
            "image_id": cloud.image, "min_disk": "1",
            "hw_firmware_type": "uefi", "os_secure_boot": "optional",
        });
        let disk = json!({"bootable": "true", "volume_image_metadata": metadata});
        let disk = volume(&cinder, disk);
        let entries = json!([root("volume", json!({"uuid": disk}))]);
        let id = boot(&running, with_disks(&running, &cloud, entries)).await;
        running.wait_for_status(&id, "ACTIVE").await;
        settled(&cloud).await;
        let is_secure = async |host: &str| {
            let documents = match host {
                "a" => cloud.column("SELECT body FROM documents WHERE host = 'a'").await,
                _ => cloud.column("SELECT body FROM documents WHERE host = 'b'").await,
            };
            assert_eq!(documents.len(), 1, "the host has one guest");
            assert!(documents[0].contains("uefi"), "{}", documents[0]);
            documents[0].contains("secure_boot")
        };
        let (from, to) = hosts_around(&running, &id).await;
        assert!(is_secure(&from).await, "a new guest has it if its host can");
        running.nodes.kill(&from).await;
        running.force_down(&from, true).await;
        operate(&running, &id, json!({"evacuate": {}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        settled(&cloud).await;
        assert!(!is_secure(&to).await, "evacuated");
        running.start_node(&cloud, &from).await;
        running.force_down(&from, false).await;
        running.wait_for_host_cleanup(&cloud).await;
        running.act(&id, json!({"shelve": null})).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        running.act(&id, json!({"unshelve": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        settled(&cloud).await;
        let (host, _) = hosts_around(&running, &id).await;
        assert!(!is_secure(&host).await, "unshelved");
        finish(&cloud, &running, &cinder, "moved").await;
    }
}

/// The guest of a host that is down may still write to the volume.
#[tokio::test]
async fn no_volume_is_detached_while_the_host_is_silent() {
    for (cloud, mut running, cinder) in clouds(&["a", "b"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let (from, to) = hosts_around(&running, &id).await;
        let (kept, left) = (volume(&cinder, json!({})), volume(&cinder, json!({})));
        attach(&running, &cinder, &id, &kept).await;
        attach(&running, &cinder, &id, &left).await;
        settled(&cloud).await;
        running.nodes.kill(&from).await;
        running.force_down(&from, true).await;
        cinder.take_calls();
        let words = "Service is unavailable at this time.";
        try_detach(&running, &id, &left).await.refused(409, words);
        assert!(!cinder.take_calls().iter().any(|call| call.contains("os-begin_detaching")));
        assert_eq!(actions_of(&running, &id, "detach_volume").await, [""; 0], "not accepted");

        // A detachment that began earlier waits until the host reports again.
        running.force_down(&from, false).await;
        try_detach(&running, &id, &left).await.expect(202);
        running.force_down(&from, true).await;
        cloud.finish_volume_work(&running).await;
        assert_eq!(
            (hosts_of(&cinder, &left), &*cinder.state().status(&left)),
            (vec![from.clone()], "detaching")
        );
        running.start_node(&cloud, &from).await;
        running.force_down(&from, false).await;
        wait_for(&cinder, &left, "available").await;
        settled(&cloud).await;
        assert_eq!(hosts_of(&cinder, &kept), [from.as_str()]);

        // Or until the server is evacuated.
        attach(&running, &cinder, &id, &left).await;
        settled(&cloud).await;
        running.nodes.kill(&from).await;
        try_detach(&running, &id, &left).await.expect(202);
        running.force_down(&from, true).await;
        cloud.finish_volume_work(&running).await;
        assert_eq!(hosts_of(&cinder, &left), [from.as_str()]);
        operate(&running, &id, json!({"evacuate": {}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        wait_for(&cinder, &left, "available").await;
        settled(&cloud).await;
        assert_eq!(
            (hosts_of(&cinder, &kept).concat(), hosts_of(&cinder, &left)),
            (to.clone(), vec![])
        );
        assert_eq!(cloud.files(&to, "volumes").len(), 1);
        running.start_node(&cloud, &from).await;
        running.force_down(&from, false).await;
        running.wait_for_host_cleanup(&cloud).await;
        assert_eq!(cloud.files(&from, "volumes"), [""; 0]);
        assert_eq!(hosts_of(&cinder, &left), [""; 0]);
        finish(&cloud, &running, &cinder, "silent").await;
    }
}

#[tokio::test]
async fn a_volume_backed_server_migrates_live_and_its_volume_is_never_free() {
    for (cloud, running, cinder) in clouds(&["a", "b"]).await {
        let disk = volume(&cinder, json!({"bootable": "true"}));
        cinder.state().use_iscsi(&disk);
        let request = with_disks(&running, &cloud, json!([root("volume", json!({"uuid": disk}))]));
        let id = boot(&running, request).await;
        running.wait_for_status(&id, "ACTIVE").await;
        wait_for(&cinder, &disk, "in-use").await;
        settled(&cloud).await;
        let (from, to) = hosts_around(&running, &id).await;
        operate(
            &running,
            &id,
            json!({"os-migrateLive": {"host": null, "block_migration": "auto"}}),
        )
        .await;
        wait_until("the server has moved", async || {
            let server = running.server(&id).await;
            server["status"] == "ACTIVE" && server["OS-EXT-SRV-ATTR:host"] == json!(to)
        })
        .await;
        wait_until("the old attachment is gone", async || hosts_of(&cinder, &disk).len() == 1)
            .await;
        settled(&cloud).await;
        assert_eq!(hosts_of(&cinder, &disk), [to]);
        assert_eq!(cinder.state().take_freed(), [""; 0], "never free");
        assert_eq!(cloud.files(&from, "volumes"), [""; 0]);
        finish(&cloud, &running, &cinder, "live").await;
    }
}

#[tokio::test]
async fn a_root_volume_does_not_limit_the_flavors_disk() {
    for (cloud, running, cinder) in clouds(&["a", "b"]).await {
        for (name, disk, ephemeral) in [("large", 4, 1), ("small", 1, 1), ("none", 0, 1)] {
            let disks = json!({"disk": disk, "OS-FLV-EXT-DATA:ephemeral": ephemeral});
            running.flavor(name, disks).await;
        }
        let disk = volume(&cinder, json!({"bootable": "true"}));
        let mut request =
            with_disks(&running, &cloud, json!([root("volume", json!({"uuid": disk}))]));
        request["server"]["flavorRef"] = json!("large");
        let id = boot(&running, request).await;
        running.wait_for_status(&id, "ACTIVE").await;
        wait_for(&cinder, &disk, "in-use").await;
        settled(&cloud).await;
        for flavor in ["small", "none", "large"] {
            running.act(&id, json!({"resize": {"flavorRef": flavor}})).await;
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            settled(&cloud).await;
            running.try_act(&id, json!({"confirmResize": null})).await.expect(204);
            running.wait_for_host_cleanup(&cloud).await;
            running.wait_for_status(&id, "ACTIVE").await;
            wait_for(&cinder, &disk, "in-use").await;
            settled(&cloud).await;
            cloud.assert_consistent(&running, flavor).await;
        }
        assert_eq!(cloud.used("DISK_GB").await, 1, "only the ephemeral disk is on the host");
        // Its ephemeral disk is a local one.
        let words = "Unable to resize disk down: the server has 1 GiB, the flavor 0 GiB.";
        running.try_act(&id, json!({"resize": {"flavorRef": "plain"}})).await.refused(400, words);
        assert_eq!(cinder.state().take_freed(), [""; 0], "never free");
        finish(&cloud, &running, &cinder, "resized").await;
    }
}
