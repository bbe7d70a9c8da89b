//! `serve --dev`: what it creates once, and what it does not change.

use std::collections::BTreeSet;

use serde_json::json;

use crate::kit::cloud::admin;
use crate::kit::{Environment, Session};

fn names(session: &Session, path: &str, list: &str) -> BTreeSet<String> {
    let found = session.get(path).ok(200);
    let all = found[list].as_array().expect("the answer is a list");
    all.iter().filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn dev_objects_are_created_once() {
    for place in Environment::all() {
        let place = place.with_hosts();
        let dev = |command: &mut std::process::Command| {
            command.arg("--dev");
        };
        let mut serve = place.start_with(dev);
        let session = admin(&place, &serve);
        let flavors = ["tiny", "small", "medium", "tiny-vgpu", "tiny-fpga"];
        assert_eq!(names(&session, "/compute/v2.1/flavors", "flavors"), set(&flavors));
        assert_eq!(names(&session, "/image/v2/images", "images"), set(&["hello"]));
        let image = session.get("/image/v2/images?name=hello").ok(200)["images"][0].clone();
        assert_eq!((&image["status"], &image["visibility"]), (&json!("active"), &json!("public")));
        assert_eq!(names(&session, "/network/v2.0/networks", "networks"), set(&["private"]));
        let profiles = "/accelerator/v2/device_profiles";
        assert_eq!(names(&session, profiles, "device_profiles"), set(&["vgpu", "fpga"]));

        let small = session.get("/compute/v2.1/flavors").ok(200)["flavors"]
            .as_array()
            .and_then(|all| all.iter().find(|one| one["name"] == "small"))
            .and_then(|one| one["id"].as_str().map(str::to_owned))
            .expect("the flavor exists");
        session.delete(&format!("/compute/v2.1/flavors/{small}")).ok(202);
        let id = image["id"].as_str().expect("an id is present");
        session.delete(&format!("/image/v2/images/{id}")).ok(204);
        serve.terminate();
        let serve = place.start_with(dev);
        let session = admin(&place, &serve);
        let rest = ["tiny", "medium", "tiny-vgpu", "tiny-fpga"];
        assert_eq!(names(&session, "/compute/v2.1/flavors", "flavors"), set(&rest));
        assert_eq!(names(&session, "/image/v2/images", "images"), set(&[]));
    }
}

#[test]
fn without_all_services_it_is_refused() {
    let place = Environment::configured("[api]\nservices = identity, placement\n");
    let output = place.run("serve", &["--listen", "127.0.0.1:0", "--dev"]);
    assert_eq!(output.status.code(), Some(2));
    let printed = crate::kit::environment::stderr(&output);
    assert!(printed.contains("--dev") && printed.contains("all services"), "{printed}");
}
