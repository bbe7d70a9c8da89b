//! Key pair, metadata, tags and names of a boot request, and their visibility.

use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, BOB, Cloud, RunningCloud, hosts};

const KEY: &str = "ssh-ed25519 \
    AAAAC3NzaC1lZDI1NTE5AAAAIJWc1kE6mXIGl7z1d2yyv4MyEYrWyCkjQk5hBV3xkLd1 ann@home";

#[tokio::test]
async fn key_metadata_and_tags_are_stored() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let key = json!({"keypair": {"name": "ann", "public_key": KEY, "type": "ssh"}});
        running.call(ANN, "2.90", "POST /os-keypairs", Some(key)).await.expect(201);
        let more = json!({
            "key_name": "ann", "metadata": {"role": "db"}, "tags": ["blue", "old"],
            "description": "for tests", "hostname": "db-one",
        });
        let id = running.boot_with(&cloud, "Data Base", "plain", more).await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["key_name"], "ann");
        assert_eq!(server["metadata"], json!({"role": "db"}));
        assert_eq!(server["tags"], json!(["blue", "old"]));
        assert_eq!(server["description"], "for tests");
        assert_eq!(server["OS-EXT-SRV-ATTR:hostname"], "db-one");
        let path = format!("/servers/{id}");
        let meta = json!({"metadata": {"more": "yes"}});
        let what = format!("POST {path}/metadata");
        let all = running.call(ANN, "2.90", &what, Some(meta)).await.expect(200);
        assert_eq!(all["metadata"], json!({"role": "db", "more": "yes"}));
        running.call(ANN, "2.90", &format!("PUT {path}/tags/new"), None).await.expect(201);
        running.call(ANN, "2.90", &format!("DELETE {path}/tags/old"), None).await.expect(204);
        let tags = running.get(ANN, "2.90", &format!("{path}/tags")).await.expect(200);
        assert_eq!(tags["tags"], json!(["blue", "new"]));
        for (what, field, value) in [
            ("POST", "metadata", json!({"metadata": {}, "METADATA": {}})),
            ("PUT", "metadata", json!({"metadata": {}, "METADATA": {}})),
            ("PUT", "metadata/more", json!({"meta": {"more": "x"}, "META": 1})),
            ("PUT", "tags", json!({"tags": [], "TAGS": []})),
        ] {
            let answer =
                running.call(ANN, "2.90", &format!("{what} {path}/{field}"), Some(value)).await;
            answer.refused(400, "was unexpected");
        }
        let many = json!({"tags": vec!["same"; 51]});
        let answer = running.call(ANN, "2.90", &format!("PUT {path}/tags"), Some(many)).await;
        answer.refused(400, "exceeded the per-server limit 50");
        running.get(BOB, "2.90", &path).await.refused(404, "could not be found");
        let gone = running.call(BOB, "2.90", &format!("DELETE {path}"), None).await;
        gone.refused(404, "could not be found");
        running.kill().await;
        let running = cloud.start().await;
        let server = running.server(&id).await;
        assert_eq!(
            (&server["tags"], &server["key_name"]),
            (&json!(["blue", "new"]), &json!("ann"))
        );
        cloud.teardown(&running, "request").await;
    }
}

#[tokio::test]
async fn unknown_references_are_refused_and_leave_nothing() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let nobody = kilonova_ids::ImageId::new_v4().to_string();
        for (key, value, message) in [
            ("key_name", "none", "Invalid key_name provided"),
            ("flavorRef", "none", "Flavor none could not be found."),
            ("imageRef", nobody.as_str(), "could not be found"),
        ] {
            let mut boot_request = running.boot_request(&cloud, "one", "plain");
            boot_request["server"][key] = json!(value);
            let answer = running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await;
            answer.refused(400, message);
        }
        running.flavor("lost", json!({})).await;
        let specs = json!({"extra_specs": {"accel:device_profile": "nowhere"}});
        running.admin("2.61", "POST /flavors/lost/os-extra_specs", specs).await.expect(200);
        let boot_request = running.boot_request(&cloud, "one", "lost");
        let answer = running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await;
        answer.refused(
            400,
            "Device profile name nowhere: Expected 1 device profile but got nothing.",
        );
        cloud.assert_empty(&running, "after refusals").await;
    }
}

/// A server is never created without the devices of its flavor.
#[tokio::test]
async fn an_undefined_pci_alias_is_refused() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let flavor = json!({"id": "alias", "name": "alias", "ram": 64, "vcpus": 1, "disk": 1});
        running.admin("2.61", "POST /flavors", json!({"flavor": flavor})).await.expect(200);
        let specs = json!({"extra_specs": {"pci_passthrough:alias": "a1:1, b2:2"}});
        running.admin("2.61", "POST /flavors/alias/os-extra_specs", specs).await.expect(200);
        let boot_request = running.boot_request(&cloud, "one", "alias");
        let answer = running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await;
        answer.refused(400, "PCI alias a1 is not defined");
        let id = running.active_server(&cloud, "one", "plain").await;
        let resize = json!({"resize": {"flavorRef": "alias"}});
        running.try_act(&id, resize).await.refused(400, "PCI alias a1 is not defined");
        assert_eq!(running.get(ADMIN, "2.90", &format!("/servers/{id}")).await.status, 200);
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.teardown(&running, "refused").await;
    }
}

async fn limit_metadata(running: &RunningCloud, whose: &str, limit: i64) {
    let quota = json!({"quota_set": {"metadata_items": limit}});
    running.admin("2.90", &format!("PUT /os-quota-sets/{whose}"), quota).await.expect(200);
}

#[tokio::test]
async fn metadata_is_limited_by_the_quota() {
    let items = |count: usize| -> Value {
        let all: serde_json::Map<_, _> =
            (0..count).map(|n| (format!("k{n}"), json!("v"))).collect();
        all.into()
    };
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        limit_metadata(&running, "red", 2).await;
        let words = "Maximum number of metadata items exceeds 2";
        let mut request = running.boot_request(&cloud, "one", "plain");
        request["server"]["metadata"] = items(3);
        running.call(ANN, "2.90", "POST /servers", Some(request)).await.refused(403, words);
        let id = running.boot_with(&cloud, "one", "plain", json!({"metadata": items(2)})).await;
        running.wait_for_status(&id, "ACTIVE").await;

        let path = format!("/servers/{id}/metadata");
        for (what, body) in [
            (format!("POST {path}"), json!({"metadata": {"more": "v"}})),
            (format!("PUT {path}"), json!({"metadata": items(3)})),
            (format!("PUT {path}/more"), json!({"meta": {"more": "v"}})),
        ] {
            running.call(ANN, "2.90", &what, Some(body)).await.refused(403, words);
        }
        let rebuild =
            |count| json!({"rebuild": {"imageRef": cloud.image, "metadata": items(count)}});
        running.try_act(&id, rebuild(3)).await.refused(403, words);

        // Images have the limit before 2.39 only.
        let act = format!("POST /servers/{id}/action");
        let image = json!({"createImage": {"name": "i", "metadata": items(3)}});
        let backup = json!({"createBackup": {"name": "b", "backup_type": "daily", "rotation": 1,
            "metadata": items(3)}});
        for action in [image, backup] {
            let refused = running.call(ANN, "2.38", &act, Some(action.clone())).await;
            refused.refused(403, "Image metadata limit exceeded");
            running.call(BOB, "2.38", &act, Some(action.clone())).await.expect(404);
            running.call(ANN, "2.39", &act, Some(action)).await.is(202);
            running.wait_for_status(&id, "ACTIVE").await;
        }

        // Over a lowered limit, items can still be deleted.
        limit_metadata(&running, "red", 0).await;
        running.call(ANN, "2.90", &format!("DELETE {path}/k0"), None).await.expect(204);
        limit_metadata(&running, "red", -1).await;
        let all = json!({"metadata": items(130)});
        running.call(ANN, "2.90", &format!("PUT {path}"), Some(all)).await.expect(200);
        limit_metadata(&running, "red?user_id=ann", 1).await;
        let words = "Maximum number of metadata items exceeds 1";
        running.try_act(&id, rebuild(2)).await.refused(403, words);
        running.act(&id, rebuild(1)).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.teardown(&running, "metadata").await;
    }
}
