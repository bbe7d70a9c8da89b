//! A failure of Cinder, a host or a guest leaves nothing behind.

use std::time::Duration;

use jiff::SignedDuration;
use kilonova_store::testing::CrashPlan;
use kilonova_store::{Tx, params};
use kilonova_testkit::cinder::Failure;
use kilonova_wire::time;
use serde_json::json;

use super::{
    actions_of, attach, boot, clouds, events_of, finish, root, settled, shown, try_attach,
    try_boot, try_detach, volume, wait_for, with_disks,
};
use crate::kit::{ADMIN, Cloud, RunningCloud, hosts, wait_until};

#[tokio::test]
async fn a_cinder_that_fails_leaves_nothing_behind() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let disk = volume(&cinder, json!({}));
        let words = "The volume service is temporarily unavailable";
        let wish = || json!({"volumeId": disk});
        for failure in
            [Failure::Status(500), Failure::Lost, Failure::AnswerLost, Failure::AnswerStatus(504)]
        {
            cinder.fail("POST attachments", failure, 1);
            let refused = try_attach(&running, &id, "2.90", wish()).await;
            assert_eq!(refused.headers["retry-after"], "1");
            refused.refused(503, words);
            settled(&cloud).await;
            assert_eq!(cinder.state().status(&disk), "available", "{failure:?}");
            assert_eq!(shown(&running, &id, "2.90").await, json!([]), "{failure:?}");
        }
        // The connection of the host fails permanently, then temporarily.
        cinder.fail("PUT attachments", Failure::Status(400), 1);
        try_attach(&running, &id, "2.90", wish()).await.expect(200);
        settled(&cloud).await;
        assert_eq!(cinder.state().status(&disk), "available");
        // The four requests that Cinder did not accept are not recorded as actions. The failure belongs to the fifth.
        assert_eq!(actions_of(&running, &id, "attach_volume").await, ["Error"]);
        cinder.fail("PUT attachments", Failure::Status(500), 7);
        attach(&running, &cinder, &id, &disk).await;
        settled(&cloud).await;

        // A detachment that Cinder does not confirm is rolled back.
        for failure in [Failure::Status(500), Failure::AnswerLost] {
            cinder.fail("POST volumes os-begin_detaching", failure, 1);
            try_detach(&running, &id, &disk).await.refused(503, words);
            settled(&cloud).await;
            assert_eq!(cinder.state().status(&disk), "in-use", "{failure:?}");
            assert_eq!(shown(&running, &id, "2.90").await[0]["volumeId"], json!(disk));
        }
        cinder.fail("POST volumes os-begin_detaching", Failure::Status(400), 1);
        try_detach(&running, &id, &disk).await.refused(400, "The server has failed.");
        settled(&cloud).await;
        assert_eq!(actions_of(&running, &id, "detach_volume").await, [""; 0], "not accepted");
        // The deletion of an attachment is repeated until it succeeds.
        cinder.fail("DELETE attachments", Failure::Status(500), 12);
        try_detach(&running, &id, &disk).await.expect(202);
        wait_for(&cinder, &disk, "available").await;
        settled(&cloud).await;
        finish(&cloud, &running, &cinder, "failed").await;
    }
}

/// Waits until the host has reported that it has disconnected the disk, which it does at the request of a document: nothing
/// is due then.
async fn without_disk(cloud: &Cloud) {
    wait_until("the host has no disk", async || {
        cloud.column("SELECT server_id FROM block_devices").await.is_empty()
    })
    .await;
    assert_eq!(cloud.files("a", "volumes"), [""; 0]);
}

#[tokio::test]
async fn an_attachment_that_cinder_cannot_complete_fails() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let disk = volume(&cinder, json!({}));
        cinder.fail("POST attachments os-complete", Failure::Status(400), 1);
        try_attach(&running, &id, "2.90", json!({"volumeId": disk})).await.expect(200);
        wait_for(&cinder, &disk, "available").await;
        settled(&cloud).await;
        assert_eq!(shown(&running, &id, "2.90").await, json!([]));
        without_disk(&cloud).await;
        assert_eq!(actions_of(&running, &id, "attach_volume").await, ["Error"]);
        // An administrator deletes the attachment while Cinder fails. The volume is not deleted.
        cinder.fail("POST attachments os-complete", Failure::Status(500), usize::MAX);
        let wish = json!({"volumeId": disk, "delete_on_termination": true});
        try_attach(&running, &id, "2.90", wish).await.expect(200);
        wait_until("the guest has the disk", async || cloud.files("a", "volumes").len() == 1).await;
        cinder.state().drop_attachments(&disk);
        cinder.heal();
        wait_until("the attachment has failed", async || {
            shown(&running, &id, "2.90").await == json!([])
        })
        .await;
        settled(&cloud).await;
        without_disk(&cloud).await;
        assert_eq!(cinder.state().status(&disk), "available");
        // A proxy's answer is temporary.
        cinder.fail("POST attachments os-complete", Failure::Proxy(404), 3);
        attach(&running, &cinder, &id, &disk).await;
        settled(&cloud).await;
        assert_eq!(cloud.files("a", "volumes").len(), 1);
        try_detach(&running, &id, &disk).await.expect(202);
        wait_for(&cinder, &disk, "available").await;
        settled(&cloud).await;
        // A temporary failure is repeated without a limit: the guest already has the disk.
        cinder.fail("POST attachments os-complete", Failure::Status(500), 30);
        attach(&running, &cinder, &id, &disk).await;
        settled(&cloud).await;
        assert_eq!(cloud.files("a", "volumes").len(), 1);
        finish(&cloud, &running, &cinder, "completed").await;
    }
}

/// Cinder refuses to complete the attachments of a root disk and of a disk that was created for the server.
#[tokio::test]
async fn a_guest_keeps_the_disks_of_its_boot_whatever_cinder_refuses() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        for status in [400, 404] {
            let disk = volume(&cinder, json!({"bootable": "true"}));
            let made = json!({
                "source_type": "blank", "destination_type": "volume", "volume_size": 1,
                "delete_on_termination": true,
            });
            let disks = json!([root("volume", json!({"uuid": disk})), made]);
            // The guest writes to its disks before Cinder answers.
            cinder.fail("POST attachments os-complete", Failure::Status(503), usize::MAX);
            let id = boot(&running, with_disks(&running, &cloud, disks)).await;
            running.wait_for_status(&id, "ACTIVE").await;
            cinder.heal();
            cinder.fail("POST attachments os-complete", Failure::Status(status), usize::MAX);
            settled(&cloud).await;
            assert_eq!(shown(&running, &id, "2.90").await.as_array().map(Vec::len), Some(2));
            assert_eq!(cloud.files("a", "volumes").len(), 2);
            assert_eq!(cinder.state().volumes().len(), 2, "the new volume exists");
            assert_eq!(cinder.state().attachments().len(), 2);
            let phases = cloud.column("SELECT phase FROM block_devices").await;
            assert_eq!(phases, ["attached", "attached"]);
            cinder.heal();
            running.delete(&id).await;
            running.wait_until_gone(&id).await;
            wait_for(&cinder, &disk, "available").await;
            cloud.finish_volume_work(&running).await;
            assert_eq!(cinder.state().volumes().len(), 1, "deleted with the server");
            cinder.state().volumes_mut().clear();
        }
        finish(&cloud, &running, &cinder, "refused").await;
    }
}

/// Cinder has ended an attachment, but its answers are lost.
#[tokio::test]
async fn a_volume_that_cinder_shows_as_available_can_be_used_at_once() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let first = running.active_server(&cloud, "one", "plain").await;
        let second = running.active_server(&cloud, "two", "plain").await;
        let disk = volume(&cinder, json!({}));
        attach(&running, &cinder, &first, &disk).await;
        settled(&cloud).await;
        let attachment = cinder.state().attachments_of(&disk)[0].0.clone();
        let request = format!("DELETE attachments/{attachment}");
        cinder.fail(&request, Failure::AnswerLost, usize::MAX);
        try_detach(&running, &first, &disk).await.expect(202);
        wait_for(&cinder, &disk, "available").await;
        attach(&running, &cinder, &second, &disk).await;
        assert_eq!(cloud.column("SELECT id FROM block_devices").await.len(), 2, "still there");
        cinder.heal();
        settled(&cloud).await;
        assert_eq!(shown(&running, &first, "2.90").await, json!([]));
        assert_eq!(shown(&running, &second, "2.90").await[0]["volumeId"], json!(disk));
        finish(&cloud, &running, &cinder, "at once").await;
    }
}

/// Cinder cannot delete one of the attachments.
#[tokio::test]
async fn a_volume_does_not_wait_for_another_one() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let disks = [(); 3].map(|()| volume(&cinder, json!({})));
        let [stuck, other, last] = &disks;
        for disk in &disks {
            attach(&running, &cinder, &id, disk).await;
        }
        settled(&cloud).await;
        let attachment = cinder.state().attachments_of(stuck)[0].0.clone();
        let request = format!("DELETE attachments/{attachment}");
        cinder.fail(&request, Failure::Status(400), usize::MAX);
        try_detach(&running, &id, stuck).await.expect(202);
        try_detach(&running, &id, other).await.expect(202);
        wait_for(&cinder, other, "available").await;
        attach(&running, &cinder, &id, other).await;
        running.delete(&id).await;
        wait_for(&cinder, other, "available").await;
        wait_for(&cinder, last, "available").await;
        assert_eq!(cinder.state().status(stuck), "detaching");
        cinder.heal();
        running.wait_until_gone(&id).await;
        wait_for(&cinder, stuck, "available").await;
        finish(&cloud, &running, &cinder, "stuck").await;
    }
}

/// A request whose answer arrives after its lease has ended, and after its row was deleted.
#[tokio::test]
async fn an_attachment_that_comes_too_late_is_withdrawn() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let slow = Failure::Slow(Duration::from_millis(600));
        let (first, second) =
            (volume(&cinder, json!({"bootable": "true"})), volume(&cinder, json!({})));
        let data = json!({
            "source_type": "volume", "destination_type": "volume", "uuid": second, "boot_index": -1,
        });
        let disks = json!([root("volume", json!({"uuid": first})), data]);
        cinder.fail_after("POST attachments", slow, 1);
        let request = with_disks(&running, &cloud, disks);
        let lose = async {
            wait_until("the first volume is reserved", async || {
                let reserved = "SELECT id FROM volume_attachments WHERE state = 'reserved'";
                cloud.column(reserved).await.len() == 1
            })
            .await;
            // Another controller took the server, looked for the second attachment and found none.
            cloud.execute("UPDATE volume_servers SET token = 'other', taken_until = 0").await;
            cloud.execute("DELETE FROM volume_attachments WHERE state = 'reserving'").await;
        };
        let (answer, ()) = tokio::join!(try_boot(&running, request), lose);
        answer.refused(409, "were not reserved in time");
        assert_eq!(cinder.state().status(&second), "available");

        let id = running.active_server(&cloud, "one", "plain").await;
        cinder.fail("POST attachments", slow, 1);
        let lose = async {
            wait_until("the reservation is sent", async || {
                let sent = "SELECT id FROM volume_attachments WHERE state = 'reserving'";
                cloud.column(sent).await.len() == 1
            })
            .await;
            cloud.execute("DELETE FROM volume_attachments WHERE state = 'reserving'").await;
            cloud.execute("DELETE FROM block_devices WHERE ordinal = 0 AND phase = 'requested' AND boot_index IS NULL").await;
        };
        let wish = try_attach(&running, &id, "2.90", json!({"volumeId": second}));
        let (answer, ()) = tokio::join!(wish, lose);
        answer.refused(409, "were not reserved in time");
        assert_eq!(actions_of(&running, &id, "attach_volume").await, [""; 0]);
        finish(&cloud, &running, &cinder, "late").await;
    }
}

#[tokio::test]
async fn a_host_that_fails_or_a_guest_that_refuses_is_reported() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let disk = volume(&cinder, json!({}));
        let fault = cloud.nodes().join("a").join("volume_fault");
        std::fs::write(&fault, "no path to the target").expect("the file is written");
        try_attach(&running, &id, "2.90", json!({"volumeId": disk})).await.expect(200);
        wait_for(&cinder, &disk, "available").await;
        settled(&cloud).await;
        assert_eq!(shown(&running, &id, "2.90").await, json!([]));
        assert_eq!(running.server(&id).await["status"], "ACTIVE");
        let ended = |name: &str, result: &str| vec![(name.to_owned(), result.to_owned())];
        let attached = "compute_attach_volume";
        assert_eq!(events_of(&running, &id, "attach_volume").await, ended(attached, "Error"));
        std::fs::remove_file(&fault).expect("the file is removed");
        attach(&running, &cinder, &id, &disk).await;
        settled(&cloud).await;
        assert_eq!(actions_of(&running, &id, "attach_volume").await, ["", "Error"]);
        assert_eq!(events_of(&running, &id, "attach_volume").await, ended(attached, "Success"));
        let held = cloud.nodes().join("a").join("volume_held");
        std::fs::write(&held, "the guest uses the disk").expect("the file is written");
        try_detach(&running, &id, &disk).await.expect(202);
        wait_for(&cinder, &disk, "in-use").await;
        settled(&cloud).await;
        assert_eq!(shown(&running, &id, "2.90").await[0]["volumeId"], json!(disk));
        let detached = "compute_detach_volume";
        assert_eq!(actions_of(&running, &id, "detach_volume").await, ["Error"]);
        assert_eq!(events_of(&running, &id, "detach_volume").await, ended(detached, "Error"));
        std::fs::remove_file(&held).expect("the file is removed");
        try_detach(&running, &id, &disk).await.expect(202);
        wait_for(&cinder, &disk, "available").await;
        settled(&cloud).await;
        assert_eq!(actions_of(&running, &id, "detach_volume").await, ["", "Error"]);
        assert_eq!(events_of(&running, &id, "detach_volume").await, ended(detached, "Success"));
        finish(&cloud, &running, &cinder, "held").await;
    }
}

/// Waits for the end of the newest extension, and returns its message and its only event.
async fn extend(running: &RunningCloud, id: &str, disk: &str) -> (String, (String, String)) {
    let before = actions_of(running, id, "extend_volume").await.len();
    let event = json!({"name": "volume-extended", "server_uuid": id, "tag": disk});
    let body = json!({"events": [event]});
    running.admin("2.51", "POST /os-server-external-events", body).await.expect(200);
    wait_until("the extension has ended", async || {
        actions_of(running, id, "extend_volume").await.len() > before
            && !events_of(running, id, "extend_volume").await[0].1.is_empty()
    })
    .await;
    let message = actions_of(running, id, "extend_volume").await.remove(0);
    (message, events_of(running, id, "extend_volume").await.remove(0))
}

#[tokio::test]
async fn a_disk_that_does_not_grow_is_reported() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let disk = volume(&cinder, json!({}));
        attach(&running, &cinder, &id, &disk).await;
        settled(&cloud).await;
        let event = |result: &str| ("compute_extend_volume".to_owned(), result.to_owned());
        cinder.state().volume_mut(&disk).size += 1;
        assert_eq!(extend(&running, &id, &disk).await, (String::new(), event("Success")));

        let fault = cloud.nodes().join("a").join("volume_not_grown");
        std::fs::write(&fault, "QEMU refuses").expect("the file is written");
        cinder.state().volume_mut(&disk).size += 1;
        assert_eq!(extend(&running, &id, &disk).await, ("Error".to_owned(), event("Error")));
        let why = "SELECT message FROM operations WHERE outcome = 'failed'";
        assert_eq!(cloud.column(why).await, ["a: QEMU refuses"]);
        assert_eq!(running.server(&id).await["status"], "ACTIVE");

        // Another event for the same size repeats the growth.
        std::fs::remove_file(&fault).expect("the file is removed");
        assert_eq!(extend(&running, &id, &disk).await, (String::new(), event("Success")));
        running.act(&id, json!({"os-stop": null})).await;
        running.wait_for_status(&id, "SHUTOFF").await;
        cinder.state().volume_mut(&disk).size += 1;
        assert_eq!(extend(&running, &id, &disk).await, (String::new(), event("Success")));
        finish(&cloud, &running, &cinder, "extended").await;
    }
}

/// The ports of the guest cannot be plugged, so its build is aborted.
#[tokio::test]
async fn an_aborted_build_releases_its_volumes() {
    for mut cloud in Cloud::all(hosts(&[("a", &[])])).await {
        let neutron = cloud.start_neutron().await;
        let cinder = cloud.start_cinder().await;
        if let Some(network) = &mut cloud.neutron {
            network.options.vif_plugging_timeout = SignedDuration::from_secs(300);
        }
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        let disk = volume(&cinder, json!({"bootable": "true"}));
        let made = json!({
            "source_type": "blank", "destination_type": "volume", "volume_size": 1,
            "delete_on_termination": true,
        });
        let disks = json!([root("volume", json!({"uuid": disk})), made]);
        let id = boot(&running, with_disks(&running, &cloud, disks)).await;
        let waiting = "SELECT server_id FROM external_servers WHERE waits_since IS NOT NULL";
        wait_until("the guest waits for its ports", async || {
            cloud.column(waiting).await == [id.as_str()]
        })
        .await;
        let port = neutron.state().ports()[0]["id"].clone();
        let event = json!({
            "server_uuid": id, "name": "network-vif-plugged", "status": "failed", "tag": port,
        });
        let body = json!({"events": [event]});
        running.admin("2.1", "POST /os-server-external-events", body).await.expect(200);
        let server = running.wait_for_status(&id, "ERROR").await;
        assert!(crate::kit::fault(&server).contains("aborted"), "{server}");
        wait_for(&cinder, &disk, "available").await;
        wait_until("the new volume is deleted", async || cinder.state().volumes().len() == 1).await;
        assert_eq!(shown(&running, &id, "2.90").await, json!([]));
        finish(&cloud, &running, &cinder, "aborted").await;
    }
}

#[tokio::test]
async fn a_server_that_waits_for_cinder_says_so() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let disk = volume(&cinder, json!({"bootable": "true"}));
        cinder.fail("PUT attachments", Failure::Slow(Duration::from_millis(1500)), 1);
        let disks = json!([root("volume", json!({"uuid": disk}))]);
        let id = boot(&running, with_disks(&running, &cloud, disks)).await;
        let path = format!("/kilonova/servers/{id}");
        let explained = async || running.get(ADMIN, "2.1", &path).await.expect(200);
        wait_until("the explanation names Cinder", async || {
            let words = "waits for Cinder to connect its volumes to host a.";
            explained().await["server"]["summary"].as_str().is_some_and(|text| text.contains(words))
        })
        .await;
        cloud.audit("Cinder is slow").await;
        running.wait_for_status(&id, "ACTIVE").await;
        settled(&cloud).await;
        assert!(!explained().await.to_string().contains("Cinder"), "{}", explained().await);

        // A mark that no worker removes.
        cloud.execute("UPDATE documents SET lacks_volumes = 1").await;
        let next = explained().await["server"]["next"].to_string();
        assert!(next.contains("It waits for Cinder to connect its volumes to host a."), "{next}");
        let findings = kilonova_compute_db::audit::run(&cloud.store).await.expect("it runs");
        let broken = findings.iter().filter(|finding| !finding.rows.is_empty());
        let broken: Vec<_> = broken.map(|finding| (finding.rule, &finding.rows)).collect();
        assert_eq!(broken.len(), 1, "{broken:?}");
        assert!(broken[0].0.starts_with("a document that waits for volumes"), "{broken:?}");
        assert_eq!(broken[0].1, &[id]);
        cloud.execute("UPDATE documents SET lacks_volumes = 0").await;
        finish(&cloud, &running, &cinder, "slow").await;
    }
}

/// A restarted controller ends the leases of its killed process, and no others.
#[tokio::test]
async fn a_controller_ends_the_leases_of_its_dead_process() {
    for (cloud, mut running, cinder) in clouds(&["a"]).await {
        let mut ids = Vec::new();
        for name in ["own", "others"] {
            let id = running.active_server(&cloud, name, "plain").await;
            attach(&running, &cinder, &id, &volume(&cinder, json!({}))).await;
            ids.push(id);
        }
        settled(&cloud).await;
        let earlier = running.compute.controller.clone();
        running.replace_services(&cloud, CrashPlan::default()).await;
        let take = "UPDATE volume_servers SET due_at = 1, taken_until = 9000000000000000,
            token = '00000000-0000-4000-8000-000000000000/1'";
        cloud.execute(take).await;
        let (id, by) = (ids[0].clone(), format!("{earlier}/1"));
        let own = "UPDATE volume_servers SET token = ?2 WHERE server_id = ?1";
        let own = move |tx: &mut Tx<'_>| tx.execute(own, params![id.as_str(), by.as_str()]);
        cloud.store.write(own).await.expect("the row is written");
        let next = running.compute.clone().with_controller(&earlier);
        next.end_earlier_leases().await.expect("the database answers");
        let sql = "SELECT server_id FROM volume_servers WHERE taken_until < 9000000000000000";
        assert_eq!(cloud.column(sql).await, ids[..1]);
        let sql = "SELECT CAST(taken_until AS TEXT) FROM volume_servers ORDER BY taken_until";
        let until: i64 = cloud.column(sql).await[0].parse().expect("the value is a number");
        let soon = time::after(time::now(), SignedDuration::from_secs(11)).as_microsecond();
        assert!(until < soon, "calls that were sent have a moment to complete");
        cloud.finish_volume_work(&running).await;
        finish(&cloud, &running, &cinder, "leases").await;
    }
}
