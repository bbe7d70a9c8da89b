//! The Glance of a cloud as the image service: a strict fake takes its place and fails on demand.

use kilonova_compute_nodes::Link;
use kilonova_ids::{HostName, ImageId};
use kilonova_node_api::{ControlPlane as _, Refusal};
use kilonova_testkit::glance::{Failure, FakeGlance};
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Answer, BOB, Cloud, Controllers, RunningCloud, hosts, wait_until};

/// Running clouds with a Glance, on host `a`.
async fn clouds() -> Vec<(Cloud, RunningCloud, FakeGlance)> {
    let mut all = Vec::new();
    for mut cloud in Cloud::all(hosts(&[("a", &[])])).await {
        let glance = cloud.start_glance().await;
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        glance.take_arrived();
        all.push((cloud, running, glance));
    }
    all
}

async fn try_boot(running: &RunningCloud, cloud: &Cloud, image: ImageId) -> Answer {
    let mut request = running.boot_request(cloud, "one", "plain");
    request["server"]["imageRef"] = json!(image);
    running.call(ANN, "2.90", "POST /servers", Some(request)).await
}

fn add(glance: &FakeGlance, more: Value, bytes: &[u8]) -> ImageId {
    let id = ImageId::new_v4();
    glance.add(&id.to_string(), "red", more, bytes);
    id
}

async fn create_image(running: &RunningCloud, id: &str, action: Value) -> String {
    let answer = running.try_act(id, action).await.expect(202);
    running.wait_for_status(id, "ACTIVE").await;
    answer["image_id"].as_str().expect("the answer has an id").to_owned()
}

#[tokio::test]
async fn a_boot_checks_the_image_with_the_users_token() {
    for (cloud, running, glance) in clouds().await {
        let missing = ImageId::new_v4();
        let queued = add(&glance, json!({}), b"");
        glance.set(&queued.to_string(), "status", json!("queued"));
        let large = add(&glance, json!({"min_ram": 1 << 20}), b"");
        let high = add(&glance, json!({"min_disk": 100}), b"");
        let hidden = ImageId::new_v4();
        glance.add(&hidden.to_string(), "blue", json!({}), b"");
        let orphan = add(&glance, json!({"kernel_id": missing.to_string()}), b"");
        for (image, words) in [
            (missing, format!("Image {missing} could not be found.")),
            (hidden, format!("Image {hidden} could not be found.")),
            (queued, format!("Image {queued} is not active.")),
            (large, "Flavor's memory is too small for requested image".into()),
            (high, "Flavor's disk is smaller than the minimum size".into()),
            (orphan, format!("Image {missing} could not be found.")),
        ] {
            try_boot(&running, &cloud, image).await.refused(400, &words);
        }
        let arrived = glance.take_arrived();
        assert!(arrived.iter().all(|one| one.token == ANN && one.service.is_none()), "{arrived:?}");

        let kernel = add(&glance, json!({"disk_format": "aki", "container_format": "aki"}), b"k");
        let more = json!({"kernel_id": kernel.to_string(), "hw_disk_bus": "scsi"});
        let image = add(&glance, more, b"bytes");
        let id = try_boot(&running, &cloud, image).await.expect(202);
        let id = id["server"]["id"].as_str().expect("the answer has an id").to_owned();
        running.wait_for_status(&id, "ACTIVE").await;
        let shown = running.server(&id).await;
        assert_eq!(shown["image"]["id"], json!(image));

        let path = format!("POST /servers/{id}/action");
        for (action, words) in [
            (
                json!({"rebuild": {"imageRef": hidden}}),
                format!("Image {hidden} could not be found."),
            ),
            (json!({"rescue": {"rescue_image_ref": queued}}), "is not supported".into()),
            (json!({"rescue": {"rescue_image_ref": missing}}), "is not supported".into()),
        ] {
            running.call(ANN, "2.90", &path, Some(action)).await.refused(400, &words);
        }
        let rescue = json!({"rescue": {"rescue_image_ref": image}});
        running.try_act(&id, rescue).await.expect(200);
        running.wait_for_status(&id, "RESCUE").await;
        running.act(&id, json!({"unrescue": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.act(&id, json!({"rebuild": {"imageRef": cloud.image}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.teardown(&running, "checked").await;
    }
}

#[tokio::test]
async fn a_glance_that_does_not_answer_is_unavailable() {
    for (cloud, running, glance) in clouds().await {
        let id = running.active_server(&cloud, "one", "plain").await;
        for _ in 0..12 {
            glance.fail("GET show", Failure::Status(503));
        }
        let words = "The image service is temporarily unavailable";
        let refused = try_boot(&running, &cloud, cloud.image).await;
        assert_eq!(refused.headers["retry-after"], "1");
        refused.refused(503, words);
        let rebuild = json!({"rebuild": {"imageRef": cloud.image}});
        running.try_act(&id, rebuild).await.refused(503, words);
        running.try_act(&id, json!({"createImage": {"name": "x"}})).await.refused(503, words);
        assert_eq!(running.server(&id).await["OS-EXT-STS:task_state"], Value::Null);
        glance.recover();
        cloud.sweep_glance(&running).await;
        assert_eq!(glance.images().len(), 1, "only the first image exists");
        cloud.teardown(&running, "unavailable").await;
    }
}

/// Reads an image as host `a` does: chunk by chunk, with a retry whenever the image is unavailable.
async fn read(running: &RunningCloud, image: ImageId) -> Result<Vec<u8>, String> {
    let host = HostName::verbatim("a");
    let epoch = running.compute.fleet.by_name(&host).expect("the host is known").epoch();
    let link = Link(running.compute.clone());
    let mut bytes = Vec::new();
    loop {
        match link.image(&host, epoch, image, bytes.len() as u64).await {
            Ok(chunk) => {
                bytes.extend_from_slice(&chunk.bytes);
                if bytes.len() as u64 >= chunk.size {
                    return Ok(bytes);
                }
                assert!(!chunk.bytes.is_empty(), "a chunk before the end has bytes");
            }
            Err(Refusal::Unavailable(_)) => {}
            Err(refusal) => return Err(refusal.to_string()),
        }
    }
}

#[tokio::test]
async fn a_host_reads_the_bytes_through_the_controller() {
    for (cloud, running, glance) in clouds().await {
        // More than two chunks.
        let bytes: Vec<u8> = (0..9_500_000_u32).map(|number| (number / 7) as u8).collect();
        let image = add(&glance, json!({}), &bytes);
        let made = try_boot(&running, &cloud, image).await.expect(202);
        let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
        running.wait_for_status(&id, "ACTIVE").await;
        glance.take_arrived();

        glance.expire(ANN);
        assert!(read(&running, image).await.expect("it is read") == bytes);
        let arrived = glance.take_arrived();
        let kinds: Vec<&str> = arrived.iter().map(|one| one.kind.as_str()).collect();
        assert_eq!(kinds, ["GET show", "GET file"], "one answer serves all chunks");
        for one in &arrived {
            let tokens = (one.token.as_str(), one.service.as_deref());
            assert_eq!(tokens, (ANN, Some("own-1")), "the service token vouches for the user's");
        }

        glance.fail("GET file", Failure::Short(5_000_000));
        assert!(read(&running, image).await.expect("it continues") == bytes);
        let ranges: Vec<_> =
            glance.take_arrived().into_iter().filter_map(|one| one.range).collect();
        assert_eq!(ranges, ["bytes=5000000-"]);

        for _ in 0..20 {
            glance.fail("GET file", Failure::Status(503));
        }
        let refused = read(&running, image).await.expect_err("Glance never answers");
        assert!(refused.contains("Connection to glance host"), "{refused}");
        glance.recover();

        let other = add(&glance, json!({}), b"of nobody's server");
        let refused = read(&running, other).await.expect_err("no document names it");
        assert!(refused.contains("nothing on host a needs image"), "{refused}");
        cloud.teardown(&running, "read").await;
    }
}

#[tokio::test]
async fn other_controllers_use_the_service_login_and_verify_the_hash() {
    for (cloud, running, glance) in clouds().await {
        let bytes: Vec<u8> = (0..5_000_000_u32).map(|number| number as u8).collect();
        let mut images = Vec::new();
        for algorithm in ["sha256", "md5"] {
            glance.hash_by(algorithm);
            images.push(add(&glance, json!({}), &bytes));
        }
        for image in &images {
            let made = try_boot(&running, &cloud, *image).await.expect(202);
            let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
            running.wait_for_status(&id, "ACTIVE").await;
        }
        running.kill().await;
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        glance.take_arrived();
        for image in images {
            assert!(read(&running, image).await.expect("it is read") == bytes);
            let arrived = glance.take_arrived();
            assert!(arrived.iter().all(|one| one.token.starts_with("own-")), "{arrived:?}");
            glance.fail("GET file", Failure::Wrong);
            let refused = read(&running, image).await.expect_err("the hash differs");
            assert!(refused.contains("hash differs"), "{refused}");
            glance.take_arrived();
        }
        cloud.teardown(&running, "verified").await;
    }
}

#[tokio::test]
async fn a_snapshot_is_made_as_upstream_makes_it() {
    for (cloud, running, glance) in clouds().await {
        let more = json!({"hw_disk_bus": "scsi", "img_signature": "x", "cache_in_nova": "y", "min_ram": 64});
        let image = add(&glance, more, b"bytes");
        let made = try_boot(&running, &cloud, image).await.expect(202);
        let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
        running.wait_for_status(&id, "ACTIVE").await;
        glance.take_arrived();
        let action = json!({"createImage": {"name": "picture", "metadata": {"for": "tests"}}});
        let taken = create_image(&running, &id, action).await;
        let shown = glance.images()[&taken].clone();
        for (key, value) in [
            ("name", json!("picture")),
            ("status", json!("active")),
            ("visibility", json!("private")),
            ("owner", json!("red")),
            ("disk_format", json!("raw")),
            ("container_format", json!("bare")),
            ("min_ram", json!(64)),
            ("min_disk", json!(1)),
            ("image_type", json!("snapshot")),
            ("instance_uuid", json!(id)),
            ("base_image_ref", json!(image)),
            ("user_id", json!("ann")),
            ("owner_id", json!("red")),
            ("boot_roles", json!("member,reader")),
            ("owner_user_name", json!("ann")),
            ("image_location", json!("snapshot")),
            ("image_state", json!("available")),
            ("hw_disk_bus", json!("scsi")),
            ("for", json!("tests")),
        ] {
            assert_eq!(shown.shown.get(key), Some(&value), "{key}");
        }
        for key in ["img_signature", "cache_in_nova"] {
            assert!(!shown.shown.contains_key(key), "{key} is not inherited");
        }
        let text = String::from_utf8_lossy(&shown.bytes);
        assert!(text.contains(&format!("server={id}")), "{text}");
        assert!(cloud.column("SELECT id FROM glance_images").await.is_empty());
        let created: Vec<_> = glance.take_arrived();
        let post = created.iter().find(|one| one.kind == "POST images").expect("it was created");
        assert_eq!((post.token.as_str(), &post.service), (ANN, &None));
        assert!(post.request_id.as_deref().is_some_and(|id| id.starts_with("req-")), "{post:?}");

        // An admin's snapshot of another project's server is shared with that project.
        let path = format!("POST /servers/{id}/action");
        let action = json!({"createImage": {"name": "admin's"}});
        let answer = running.call(ADMIN, "2.90", &path, Some(action)).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        let shared = glance.images()[answer["image_id"].as_str().expect("an id")].clone();
        assert_eq!(shared.shown["visibility"], "shared");
        assert_eq!(
            (shared.shown["owner"].as_str(), shared.members),
            (Some("admin"), vec!["red".into()])
        );
        cloud.teardown(&running, "snapshots").await;
    }
}

#[tokio::test]
async fn a_refused_image_leaves_nothing() {
    for (cloud, running, glance) in clouds().await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let action = json!({"createImage": {"name": "x"}});
        for (failure, status) in
            [(Failure::Status(403), 403), (Failure::Status(413), 403), (Failure::Status(400), 400)]
        {
            glance.fail("POST images", failure);
            assert_eq!(running.try_act(&id, action.clone()).await.status, status);
        }
        for _ in 0..4 {
            glance.fail("POST images", Failure::LostAnswer);
        }
        // The first attempt creates the image, and the later ones find it.
        glance.fail("POST images", Failure::LostAnswer);
        let answer = running.try_act(&id, action.clone()).await;
        assert!(answer.status == 202 || answer.status == 503, "{}", answer.body);
        running.wait_for_status(&id, "ACTIVE").await;
        glance.recover();
        // If another operation has begun meanwhile, the image is deleted.
        running.act(&id, json!({"os-stop": null})).await;
        let answer = running.try_act(&id, action.clone()).await;
        assert!([202, 409].contains(&answer.status.as_u16()), "{}", answer.body);
        running.wait_all_idle().await;
        cloud.sweep_glance(&running).await;
        for (id, image) in glance.images() {
            assert_eq!(image.shown["status"], "active", "image {id} is left");
        }
        running
            .call(BOB, "2.90", &format!("POST /servers/{id}/action"), Some(action))
            .await
            .expect(404);
        cloud.teardown(&running, "refused").await;
    }
}

#[tokio::test]
async fn an_upload_is_repeated_and_then_fails_the_operation() {
    for (cloud, running, glance) in clouds().await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let action = json!({"createImage": {"name": "x"}});
        glance.fail("PUT file", Failure::Status(503));
        glance.fail("PUT file", Failure::Lost);
        let whole = create_image(&running, &id, action.clone()).await;
        assert_eq!(glance.images()[&whole].shown["status"], "active");
        glance.fail("PUT file", Failure::LostAnswer);
        let whole = create_image(&running, &id, action.clone()).await;
        assert_eq!(glance.images()[&whole].shown["status"], "active", "its answer was lost");
        for _ in 0..10 {
            glance.fail("PUT file", Failure::Status(503));
        }
        let lost = create_image(&running, &id, action.clone()).await;
        glance.recover();
        cloud.sweep_glance(&running).await;
        assert!(
            !glance.images().contains_key(&lost),
            "the image of the failed operation is deleted"
        );
        let history = running.get(ANN, "2.90", &format!("/servers/{id}/os-instance-actions")).await;
        let newest = &history.body["instanceActions"][0];
        assert_eq!(
            (newest["action"].as_str(), newest["message"].as_str()),
            (Some("createImage"), Some("Error"))
        );
        cloud.teardown(&running, "uploads").await;
    }
}

#[tokio::test]
async fn a_shelved_server_keeps_its_image_until_it_is_back() {
    for (cloud, running, glance) in clouds().await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let shelved = || {
            let all = glance.images();
            let named = all.iter().filter(|(_, image)| image.shown["name"] == "one-shelved");
            named.map(|(id, _)| id.clone()).collect::<Vec<_>>()
        };
        running.act(&id, json!({"shelve": null})).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        cloud.execute("UPDATE glance_images SET due_at = 0 WHERE due_at IS NOT NULL").await;
        kilonova_compute_app::reconcile::glance::run(running.compute.clone())
            .await
            .expect("it runs");
        assert_eq!(shelved().len(), 1, "the sweep keeps the image");
        running.act(&id, json!({"unshelve": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        glance.fail("DELETE show", Failure::Lost);
        cloud.sweep_glance(&running).await;
        assert_eq!(shelved().len(), 0);
        running.act(&id, json!({"shelve": null})).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.sweep_glance(&running).await;
        assert_eq!(shelved().len(), 0, "the image is deleted with its server");
        cloud.teardown(&running, "shelved").await;
    }
}

#[tokio::test]
async fn the_oldest_backups_are_deleted() {
    for (cloud, running, glance) in clouds().await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let backup = |kind: &str, kept: i64| json!({"createBackup": {"name": kind, "backup_type": kind, "rotation": kept}});
        let weekly = create_image(&running, &id, backup("weekly", 1)).await;
        let mut daily = Vec::new();
        for second in 0..4 {
            let made = create_image(&running, &id, backup("daily", 2)).await;
            glance.set(&made, "created_at", json!(format!("2026-11-24T03:00:0{second}Z")));
            daily.push(made);
            cloud.sweep_glance(&running).await;
        }
        let all = glance.images();
        let there: Vec<bool> = daily.iter().map(|id| all.contains_key(id)).collect();
        assert_eq!(there, [false, false, true, true]);
        assert!(all.contains_key(&weekly), "of another type");
        glance.set(&daily[3], "protected", json!(true));
        running.try_act(&id, backup("daily", 0)).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        wait_until("the operation has ended", async || running.all_idle().await).await;
        cloud.sweep_glance(&running).await;
        let all = glance.images();
        assert!(
            !all.contains_key(&daily[2]) && all.contains_key(&daily[3]),
            "a protected backup is kept"
        );
        cloud.teardown(&running, "rotated").await;
    }
}

#[tokio::test]
async fn novas_own_paths_show_the_images_of_glance() {
    for (cloud, running, glance) in clouds().await {
        let more =
            json!({"name": "mine", "min_ram": 64, "hw_disk_bus": "scsi", "instance_uuid": "u1"});
        let mine = add(&glance, more, b"bytes");
        let hidden = ImageId::new_v4();
        glance.add(&hidden.to_string(), "blue", json!({"name": "theirs"}), b"");
        let call =
            async |what: &str, body: Option<Value>| running.call(ANN, "2.1", what, body).await;
        let names = async |query: &str| {
            let listed = call(&format!("GET /images{query}"), None).await.expect(200);
            let images = listed["images"].as_array().expect("it is a list").clone();
            let mut names: Vec<String> = images
                .iter()
                .map(|image| image["name"].as_str().unwrap_or_default().to_owned())
                .collect();
            names.sort();
            names
        };
        assert_eq!(names("").await, ["cirros", "mine"]);
        assert_eq!(names("?name=mine").await, ["mine"]);
        assert_eq!(names("?status=ACTIVE&property-hw_disk_bus=scsi").await, ["mine"]);
        assert_eq!(names("?server=http://cloud/v2.1/servers/u1").await, ["mine"]);
        assert_eq!(names("?type=snapshot").await, [""; 0]);
        let page = call("GET /images/detail?limit=1", None).await.expect(200);
        let next = page["images_links"][0]["href"].as_str().expect("there are more").to_owned();
        let (_, next) = next.split_once("/v2.1").expect("the link is one of this API");
        let rest = call(&format!("GET {next}"), None).await.expect(200);
        assert_ne!(page["images"][0]["id"], rest["images"][0]["id"]);
        assert_eq!(rest["images"].as_array().map(Vec::len), Some(1));
        let shown = call(&format!("GET /images/{mine}"), None).await.expect(200)["image"].clone();
        assert_eq!((&shown["status"], &shown["minRam"]), (&json!("ACTIVE"), &json!(64)));
        assert_eq!(shown["OS-EXT-IMG-SIZE:size"], 5);
        assert_eq!(shown["metadata"]["hw_disk_bus"], "scsi");
        let alternate = shown["links"][2]["href"].as_str().expect("the link is text");
        assert_eq!(alternate, format!("{}/images/{mine}", glance.url()));
        call(&format!("GET /images/{hidden}"), None).await.refused(404, "Image not found.");
        call(&format!("GET /images/{}", ImageId::new_v4()), None).await.expect(404);

        let metadata = format!("/images/{mine}/metadata");
        let body = json!({"metadata": {"a": "1", "b:c": "2"}});
        let changed = call(&format!("POST {metadata}"), Some(body)).await.expect(200);
        assert_eq!(changed["metadata"]["hw_disk_bus"], "scsi");
        let body = json!({"meta": {"a": "3"}});
        call(&format!("PUT {metadata}/a"), Some(body)).await.expect(200);
        assert_eq!(call(&format!("GET {metadata}/a"), None).await.expect(200)["meta"]["a"], "3");
        call(&format!("DELETE {metadata}/a"), None).await.expect(204);
        call(&format!("DELETE {metadata}/a"), None).await.expect(404);
        let body = json!({"metadata": {"only": "this"}});
        call(&format!("PUT {metadata}"), Some(body)).await.expect(200);
        let left = call(&format!("GET {metadata}"), None).await.expect(200);
        assert_eq!(left, json!({"metadata": {"only": "this"}}));
        let body = json!({"metadata": {"visibility": "public"}});
        let why = "visibility is an attribute of an image";
        call(&format!("POST {metadata}"), Some(body)).await.refused(400, why);
        assert_eq!(glance.images()[&mine.to_string()].shown["visibility"], "shared");
        let arrived = glance.take_arrived();
        assert!(
            arrived.iter().all(|one| one.kind.starts_with("GET") || one.token == ANN),
            "{arrived:?}"
        );

        let delete = |image: ImageId| format!("DELETE /images/{image}");
        let words = "You are not allowed to delete the image.";
        call(&delete(cloud.image), None).await.refused(403, words);
        call(&delete(hidden), None).await.expect(404);
        call(&delete(mine), None).await.expect(204);
        call(&delete(mine), None).await.expect(404);
        glance.fail("GET show", Failure::Status(503));
        for _ in 0..4 {
            glance.fail("GET images", Failure::Status(503));
        }
        let refused = call("GET /images", None).await;
        assert_eq!(refused.headers["retry-after"], "1");
        refused.expect(503);
        glance.recover();
        running.call(ANN, "2.36", "GET /images", None).await.expect(404);
        cloud.teardown(&running, "the proxy").await;
    }
}

/// The table of docs/cloud-services.md: the images of a server in Glance after each operation.
#[tokio::test]
async fn each_operation_leaves_in_glance_what_the_table_says() {
    for (cloud, running, glance) in clouds().await {
        let mine = |id: &str| {
            let images = glance.images();
            let of_server = images
                .values()
                .filter(|image| image.shown.get("instance_uuid") == Some(&json!(id)));
            let mut names: Vec<String> = of_server
                .map(|image| {
                    let text = |key: &str| image.shown.get(key).and_then(Value::as_str);
                    let words = ["name", "image_type", "status"].map(text);
                    words.map(Option::unwrap_or_default).join(" ")
                })
                .collect();
            names.sort();
            names
        };
        let id = running.active_server(&cloud, "one", "plain").await;
        let image = cloud.image;
        // Operations that leave no image, with their final status.
        for (action, status) in [
            (json!({"os-stop": null}), "SHUTOFF"),
            (json!({"os-start": null}), "ACTIVE"),
            (json!({"reboot": {"type": "HARD"}}), "ACTIVE"),
            (json!({"pause": null}), "PAUSED"),
            (json!({"unpause": null}), "ACTIVE"),
            (json!({"suspend": null}), "SUSPENDED"),
            (json!({"resume": null}), "ACTIVE"),
            (json!({"rebuild": {"imageRef": image}}), "ACTIVE"),
            (json!({"rescue": {"rescue_image_ref": image}}), "RESCUE"),
            (json!({"unrescue": null}), "ACTIVE"),
        ] {
            let answer = running.try_act(&id, action.clone()).await;
            assert!(answer.status.is_success(), "{action}: {}", answer.body);
            running.wait_for_status(&id, status).await;
            running.wait_all_idle().await;
            cloud.sweep_glance(&running).await;
            assert_eq!(mine(&id), [""; 0], "{action}");
        }
        create_image(&running, &id, json!({"createImage": {"name": "picture"}})).await;
        running.wait_all_idle().await;
        assert_eq!(mine(&id), ["picture snapshot active"]);
        let backup = json!({"createBackup": {"name": "b", "backup_type": "daily", "rotation": 1}});
        for _ in 0..2 {
            create_image(&running, &id, backup.clone()).await;
            running.wait_all_idle().await;
            cloud.sweep_glance(&running).await;
            assert_eq!(mine(&id), ["b backup active", "picture snapshot active"]);
        }
        running.act(&id, json!({"shelve": null})).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        let shelved = ["b backup active", "one-shelved snapshot active", "picture snapshot active"];
        assert_eq!(mine(&id), shelved);
        running.act(&id, json!({"unshelve": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.wait_all_idle().await;
        cloud.sweep_glance(&running).await;
        assert_eq!(mine(&id), ["b backup active", "picture snapshot active"]);
        running.act(&id, json!({"shelve": null})).await;
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        assert_eq!(mine(&id), shelved);
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.sweep_glance(&running).await;
        assert_eq!(
            mine(&id),
            ["b backup active", "picture snapshot active"],
            "the user's images remain"
        );
        cloud.teardown(&running, "the table").await;
    }
}

/// The controller that has the user's token may not be the one that receives the bytes.
#[tokio::test]
async fn a_snapshot_may_be_requested_and_filled_at_different_controllers() {
    let Some((both, glance)) = Controllers::with_glance(hosts(&[("a", &[])])).await else {
        return;
    };
    let clients = [&*both.running, &both.other.client];
    let request = both.running.boot_request(&both.cloud, "one", "plain");
    let made = clients[1].call(ANN, "2.90", "POST /servers", Some(request)).await.expect(202);
    let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
    both.running.wait_for_status(&id, "ACTIVE").await;
    let path = format!("POST /servers/{id}/action");
    let mut made = Vec::new();
    for number in 0..4 {
        let client = clients[number % 2];
        let action = json!({"createImage": {"name": format!("picture {number}")}});
        // A controller may not know yet that the last operation has ended.
        let mut answer = client.call(ANN, "2.90", &path, Some(action.clone())).await;
        for _ in 0..100 {
            if answer.status != 409 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(30)).await;
            answer = client.call(ANN, "2.90", &path, Some(action.clone())).await;
        }
        let answer = answer.expect(202);
        both.running.wait_for_status(&id, "ACTIVE").await;
        both.running.wait_all_idle().await;
        made.push(answer["image_id"].as_str().expect("the answer has an id").to_owned());
    }
    let images = glance.images();
    for image in &made {
        assert_eq!(images[image].shown["status"], "active", "{image}");
        assert_eq!(images[image].shown["owner"], "red");
    }
    for client in clients {
        let listed = client.call(ANN, "2.1", "GET /images?type=snapshot", None).await.expect(200);
        assert_eq!(listed["images"].as_array().map(Vec::len), Some(4));
    }
    clients[0].call(ANN, "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
    both.running.wait_until_gone(&id).await;
    both.cloud.sweep_glance(&both.running).await;
    assert_eq!(glance.images().len(), 5, "the user's snapshots remain");
}

/// The image is looked up for its size, which a flavor without a disk did not limit.
#[tokio::test]
async fn a_resize_from_a_flavor_without_a_disk_checks_the_images_memory() {
    for (cloud, running, glance) in clouds().await {
        running.flavor("none", json!({"ram": 128, "disk": 0})).await;
        let image = add(&glance, json!({"visibility": "public", "min_ram": 128}), b"bytes");
        let mut request = running.boot_request(&cloud, "one", "none");
        request["server"]["imageRef"] = json!(image);
        let made = running.admin("2.90", "POST /servers", request).await.expect(202);
        let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
        running.wait_for_status(&id, "ACTIVE").await;
        let resize = json!({"resize": {"flavorRef": "plain"}});
        let refused = running.admin("2.90", &format!("POST /servers/{id}/action"), resize).await;
        refused.refused(400, "Flavor's memory is too small for requested image");
        cloud.teardown(&running, "memory").await;
    }
}
