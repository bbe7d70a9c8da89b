//! Snapshots and backups: their bytes, their properties and their rotation.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kilonova_compute_nodes::{Link, api as nodes};
use kilonova_ids::{HostName, ImageId};
use kilonova_node_api::{ControlPlane as _, Refusal};
use kilonova_store::testing::Meter;
use kilonova_wire::noauth::NoAuth;
use serde_json::{Value, json};

use crate::kit::{ANN, Answer, Client, Cloud, GPU, RunningCloud, hosts};

async fn create_image(running: &RunningCloud, id: &str, action: Value) -> ImageId {
    let image = running.try_act(id, action).await.expect(202)["image_id"].take();
    running.wait_for_status(id, "ACTIVE").await;
    image.as_str().expect("the answer has an id").parse().expect("the value is a UUID")
}

async fn image(cloud: &Cloud, id: ImageId) -> Option<kilonova_image::ImageRecord> {
    cloud.store.read(move |tx| kilonova_image::find(tx, id)).await.expect("the query succeeds")
}

#[tokio::test]
async fn an_image_has_the_bytes_of_the_disk() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        let action = json!({"createImage": {"name": "picture", "metadata": {"for": "tests"}}});
        let taken = create_image(&running, &id, action).await;
        let found = image(&cloud, taken).await.expect("the image exists");
        assert_eq!(found.status.as_str(), "active");
        assert_eq!(found.name.as_deref(), Some("picture"));
        assert_eq!(found.disk_format.as_deref(), Some("raw"), "simulated hosts have raw disks");
        let says = |key: &str| found.properties.get(key).map(String::as_str);
        assert_eq!(says("image_type"), Some("snapshot"));
        assert_eq!(says("instance_uuid"), Some(id.as_str()));
        assert_eq!(says("base_image_ref"), Some(cloud.image.to_string().as_str()));
        assert_eq!(says("for"), Some("tests"));
        let images = running.compute.images.own().expect("the image service is configured");
        let read = images.read(taken, 0, 1 << 20).await.expect("the image has bytes");
        let bytes = String::from_utf8(read.bytes).expect("the value is a string");
        assert!(bytes.contains(&format!("server={id}\nimage={}", cloud.image)), "{bytes}");

        let other = running.boot_with(&cloud, "two", "vgpu", json!({"imageRef": taken})).await;
        running.wait_for_status(&other, "ACTIVE").await;
        cloud.teardown(&running, "images").await;
    }
}

#[tokio::test]
async fn before_2_45_the_image_is_named_by_its_url() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let path = format!("POST /servers/{id}/action");
        let action = json!({"createImage": {"name": "old"}});
        let answer = running.call(ANN, "2.44", &path, Some(action)).await;
        assert_eq!(answer.status, 202);
        let place = answer
            .headers
            .get("location")
            .expect("the answer has a location")
            .to_str()
            .expect("the value is a string");
        assert!(place.contains("/image/images/"), "{place}");
        running.wait_for_status(&id, "ACTIVE").await;
        for action in [
            json!({"createImage": {}}),
            json!({"createImage": {"name": "x", "a": 1}}),
            json!({"createBackup": {"name": "x", "backup_type": "d"}}),
            json!({"createBackup": {"name": "x", "backup_type": "d", "rotation": -1}}),
        ] {
            let answer = running.try_act(&id, action.clone()).await;
            assert_eq!(answer.status, 400, "{action}: {}", answer.body);
        }
        cloud.teardown(&running, "named").await;
    }
}

#[tokio::test]
async fn rotation_deletes_the_oldest_backups() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let backup = |kind: &str, kept: i64| json!({"createBackup": {"name": kind, "backup_type": kind, "rotation": kept}});
        let weekly = create_image(&running, &id, backup("weekly", 1)).await;
        let mut daily = Vec::new();
        for _ in 0..4 {
            daily.push(create_image(&running, &id, backup("daily", 2)).await);
        }
        let mut there = Vec::new();
        for id in &daily {
            there.push(image(&cloud, *id).await.is_some());
        }
        assert_eq!(there, [false, false, true, true]);
        assert!(image(&cloud, weekly).await.is_some(), "of another type");
        let answer = running.try_act(&id, backup("daily", 0)).await.expect(202);
        assert!(answer.is_null(), "no backup is kept: {answer}");
        running.wait_for_status(&id, "ACTIVE").await;
        assert!(image(&cloud, daily[3]).await.is_none());
        cloud.teardown(&running, "rotated").await;
    }
}

#[tokio::test]
async fn deleting_a_server_deletes_its_unfinished_snapshot() {
    let slow = "times_ms = { snapshot = 3000 }";
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[slow])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        running.try_act(&id, json!({"createImage": {"name": "late"}})).await.expect(202);
        let task = running.server(&id).await["OS-EXT-STS:task_state"].clone();
        assert!(task.as_str().is_some_and(|task| task.starts_with("image_")), "{task}");
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.assert_empty(&running, "deleted with its snapshot").await;
    }
}

/// The header of a qcow2 file of 5 GiB with this offset of its backing file's name; 0 means none.
fn qcow2(backing: u64) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..4].copy_from_slice(b"QFI\xfb");
    header[4..8].copy_from_slice(&3_u32.to_be_bytes());
    header[8..16].copy_from_slice(&backing.to_be_bytes());
    header[24..32].copy_from_slice(&(5_u64 << 30).to_be_bytes());
    header
}

/// Uploads a disk as the agent of host `a` does.
async fn upload_as_agent(
    running: &RunningCloud,
    image: ImageId,
    format: &str,
    bytes: Vec<u8>,
) -> Answer {
    let routes = nodes::routes(Link(running.compute.clone()));
    let router = kilonova_wire::mount(routes, nodes::service(), "/node", Arc::new(NoAuth));
    let epoch =
        running.compute.fleet.by_name(&HostName::verbatim("a")).expect("the host is known").epoch();
    let request = Request::put(format!("/v1/hosts/a/images/{image}?epoch={epoch}{format}"))
        .header("host", "cloud:1234")
        .header("x-auth-token", "admin")
        .body(Body::from(bytes))
        .expect("the request is valid");
    (Client { router }).send(request).await
}

#[tokio::test]
async fn an_image_has_the_format_that_its_host_declares() {
    let slow = "times_ms = { snapshot = 4000 }";
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[slow])])).await {
        let mut servers = Vec::new();
        for name in ["one", "two", "three"] {
            servers.push(running.active_server(&cloud, name, "plain").await);
        }
        let backup = json!({"name": "b", "backup_type": "daily", "rotation": 1});
        running.try_act(&servers[0], json!({"createImage": {"name": "i"}})).await.expect(202);
        running.try_act(&servers[1], json!({"createBackup": backup})).await.expect(202);
        running.try_act(&servers[2], json!({"shelve": null})).await.expect(202);
        let owner = running.server(&servers[0]).await["tenant_id"]
            .as_str()
            .expect("the entry exists")
            .to_owned();
        let asked = cloud.store.read(move |tx| kilonova_image::of_owner(tx, &owner, 10)).await;
        let asked = asked.expect("the query succeeds");
        let of = |server: &String| {
            let is = |id: &String| id == server;
            let mut asked = asked.iter();
            let found = asked.find(|image| image.properties.get("instance_uuid").is_some_and(is));
            found.expect("the image exists").id
        };
        let [snapshot, backup, shelved] = [0, 1, 2].map(|at| of(&servers[at]));
        assert_eq!(
            image(&cloud, snapshot).await.expect("the image exists").disk_format,
            None,
            "not known yet"
        );

        let why = "format must be raw or qcow2";
        upload_as_agent(&running, snapshot, "&format=tape", qcow2(0)).await.refused(400, why);
        for (format, bytes, why) in [
            ("&format=qcow2", b"plain".to_vec(), "is not qcow2"),
            ("&format=qcow2", qcow2(104), "has a backing file"),
            ("&format=raw", qcow2(0), "is qcow2, not raw"),
        ] {
            upload_as_agent(&running, snapshot, format, bytes).await.refused(422, why);
            let left = image(&cloud, snapshot).await.expect("the image exists");
            assert_eq!((left.status.as_str(), left.disk_format), ("queued", None), "{why}");
        }
        for (image, format, bytes) in [
            (snapshot, "&format=qcow2", qcow2(0)),
            (backup, "", b"of an agent that says nothing".to_vec()),
            (shelved, "&format=qcow2", qcow2(0)),
        ] {
            assert_eq!(upload_as_agent(&running, image, format, bytes).await.status, 204);
        }
        for id in &servers[..2] {
            running.wait_for_status(id, "ACTIVE").await;
        }
        running.wait_for_status(&servers[2], "SHELVED_OFFLOADED").await;
        for (id, format, size) in
            [(snapshot, "qcow2", 5 << 30), (backup, "raw", 29), (shelved, "qcow2", 5 << 30)]
        {
            let found = image(&cloud, id).await.expect("the image exists");
            assert_eq!(found.status.as_str(), "active");
            let text = (found.disk_format.as_deref(), found.virtual_size);
            assert_eq!(text, (Some(format), Some(size)));
        }
        cloud.teardown(&running, "formats").await;
    }
}

/// The agent of a compromised host must not read other images.
#[tokio::test]
async fn a_host_reads_only_images_that_its_guests_need() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        let kernel = cloud.image_with("kernel", &[], b"kernel".to_vec()).await;
        let named = [("kernel_id", &*kernel.to_string())];
        let mine = cloud.image_with("mine", &named, b"mine".to_vec()).await;
        let secret = cloud.image_with("secret", &[], b"secret".to_vec()).await;
        let id = running.boot_with(&cloud, "one", "plain", json!({"imageRef": mine})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        // An id in a user's text does not give access to an image.
        let mut request = running.boot_request(&cloud, "two", "plain");
        request["server"]["metadata"] = json!({"note": secret.to_string()});
        let text = format!("#!/bin/sh\n# {secret}\n");
        request["server"]["user_data"] = json!(BASE64_STANDARD.encode(text));
        request["server"]["config_drive"] = json!(true);
        let made = running.admin("2.90", "POST /servers", request).await.expect(202);
        running.wait_for_status(made["server"]["id"].as_str().expect("an id"), "ACTIVE").await;
        let meter = Meter::counting();
        let link = Link(kilonova_compute_app::Compute {
            store: running.compute.store.with_meter(meter.clone()),
            ..running.compute.clone()
        });
        let mut readers = Vec::new();
        for host in &["a", "b"].map(HostName::verbatim) {
            let epoch = running.compute.fleet.by_name(host).expect("the host is known").epoch();
            for at in [0, 1] {
                let refused = link.image(host, epoch, secret, at).await;
                assert!(matches!(refused, Err(Refusal::Rejected(_))), "{refused:?}");
            }
            let (root, part) =
                (link.image(host, epoch, mine, 0).await, link.image(host, epoch, kernel, 0).await);
            assert_eq!(root.is_ok(), part.is_ok(), "{root:?} {part:?}");
            meter.take();
            let again = link.image(host, epoch, mine, 0).await;
            let statements = if again.is_ok() { 1 } else { 2 };
            assert_eq!(
                meter.take(),
                statements,
                "the documents, and the orders if no document names the image"
            );
            readers.extend(root.ok().map(|chunk| chunk.bytes));
        }
        assert_eq!(readers, [b"mine"], "the host of the server reads it, and the other does not");
        cloud.teardown(&running, "images").await;
    }
}

#[tokio::test]
async fn an_image_has_to_fit_into_the_flavors_disk() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let mut header = vec![0; 512];
        header[..4].copy_from_slice(b"QFI\xfb");
        header[4..8].copy_from_slice(&3_u32.to_be_bytes());
        header[24..32].copy_from_slice(&(2_u64 << 30).to_be_bytes());
        let large = cloud.image_as("large", "qcow2", &[], header).await;
        let words = "Flavor's disk is too small for requested image. Flavor disk is 1073741824 \
                     bytes, image is 2147483648 bytes.";
        let mut boot_request = running.boot_request(&cloud, "one", "plain");
        boot_request["server"]["imageRef"] = json!(large);
        let refused = running.call(ANN, "2.90", "POST /servers", Some(boot_request.clone())).await;
        refused.refused(400, words);
        let id = running.active_server(&cloud, "two", "plain").await;
        running.try_act(&id, json!({"rebuild": {"imageRef": large}})).await.refused(400, words);

        running.flavor("none", json!({"disk": 0})).await;
        boot_request["server"]["flavorRef"] = json!("none");
        let refused = running.call(ANN, "2.90", "POST /servers", Some(boot_request.clone())).await;
        refused.refused(403, "Only volume-backed servers are allowed for flavors with zero disk.");
        let made = running.admin("2.90", "POST /servers", boot_request).await.expect(202);
        let big = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
        running.wait_for_status(&big, "ACTIVE").await;
        let resize = json!({"resize": {"flavorRef": "plain"}});
        let path = format!("POST /servers/{big}/action");
        running.admin("2.90", &path, resize).await.refused(400, words);
        running.flavor("two", json!({"disk": 2})).await;
        let id = running.boot_with(&cloud, "three", "two", json!({"imageRef": large})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.teardown(&running, "images").await;
    }
}
