//! Checks that the compute service accepts what the image service's metadata definitions offer.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use kilonova_compute_app::boot::machine;
use kilonova_compute_app::{extra_specs, unsupported};
use kilonova_compute_db::servers::FlavorOf;
use kilonova_ids::ImageId;
use kilonova_image::{ImageOptions, Images};
use kilonova_wire::noauth::NoAuth;
use serde_json::Value;
use tower::ServiceExt as _;

/// A value of each property that is a text.
const TEXTS: &[(&str, &str)] = &[
    ("accel:device_profile", "gpu"),
    ("filter_tenant_id", "red"),
    ("hw:cpu_dedicated_mask", "^0"),
    ("hw:cpu_realtime_mask", "^0"),
    ("hw:mem_page_size", "2MB"),
    ("hw_machine_type", "q35"),
    ("hw_mem_page_size", "large"),
    ("img_hv_requested_version", ">=7002000"),
    ("kernel_id", "0c4fc2a8-5a3a-4a4b-8c9b-1d2c0a8f5a01"),
    ("os_admin_user", "root"),
    ("os_command_line", "quiet"),
    ("os_distro", "debian"),
    ("os_version", "12"),
    ("pci_passthrough:alias", "nic:2,ssd:1"),
    ("ramdisk_id", "0c4fc2a8-5a3a-4a4b-8c9b-1d2c0a8f5a02"),
];

fn values(key: &str, property: &Value) -> Vec<String> {
    if let Some(values) = property["enum"].as_array() {
        return values.iter().map(|one| one.as_str().expect("a text").to_owned()).collect();
    }
    if property["type"] == "integer" {
        return vec![property["minimum"].to_string()];
    }
    let known = TEXTS.iter().find(|(name, _)| *name == key);
    vec![known.unwrap_or_else(|| panic!("no example of {key}")).1.to_owned()]
}

async fn get(router: &Router, path: &str) -> Value {
    let request = Request::get(format!("/image{path}")).header("x-auth-token", "ann:red");
    let request = request.body(Body::empty()).expect("the request is valid");
    let answer = router.clone().oneshot(request).await.expect("the router answers");
    assert_eq!(answer.status(), 200, "{path}");
    let body = answer.into_body().collect().await.expect("the body arrives").to_bytes();
    serde_json::from_slice(&body).expect("the body is JSON")
}

fn flavor() -> FlavorOf {
    let extra_specs = BTreeMap::from([
        ("hw_video:ram_max_mb".to_owned(), "64".to_owned()),
        ("hw:mem_page_size".to_owned(), "any".to_owned()),
    ]);
    FlavorOf {
        id: "f".into(),
        number: None,
        name: "f".into(),
        vcpus: 4,
        ram: 4096,
        disk: 1,
        ephemeral: 0,
        swap: 0,
        extra_specs,
    }
}

/// No database has the definitions, so that one is enough.
#[tokio::test]
async fn compute_accepts_the_values_of_the_metadata_definitions() {
    let stores = kilonova_testkit::stores(&[kilonova_image::MIGRATIONS]).await;
    let (_, store, _guard) = stores.into_iter().next().expect("SQLite is available");
    let folder = tempfile::tempdir().expect("a folder is created");
    let images = Images::open_with(store, folder.path(), ImageOptions::default()).await;
    let routes = kilonova_image::routes(images.expect("the service opens"));
    let mounted =
        kilonova_wire::mount(routes, kilonova_image::service(), "/image", Arc::new(NoAuth));
    let router = Router::new().nest("/image", mounted);
    let (image, mut specs, mut properties) = (ImageId::new_v4(), 0, 0);
    for kind in ["OS::Nova::Flavor", "OS::Glance::Image"] {
        let all = "/v2/metadefs/namespaces";
        let list = get(&router, &format!("{all}?limit=1000&resource_types={kind}")).await;
        for one in list["namespaces"].as_array().expect("the answer is a list") {
            let name = one["namespace"].as_str().expect("a namespace has a name");
            let one = get(&router, &format!("{all}/{name}?resource_type={kind}")).await;
            for (key, property) in one["properties"].as_object().expect("it has properties") {
                for value in values(key, property) {
                    if kind == "OS::Nova::Flavor" {
                        extra_specs::check(key, &value).expect("the extra spec is valid");
                        unsupported::extra_spec(key, &value).expect("it is supported");
                        specs += 1;
                    } else {
                        let only = BTreeMap::from([(key.clone(), value)]);
                        machine::check(&only, &flavor()).expect("the property is valid");
                        unsupported::image(image, &only).expect("it is supported");
                        properties += 1;
                    }
                }
            }
        }
    }
    assert!(specs > 40 && properties > 60, "{specs} extra specs, {properties} properties");
}
