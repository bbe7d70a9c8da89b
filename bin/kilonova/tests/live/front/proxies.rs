//! Behind a proxy: which URLs the answers contain, and whose headers the server trusts.

use serde_json::{Value, json};

use crate::kit::client::Session;
use crate::kit::{Cloud, Environment};

const TRUSTED: &str = "[api]\ntrusted_proxies = 127.0.0.1\n[oslo_middleware]\n\
                       enable_proxy_headers_parsing = true\n";

/// Collects every URL of the server in an answer that does not begin with `origin`.
fn foreign(answer: &Value, origin: &str, found: &mut Vec<String>) {
    match answer {
        Value::String(text) => {
            let ours = text.starts_with("http") && !text.contains("docs.openstack.org");
            let ours = ours && !text.contains("json-schema.org");
            if ours && !text.starts_with(origin) {
                found.push(text.clone());
            }
        }
        Value::Array(items) => items.iter().for_each(|item| foreign(item, origin, found)),
        Value::Object(fields) => fields.values().for_each(|item| foreign(item, origin, found)),
        _ => {}
    }
}

/// Requests every document that has links, and checks that all links begin with `origin`.
fn check(session: &Session, origin: &str) {
    let mut seen = 0;
    for path in [
        "/identity/",
        "/identity/v3",
        "/identity/v3/auth/catalog",
        "/identity/v3/endpoints",
        "/identity/v3/projects",
        "/identity/v3/users",
        "/compute/",
        "/compute/v2.1",
        "/compute/v2.1/flavors/detail",
        "/compute/v2.1/flavors?limit=1",
        "/compute/v2.1/os-hypervisors/detail?limit=1",
        "/placement/",
        "/accelerator/",
        "/accelerator/v2",
        "/image/",
        "/image/v2/images",
        "/network/",
        "/network/v2.0/networks",
    ] {
        let answer = session.get(path);
        assert!(answer.status < 400, "{path}: {}", answer.text());
        let (body, mut wrong) = (answer.json(), Vec::new());
        foreign(&body, origin, &mut wrong);
        assert_eq!(wrong, Vec::<String>::new(), "{path}");
        seen += body.to_string().matches(origin).count();
        if let Some(location) = answer.header("location") {
            assert!(location.starts_with(origin), "{path}: {location}");
        }
    }
    assert!(seen > 30, "only {seen} links were seen");
    let refused = session.token("nonsense").get("/compute/v2.1/servers");
    let login = refused.header("www-authenticate").unwrap_or_default().to_owned();
    assert_eq!(login, format!("Keystone uri=\"{origin}/identity/v3\""));
}

fn flavors(cloud: &Cloud) {
    for name in ["a", "b"] {
        let flavor = json!({"flavor": {"name": name, "ram": 64, "vcpus": 1, "disk": 1}});
        cloud.admin.post("/compute/v2.1/flavors", &flavor).ok(200);
    }
}

#[test]
fn links_use_the_address_from_a_trusted_proxy() {
    let cloud = Cloud::new(Environment::configured(TRUSTED).with_hosts());
    flavors(&cloud);
    let before = cloud
        .admin
        .with("X-Forwarded-For", "192.0.2.9")
        .with("X-Forwarded-Proto", "https")
        .with("X-Forwarded-Host", "cloud.example")
        .with("X-Forwarded-Prefix", "/os");
    check(&before, "https://cloud.example/os");
    let rfc7239 = "for=192.0.2.9;proto=https;host=\"cloud.example:8443\"";
    check(&cloud.admin.with("Forwarded", rfc7239), "https://cloud.example:8443");
    check(&cloud.admin, &cloud.serve.url());
}

#[test]
fn headers_of_anybody_else_change_nothing() {
    for config in [
        "",
        "[api]\ntrusted_proxies = 192.0.2.0/24\n[oslo_middleware]\n\
                        enable_proxy_headers_parsing = true\n",
    ] {
        let cloud = Cloud::new(Environment::configured(config));
        flavors(&cloud);
        let lying = cloud
            .admin
            .with("Forwarded", "for=192.0.2.9;proto=https;host=evil.example")
            .with("X-Forwarded-Proto", "https")
            .with("X-Forwarded-Host", "evil.example")
            .with("X-Forwarded-Prefix", "/evil");
        check(&lying, &cloud.serve.url());
    }
}

#[test]
fn links_and_the_admins_files_use_the_public_endpoint() {
    let place = Environment::configured("[api]\npublic_endpoint = https://cloud.example/os/\n");
    let serve = place.start();
    assert!(serve.output.contains("ready on https://cloud.example/os ("), "{}", serve.output);
    for name in ["clouds.yaml", "openrc"] {
        let text = std::fs::read_to_string(place.state().join(name)).expect("the file exists");
        assert!(text.contains("https://cloud.example/os/identity/v3"), "{text}");
    }
}
