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

#[tokio::test]
async fn a_request_for_several_servers_gets_as_many_as_the_quota_allows() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let quota = json!({"quota_set": {"instances": 3}});
        running.admin("2.57", "PUT /os-quota-sets/red", quota).await.expect(200);
        let counts = |min: u32| json!({"min_count": min, "max_count": 5});
        let mut request = running.boot_request(&cloud, "many", "plain");
        request["server"]["min_count"] = json!(4);
        request["server"]["max_count"] = json!(5);
        let refused = running.call(ANN, "2.90", "POST /servers", Some(request)).await;
        refused.refused(403, "Quota exceeded for instances: Requested 5, but already used 0 of 3");
        let first = running.boot_with(&cloud, "many", "plain", counts(2)).await;
        running.wait_for_status(&first, "ACTIVE").await;
        assert_eq!(running.servers().await.len(), 3);
        let mut request = running.boot_request(&cloud, "more", "plain");
        request["server"]["max_count"] = json!(2);
        let refused = running.call(ANN, "2.90", "POST /servers", Some(request)).await;
        refused.refused(403, "Quota exceeded for instances");
        cloud.teardown(&running, "as many as the quota allows").await;
    }
}

#[tokio::test]
async fn a_wrong_zone_of_a_forced_host_is_replaced() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        let body = json!({"aggregate": {"name": "east", "availability_zone": "east"}});
        let made = running.admin("2.90", "POST /os-aggregates", body).await.expect(200);
        let path = format!("POST /os-aggregates/{}/action", made["aggregate"]["id"]);
        running.admin("2.90", &path, json!({"add_host": {"host": "b"}})).await.expect(200);
        for (zone, host, pinned) in [
            ("nova:b", "b", json!("east")),
            ("nowhere:b", "b", json!("east")),
            ("east:a", "a", json!(null)),
            ("nova:a", "a", json!("nova")),
        ] {
            let mut request = running.boot_request(&cloud, "one", "plain");
            request["server"]["availability_zone"] = json!(zone);
            let made = running.admin("2.96", "POST /servers", request).await.expect(202);
            let id = made["server"]["id"].as_str().expect("an id").to_owned();
            let server = running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(server["OS-EXT-SRV-ATTR:host"], host, "{zone}");
            let shown = running.get(ADMIN, "2.96", &format!("/servers/{id}")).await.expect(200);
            assert_eq!(shown["server"]["pinned_availability_zone"], pinned, "{zone}");
        }
        cloud.teardown(&running, "forced hosts").await;
    }
}

#[tokio::test]
async fn user_data_with_line_breaks_is_read_as_nova_does() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let more = json!({"user_data": "aGVsbG8g\nd29ybGQ=\n"});
        let id = running.boot_with(&cloud, "one", "plain", more).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let shown = running.get(ADMIN, "2.90", &format!("/servers/{id}")).await.expect(200);
        assert_eq!(shown["server"]["OS-EXT-SRV-ATTR:user_data"], "aGVsbG8g\nd29ybGQ=\n");
        let documents = cloud.column("SELECT body FROM documents").await;
        assert!(
            documents.iter().any(|text| text.contains("aGVsbG8gd29ybGQ=")),
            "the host gets base64 without line breaks: {documents:?}"
        );
        running
            .act(&id, json!({"rebuild": {"imageRef": cloud.image, "user_data": "eA=\n="}}))
            .await;
        running.wait_for_status(&id, "ACTIVE").await;
        let mut request = running.boot_request(&cloud, "bad", "plain");
        request["server"]["user_data"] = json!("aGVsbG8");
        let refused = running.call(ANN, "2.90", "POST /servers", Some(request)).await;
        refused.refused(400, "It is not base64.");
        cloud.teardown(&running, "user data").await;
    }
}

#[tokio::test]
async fn names_without_a_character_of_a_host_name_have_host_names_of_their_own() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let more = json!({"max_count": 2});
        running.boot_with(&cloud, "сервер", "plain", more).await;
        let servers = running.servers().await;
        assert_eq!(servers.len(), 2);
        for server in servers {
            let id = server["id"].as_str().expect("an id");
            running.wait_for_status(id, "ACTIVE").await;
            let shown = running.get(ADMIN, "2.90", &format!("/servers/{id}")).await.expect(200);
            let hostname = &shown["server"]["OS-EXT-SRV-ATTR:hostname"];
            assert_eq!(hostname, &json!(format!("Server-{id}")));
        }
        let mut request = running.boot_request(&cloud, "two", "plain");
        request["server"]["hostname"] = json!("web");
        request["server"]["max_count"] = json!(2);
        let refused = running.call(ANN, "2.90", "POST /servers", Some(request)).await;
        refused.refused(400, "Unable to allocate a single hostname to multiple instances");
        cloud.teardown(&running, "host names").await;
    }
}

#[tokio::test]
async fn a_port_is_requested_once_and_a_disk_bus_is_known() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let port = "11111111-1111-4111-8111-111111111111";
        let mut request = running.boot_request(&cloud, "one", "plain");
        request["server"]["networks"] = json!([{"port": port}, {"port": port}]);
        let refused = running.call(ANN, "2.90", "POST /servers", Some(request)).await;
        refused.refused(400, "was specified twice: you cannot attach a port multiple times.");
        let mut request = running.boot_request(&cloud, "one", "plain");
        request["server"]["block_device_mapping_v2"] = json!([{
            "source_type": "image", "destination_type": "local", "uuid": cloud.image,
            "boot_index": 0, "disk_bus": "floppy",
        }]);
        let refused = running.call(ANN, "2.90", "POST /servers", Some(request)).await;
        refused.refused(400, "The provided disk bus floppy is not valid.");
    }
}

#[tokio::test]
async fn lists_and_hints_of_a_request_are_bounded() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = "11111111-1111-4111-8111-111111111111";
        for (field, entry) in
            [("networks", json!({"uuid": id})), ("security_groups", json!({"name": "a"}))]
        {
            let mut request = running.boot_request(&cloud, "one", "plain");
            request["server"][field] = json!(vec![entry; 256]);
            let refused = running.call(ANN, "2.90", "POST /servers", Some(request)).await;
            refused.refused(400, &format!("{field}. A request may have at most 255."));
        }
        for (hints, words) in [
            (json!({"same_host": vec![id; 256]}), "same_host. It may name at most 255 servers."),
            (json!({"mine": "x".repeat(70_000)}), "The hints may have at most 65536 bytes."),
        ] {
            let mut request = running.boot_request(&cloud, "one", "plain");
            request["os:scheduler_hints"] = hints;
            let refused = running.call(ANN, "2.90", "POST /servers", Some(request)).await;
            refused.refused(400, words);
        }
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
