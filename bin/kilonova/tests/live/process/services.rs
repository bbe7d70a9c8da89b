//! Which services run, where they answer, and which documents list them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kit::cloud::admin;
use crate::kit::{Environment, Session};

const ALL: [&str; 6] = ["identity", "compute", "placement", "accelerator", "image", "network"];

/// A path below the service's own path that needs a token.
fn protected_path(service: &str) -> &'static str {
    match service {
        "identity" => "/v3/users",
        "compute" => "/v2.1/servers",
        "placement" => "/resource_providers",
        "accelerator" => "/v2/devices",
        "image" => "/v2/images",
        _ => "/v2.0/networks",
    }
}

fn listed(nobody: &Session) -> Vec<String> {
    let listing = nobody.get("/").ok(200);
    let name = |entry: &Value| {
        assert_eq!(
            entry["path"],
            format!("/{}", entry["service"].as_str().expect("the name is valid"))
        );
        entry["service"].as_str().expect("the name is valid").to_owned()
    };
    listing["services"].as_array().expect("the answer is a list").iter().map(name).collect()
}

#[test]
fn all_services_run_by_default() {
    for place in Environment::all() {
        let serve = place.start();
        let nobody = Session::anonymous(serve.address);
        assert_eq!(listed(&nobody), ALL);
        let admin = admin(&place, &serve);
        for service in ALL {
            admin.get(&format!("/{service}{}", protected_path(service))).ok(200);
        }
        nobody.get("/nova").refused(404);
        nobody.get("/v2.1/servers").refused(401);
        nobody.post("/", &Value::Null).refused(405);
    }
}

/// A browser is redirected to the dashboard; clients get the same root with and without it.
#[test]
fn the_root_is_for_browsers_too() {
    let roots = [true, false].map(|enabled| {
        let place = Environment::configured(&format!("[dashboard]\nenabled = {enabled}\n"));
        let serve = place.start();
        let line = "kilonova: the dashboard is at http://";
        assert_eq!(serve.output.contains(line), enabled, "{}", serve.output);
        let ask = |accept: &str| Session::anonymous(serve.address).with("accept", accept).get("/");
        let page = ask("text/html,application/xhtml+xml,*/*;q=0.8");
        assert_eq!(page.status, if enabled { 303 } else { 200 }, "{page:?}");
        assert_eq!(page.header("location"), enabled.then_some("/dashboard"));
        let client = ask("application/json");
        assert_eq!(client.body, ask("*/*").body);
        assert_eq!(client.body, Session::anonymous(serve.address).get("/").body);
        let own = serve.address.to_string();
        String::from_utf8_lossy(&client.body).replace(&own, "HERE")
    });
    assert_eq!(roots[0], roots[1]);
}

#[test]
fn the_credentials_are_named_only_where_they_are() {
    let place = Environment::configured("[dashboard]\nenabled = true\n");
    let line = |output: &str| {
        let line = output.lines().find(|line| line.contains("the dashboard is at http://"));
        line.expect("the dashboard is on").to_owned()
    };
    let mut serve = place.start();
    let first = line(&serve.output);
    assert!(first.contains("/openrc"), "{first}");
    serve.terminate();
    for name in ["openrc", "clouds.yaml"] {
        std::fs::remove_file(place.state().join(name)).expect("the first start has written it");
    }
    let again = line(&place.start().output);
    assert!(!again.contains("openrc") && again.ends_with("for a browser"), "{again}");
}

/// Operators' catalogs contain compute at the root.
#[test]
fn compute_answers_at_the_root_too() {
    let place = Environment::new();
    let serve = place.start();
    let nobody = Session::anonymous(serve.address);
    let versions = nobody.get("/").ok(200);
    assert_eq!(versions["versions"][1]["id"], "v2.1");
    let at = |path: &str| {
        let document = nobody.get(path).ok(200);
        document["version"]["links"][0]["href"].as_str().expect("there is a link").to_owned()
    };
    assert_eq!(at("/v2.1"), format!("http://{}/v2.1/", serve.address));
    assert_eq!(at("/v2.1/"), at("/v2.1"));
    assert_eq!(at("/compute/v2.1/"), format!("http://{}/compute/v2.1/", serve.address));
    let admin = admin(&place, &serve);
    let flavor = json!({"flavor": {"name": "f", "vcpus": 1, "ram": 64, "disk": 0}});
    let made = admin.post("/v2.1/flavors", &flavor).ok(200);
    let link = made["flavor"]["links"][0]["href"].as_str().expect("there is a link").to_owned();
    assert!(link.starts_with(&format!("http://{}/v2.1/flavors/", serve.address)), "{link}");
    let id = made["flavor"]["id"].as_str().expect("there is an id").to_owned();
    for root in ["/v2.1", "/v2", "/compute/v2.1", "/compute/v2"] {
        let found = admin.get(&format!("{root}/flavors/{id}")).ok(200);
        assert_eq!(found["flavor"]["name"], "f", "{root}");
        nobody.get(&format!("{root}/flavors")).refused(401);
        admin.get(&format!("{root}/nowhere")).refused(404);
    }
    nobody.get("/v2.2").refused(404);
    nobody.get("/v21/flavors").refused(404);
}

/// With an external Keystone, compute replaces Nova, and the root is Nova's version document.
#[test]
fn the_root_in_novas_place_is_its_document() {
    let place = Environment::configured(
        "[api]\nservices = placement, compute\n[keystone_authtoken]\nauth_url = http://127.0.0.1:9\n\
         username = nova\npassword = x\nproject_name = service\nuser_domain_name = Default\n\
         project_domain_name = Default\n",
    );
    let serve = place.start();
    let nobody = Session::anonymous(serve.address);
    let (root, below) = (nobody.get("/").ok(200), nobody.get("/compute/").ok(200));
    let keys: Vec<_> = root.as_object().expect("the answer is an object").keys().collect();
    assert_eq!(keys, ["versions"]);
    let below = below.to_string().replace("/compute/", "/");
    assert_eq!(root.to_string(), below);
}

/// With an external Nova, no compute API runs, but the hosts must still register their devices.
#[test]
fn hosts_register_where_devices_are_served_without_the_compute_api() {
    let place = Environment::configured(
        "[api]\nauth_strategy = noauth2\nservices = placement, accelerator\n[accelerator]\n\
         max_unbound_requests = 1\n",
    )
    .with_hosts();
    let serve = place.start();
    let nobody = Session::anonymous(serve.address);
    assert_eq!(listed(&nobody), ["placement", "accelerator"]);
    let admin = nobody.token("admin:admin");
    let begun = Instant::now();
    while admin.get("/accelerator/v2/devices").ok(200)["devices"]
        .as_array()
        .is_none_or(Vec::is_empty)
    {
        assert!(begun.elapsed() < Duration::from_secs(20), "no host has registered its devices");
        std::thread::sleep(Duration::from_millis(30));
    }
    admin.get("/compute/v2.1/servers").refused(404);
    let groups = serde_json::json!([{"resources:VGPU": "2"}]);
    let profile = serde_json::json!([{"name": "pair", "groups": groups}]);
    admin.post("/accelerator/v2/device_profiles", &profile).ok(201);
    let body = serde_json::json!({"device_profile_name": "pair"});
    let refused = admin.post("/accelerator/v2/accelerator_requests", &body);
    refused.refused_saying(403, &["exceed its limit of 1", "2 more"]);
}

#[test]
fn version_documents_need_no_token() {
    let place = Environment::new();
    let serve = place.start();
    let nobody = Session::anonymous(serve.address);
    for (path, status, named) in [
        ("/identity", 300, "v3"),
        ("/identity/", 300, "v3"),
        ("/identity/v3", 200, "v3"),
        ("/compute", 200, "2.104"),
        ("/compute/", 200, "2.104"),
        ("/compute/v2.1", 200, "2.104"),
        ("/compute/v2.1/", 200, "2.104"),
        ("/placement", 200, "1.39"),
        ("/placement/", 200, "1.39"),
        ("/accelerator", 200, "2.3"),
        ("/accelerator/v2", 200, "2.3"),
        ("/accelerator/v2/", 200, "2.3"),
        ("/image", 300, "v2"),
        ("/image/", 300, "v2"),
        ("/network", 200, "v2.0"),
        ("/network/", 200, "v2.0"),
    ] {
        let answer = nobody.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(answer.json().to_string().contains(named), "{path}: {}", answer.text());
    }
}

/// `[api] services` with noauth2.
fn open(services: &str) -> Environment {
    Environment::configured(&format!("[api]\nauth_strategy = noauth2\nservices = {services}\n"))
}

#[test]
fn a_single_service_is_also_at_the_root() {
    for service in ALL.into_iter().filter(|service| *service != "identity") {
        let place = open(service);
        let serve = place.start();
        let admin = Session::anonymous(serve.address).token("admin:admin");
        let path = protected_path(service);
        admin.get(path).ok(200);
        admin.get(&format!("/{service}{path}")).ok(200);
        let root = Session::anonymous(serve.address).get("/");
        assert!(matches!(root.status, 200 | 300), "{service}: {}", root.status);
        assert_eq!(root.json(), Session::anonymous(serve.address).get("/").json());
        for other in ALL.into_iter().filter(|other| *other != service) {
            admin.get(&format!("/{other}{}", protected_path(other))).refused(404);
        }
        Session::anonymous(serve.address).get(path).refused(401);
    }
}

#[test]
fn several_services_are_just_those() {
    for services in ["placement, accelerator", "accelerator,placement", "compute, image"] {
        let place = open(services);
        let serve = place.start();
        let admin = Session::anonymous(serve.address).token("admin:admin");
        let named: Vec<&str> = services.split(',').map(str::trim).collect();
        assert_eq!(listed(&Session::anonymous(serve.address)), named);
        for service in ALL {
            let answer = admin.get(&format!("/{service}{}", protected_path(service)));
            let expected = if named.contains(&service) { 200 } else { 404 };
            assert_eq!(answer.status, expected, "{services}: {service}: {}", answer.text());
        }
    }
    let place = Environment::configured("[api]\nservices = identity, placement\n");
    let serve = place.start();
    let admin = admin(&place, &serve);
    assert_eq!(listed(&Session::anonymous(serve.address)), ["identity", "placement"]);
    admin.get("/placement/resource_providers").ok(200);
    admin.get("/compute/v2.1/servers").refused(404);
    let catalog = admin.get("/identity/v3/auth/catalog").ok(200);
    assert_eq!(catalog["catalog"].as_array().map(Vec::len), Some(2));
}

#[test]
fn noauth_excludes_the_identity_service() {
    let place = Environment::configured("[api]\nauth_strategy = noauth2\n");
    let serve = place.start();
    let others: Vec<&str> = ALL.into_iter().filter(|service| *service != "identity").collect();
    assert_eq!(listed(&Session::anonymous(serve.address)), others);
    assert!(!place.state().join("openrc").exists());

    let place = open("identity, placement");
    let output = place.run("serve", &[]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("[api] services") && printed.contains("noauth2"), "{printed}");
}

#[test]
fn invalid_tokens_are_refused_at_the_start() {
    let place = Environment::configured("[api]\nservices = placement\n");
    let output = place.run("serve", &[]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("keystone") && printed.contains("identity"), "{printed}");
    assert!(!place.state().exists(), "{printed}");
}
