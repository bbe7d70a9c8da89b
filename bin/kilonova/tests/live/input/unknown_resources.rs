//! Resources that do not exist, and malformed device profiles.

use serde_json::{Value, json};

use crate::kit::Cloud;
use crate::kit::cloud::{id, server};

const NOBODY: &str = "5a0e6f9e-0000-4000-8000-00000000beef";

#[test]
fn a_boot_with_unknown_references_names_them() {
    for cloud in Cloud::all() {
        let (flavor, image) = (cloud.flavor("small"), cloud.image("raw"));
        let boot = |body: &Value| cloud.admin.post("/compute/v2.1/servers", body);
        boot(&server("s", "gigantic", &image)).refused_saying(400, &["gigantic"]);
        boot(&server("s", &flavor, NOBODY)).refused_saying(400, &[NOBODY]);
        boot(&server("s", &flavor, "not-a-uuid")).refused_saying(400, &["imageRef", "not-a-uuid"]);
        let empty = json!({"name": "empty", "disk_format": "raw", "container_format": "bare"});
        let empty = id(&cloud.admin.post("/image/v2/images", &empty).ok(201));
        boot(&server("s", &flavor, &empty)).refused_saying(400, &[&empty, "not active"]);

        let specs = format!("/compute/v2.1/flavors/{flavor}/os-extra_specs");
        let profile = json!({"extra_specs": {"accel:device_profile": "no-such-profile"}});
        cloud.admin.post(&specs, &profile).ok(200);
        let answer = boot(&server("s", &flavor, &image));
        answer.refused_saying(answer.status, &["no-such-profile"]);
        assert!(matches!(answer.status, 400 | 404), "{}", answer.status);
        assert_eq!(cloud.admin.get("/compute/v2.1/servers").ok(200)["servers"], json!([]));
    }
}

#[test]
fn unknown_things_are_not_found_by_name() {
    for cloud in Cloud::all() {
        for path in [
            "/compute/v2.1/servers",
            "/compute/v2.1/flavors",
            "/compute/v2.1/os-keypairs",
            "/compute/v2.1/os-hypervisors",
            "/placement/resource_providers",
            "/placement/traits",
            "/placement/resource_classes",
            "/accelerator/v2/devices",
            "/accelerator/v2/deployables",
            "/accelerator/v2/device_profiles",
            "/accelerator/v2/accelerator_requests",
            "/image/v2/images",
            "/identity/v3/users",
            "/identity/v3/projects",
            "/identity/v3/roles",
        ] {
            let answer = cloud.admin.get(&format!("{path}/{NOBODY}"));
            answer.refused_saying(404, &[NOBODY]);
        }
        let arq = json!({"device_profile_name": "no-such-profile"});
        let answer = cloud.admin.post("/accelerator/v2/accelerator_requests", &arq);
        answer.refused_saying(404, &["no-such-profile"]);
    }
}

#[test]
fn device_profiles_with_malformed_groups_are_refused_and_leave_nothing() {
    for cloud in Cloud::all() {
        let cases = [
            (json!([]), ""),
            (json!(null), "groups"),
            (json!("resources:FPGA=1"), "groups"),
            (json!(["resources:FPGA=1"]), ""),
            (json!([{}]), ""),
            (json!([{"FPGA": "1"}]), "group keys"),
            (json!([{"resources:FPGA": "many"}]), "many"),
            (json!([{"resources:FPGA": "-1"}]), "-1"),
            (json!([{"resources:FPGA": "99999999999999999999"}]), "99999999999999999999"),
            (json!([{"resources:FPGA": {"n": 1}}]), ""),
            (json!([{"resources:TEAPOT": "1"}]), "TEAPOT"),
            (json!([{"resources:FPGA": "1", "trait:HW_CPU": "required"}]), "HW_CPU"),
            (json!([{"resources:FPGA": "1", "trait:CUSTOM_X": "wished"}]), "wished"),
            (json!([{"resources:FPGA": "1", "accel:": "x"}]), "accel:"),
            (json!([{"trait:CUSTOM_X": "required"}]), "resource"),
        ];
        for (groups, named) in cases {
            let body = json!([{"name": "profile", "groups": groups}]);
            let answer = cloud.admin.post("/accelerator/v2/device_profiles", &body);
            answer.refused_saying(400, &[named]);
        }
        let two = json!([{"name": "a", "groups": []}, {"name": "b", "groups": []}]);
        cloud.admin.post("/accelerator/v2/device_profiles", &two).refused(400);
        for name in ["", "with space", "tail\n", "ünder", &"x".repeat(300)] {
            let body = json!([{"name": name, "groups": [{"resources:FPGA": "1"}]}]);
            let answer = cloud.admin.post("/accelerator/v2/device_profiles", &body);
            answer.refused_saying(400, &["name"]);
        }
        let listed = cloud.admin.get("/accelerator/v2/device_profiles").ok(200);
        assert_eq!(listed["device_profiles"], json!([]));
    }
}
