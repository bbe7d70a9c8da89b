//! `[api] services = placement` on its own: two processes on one database, tokens of an external
//! Keystone, and the import of an existing Placement.

mod import;
mod keystone;
mod replicas;

use serde_json::{Value, json};

use crate::kit::{Answer, Environment, Serve, Session};

const ALONE: &str = "[api]\nservices = placement\nauth_strategy = noauth2\n";

fn alone() -> Environment {
    Environment::configured(ALONE)
}

/// The admin of noauth2.
fn admin(serve: &Serve) -> Session {
    speaks(&Session::anonymous(serve.address)).token("admin")
}

fn speaks(session: &Session) -> Session {
    session.with("OpenStack-API-Version", "placement 1.39")
}

fn host(admin: &Session, name: &str, cpus: i64) -> String {
    let made = admin.post("/resource_providers", &json!({"name": name})).ok(200);
    let uuid = made["uuid"].as_str().expect("the provider has a uuid").to_owned();
    let body = json!({
        "resource_provider_generation": 0,
        "inventories": {"VCPU": {"total": cpus}},
    });
    admin.put(&format!("/resource_providers/{uuid}/inventories"), &body).ok(200);
    uuid
}

fn claim(who: &Session, consumer: &str, provider: &str, cpus: i64) -> Answer {
    let body = json!({
        "allocations": {provider: {"resources": {"VCPU": cpus}}},
        "project_id": "p", "user_id": "u",
        "consumer_generation": null, "consumer_type": "INSTANCE",
    });
    who.put(&format!("/allocations/{consumer}"), &body)
}

fn candidates(who: &Session) -> Value {
    let answer = who.get("/allocation_candidates?resources=VCPU:1&limit=1000").ok(200);
    answer["provider_summaries"].clone()
}
