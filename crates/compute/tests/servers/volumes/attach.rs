//! Volumes are attached, shown and detached; invalid requests are refused.

use std::time::Duration;

use kilonova_changes::Subscriber;
use serde_json::{Value, json};

use super::{
    actions_of, attach, attachments, clouds, finish, hosts_of, root, settled, shown, try_attach,
    try_boot, try_detach, uuid_like, volume, wait_for, with_disks,
};
use crate::kit::{ADMIN, ANN, BOB, RunningCloud};
use crate::servers::metadata_service::Proxy;

#[tokio::test]
async fn the_metadata_service_lists_volumes_with_tags() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let (disk, untagged) = (volume(&cinder, json!({})), volume(&cinder, json!({})));
        let proxy = Proxy::of(&running);
        assert_eq!(proxy.meta_data(&id).await["devices"], json!([]));
        attach(&running, &cinder, &id, &untagged).await;
        let wish = json!({"volumeId": disk, "tag": "data"});
        let answer = try_attach(&running, &id, "2.79", wish).await.expect(200);
        wait_for(&cinder, &disk, "in-use").await;
        settled(&cloud).await;
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let devices = proxy.meta_data(&id).await["devices"].clone();
        assert_eq!(devices.as_array().map(Vec::len), Some(1), "{devices}");
        assert_eq!(devices[0]["type"], "disk");
        assert_eq!(devices[0]["serial"], json!(disk));
        assert_eq!(devices[0]["tags"], json!(["data"]));
        assert_eq!(devices[0]["path"], answer["volumeAttachment"]["device"]);
        let mapping = async |role: &str| {
            proxy.get(&id, &format!("/latest/meta-data/block-device-mapping/{role}")).await.text
        };
        assert_eq!((&*mapping("ebs0").await, &*mapping("ebs1").await), ("/dev/vdb", "/dev/vdc"));
        assert_eq!(mapping("root").await, "/dev/vda");
        try_detach(&running, &id, &disk).await;
        wait_for(&cinder, &disk, "available").await;
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert_eq!(proxy.meta_data(&id).await["devices"], json!([]));
        finish(&cloud, &running, &cinder, "listed").await;
    }
}

/// A database may lose the host's reports on a disk.
#[tokio::test]
async fn lost_reports_on_a_disk_are_requested_again() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let disk = volume(&cinder, json!({}));
        let attaches = async |running: &RunningCloud| {
            let request = json!({"volumeId": disk});
            try_attach(running, &id, "2.79", request).await.expect(200);
        };
        running.lose_reports(1, attaches).await;
        assert_eq!(cinder.state().status(&disk), "attaching");
        running.compute.reloaded();
        wait_for(&cinder, &disk, "in-use").await;
        let detaches = async |running: &RunningCloud| {
            try_detach(running, &id, &disk).await;
        };
        running.lose_reports(1, detaches).await;
        running.compute.reloaded();
        wait_for(&cinder, &disk, "available").await;
        finish(&cloud, &running, &cinder, "requested again").await;
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
        for (query, count) in [("limit=0", 1), ("limit=1", 1), ("limit=0&offset=1", 0)] {
            let path = format!("{}?{query}", attachments(&id));
            let list = running.get(ANN, "2.89", &path).await.expect(200);
            assert_eq!(list["volumeAttachments"].as_array().map(Vec::len), Some(count), "{query}");
        }
        let tagged = shown(&running, &id, "2.70").await;
        assert_eq!(
            (&tagged[0]["tag"], &tagged[0]["delete_on_termination"]),
            (&json!("data"), &Value::Null)
        );
        let newest = running.get(ANN, "2.89", &format!("{}/{disk}", attachments(&id))).await;
        let newest = newest.expect(200)["volumeAttachment"].clone();
        assert!(newest.get("id").is_none() && newest["bdm_uuid"].is_string(), "{newest}");
        assert_eq!(newest["attachment_id"], json!(attachment));
        // Cinder sends this request, with its own login.
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

        // A hard reboot, a stop and a start keep the volume attached.
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
            (
                "2.90",
                json!({"volumeId": used}),
                400,
                format!("Invalid volume: volume {used} is already attached to instances: {other}"),
            ),
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

/// An administrator resets the status of a volume that a server has.
#[tokio::test]
async fn a_volume_whose_status_is_reset_gets_no_second_server() {
    for (cloud, running, cinder) in clouds(&["a"]).await {
        let first = running.active_server(&cloud, "one", "plain").await;
        let second = running.active_server(&cloud, "two", "plain").await;
        let disk = volume(&cinder, json!({"bootable": "true"}));
        attach(&running, &cinder, &first, &disk).await;
        settled(&cloud).await;
        cinder.state().volume_mut(&disk).status = "available".into();
        let words =
            format!("Invalid volume: volume {disk} is already attached to instances: {first}");
        let wish = || json!({"volumeId": disk});
        try_attach(&running, &second, "2.90", wish()).await.refused(400, &words);
        let disks = json!([root("volume", json!({"uuid": disk}))]);
        let request = with_disks(&running, &cloud, disks);
        try_boot(&running, request).await.refused(400, &words);
        assert_eq!(shown(&running, &second, "2.90").await, json!([]));
        assert_eq!(hosts_of(&cinder, &disk), ["a"]);
        cinder.state().volume_mut(&disk).status = "in-use".into();
        running.delete(&first).await;
        running.wait_until_gone(&first).await;
        wait_for(&cinder, &disk, "available").await;
        attach(&running, &cinder, &second, &disk).await;
        finish(&cloud, &running, &cinder, "reset").await;
    }
}

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
