//! Crashes of everything at each write, before and after its commit.

use std::time::Duration;

use kilonova_store::testing::CrashPlan;
use kilonova_testkit::cinder::{Failure, FakeCinder};
use kilonova_testkit::shared;
use serde_json::json;

use super::{
    attach, boot, clouds, crash_points, finish, has_password, hosts_of, is_idle, root, settled,
    shown, through_crash, try_attach, try_detach, volume, with_disks,
};
use crate::kit::{Cloud, GPU, RunningCloud, hosts, wait_until};

/// Attaches and detaches with a crash of everything at each write, before and after its commit. Each call to
/// Cinder is between two writes.
#[tokio::test]
async fn no_crash_leaks_an_attachment() {
    for (share, mut cloud) in shared(Cloud::all(hosts(&[("a", &[GPU])])).await) {
        let cinder = cloud.start_cinder().await;
        for detaches in [false, true] {
            crash_points(share, (8, 60), async |plan, when| {
                crash(&cloud, &cinder, plan, detaches, &format!("{detaches} {when}")).await
            })
            .await;
        }
    }
}

async fn crash(
    cloud: &Cloud,
    cinder: &FakeCinder,
    plan: CrashPlan,
    detaches: bool,
    when: &str,
) -> bool {
    let running = cloud.start().await;
    running.wait_for_hosts().await;
    let id = running.active_server(cloud, "one", "plain").await;
    let disk = volume(cinder, json!({}));
    if detaches {
        attach(&running, cinder, &id, &disk).await;
        settled(cloud).await;
    }
    let goal = if detaches { "available" } else { "in-use" };
    let send = async |running: &RunningCloud| match detaches {
        true => try_detach(running, &id, &disk).await,
        false => try_attach(running, &id, "2.90", json!({"volumeId": disk})).await,
    };
    let is_done = async || cinder.state().status(&disk) == goal;
    let (running, accepted, died) = through_crash(cloud, running, plan, send, is_done).await;
    running.wait_all_idle().await;
    for _ in 0..3 {
        cloud.finish_volume_work(&running).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    wait_until(&format!("{when}: the volume is in a final state"), async || {
        cloud.finish_volume_work(&running).await;
        ["in-use", "available"].contains(&&*cinder.state().status(&disk))
    })
    .await;
    let status = cinder.state().status(&disk);
    assert!(!accepted || status == goal, "{when}: accepted, and the volume is {status}");
    let shown = shown(&running, &id, "2.90").await;
    let count = cinder.state().attachments_of(&disk).len();
    let expected = usize::from(status == "in-use");
    assert_eq!(
        (count, shown.as_array().map(Vec::len)),
        (expected, Some(expected)),
        "{when}: {shown}"
    );
    cloud.assert_consistent(&running, when).await;
    finish(cloud, &running, cinder, when).await;
    cinder.state().volumes_mut().clear();
    running.kill().await;
    died
}

#[tokio::test]
async fn a_hard_reboot_asks_again_how_to_reach_volumes() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let disk = volume(&cinder, json!({}));
        attach(&running, &cinder, &id, &disk).await;
        settled(&cloud).await;
        let attachment = cinder.state().attachments_of(&disk)[0].0.clone();
        let reboot = async |kind: &str| {
            running.act(&id, json!({"reboot": {"type": kind}})).await;
            running.wait_until_idle(&id).await;
            running.wait_for_status(&id, "ACTIVE").await;
            settled(&cloud).await;
        };
        // The backend changes.
        cinder.state().use_iscsi(&disk);
        cinder.take_calls();
        reboot("SOFT").await;
        assert!(!has_password(&cloud).await && cinder.take_calls().is_empty(), "no call is made");
        // Without an answer the guest starts with its previous connection.
        cinder.fail("GET attachments", Failure::Status(500), 1);
        reboot("HARD").await;
        assert!(!has_password(&cloud).await);
        assert_eq!(cinder.take_calls().len(), 1);
        reboot("HARD").await;
        assert!(has_password(&cloud).await);
        assert_eq!(cinder.take_calls().len(), 1);
        assert_eq!(cinder.state().attachments_of(&disk)[0].0, attachment);
        assert_eq!(cinder.state().take_freed(), [""; 0]);
        finish(&cloud, &running, &cinder, "rebooted").await;
    }
}

/// An administrator has deleted attachments in Cinder.
#[tokio::test]
async fn a_hard_reboot_removes_volumes_that_cinder_no_longer_attaches() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let disk = volume(&cinder, json!({"bootable": "true"}));
        let made = json!({
            "source_type": "blank", "destination_type": "volume", "volume_size": 1,
            "delete_on_termination": true,
        });
        let disks = json!([root("volume", json!({"uuid": disk})), made]);
        let id = boot(&running, with_disks(&running, &cloud, disks)).await;
        running.wait_for_status(&id, "ACTIVE").await;
        settled(&cloud).await;
        let kept = volume(&cinder, json!({}));
        attach(&running, &cinder, &id, &kept).await;
        settled(&cloud).await;
        let of_server = shown(&running, &id, "2.90").await;
        let lost = of_server[1]["volumeId"].as_str().expect("an id").to_owned();
        assert_eq!(cinder.state().status(&lost), "in-use");
        // A 404 that the list of attachments does not confirm removes no volume, and neither does a proxy's.
        for failure in [Failure::Status(404), Failure::Proxy(404)] {
            cinder.fail("GET attachments", failure, usize::MAX);
            running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
            running.wait_until_idle(&id).await;
            running.wait_for_status(&id, "ACTIVE").await;
            cinder.heal();
            settled(&cloud).await;
            assert_eq!(shown(&running, &id, "2.90").await, of_server, "{failure:?}");
            assert_eq!(cloud.files("a", "volumes").len(), 3, "{failure:?}");
        }
        cinder.state().drop_attachments(&lost);
        running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        running.wait_until_idle(&id).await;
        running.wait_for_status(&id, "ACTIVE").await;
        settled(&cloud).await;
        let left = shown(&running, &id, "2.90").await;
        let left: Vec<_> = [0, 1].map(|at| left[at]["volumeId"].clone()).into();
        assert_eq!(left, [json!(disk), json!(kept)]);
        assert_eq!(cloud.files("a", "volumes").len(), 2);
        assert_eq!(cinder.state().status(&lost), "available", "not deleted");
        // The volume may be used again.
        attach(&running, &cinder, &id, &lost).await;
        settled(&cloud).await;

        // No guest starts without its root disk.
        cinder.state().drop_attachments(&disk);
        running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        running.wait_until_idle(&id).await;
        let server = running.wait_for_status(&id, "ERROR").await;
        assert!(crate::kit::fault(&server).contains("no longer has the attachment"), "{server}");
        assert_eq!(cloud.files("a", "volumes").len(), 3);
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.finish_volume_work(&running).await;
        assert_eq!(cinder.state().status(&lost), "available");
        finish(&cloud, &running, &cinder, "dangling").await;
    }
}

/// Reboots hard with a crash of everything at each write, before and after its commit.
#[tokio::test]
async fn no_crash_keeps_a_server_from_a_hard_reboot() {
    for (share, mut cloud) in shared(Cloud::all(hosts(&[("a", &[GPU])])).await) {
        let cinder = cloud.start_cinder().await;
        crash_points(share, (8, 40), async |plan, when| {
            crash_reboot(&cloud, &cinder, plan, &when).await
        })
        .await;
    }
}

async fn crash_reboot(cloud: &Cloud, cinder: &FakeCinder, plan: CrashPlan, when: &str) -> bool {
    let running = cloud.start().await;
    running.wait_for_hosts().await;
    let id = running.active_server(cloud, "one", "plain").await;
    let disk = volume(cinder, json!({}));
    attach(&running, cinder, &id, &disk).await;
    settled(cloud).await;
    cinder.state().use_iscsi(&disk);
    cinder.state().take_freed();
    let send = async |running: &RunningCloud| {
        running.try_act(&id, json!({"reboot": {"type": "HARD"}})).await
    };
    let (running, accepted, died) =
        through_crash(cloud, running, plan, send, async || is_idle(cloud).await).await;
    wait_until(&format!("{when}: nothing is left to do"), async || {
        cloud.finish_volume_work(&running).await;
        let waiting = "SELECT server_id FROM documents WHERE lacks_volumes = 1";
        cloud.column(waiting).await.is_empty()
    })
    .await;
    running.wait_all_idle().await;
    running.wait_for_status(&id, "ACTIVE").await;
    assert!(has_password(cloud).await || !accepted, "{when}");
    assert_eq!(hosts_of(cinder, &disk), ["a"], "{when}");
    assert_eq!(cinder.state().take_freed(), [""; 0], "{when}");
    cloud.assert_consistent(&running, when).await;
    finish(cloud, &running, cinder, when).await;
    cinder.state().volumes_mut().clear();
    running.kill().await;
    died
}
