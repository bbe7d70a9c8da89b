//! No request finds another project's resources.

use serde_json::{Value, json};

use crate::kit::cloud::id;
use crate::kit::{Answer, Cloud, Session};

#[test]
fn another_projects_server_is_not_found_by_any_verb() {
    for cloud in Cloud::with_hosts() {
        let (flavor, image) = (cloud.flavor("small"), cloud.image("raw"));
        let (ann, _, _) = cloud.user("ann", "member");
        let (bob, _, _) = cloud.user("bob", "member");
        let server = cloud.server(&ann, "hers", &flavor, &image);
        let below = format!("/compute/v2.1/servers/{server}");
        let before = ann.get(&below).ok(200);

        let gone = |answer: Answer| answer.refused_saying(404, &[&server]);
        gone(bob.get(&below));
        gone(bob.put(&below, &json!({"server": {"name": "his"}})));
        for action in [
            json!({"os-start": null}),
            json!({"os-stop": null}),
            json!({"reboot": {"type": "HARD"}}),
            json!({"reboot": {"type": "SOFT"}}),
        ] {
            gone(bob.post(&format!("{below}/action"), &action));
        }
        gone(bob.get(&format!("{below}/metadata")));
        gone(bob.get(&format!("{below}/metadata/k")));
        gone(bob.put(&format!("{below}/metadata"), &json!({"metadata": {"k": "v"}})));
        gone(bob.post(&format!("{below}/metadata"), &json!({"metadata": {"k": "v"}})));
        gone(bob.put(&format!("{below}/metadata/k"), &json!({"meta": {"k": "v"}})));
        gone(bob.delete(&format!("{below}/metadata/k")));
        gone(bob.get(&format!("{below}/tags")));
        gone(bob.get(&format!("{below}/tags/t")));
        gone(bob.put(&format!("{below}/tags"), &json!({"tags": ["t"]})));
        gone(bob.put(&format!("{below}/tags/t"), &json!({})));
        gone(bob.delete(&format!("{below}/tags/t")));
        gone(bob.delete(&format!("{below}/tags")));
        gone(bob.get(&format!("{below}/os-instance-actions")));
        gone(bob.get(&format!("{below}/os-instance-actions/req-{server}")));
        gone(bob.delete(&below));
        assert_eq!(servers(&bob), json!([]));
        assert_eq!(ann.get(&below).ok(200), before, "nothing changed");
        let all = bob.get("/compute/v2.1/servers/detail?all_tenants=1");
        all.refused(403);
        cloud.admin.get(&below).ok(200);
    }
}

fn servers(who: &Session) -> Value {
    who.get("/compute/v2.1/servers/detail").ok(200)["servers"].clone()
}

#[test]
fn images_keys_and_requests_of_other_projects_are_not_found() {
    for cloud in Cloud::all() {
        let (ann, ann_id, _) = cloud.user("ann", "member");
        let (bob, _, _) = cloud.user("bob", "member");
        let image = json!({"name": "hers", "disk_format": "raw", "container_format": "bare"});
        let image =
            format!("/image/v2/images/{}", id(&ann.post("/image/v2/images", &image).ok(201)));
        bob.get(&image).refused(404);
        bob.delete(&image).refused(404);
        bob.send("PUT", &format!("{image}/file"), "application/octet-stream", b"x").refused(404);
        assert_eq!(bob.get("/image/v2/images").ok(200)["images"], json!([]));
        ann.get(&image).ok(200);

        let profile = json!([{"name": "fpga", "groups": [{"resources:FPGA": "1"}]}]);
        cloud.admin.post("/accelerator/v2/device_profiles", &profile).ok(201);
        let arq = json!({"device_profile_name": "fpga"});
        let made = ann.post("/accelerator/v2/accelerator_requests", &arq).ok(201);
        let arq = made["arqs"][0]["uuid"].as_str().expect("the request has a uuid").to_owned();
        let path = format!("/accelerator/v2/accelerator_requests/{arq}");
        bob.get(&path).refused_saying(404, &[&arq]);
        bob.delete(&path).refused(404);
        bob.delete(&format!("/accelerator/v2/accelerator_requests?arqs={arq}")).refused(404);
        ann.get(&path).ok(200);

        let credentials = format!("/identity/v3/users/{ann_id}/application_credentials");
        let answer = bob.get(&credentials);
        assert!(matches!(answer.status, 403 | 404), "{}", answer.status);
        let answer = bob.post(&credentials, &json!({"application_credential": {"name": "x"}}));
        assert!(matches!(answer.status, 403 | 404), "{}", answer.status);
    }
}

#[test]
fn members_may_not_use_operations_of_administrators() {
    for cloud in Cloud::all() {
        let (ann, user, project) = cloud.user("ann", "member");
        let flavor = json!({"flavor": {"name": "f", "ram": 1, "vcpus": 1, "disk": 1}});
        let admin = cloud.role("admin");
        let grant = format!("/identity/v3/projects/{project}/users/{user}/roles/{admin}");
        let posts = [
            ("/compute/v2.1/flavors", flavor),
            ("/identity/v3/users", json!({"user": {"name": "x"}})),
            ("/identity/v3/projects", json!({"project": {"name": "x"}})),
            ("/identity/v3/roles", json!({"role": {"name": "x"}})),
            ("/placement/resource_providers", json!({"name": "x"})),
            ("/placement/resource_classes", json!({"name": "CUSTOM_X"})),
            (
                "/accelerator/v2/device_profiles",
                json!([{"name": "x", "groups": [{"resources:FPGA": "1"}]}]),
            ),
        ];
        for (path, body) in posts {
            ann.post(path, &body).refused(403);
        }
        ann.put(&grant, &json!({})).refused(403);
        for path in [
            "/compute/v2.1/os-services",
            "/compute/v2.1/os-hypervisors",
            "/placement/resource_providers",
        ] {
            ann.get(path).refused(403);
        }
    }
}
