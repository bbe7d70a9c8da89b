//! The fake answers as the real Neutron 29 did: `recording.json` has its answers to the script.
//!
//! If `KILONOVA_TEST_NEUTRON` is the URL of a Keystone, the script also runs in its cloud, which needs the users `nova`
//! and `demo`, and Open vSwitch agents on `host1` and `host2`. With `KILONOVA_RECORD`, that run makes the recording.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method};
use kilonova_keystone::{Caller, Http, Service};
use kilonova_testkit::neutron::FakeNeutron;
use serde_json::{Value, json};

use super::script::{Cloud, run};
use super::{member, service};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/recording.json");
const HOSTS: [&str; 2] = ["host1", "host2"];

#[tokio::test]
async fn the_fake_answers_as_the_real_neutron() {
    let fake = FakeNeutron::start().await;
    let project = "7".repeat(32);
    let network = {
        let mut state = fake.state();
        HOSTS.iter().for_each(|host| state.add_agent(host));
        state.add_group(&project, "default", false);
        state.set_allocation(false);
        let network = state.add_network(&project, "script", json!({}));
        state.add_subnet(&network, "10.77.0.0/29");
        network
    };
    let cloud = Cloud {
        service: service(&fake.auth_url(), Duration::from_secs(10)),
        member: member(&project),
        project,
        network,
        hosts: HOSTS.map(str::to_owned),
    };
    let ours = run(&cloud).await;
    let recorded = std::fs::read(FILE).expect("there is a recording");
    let recorded: Vec<Value> = serde_json::from_slice(&recorded).expect("the recording is JSON");
    assert_eq!(ours.len(), recorded.len());
    let mut differences = Vec::new();
    for (ours, real) in ours.iter().zip(&recorded) {
        compare(&ours["request"].to_string(), ours, real, &mut differences);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Records the differences between the fake and the real answer, which may have more attributes.
fn compare(at: &str, ours: &Value, real: &Value, differences: &mut Vec<String>) {
    match (ours, real) {
        (Value::Object(ours), Value::Object(others)) => {
            for (key, value) in ours {
                let real = others.get(key).unwrap_or(&Value::Null);
                compare(&format!("{at}.{key}"), value, real, differences);
            }
        }
        (Value::Array(ours), Value::Array(others)) if ours.len() == others.len() => {
            for (ours, real) in ours.iter().zip(others) {
                compare(&format!("{at}[]"), ours, real, differences);
            }
        }
        _ if ours == real => {}
        _ => differences.push(format!("{at}: the fake has {ours}, the real one {real}")),
    }
}

#[tokio::test]
async fn the_real_neutron_answers_as_recorded() {
    let Ok(auth_url) = std::env::var("KILONOVA_TEST_NEUTRON") else {
        kilonova_testkit::skip("KILONOVA_TEST_NEUTRON is not set");
        return;
    };
    let real = run(&real(&auth_url).await).await;
    if std::env::var_os("KILONOVA_RECORD").is_some() {
        let text = serde_json::to_string_pretty(&real).expect("the transcript is JSON");
        std::fs::write(FILE, text + "\n").expect("the recording is written");
        return;
    }
    let recorded = std::fs::read(FILE).expect("there is a recording");
    let recorded: Vec<Value> = serde_json::from_slice(&recorded).expect("the recording is JSON");
    assert_eq!(real.len(), recorded.len());
    for (real, recorded) in real.iter().zip(&recorded) {
        assert_eq!(real, recorded);
    }
}

/// The member's token and project at a real Keystone.
async fn member_of(auth_url: &str) -> (HeaderValue, String) {
    let http = Http::plain(Duration::from_secs(60), 1 << 20).expect("the client is created");
    let domain = json!({"name": "Default"});
    let user = json!({"name": "demo", "password": "secret", "domain": domain});
    let body = json!({"auth": {
        "identity": {"methods": ["password"], "password": {"user": user}},
        "scope": {"project": {"name": "demo", "domain": domain}},
    }});
    let url = format!("{auth_url}/auth/tokens");
    let body = Some(Bytes::from(body.to_string()));
    let answer = http.send(Method::POST, &url, &[], body).await.expect("Keystone answers");
    let token = answer.headers.get("x-subject-token").expect("a token").clone();
    let project = answer.json()["token"]["project"]["id"].as_str().expect("a project").to_owned();
    (token, project)
}

async fn made(service: &Service, what: &str, body: Value) -> Value {
    let path = format!("/v2.0/{what}s");
    let body = Some(Bytes::from(json!({what: body}).to_string()));
    let answer = service.send(Caller::Own, Method::POST, &path, body, None).await;
    let answer = answer.expect("Neutron answers");
    assert_eq!(answer.status.as_u16(), 201, "{}", answer.json());
    answer.json()[what].clone()
}

/// Removes the ports and the networks of an earlier run.
async fn clean(service: &Service, project: &str) {
    for (what, query) in [("port", "tenant_id"), ("network", "name=script&tenant_id")] {
        let path = format!("/v2.0/{what}s?{query}={project}&fields=id");
        let found = service.send(Caller::Own, Method::GET, &path, None, None).await;
        let found = found.expect("Neutron answers").json();
        for one in found[format!("{what}s")].as_array().into_iter().flatten() {
            let id = one["id"].as_str().expect("an id");
            let path = format!("/v2.0/{what}s/{id}");
            let gone = service.send(Caller::Own, Method::DELETE, &path, None, None).await;
            gone.expect("Neutron answers");
        }
    }
}

async fn real(auth_url: &str) -> Cloud {
    let service = service(auth_url, Duration::from_secs(60));
    let (member, project) = member_of(auth_url).await;
    let path = format!("/v2.0/quotas/{project}");
    service.send(Caller::Own, Method::DELETE, &path, None, None).await.expect("Neutron answers");
    clean(&service, &project).await;
    let network = made(&service, "network", json!({"name": "script", "tenant_id": project})).await;
    let id = network["id"].as_str().expect("an id").to_owned();
    made(
        &service,
        "subnet",
        json!({"network_id": id, "ip_version": 4, "cidr": "10.77.0.0/29", "tenant_id": project}),
    )
    .await;
    // Listing a project's security groups creates its default group.
    let groups = "/v2.0/security-groups";
    let caller = Caller::User(&member);
    service.send(caller, Method::GET, groups, None, None).await.expect("Neutron answers");
    Cloud { service, member, project, network: id, hosts: HOSTS.map(str::to_owned) }
}
