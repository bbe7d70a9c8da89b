//! Volumes of servers: a strict fake answers in the place of a Cinder, and fails on demand.

use std::time::Duration;

use kilonova_store::testing::{CrashPlan, Death};
use kilonova_testkit::cinder::{Failure, FakeCinder};
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Answer, BOB, Cloud, GPU, RunningCloud, hosts, wait_until};

/// Running clouds with a Cinder, on these hosts.
async fn clouds(names: &[&str]) -> Vec<(Cloud, RunningCloud, FakeCinder)> {
    let mut all = Vec::new();
    let entries: Vec<(&str, &[&str])> = names.iter().map(|name| (*name, &[GPU][..])).collect();
    for mut cloud in Cloud::all(hosts(&entries)).await {
        let cinder = cloud.start_cinder().await;
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        all.push((cloud, running, cinder));
    }
    all
}

fn volume(cinder: &FakeCinder, more: Value) -> String {
    cinder.state().add_volume("red", 2, more)
}

fn attachments(id: &str) -> String {
    format!("/servers/{id}/os-volume_attachments")
}

async fn try_attach(running: &RunningCloud, id: &str, version: &str, more: Value) -> Answer {
    let path = format!("POST {}", attachments(id));
    running.call(ANN, version, &path, Some(json!({"volumeAttachment": more}))).await
}

async fn attach(running: &RunningCloud, cinder: &FakeCinder, id: &str, volume: &str) {
    try_attach(running, id, "2.90", json!({"volumeId": volume})).await.expect(200);
    wait_for(cinder, volume, "in-use").await;
}

async fn wait_for(cinder: &FakeCinder, volume: &str, status: &str) {
    wait_until(&format!("volume {volume} is {status}"), async || {
        cinder.state().status(volume) == status
    })
    .await;
}

async fn try_detach(running: &RunningCloud, id: &str, volume: &str) -> Answer {
    let path = format!("DELETE {}/{volume}", attachments(id));
    running.call(ANN, "2.90", &path, None).await
}

async fn shown(running: &RunningCloud, id: &str, version: &str) -> Value {
    running.get(ANN, version, &attachments(id)).await.expect(200)["volumeAttachments"].clone()
}

async fn operate(running: &RunningCloud, id: &str, action: Value) {
    let path = format!("POST /servers/{id}/action");
    let answer = running.call(ADMIN, "2.90", &path, Some(action)).await;
    assert!(answer.status.is_success(), "{} {}", answer.status, answer.body);
}

/// The hosts of the attachments of a volume.
fn hosts_of(cinder: &FakeCinder, volume: &str) -> Vec<String> {
    let all = cinder.state().attachments_of(volume);
    let host = |one: &Value| one["host"].as_str().unwrap_or("-").to_owned();
    all.iter().map(|(_, one)| host(&one.connector)).collect()
}

/// Waits until nothing is left to do for any server.
async fn settled(cloud: &Cloud) {
    wait_until("nothing is due", async || {
        cloud
            .column("SELECT server_id FROM volume_servers WHERE due_at IS NOT NULL")
            .await
            .is_empty()
    })
    .await;
}

/// The host of a server, and the other one.
async fn hosts_around(running: &RunningCloud, id: &str) -> (String, String) {
    let host = running.server(id).await["OS-EXT-SRV-ATTR:host"].clone();
    let host = host.as_str().expect("a host").to_owned();
    let other = if host == "a" { "b" } else { "a" };
    (host, other.to_owned())
}

/// Nothing is left of any server, here or in Cinder.
async fn finish(cloud: &Cloud, running: &RunningCloud, cinder: &FakeCinder, when: &str) {
    cloud.teardown(running, when).await;
    cloud.settle_volumes(running).await;
    for (table, sql) in [
        ("block_devices", "SELECT id FROM block_devices"),
        ("volume_attachments", "SELECT id FROM volume_attachments"),
        ("volume_servers", "SELECT server_id FROM volume_servers"),
    ] {
        assert_eq!(cloud.column(sql).await, [""; 0], "{when}: {table}");
    }
    let state = cinder.state();
    assert!(state.attachments().is_empty(), "{when}: {:?}", state.attachments());
    for (id, volume) in state.volumes() {
        assert_eq!(volume.status, "available", "{when}: {id}");
    }
}

#[tokio::test]
async fn a_volume_is_attached_shown_and_detached() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let disk = volume(&cinder, json!({}));
        cinder.state().use_iscsi(&disk);
        let wish = json!({
            "volumeId": disk, "device": "/dev/vdf", "tag": "data", "delete_on_termination": false,
        });
        let answer = try_attach(&running, &id, "2.79", wish).await.expect(200);
        let expected = json!({
            "id": disk, "volumeId": disk, "serverId": id, "device": "/dev/vdf", "tag": "data",
            "delete_on_termination": false,
        });
        assert_eq!(answer["volumeAttachment"], expected);
        wait_for(&cinder, &disk, "in-use").await;
        assert_eq!(hosts_of(&cinder, &disk), ["a"]);
        assert_eq!(cloud.files("a", "volumes").len(), 1);
        let connector = cinder.state().attachments_of(&disk)[0].1.connector.clone();
        assert_eq!(connector["mountpoint"], "/dev/vdf");
        let attachment = cinder.state().attachments_of(&disk)[0].0.clone();

        let oldest = json!({"id": disk, "volumeId": disk, "serverId": id, "device": "/dev/vdf"});
        assert_eq!(shown(&running, &id, "2.1").await, json!([oldest]));
        let tagged = shown(&running, &id, "2.70").await;
        assert_eq!(
            (&tagged[0]["tag"], &tagged[0]["delete_on_termination"]),
            (&json!("data"), &Value::Null)
        );
        let newest = running.get(ANN, "2.89", &format!("{}/{disk}", attachments(&id))).await;
        let newest = newest.expect(200)["volumeAttachment"].clone();
        assert!(newest.get("id").is_none() && newest["bdm_uuid"].is_string(), "{newest}");
        assert_eq!(newest["attachment_id"], json!(attachment));
        // Cinder asks so, with its own login.
        let path = format!("{}/{disk}", attachments(&id));
        let asked = running.get(ADMIN, "2.89", &path).await.expect(200);
        assert_eq!(asked["volumeAttachment"]["attachment_id"], json!(attachment));
        running.get(BOB, "2.89", &path).await.refused(404, "could not be found");
        let server = running.server(&id).await;
        let attached = json!([{"id": disk, "delete_on_termination": false}]);
        assert_eq!(server["os-extended-volumes:volumes_attached"], attached);
        let listed = running.get(ANN, "2.1", "/servers/detail").await.expect(200);
        assert_eq!(
            listed["servers"][0]["os-extended-volumes:volumes_attached"],
            json!([{"id": disk}])
        );

        let secrets = cloud.column("SELECT body FROM documents").await.concat();
        assert!(secrets.contains("chap-secret-of"), "the host has the connection");
        let change = json!({"volumeAttachment": {"volumeId": disk, "delete_on_termination": true}});
        let put = format!("PUT {}/{disk}", attachments(&id));
        running.call(ANN, "2.85", &put, Some(change)).await.expect(202);
        assert_eq!(shown(&running, &id, "2.79").await[0]["delete_on_termination"], json!(true));
        let back = json!({"volumeAttachment": {"volumeId": disk, "delete_on_termination": false}});
        running.call(ANN, "2.85", &put, Some(back)).await.expect(202);

        // Stop and start, and a hard reboot, keep it.
        running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        running.wait_until_idle(&id).await;
        running.act(&id, json!({"os-stop": null})).await;
        running.wait_for_status(&id, "SHUTOFF").await;
        running.act(&id, json!({"os-start": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        settled(&cloud).await;
        assert_eq!(cinder.state().attachments_of(&disk)[0].0, attachment);
        assert_eq!(cinder.state().take_freed(), [""; 0]);

        try_detach(&running, &id, &disk).await.expect(202);
        wait_for(&cinder, &disk, "available").await;
        settled(&cloud).await;
        assert_eq!(cloud.files("a", "volumes"), [""; 0]);
        assert_eq!(shown(&running, &id, "2.89").await, json!([]));
        let calls = cinder.take_calls();
        assert!(calls.iter().all(|call| call.ends_with(", service)")), "{calls:?}");
        finish(&cloud, &running, &cinder, "attached").await;
    }
}

#[tokio::test]
async fn requests_that_cannot_be_met_are_refused_with_novas_words() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let other = running.active_server(&cloud, "two", "plain").await;
        let (used, free) = (volume(&cinder, json!({})), volume(&cinder, json!({})));
        let shared = volume(&cinder, json!({"multiattach": true}));
        let secret = volume(&cinder, json!({"encrypted": true}));
        attach(&running, &cinder, &other, &used).await;
        let missing = uuid_like();
        for (version, body, code, words) in [
            (
                "2.90",
                json!({"volumeId": missing}),
                404,
                format!("Volume {missing} could not be found."),
            ),
            ("2.90", json!({"volumeId": used}), 400, "the current status is in-use".into()),
            (
                "2.90",
                json!({"volumeId": secret}),
                400,
                "encrypted volumes are not supported".into(),
            ),
            (
                "2.59",
                json!({"volumeId": shared}),
                400,
                "starting with compute API version 2.60".into(),
            ),
            ("2.90", json!({"volumeId": free, "device": "vdb"}), 400, "device".into()),
            ("2.48", json!({"volumeId": free, "tag": "x"}), 400, "tag".into()),
            (
                "2.78",
                json!({"volumeId": free, "delete_on_termination": true}),
                400,
                "delete_on".into(),
            ),
            ("2.90", json!({"device": "/dev/vdb"}), 400, "volumeId".into()),
        ] {
            try_attach(&running, &id, version, body).await.refused(code, &words);
        }
        let again = try_attach(&running, &other, "2.90", json!({"volumeId": used})).await;
        again.refused(400, "is already attached");
        let taken = json!({"volumeId": free, "device": "/dev/vdb"});
        try_attach(&running, &other, "2.90", taken).await.refused(409, "is in use");
        try_detach(&running, &id, &used).await.refused(404, "is not attached to volume");
        let put = format!("PUT {}/{used}", attachments(&other));
        let swap = json!({"volumeAttachment": {"volumeId": free}});
        running.call(ANN, "2.84", &put, Some(swap.clone())).await.refused(403, "Policy");
        running.call(ADMIN, "2.84", &put, Some(swap)).await.refused(409, "is not migrating");
        let tag = json!({"volumeAttachment": {"volumeId": used, "tag": "other"}});
        running
            .call(ANN, "2.85", &put, Some(tag))
            .await
            .refused(400, "The tag property is not mutable");

        running.act(&id, json!({"lock": null})).await;
        let locked = try_attach(&running, &id, "2.90", json!({"volumeId": free})).await;
        locked.refused(409, &format!("Instance {id} is locked"));
        running.act(&id, json!({"unlock": null})).await;
        running.act(&id, json!({"suspend": null})).await;
        running.wait_for_status(&id, "SUSPENDED").await;
        let refused = try_attach(&running, &id, "2.90", json!({"volumeId": free})).await;
        refused.refused(409, "Cannot 'attach_volume' instance");
        assert_eq!(cinder.state().status(&free), "available");
        assert_eq!(actions_of(&running, &id, "attach_volume").await, [""; 0], "refused");
        try_attach(&running, &other, "2.101", json!({"volumeId": shared})).await.expect(202);
        wait_for(&cinder, &shared, "in-use").await;
        finish(&cloud, &running, &cinder, "refused").await;
    }
}

/// The messages of a server's actions of a kind, newest first; empty for one that succeeded.
async fn actions_of(running: &RunningCloud, id: &str, kind: &str) -> Vec<String> {
    let path = format!("/servers/{id}/os-instance-actions");
    let all = running.get(ANN, "2.90", &path).await.expect(200)["instanceActions"].clone();
    let all = all.as_array().expect("a list").iter();
    let message = |one: &Value| one["message"].as_str().unwrap_or_default().to_owned();
    all.filter(|one| one["action"] == kind).map(message).collect()
}

fn uuid_like() -> String {
    kilonova_ids::VolumeId::new_v4().to_string()
}

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
        // The host's connection fails, for good and for a while.
        cinder.fail("PUT attachments", Failure::Status(400), 1);
        try_attach(&running, &id, "2.90", wish()).await.expect(200);
        settled(&cloud).await;
        assert_eq!(cinder.state().status(&disk), "available");
        // The four that Cinder did not accept are no actions.
        assert_eq!(actions_of(&running, &id, "attach_volume").await, ["Error", ""]);
        cinder.fail("PUT attachments", Failure::Status(500), 7);
        attach(&running, &cinder, &id, &disk).await;
        settled(&cloud).await;

        // A detachment that Cinder does not confirm is taken back.
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
        // The end of an attachment is repeated until it succeeds.
        cinder.fail("DELETE attachments", Failure::Status(500), 12);
        try_detach(&running, &id, &disk).await.expect(202);
        wait_for(&cinder, &disk, "available").await;
        settled(&cloud).await;
        finish(&cloud, &running, &cinder, "failed").await;
    }
}

/// The URL of a call has the project of its token: Cinder refuses an administrator's token in the URL of the
/// server's project for good.
#[tokio::test]
async fn an_administrator_of_another_project_attaches_and_detaches() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        cinder.put_project_into_url();
        let id = running.active_server(&cloud, "one", "plain").await;
        let disk = volume(&cinder, json!({}));
        let path = format!("POST {}", attachments(&id));
        let body = json!({"volumeAttachment": {"volumeId": disk}});
        running.call(ADMIN, "2.90", &path, Some(body)).await.expect(200);
        wait_for(&cinder, &disk, "in-use").await;
        settled(&cloud).await;
        let path = format!("DELETE {}/{disk}", attachments(&id));
        running.call(ADMIN, "2.90", &path, None).await.expect(202);
        wait_for(&cinder, &disk, "available").await;
        finish(&cloud, &running, &cinder, "administrator").await;
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
        std::fs::remove_file(&fault).expect("the file is removed");
        attach(&running, &cinder, &id, &disk).await;
        settled(&cloud).await;
        let held = cloud.nodes().join("a").join("volume_held");
        std::fs::write(&held, "the guest uses the disk").expect("the file is written");
        try_detach(&running, &id, &disk).await.expect(202);
        wait_for(&cinder, &disk, "in-use").await;
        settled(&cloud).await;
        assert_eq!(shown(&running, &id, "2.90").await[0]["volumeId"], json!(disk));
        std::fs::remove_file(&held).expect("the file is removed");
        try_detach(&running, &id, &disk).await.expect(202);
        wait_for(&cinder, &disk, "available").await;
        finish(&cloud, &running, &cinder, "held").await;
    }
}

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
        running.force_down(&from, false).await;
        running.start_node(&cloud, &from).await;
        running.wait_for_host_cleanup(&cloud).await;
        assert_eq!(cloud.files(&from, "volumes"), [""; 0]);
        assert_eq!(hosts_of(&cinder, &disk), [to]);
        finish(&cloud, &running, &cinder, "evacuated").await;
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

        // A mark that no worker takes away.
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

/// Attaches and detaches with a crash of everything at each write, before and after its commit. Each call to
/// Cinder is between two writes.
#[tokio::test]
async fn no_crash_leaks_an_attachment() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
        let cinder = cloud.start_cinder().await;
        for detaches in [false, true] {
            let mut points = 0;
            for at in 0.. {
                assert!(at < 60, "no end");
                let mut died = false;
                for death in [Death::BeforeCommit, Death::AfterCommit] {
                    let when = format!("{detaches} {at} {death:?}");
                    died |= crash(&cloud, &cinder, CrashPlan::at(at, death), detaches, &when).await;
                    points += u32::from(died);
                }
                if !died {
                    break;
                }
            }
            assert!(points >= 8, "{points} crash points");
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
    let mut running = cloud.start().await;
    running.wait_for_hosts().await;
    let id = running.active_server(cloud, "one", "plain").await;
    let disk = volume(cinder, json!({}));
    if detaches {
        attach(&running, cinder, &id, &disk).await;
        settled(cloud).await;
    }
    running.kill().await;
    running = cloud.start_with_plan(plan.clone()).await;
    running.wait_for_hosts().await;
    let answer = if detaches {
        try_detach(&running, &id, &disk).await
    } else {
        try_attach(&running, &id, "2.90", json!({"volumeId": disk})).await
    };
    let accepted = answer.status.is_success();
    let goal = if detaches { "available" } else { "in-use" };
    for _ in 0..400 {
        let is_done = cinder.state().status(&disk) == goal;
        if plan.is_dead() || (is_done && accepted) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let died = plan.is_dead();
    running.kill().await;
    running = cloud.start().await;
    running.wait_for_hosts().await;
    running.wait_all_idle().await;
    for _ in 0..3 {
        cloud.settle_volumes(&running).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    wait_until(&format!("{when}: the volume is in a final state"), async || {
        cloud.settle_volumes(&running).await;
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

/// True if a document has the password of the fake's iSCSI targets.
async fn has_password(cloud: &Cloud) -> bool {
    cloud.column("SELECT body FROM documents").await.concat().contains("chap-secret-of")
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
        assert!(!has_password(&cloud).await && cinder.take_calls().is_empty(), "nothing is asked");
        // Without an answer the guest starts as it did.
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

/// Reboots hard with a crash of everything at each write, before and after its commit.
#[tokio::test]
async fn no_crash_keeps_a_server_from_a_hard_reboot() {
    for mut cloud in Cloud::all(hosts(&[("a", &[GPU])])).await {
        let cinder = cloud.start_cinder().await;
        let mut points = 0;
        for at in 0.. {
            assert!(at < 40, "no end");
            let mut died = false;
            for death in [Death::BeforeCommit, Death::AfterCommit] {
                let when = format!("{at} {death:?}");
                died |= crash_reboot(&cloud, &cinder, CrashPlan::at(at, death), &when).await;
                points += u32::from(died);
            }
            if !died {
                break;
            }
        }
        assert!(points >= 8, "{points} crash points");
    }
}

async fn crash_reboot(cloud: &Cloud, cinder: &FakeCinder, plan: CrashPlan, when: &str) -> bool {
    let mut running = cloud.start().await;
    running.wait_for_hosts().await;
    let id = running.active_server(cloud, "one", "plain").await;
    let disk = volume(cinder, json!({}));
    attach(&running, cinder, &id, &disk).await;
    settled(cloud).await;
    cinder.state().use_iscsi(&disk);
    cinder.state().take_freed();
    running.kill().await;
    running = cloud.start_with_plan(plan.clone()).await;
    running.wait_for_hosts().await;
    let answer = running.try_act(&id, json!({"reboot": {"type": "HARD"}})).await;
    let accepted = answer.status.is_success();
    for _ in 0..400 {
        let idle = "SELECT id FROM operations WHERE outcome = 'open'";
        if plan.is_dead() || (accepted && cloud.column(idle).await.is_empty()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let died = plan.is_dead();
    running.kill().await;
    running = cloud.start().await;
    running.wait_for_hosts().await;
    wait_until(&format!("{when}: nothing is left to do"), async || {
        cloud.settle_volumes(&running).await;
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

/// A request for a server with these disks and no image.
fn with_disks(running: &RunningCloud, cloud: &Cloud, disks: Value) -> Value {
    let mut request = running.boot_request(cloud, "one", "plain");
    request["server"]["imageRef"] = json!("");
    request["server"]["block_device_mapping_v2"] = disks;
    request
}

async fn try_boot(running: &RunningCloud, request: Value) -> Answer {
    running.call(ANN, "2.90", "POST /servers", Some(request)).await
}

async fn boot(running: &RunningCloud, request: Value) -> String {
    let answer = try_boot(running, request).await.expect(202);
    answer["server"]["id"].as_str().expect("the answer has an id").to_owned()
}

fn root(source: &str, more: Value) -> Value {
    let mut entry = json!({"source_type": source, "destination_type": "volume", "boot_index": 0});
    for (key, value) in more.as_object().into_iter().flatten() {
        entry[key] = value.clone();
    }
    entry
}

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
            cloud.settle_volumes(&running).await;
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
            cloud.settle_volumes(&running).await;
            assert_eq!(cinder.state().status(&bootable), "available", "{failure:?}");
        }
        assert_eq!(running.servers().await.len(), 0);

        // A creation that fails fails the server, and its volumes go.
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
        // So does a host that Cinder does not connect.
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
