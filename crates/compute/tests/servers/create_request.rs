//! Key pair, metadata, tags and names of a boot request, and their visibility.

use serde_json::json;

use crate::kit::{ADMIN, ANN, BOB, Cloud, hosts};

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
