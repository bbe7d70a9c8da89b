//! Bodies that are not JSON, have the wrong shape, or have unknown fields.

use serde_json::{Value, json};

use crate::kit::Cloud;
use crate::kit::cloud::{id, server};

const POSTS: [&str; 12] = [
    "/identity/v3/auth/tokens",
    "/identity/v3/users",
    "/identity/v3/projects",
    "/identity/v3/roles",
    "/image/v2/images",
    "/compute/v2.1/servers",
    "/compute/v2.1/flavors",
    "/compute/v2.1/os-keypairs",
    "/placement/resource_providers",
    "/placement/allocations",
    "/accelerator/v2/device_profiles",
    "/accelerator/v2/accelerator_requests",
];

#[test]
fn bodies_that_are_not_json_are_refused() {
    for cloud in Cloud::all() {
        let deep = "[".repeat(5000);
        for path in POSTS {
            for body in ["", "{", "nonsense", "{\"a\": 1,}", "\"\\ud800\"", &deep, "NaN"] {
                let answer = cloud.admin.send("POST", path, "application/json", body.as_bytes());
                assert_eq!(answer.status, 400, "{path} {body:.20}: {}", answer.text());
            }
            let answer =
                cloud.admin.send("POST", path, "application/json", b"{\"a\": \"\xff\xfe\"}");
            answer.refused(400);
        }
    }
}

#[test]
fn bodies_of_another_shape_are_refused() {
    for cloud in Cloud::all() {
        for path in POSTS {
            for body in [json!(null), json!([]), json!("x"), json!(1), json!({}), json!([[]])] {
                // An image without any attribute is valid.
                let expected =
                    if path.ends_with("images") && body == json!({}) { 201 } else { 400 };
                let answer = cloud.admin.post(path, &body);
                assert_eq!(answer.status, expected, "{path} {body}: {}", answer.text());
            }
        }
    }
}

#[test]
fn a_nul_is_refused_in_every_stored_text() {
    for cloud in Cloud::all() {
        let flavor = json!({"flavor": {"name": "a\0b", "ram": 1, "vcpus": 1, "disk": 1}});
        cloud.admin.post("/compute/v2.1/flavors", &flavor).refused_saying(400, &["NUL"]);
        let provider = json!({"name": "a\0b"});
        let refused = cloud.admin.post("/placement/resource_providers", &provider);
        refused.refused_saying(400, &["NUL"]);
        for path in [
            "/compute/v2.1/flavors/%00",
            "/compute/v2.1/os-keypairs/a%00b",
            "/placement/resource_providers?name=%00",
            "/identity/v3/users?name=%00",
            "/image/v2/images?name=%00",
            "/compute/v2.1/servers?name=%00",
        ] {
            cloud.admin.get(path).refused_saying(400, &["NUL"]);
        }
    }
}

#[test]
fn wrong_types_and_unknown_fields_name_the_field() {
    for cloud in Cloud::all() {
        let (flavor, image) = (cloud.flavor("small"), cloud.image("raw"));
        let good = server("s", &flavor, &image);
        let flavored = json!({"flavor": {"name": "f", "ram": 1, "vcpus": 1, "disk": 1}});
        let cases: [(&str, &Value, &str, Value, &str); 22] = [
            ("/compute/v2.1/servers", &good, "/server/name", json!(7), "name"),
            ("/compute/v2.1/servers", &good, "/server/flavorRef", json!([1]), "flavorRef"),
            ("/compute/v2.1/servers", &good, "/server/imageRef", json!(5), "imageRef"),
            ("/compute/v2.1/servers", &good, "/server/networks", json!("sometimes"), "networks"),
            ("/compute/v2.1/servers", &good, "/server/min_count", json!("many"), "min_count"),
            ("/compute/v2.1/servers", &good, "/server/max_count", json!(0), "max_count"),
            ("/compute/v2.1/servers", &good, "/server/metadata", json!({"k": 1}), "metadata"),
            ("/compute/v2.1/servers", &good, "/server/tags", json!("t"), "tags"),
            ("/compute/v2.1/servers", &good, "/server/user_data", json!("a"), "user_data"),
            ("/compute/v2.1/servers", &good, "/server/config_drive", json!("soon"), "config_drive"),
            ("/compute/v2.1/servers", &good, "/server/colour", json!("red"), "colour"),
            ("/compute/v2.1/servers", &good, "/colour", json!("red"), "colour"),
            ("/compute/v2.1/flavors", &flavored, "/flavor/ram", json!("lots"), "ram"),
            ("/compute/v2.1/flavors", &flavored, "/flavor/ram", json!(-1), "ram"),
            ("/compute/v2.1/flavors", &flavored, "/flavor/ram", json!(1_u64 << 63), "ram"),
            ("/compute/v2.1/flavors", &flavored, "/flavor/vcpus", json!(1.5), "vcpus"),
            ("/compute/v2.1/flavors", &flavored, "/flavor/colour", json!("red"), "colour"),
            ("/placement/resource_providers", &json!({"name": "p"}), "/name", json!(1), "1"),
            ("/placement/resource_providers", &json!({"name": "p"}), "/uuid", json!("x"), "'x'"),
            ("/placement/resource_providers", &json!({"name": "p"}), "/hue", json!(1), "hue"),
            ("/image/v2/images", &json!({"name": "i"}), "/min_ram", json!("lots"), "min_ram"),
            ("/image/v2/images", &json!({"name": "i"}), "/disk_format", json!("tape"), "tape"),
        ];
        for (path, good, place, wrong, named) in cases {
            let body = put(good, place, wrong);
            cloud.admin.post(path, &body).refused_saying(400, &[named]);
        }
        let users = [
            (json!({"user": {"name": 5}}), "name"),
            (json!({"user": {"name": "u", "enabled": "perhaps"}}), "enabled"),
            (json!({"user": {"name": "u", "password": 5}}), "password"),
        ];
        for (body, named) in users {
            cloud.admin.post("/identity/v3/users", &body).refused_saying(400, &[named]);
        }
        assert_eq!(cloud.admin.get("/compute/v2.1/servers").ok(200)["servers"], json!([]));
    }
}

#[test]
fn numbers_at_the_edges_are_answered() {
    for cloud in Cloud::all() {
        let made = cloud.admin.post("/placement/resource_providers", &json!({"name": "p"})).ok(200);
        let path = format!("/placement/resource_providers/{}/inventories", made["uuid"]);
        let path = path.replace('"', "");
        for total in
            [json!(0), json!(1e30), json!(i64::MAX), json!(u64::MAX), json!(2_147_483_648_u64)]
        {
            let inventories = json!({"VCPU": {"total": total}});
            let body = json!({"resource_provider_generation": 0, "inventories": inventories});
            cloud.admin.put(&path, &body).refused(400);
        }
        for (limit, status) in [("-1", 400), ("x", 400), ("99999999999999999999", 400), ("0", 200)]
        {
            let answer = cloud.admin.get(&format!("/compute/v2.1/servers?limit={limit}"));
            assert_eq!(answer.status, status, "limit={limit}: {}", answer.text());
        }
        cloud.admin.get("/compute/v2.1/servers?marker=nobody").refused_saying(400, &["nobody"]);
        let cores = |cores: Value| json!({"quota_set": {"cores": cores}});
        let project = cloud.admin.get("/identity/v3/projects?name=admin").ok(200);
        let path = format!("/compute/v2.1/os-quota-sets/{}", id(&project["projects"][0]));
        for wrong in [json!(-2), json!(1_u64 << 40), json!("1e3"), json!(1.5)] {
            cloud.admin.put(&path, &cores(wrong)).refused_saying(400, &["cores"]);
        }
        cloud.admin.put(&path, &cores(json!(-1))).ok(200);
    }
}

/// The body with the value set at a JSON pointer.
fn put(body: &Value, place: &str, value: Value) -> Value {
    let mut body = body.clone();
    let (parent, key) = place.rsplit_once('/').expect("the JSON pointer has a parent");
    body.pointer_mut(parent).expect("the parent exists")[key] = value;
    body
}
