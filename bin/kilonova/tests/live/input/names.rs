//! Names with unprintable characters.

use serde_json::{Value, json};

use crate::kit::Cloud;
use crate::kit::cloud::{id, server};

#[test]
fn names_with_control_characters_are_refused_and_shown_readably() {
    for cloud in Cloud::all() {
        let (flavor, image) = (cloud.flavor("small"), cloud.image("raw"));
        for name in
            ["bell\u{7}", "line\nfeed", "tab\tbed", "escape\u{1b}[31m", "del\u{7f}", "c1\u{9b}31m"]
        {
            let asks: [(&str, Value); 9] = [
                ("/compute/v2.1/servers", server(name, &flavor, &image)),
                (
                    "/compute/v2.1/flavors",
                    json!({"flavor": {"name": name, "ram": 1, "vcpus": 1, "disk": 1}}),
                ),
                (
                    "/compute/v2.1/os-keypairs",
                    json!({"keypair": {"name": name, "public_key": "ssh-ed25519 AAAA"}}),
                ),
                ("/image/v2/images", json!({"name": name})),
                ("/identity/v3/users", json!({"user": {"name": name}})),
                ("/identity/v3/projects", json!({"project": {"name": name}})),
                ("/identity/v3/roles", json!({"role": {"name": name}})),
                (
                    "/accelerator/v2/device_profiles",
                    json!([{"name": name, "groups": [{"resources:FPGA": "1"}]}]),
                ),
                ("/placement/resource_providers", json!({"name": name})),
            ];
            for (path, body) in asks {
                let sentence = cloud.admin.post(path, &body).refused(400);
                let raw = sentence.chars().any(|c| c.is_control() && c != '\n');
                assert!(!raw, "{path}: {sentence:?}");
            }
        }
        let made = cloud.admin.post("/image/v2/images", &json!({"name": "fine"})).ok(201);
        let path = format!("/image/v2/images/{}", id(&made));
        let patch = json!([{"op": "replace", "path": "/name", "value": "a\u{1}b"}]);
        let kind = "application/openstack-images-v2.1-json-patch";
        cloud.admin.send("PATCH", &path, kind, patch.to_string().as_bytes()).refused(400);
    }
}

#[test]
fn names_in_any_script_come_back_as_they_were() {
    for cloud in Cloud::all() {
        for name in ["größe", "服务器", "🐻", "x'; DROP TABLE servers; --", "%s%n\\0", "<b>\"&"]
        {
            let flavor = json!({"flavor": {"name": name, "ram": 1, "vcpus": 1, "disk": 1}});
            let made = cloud.admin.post("/compute/v2.1/flavors", &flavor).ok(200);
            assert_eq!(made["flavor"]["name"], name);
            let shown = cloud.admin.get(&format!("/compute/v2.1/flavors/{}", id(&made["flavor"])));
            assert_eq!(shown.ok(200)["flavor"]["name"], name);
        }
        // The zero-width joiner is unprintable; upstream refuses it too.
        let bear = json!({"flavor": {"name": "🐻\u{200d}❄️", "ram": 1, "vcpus": 1, "disk": 1}});
        let message = cloud.admin.post("/compute/v2.1/flavors", &bear).refused(400);
        assert!(message.contains("unprintable"), "{message}");
    }
}
