//! Tokens that are missing, garbled, expired, revoked, or from another cloud.

use std::time::Duration;

use serde_json::json;

use crate::kit::client::raw;
use crate::kit::cloud::{id, login, password};
use crate::kit::{Answer, Cloud, Environment};

const PROTECTED: [&str; 6] = [
    "/identity/v3/users",
    "/compute/v2.1/servers",
    "/placement/resource_providers",
    "/accelerator/v2/devices",
    "/image/v2/images",
    "/network/v2.0/networks",
];

/// Every path answers 401 and says where to log in.
#[track_caller]
fn shut(cloud: &Cloud, token: &str) {
    for path in PROTECTED {
        let answer = cloud.anonymous().token(token).get(path);
        answer.refused_saying(401, &["requires authentication"]);
        let challenge = answer.header("www-authenticate").unwrap_or_default();
        assert!(challenge.starts_with("Keystone uri=\"http://"), "{path}: {challenge:?}");
    }
}

#[test]
fn without_a_valid_token_every_service_answers_401() {
    let other = Cloud::new(Environment::new());
    for cloud in Cloud::all() {
        let good = login(&cloud.anonymous(), "admin", &password(&cloud.place), None);
        for path in PROTECTED {
            cloud.anonymous().get(path).refused(401);
            cloud.anonymous().token(&good).get(path).ok(200);
        }
        let foreign = login(&other.anonymous(), "admin", &password(&other.place), None);
        shut(&cloud, &foreign);
        let mut flipped = good.clone().into_bytes();
        let middle = flipped.len() / 2;
        flipped[middle] = if flipped[middle] == b'A' { b'B' } else { b'A' };
        let flipped = String::from_utf8(flipped).expect("base64 is UTF-8");
        let cut = &good[..good.len() - 5];
        let long = good.repeat(60);
        for garbled in ["", " ", "x", "gAAAAA", "null", "admin:admin", cut, &flipped, &long] {
            shut(&cloud, garbled);
        }
        let head = format!("GET {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", PROTECTED[1]);
        let bytes = [head.as_bytes(), b"X-Auth-Token: \xff\xfe\xe9\r\n\r\n"].concat();
        Answer::parse("no text", &raw(cloud.serve.address, &bytes)).check().refused(401);
        assert!(!cloud.serve.log().contains(&good), "a token is in the log");
    }
}

#[test]
fn a_token_ends_with_its_user_project_or_role() {
    for cloud in Cloud::all() {
        let (who, user, _) = cloud.user("ann", "member");
        let soon = kilonova_wire::time::zulu(jiff::Timestamp::now() + Duration::from_secs(2));
        let wanted = json!({"application_credential": {"name": "short", "expires_at": soon}});
        let path = format!("/identity/v3/users/{user}/application_credentials");
        let made = who.post(&path, &wanted).ok(201);
        let made = &made["application_credential"];
        let login = json!({"auth": {"identity": {"methods": ["application_credential"],
            "application_credential": {"id": made["id"], "secret": made["secret"]}}}});
        let answer = cloud.anonymous().post("/identity/v3/auth/tokens", &login);
        answer.ok(201);
        let token = answer.header("x-subject-token").expect("a token is present");
        cloud.anonymous().token(token).get(PROTECTED[1]).ok(200);
        std::thread::sleep(Duration::from_millis(2100));
        shut(&cloud, token);
        cloud.anonymous().post("/identity/v3/auth/tokens", &login).refused(401);
        who.get(PROTECTED[1]).ok(200);
    }
}

#[test]
fn a_revoked_token_is_dead_everywhere_at_once() {
    for cloud in Cloud::all() {
        let token = login(&cloud.anonymous(), "admin", &password(&cloud.place), None);
        let who = cloud.anonymous().token(&token);
        who.get(PROTECTED[1]).ok(200);
        let subject = cloud.admin.with("X-Subject-Token", &token);
        let shown = subject.get("/identity/v3/auth/tokens").ok(200);
        assert_eq!(id(&shown["token"]["project"]).len(), 32);
        subject.delete("/identity/v3/auth/tokens").ok(204);
        shut(&cloud, &token);
        subject.get("/identity/v3/auth/tokens").refused(404);
        cloud.admin.get(PROTECTED[1]).ok(200);
    }
}
