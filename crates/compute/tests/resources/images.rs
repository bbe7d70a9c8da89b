//! The proxy of the image service, as clients of old microversions use it.

use kilonova_ids::ImageId;
use kilonova_image::{ImageRecord, Status, Visibility};
use kilonova_wire::time;
use serde_json::json;

use crate::resources::kit::{ANN, Api, BOB, apis};

/// An image of the project `red`, modified by `with`.
async fn image(api: &Api, name: &str, with: impl FnOnce(&mut ImageRecord)) -> String {
    let mut image = ImageRecord::new(ImageId::new_v4(), "red".into(), time::now());
    image.name = Some(name.into());
    with(&mut image);
    let id = image.id.to_string();
    let kept = api.store.write(move |tx| kilonova_image::reserve(tx, &image)).await;
    kept.expect("the image is stored");
    id
}

fn names(body: &serde_json::Value) -> Vec<&str> {
    let images = body["images"].as_array().expect("the answer has a list");
    images.iter().map(|image| image["name"].as_str().expect("the value has a name")).collect()
}

#[tokio::test]
async fn images_are_listed_like_nova() {
    for api in apis().await {
        let old = image(&api, "old", |image| image.visibility = Visibility::Public).await;
        let snapshot = image(&api, "snapshot", |image| {
            image.status = Status::Active;
            (image.min_ram, image.min_disk) = (64, 2);
            image.properties = [
                ("instance_uuid", "7f0c8c4b-5a3e-4b77-9a3e-5b5c1d2e3f40"),
                ("image_type", "snapshot"),
                ("auto_disk_config", "True"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        })
        .await;
        let list = api.get(ANN, "2.1", "/images").await.expect(200);
        assert_eq!(names(&list), ["snapshot", "old"]);
        let brief = &list["images"][1];
        let links: Vec<&str> = brief["links"]
            .as_array()
            .expect("the image has links")
            .iter()
            .map(|link| link["href"].as_str().expect("the value has an address"))
            .collect();
        assert_eq!(
            links,
            [
                format!("http://cloud:1234/compute/v2.1/images/{old}"),
                format!("http://cloud:1234/compute/images/{old}"),
                format!("http://cloud:1234/image/images/{old}"),
            ]
        );
        assert_eq!(brief["status"], json!(null), "the brief form has no status");
        let list = api.get(ANN, "2.35", "/images/detail?limit=1").await.expect(200);
        let shown = &list["images"][0];
        assert_eq!(shown["id"], snapshot.as_str());
        for (key, value) in [
            ("status", json!("ACTIVE")),
            ("progress", json!(100)),
            ("minRam", json!(64)),
            ("minDisk", json!(2)),
            ("OS-EXT-IMG-SIZE:size", json!(0)),
            ("OS-DCF:diskConfig", json!("AUTO")),
        ] {
            assert_eq!(shown[key], value, "{key}");
        }
        assert_eq!(shown["metadata"]["image_type"], "snapshot");
        assert_eq!(shown["server"]["id"], "7f0c8c4b-5a3e-4b77-9a3e-5b5c1d2e3f40");
        let next = list["images_links"][0]["href"].as_str().expect("the answer has a next page");
        let next = next
            .strip_prefix("http://cloud:1234/compute/v2.1")
            .expect("the link belongs to this service");
        let list = api.get(ANN, "2.35", next).await.expect(200);
        assert_eq!((names(&list), &list["images"][0]["status"]), (vec!["old"], &json!("SAVING")));
        assert_eq!(list["images_links"], json!(null), "the last page has no next link");
        for (query, found) in [
            ("name=old", vec!["old"]),
            ("status=ACTIVE", vec!["snapshot"]),
            ("type=snapshot", vec!["snapshot"]),
            ("server=http://x/servers/7f0c8c4b-5a3e-4b77-9a3e-5b5c1d2e3f40", vec!["snapshot"]),
            ("property-image_type=other", vec![]),
            ("minRam=64&minDisk=2", vec!["snapshot"]),
            ("minRam=65", vec![]),
            ("changes-since=2999-01-01T00:00:00Z", vec![]),
            ("nonsense=1", vec!["snapshot", "old"]),
        ] {
            let list = api.get(ANN, "2.1", &format!("/images?{query}")).await.expect(200);
            assert_eq!(names(&list), found, "{query}");
        }
        for wrong in ["limit=-1", "marker=x", "minRam=many", "changes-since=soon"] {
            api.get(ANN, "2.1", &format!("/images?{wrong}")).await.expect(400);
        }
        let others = api.get(BOB, "2.1", "/images").await.expect(200);
        assert_eq!(names(&others), ["old"], "the other project sees only public images");
    }
}

#[tokio::test]
async fn an_image_is_shown_and_deleted_by_its_project() {
    for api in apis().await {
        let public = image(&api, "public", |image| image.visibility = Visibility::Public).await;
        let private = image(&api, "private", |image| image.visibility = Visibility::Private).await;
        let path = format!("/images/{private}");
        let shown = api.get(ANN, "2.1", &path).await.expect(200);
        assert_eq!(shown["image"]["name"], "private");
        api.get(BOB, "2.1", &path).await.refused(404, "Image not found.");
        api.get(ANN, "2.1", "/images/nonsense").await.refused(404, "Image not found.");
        for id in [&private, &public] {
            let refused = if *id == public { 403 } else { 404 };
            let delete = format!("DELETE /images/{id}");
            api.call(BOB, "2.1", &delete, None).await.refused(refused, "mage");
            api.call(ANN, "2.1", &delete, None).await.expect(204);
            api.call(ANN, "2.1", &delete, None).await.refused(404, "Image not found.");
        }
        let kept = image(&api, "kept", |image| image.protected = true).await;
        let delete = format!("DELETE /images/{kept}");
        let refused = api.call(ANN, "2.1", &delete, None).await;
        refused.refused(403, "You are not allowed to delete the image.");
    }
}

#[tokio::test]
async fn the_proxies_end_with_their_microversions() {
    for api in apis().await {
        let id = image(&api, "i", |_| {}).await;
        for path in ["/images".to_owned(), "/images/detail".into(), format!("/images/{id}")] {
            api.get(ANN, "2.35", &path).await.expect(200);
            api.get(ANN, "2.36", &path).await.expect(404);
        }
        let path = format!("/images/{id}/metadata");
        api.get(ANN, "2.38", &path).await.expect(200);
        api.get(ANN, "2.39", &path).await.expect(404);
        let delete = format!("DELETE /images/{id}");
        api.call(ANN, "2.36", &delete, None).await.expect(404);
        let listed = api.get(ANN, "2.1", "/images").await.expect(200);
        assert_eq!(names(&listed), ["i"], "nothing was deleted");
    }
}

#[tokio::test]
async fn the_metadata_of_an_image_are_its_properties() {
    for api in apis().await {
        let id = image(&api, "i", |_| {}).await;
        let path = format!("/images/{id}/metadata");
        let set = |what: &'static str, below: &str, body| {
            let what = format!("{what} {path}{below}");
            let api = &api;
            async move { api.call(ANN, "2.1", &what, Some(body)).await }
        };
        let body = json!({"metadata": {"a": "1", "b": "2"}});
        assert_eq!(set("POST", "", body.clone()).await.expect(200), body);
        let body = json!({"metadata": {"c": "3"}});
        let all = json!({"metadata": {"a": "1", "b": "2", "c": "3"}});
        assert_eq!(set("POST", "", body).await.expect(200), all);
        let body = json!({"metadata": {"d": "4"}});
        assert_eq!(set("PUT", "", body.clone()).await.expect(200), body);
        let one = json!({"meta": {"e": "5"}});
        assert_eq!(set("PUT", "/e", one.clone()).await.expect(200), one);
        assert_eq!(api.get(ANN, "2.1", &format!("{path}/e")).await.expect(200), one);
        set("PUT", "/f", one).await.refused(400, "Request body and URI mismatch");
        api.get(ANN, "2.1", &format!("{path}/f")).await.expect(404);
        api.call(ANN, "2.1", &format!("DELETE {path}/e"), None).await.expect(204);
        let refused = api.call(ANN, "2.1", &format!("DELETE {path}/e"), None).await;
        refused.refused(404, "Invalid metadata key");
        let left = api.get(ANN, "2.1", &path).await.expect(200);
        assert_eq!(left, json!({"metadata": {"d": "4"}}));
        for reserved in ["owner", "status", "os_glance_import_task"] {
            let body = json!({"metadata": {reserved: "x"}});
            set("POST", "", body).await.refused(403, "Attribute");
        }
        let many: serde_json::Map<_, _> = (0..129).map(|n| (format!("k{n}"), json!("v"))).collect();
        set("PUT", "", json!({"metadata": many})).await.refused(403, "128");
        let body = json!({"metadata": {"a": "1"}});
        api.call(BOB, "2.1", &format!("POST {path}"), Some(body)).await.expect(404);
    }
}
