//! Rebuild of volume-backed servers.

use std::time::Duration;

use kilonova_compute_app::volumes;
use kilonova_store::testing::CrashPlan;
use kilonova_testkit::cinder::{Failure, FakeCinder};
use kilonova_testkit::shared;
use serde_json::{Value, json};

use super::{
    attach, boot, clouds, crash_points, finish, hosts_around, hosts_of, is_idle, operate, root,
    settled, through_crash, try_detach, volume, wait_for, with_disks,
};
use crate::kit::{ADMIN, ANN, Answer, Cloud, GPU, RunningCloud, fault, hosts, wait_until};

/// An active server with a root volume and a data volume.
pub(super) async fn server(
    cloud: &Cloud,
    running: &RunningCloud,
    cinder: &FakeCinder,
) -> (String, [String; 2]) {
    let metadata = json!({"image_id": cloud.image, "min_disk": "1"});
    let disk = json!({"bootable": "true", "volume_image_metadata": metadata});
    let (disk, data) = (volume(cinder, disk), volume(cinder, json!({})));
    let entries = json!([root("volume", json!({"uuid": disk}))]);
    let id = boot(running, with_disks(running, cloud, entries)).await;
    running.wait_for_status(&id, "ACTIVE").await;
    attach(running, cinder, &id, &data).await;
    wait_for(cinder, &disk, "in-use").await;
    settled(cloud).await;
    cinder.state().take_freed();
    (id, [disk, data])
}

async fn rebuild(running: &RunningCloud, id: &str, version: &str, image: &str) -> Answer {
    let body = json!({"rebuild": {"imageRef": image}});
    running.call(ANN, version, &format!("POST /servers/{id}/action"), Some(body)).await
}

/// The image whose data a volume has.
fn image_of(cinder: &FakeCinder, volume: &str) -> Value {
    cinder.state().volumes()[volume].more["volume_image_metadata"]["image_id"].clone()
}

async fn rebuilt(running: &RunningCloud, id: &str, status: &str) {
    running.wait_until_idle(id).await;
    running.wait_for_status(id, status).await;
}

#[tokio::test]
async fn a_rebuild_replaces_the_data_of_the_root_volume() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let (id, [disk, data]) = server(&cloud, &running, &cinder).await;
        let first = cinder.state().attachments_of(&disk)[0].0.clone();
        let kept = cinder.state().attachments_of(&data)[0].0.clone();
        let other = cloud.image_with("other", &[("hw_vif_model", "e1000")], b"x".to_vec()).await;
        let other = other.to_string();
        // Before 2.93 another image is refused, and a rebuild from the volume's own image keeps its data.
        let words = format!(
            "Image {other} is unacceptable: Unable to rebuild with a different image for a volume-backed \
             server."
        );
        rebuild(&running, &id, "2.92", &other).await.refused(400, &words);
        rebuild(&running, &id, "2.92", &cloud.image.to_string()).await.expect(202);
        rebuilt(&running, &id, "ACTIVE").await;
        settled(&cloud).await;
        assert_eq!(cinder.state().attachments_of(&disk)[0].0, first, "the volume stays");

        cinder.take_calls();
        cinder.state().creating = 2;
        let answer = rebuild(&running, &id, "2.93", &other).await.expect(202);
        assert_eq!(answer["server"]["image"], json!(""));
        rebuilt(&running, &id, "ACTIVE").await;
        settled(&cloud).await;
        wait_for(&cinder, &disk, "in-use").await;
        assert_eq!(image_of(&cinder, &disk), json!(other));
        assert_eq!(running.server(&id).await["image"], json!(""));
        let calls = cinder.take_calls();
        let sent = calls.iter().filter(|call| call.starts_with("POST volumes os-reimage"));
        assert_eq!(sent.collect::<Vec<_>>(), ["POST volumes os-reimage (ann:red, service)"]);
        assert_ne!(cinder.state().attachments_of(&disk)[0].0, first, "another attachment");
        assert_eq!(cinder.state().attachments_of(&data)[0].0, kept, "the others stay");
        assert_eq!(
            (hosts_of(&cinder, &disk), hosts_of(&cinder, &data)),
            (vec!["a".into()], vec!["a".into()])
        );
        assert_eq!(cinder.state().take_freed(), [""; 0], "never free");
        assert_eq!(cloud.files("a", "volumes").len(), 2);

        // A server that is shut off stays shut off.
        running.act(&id, json!({"os-stop": null})).await;
        running.wait_for_status(&id, "SHUTOFF").await;
        cinder.state().creating = 0;
        rebuild(&running, &id, "2.93", &cloud.image.to_string()).await.expect(202);
        rebuilt(&running, &id, "SHUTOFF").await;
        settled(&cloud).await;
        assert_eq!(image_of(&cinder, &disk), json!(cloud.image.to_string()));
        // In another state the server is started, although its guest is off.
        let path = format!("POST /servers/{id}/action");
        let reset = json!({"os-resetState": {"state": "error"}});
        running.call(ADMIN, "2.93", &path, Some(reset)).await.expect(202);
        rebuild(&running, &id, "2.93", &other).await.expect(202);
        rebuilt(&running, &id, "ACTIVE").await;
        settled(&cloud).await;
        finish(&cloud, &running, &cinder, "rebuilt").await;
    }
}

/// Upstream: `_check_volume_status` in `nova/compute/api.py`.
/// The guest keeps its machine type while Cinder replaces the data, and its host chooses the type anew afterwards.
#[tokio::test]
async fn a_replaced_root_volume_gets_a_new_machine_type() {
    for (cloud, mut running, cinder) in clouds(&["a"]).await {
        let chosen = cloud.nodes().join("a").join("machine_type");
        std::fs::create_dir_all(cloud.nodes().join("a")).expect("the directory is created");
        std::fs::write(&chosen, "pc-q35-6.2").expect("the file is written");
        let recorded =
            async || cloud.column("SELECT COALESCE(machine_type, '') FROM servers").await;
        let (id, _) = server(&cloud, &running, &cinder).await;
        assert_eq!(recorded().await, ["pc-q35-6.2"]);
        std::fs::write(&chosen, "pc-q35-9.0").expect("the file is written");
        cinder.fail("POST volumes os-reimage", Failure::Status(500), usize::MAX);
        cinder.take_calls();
        rebuild(&running, &id, "2.93", &cloud.image.to_string()).await.expect(202);
        wait_until("the host has released the volume", async || {
            cinder.take_calls().iter().any(|call| call.starts_with("POST volumes os-reimage"))
        })
        .await;
        assert_eq!(recorded().await, ["pc-q35-6.2"], "the volume has the old data");
        running.nodes.kill("a").await;
        cinder.heal();
        wait_until("the type is forgotten", async || recorded().await == [""]).await;
        running.start_node(&cloud, "a").await;
        rebuilt(&running, &id, "ACTIVE").await;
        assert_eq!(recorded().await, ["pc-q35-9.0"]);
        settled(&cloud).await;
        finish(&cloud, &running, &cinder, "rebuilt").await;
    }
}

#[tokio::test]
async fn a_rebuild_requires_volumes_in_use() {
    for (cloud, mut running, cinder) in clouds(&["a"]).await {
        let (id, _) = server(&cloud, &running, &cinder).await;
        let plain = running.active_server(&cloud, "plain", "plain").await;
        let image = cloud.image.to_string();
        for id in [&id, &plain] {
            let leaving = volume(&cinder, json!({}));
            attach(&running, &cinder, id, &leaving).await;
            settled(&cloud).await;
            running.nodes.kill("a").await;
            try_detach(&running, id, &leaving).await.expect(202);
            let words = format!(
                "Invalid volume: volume '{leaving}' status must be 'in-use'. Currently in 'detaching' status"
            );
            rebuild(&running, id, "2.93", &image).await.refused(400, &words);
            running.start_node(&cloud, "a").await;
            wait_for(&cinder, &leaving, "available").await;
            settled(&cloud).await;
            rebuild(&running, id, "2.93", &image).await.expect(202);
            rebuilt(&running, id, "ACTIVE").await;
            settled(&cloud).await;
        }
        finish(&cloud, &running, &cinder, "volumes in use").await;
    }
}

#[tokio::test]
async fn a_rebuild_whose_data_cannot_be_replaced_fails() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let (id, [disk, _]) = server(&cloud, &running, &cinder).await;
        let image = cloud.image.to_string();
        let high = cloud.image_with("high", &[], b"x".to_vec()).await;
        cloud.execute("UPDATE images SET min_disk = 9 WHERE name = 'high'").await;
        let words = "Volume is smaller than the minimum size";
        rebuild(&running, &id, "2.93", &high.to_string()).await.refused(400, words);
        cinder.fail("GET volumes", Failure::Status(500), 1);
        let words = "The volume service is temporarily unavailable";
        rebuild(&running, &id, "2.93", &image).await.refused(503, words);
        assert_eq!(running.server(&id).await["status"], "ACTIVE");

        // A call that fails temporarily is repeated.
        cinder.fail("POST volumes os-reimage", Failure::AnswerLost, 1);
        cinder.fail("POST volumes os-reimage", Failure::Status(500), 1);
        rebuild(&running, &id, "2.93", &image).await.expect(202);
        rebuilt(&running, &id, "ACTIVE").await;
        settled(&cloud).await;

        cinder.fail("POST volumes os-reimage", Failure::Status(400), 1);
        rebuild(&running, &id, "2.93", &image).await.expect(202);
        let failed = running.wait_for_status(&id, "ERROR").await;
        assert!(fault(&failed).contains("/action with 400"), "{failed}");
        settled(&cloud).await;
        wait_for(&cinder, &disk, "in-use").await;
        assert_eq!(hosts_of(&cinder, &disk), ["a"], "the server has its volume again");
        rebuild(&running, &id, "2.93", &image).await.expect(202);
        rebuilt(&running, &id, "ACTIVE").await;

        // Cinder cannot write the image.
        cinder.state().creation_fails = true;
        rebuild(&running, &id, "2.93", &image).await.expect(202);
        let failed = running.wait_for_status(&id, "ERROR").await;
        assert!(fault(&failed).contains("whose status is error"), "{failed}");
        cinder.state().creation_fails = false;
        // An earlier failure stays until an operator has looked at it: Cinder connects no host meanwhile.
        wait_until("the volume is being connected again", async || {
            let sql = "SELECT id FROM volume_attachments WHERE state = 'connecting'";
            !cloud.column(sql).await.is_empty()
        })
        .await;
        rebuild(&running, &id, "2.93", &image).await.expect(202);
        let failed = running.wait_for_status(&id, "ERROR").await;
        assert!(fault(&failed).contains("/attachments with 400"), "{failed}");
        cinder.state().volume_mut(&disk).status = "reserved".to_owned();
        rebuild(&running, &id, "2.93", &image).await.expect(202);
        rebuilt(&running, &id, "ACTIVE").await;
        wait_for(&cinder, &disk, "in-use").await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.finish_volume_work(&running).await;
        finish(&cloud, &running, &cinder, "failed rebuilds").await;
    }
}

/// A rebuild is cancelled while Cinder re-images the volume. Whatever starts the guest next must start it with its root
/// volume: without the volume, the guest would get an empty local disk.
#[tokio::test]
async fn a_cancelled_rebuild_gives_the_root_volume_back_before_the_guest_starts() {
    for (cloud, running, cinder) in clouds(&["a", "b"]).await {
        let other = cloud.image_with("other", &[], b"x".to_vec()).await.to_string();
        for how in ["evacuate", "reboot", "start"] {
            let disk = volume(&cinder, json!({"bootable": "true"}));
            let entries = json!([root("volume", json!({"uuid": disk}))]);
            let id = boot(&running, with_disks(&running, &cloud, entries)).await;
            running.wait_for_status(&id, "ACTIVE").await;
            wait_for(&cinder, &disk, "in-use").await;
            settled(&cloud).await;
            let (from, to) = hosts_around(&running, &id).await;
            cinder.state().creating = 1_000_000;
            rebuild(&running, &id, "2.93", &other).await.expect(202);
            wait_for(&cinder, &disk, "downloading").await;
            let host = if how == "evacuate" {
                running.force_down(&from, true).await;
                operate(&running, &id, json!({"evacuate": {}})).await;
                &to
            } else {
                operate(&running, &id, json!({"os-resetState": {"state": "active"}})).await;
                if how == "reboot" {
                    running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
                }
                &from
            };
            let waiting = "SELECT host FROM documents WHERE lacks_volumes = 1";
            assert_eq!(cloud.column(waiting).await, [host.as_str()], "{how}");
            assert!(cloud.files(host, "volumes").is_empty(), "{how}");
            cinder.state().creating = 0;
            cinder.state().volume_mut(&disk).creating = 0;
            if how == "start" {
                wait_until("the guest is reported shut off", async || {
                    running.server(&id).await["status"] == "SHUTOFF"
                })
                .await;
                running.act(&id, json!({"os-start": null})).await;
            }
            running.wait_for_status(&id, "ACTIVE").await;
            wait_for(&cinder, &disk, "in-use").await;
            settled(&cloud).await;
            assert_eq!(hosts_of(&cinder, &disk), [host.as_str()], "{how}");
            assert_eq!(cloud.files(host, "volumes").len(), 1, "{how}");
            running.force_down(&from, false).await;
            running.wait_for_host_cleanup(&cloud).await;
            running.delete(&id).await;
            running.wait_until_gone(&id).await;
        }
        finish(&cloud, &running, &cinder, "cancelled rebuilds").await;
    }
}

/// The worker of a cancelled rebuild does not complete the next rebuild, and the next rebuild does not end with the
/// image of the cancelled one.
#[tokio::test]
async fn a_rebuild_after_a_cancelled_one_gets_its_own_image() {
    for (cloud, mut running, cinder) in clouds(&["a"]).await {
        let (id, [disk, _]) = server(&cloud, &running, &cinder).await;
        let mut images = Vec::new();
        for name in ["first", "second", "third", "fourth"] {
            images.push(cloud.image_with(name, &[], b"x".to_vec()).await.to_string());
        }
        let plan = CrashPlan::counting();
        running.replace_services(&cloud, plan.clone()).await;
        for (dies, [first, second]) in
            [(false, [&images[0], &images[1]]), (true, [&images[2], &images[3]])]
        {
            cinder.state().creating = 1_000_000;
            rebuild(&running, &id, "2.93", first).await.expect(202);
            wait_for(&cinder, &disk, "downloading").await;
            operate(&running, &id, json!({"os-resetState": {"state": "active"}})).await;
            rebuild(&running, &id, "2.93", second).await.expect(202);
            let proceed = || {
                let mut state = cinder.state();
                state.creating = 2;
                state.volume_mut(&disk).creating = 2;
            };
            if dies {
                plan.die();
                running.replace_services(&cloud, CrashPlan::default()).await;
                // The next worker sees Cinder's work for the first rebuild.
                tokio::join!(cloud.finish_volume_work(&running), async {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    proceed();
                });
            } else {
                proceed();
            }
            rebuilt(&running, &id, "ACTIVE").await;
            settled(&cloud).await;
            assert_eq!(image_of(&cinder, &disk), json!(second), "{dies}");
            assert_eq!(hosts_of(&cinder, &disk), ["a"], "{dies}");
        }
        finish(&cloud, &running, &cinder, "rebuilt again").await;
    }
}

/// A worker that waits for Cinder does not hold up the servers that are due next.
#[tokio::test]
async fn the_loop_does_not_wait_for_cinder() {
    for (cloud, mut running, cinder) in clouds(&["a"]).await {
        let (id, [disk, _]) = server(&cloud, &running, &cinder).await;
        let image = cloud.image_with("other", &[], b"x".to_vec()).await.to_string();
        let plan = CrashPlan::counting();
        running.replace_services(&cloud, plan.clone()).await;
        cinder.state().creating = 1_000_000;
        rebuild(&running, &id, "2.93", &image).await.expect(202);
        wait_for(&cinder, &disk, "downloading").await;
        plan.die();
        running.replace_services(&cloud, CrashPlan::default()).await;
        cloud.execute("UPDATE volume_servers SET taken_until = 0, due_at = 1").await;
        let round = volumes::run(running.compute.clone());
        let ended = tokio::time::timeout(Duration::from_secs(20), round).await;
        ended.expect("the round ends").expect("the database answers");
        let waiting = "SELECT server_id FROM volume_servers WHERE taken_until > 0";
        assert_eq!(cloud.column(waiting).await, [id.as_str()], "its worker continues");
        cinder.state().volume_mut(&disk).creating = 0;
        rebuilt(&running, &id, "ACTIVE").await;
        assert_eq!(image_of(&cinder, &disk), json!(image));
        settled(&cloud).await;
        finish(&cloud, &running, &cinder, "in a loop").await;
    }
}

/// Cinder fails while the controller is dead.
#[tokio::test]
async fn a_failure_that_nobody_saw_is_explained() {
    for (cloud, mut running, cinder) in clouds(&["a"]).await {
        let (id, [disk, _]) = server(&cloud, &running, &cinder).await;
        let plan = CrashPlan::counting();
        running.replace_services(&cloud, plan.clone()).await;
        cinder.state().creating = 1_000_000;
        let image = cloud.image.to_string();
        rebuild(&running, &id, "2.93", &image).await.expect(202);
        wait_for(&cinder, &disk, "downloading").await;
        plan.die();
        {
            let mut state = cinder.state();
            let volume = state.volume_mut(&disk);
            (volume.status, volume.reimaged) = ("error".to_owned(), None);
        }
        running.replace_services(&cloud, CrashPlan::default()).await;
        cloud.execute("UPDATE volume_servers SET taken_until = 0, due_at = 1").await;
        volumes::run(running.compute.clone()).await.expect("the database answers");
        let failed = running.wait_for_status(&id, "ERROR").await;
        assert!(fault(&failed).contains("is already error"), "{failed}");
        cinder.state().volume_mut(&disk).status = "reserved".to_owned();
        cinder.state().creating = 0;
        rebuild(&running, &id, "2.93", &image).await.expect(202);
        rebuilt(&running, &id, "ACTIVE").await;
        settled(&cloud).await;
        finish(&cloud, &running, &cinder, "failed unseen").await;
    }
}

/// Rebuilds with a crash of everything at each write, before and after its commit.
#[tokio::test]
async fn no_crash_keeps_a_server_from_a_rebuild() {
    for (share, mut cloud) in shared(Cloud::all(hosts(&[("a", &[GPU])])).await) {
        let cinder = cloud.start_cinder().await;
        crash_points(share, (20, 60), async |plan, when| crash(&cloud, &cinder, plan, &when).await)
            .await;
    }
}

async fn crash(cloud: &Cloud, cinder: &FakeCinder, plan: CrashPlan, when: &str) -> bool {
    let running = cloud.start().await;
    running.wait_for_hosts().await;
    let (id, [disk, _]) = server(cloud, &running, cinder).await;
    let other = cloud.image_with("other", &[], b"x".to_vec()).await.to_string();
    let send = async |running: &RunningCloud| rebuild(running, &id, "2.93", &other).await;
    let (running, accepted, died) =
        through_crash(cloud, running, plan, send, async || is_idle(cloud).await).await;
    wait_until(&format!("{when}: nothing is left to do"), async || {
        cloud.finish_volume_work(&running).await;
        is_idle(cloud).await
    })
    .await;
    cloud.finish_volume_work(&running).await;
    running.wait_for_status(&id, "ACTIVE").await;
    let is = image_of(cinder, &disk);
    assert!(!accepted || is == json!(other), "{when}: {is}");
    assert_eq!(hosts_of(cinder, &disk), ["a"], "{when}");
    assert_eq!(cinder.state().take_freed(), [""; 0], "{when}");
    cloud.assert_consistent(&running, when).await;
    finish(cloud, &running, cinder, when).await;
    cinder.state().volumes_mut().clear();
    running.kill().await;
    died
}
