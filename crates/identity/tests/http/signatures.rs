//! Logins with signatures: `/v3/ec2tokens` and `/v3/s3tokens`.
//!
//! `signatures.json` has requests by the access key `key`. Their signatures are those of `Ec2Signer` of keystoneclient
//! 6.0.0 and of `keystone/api/s3tokens.py`.

use kilonova_identity::IdentityOptions;
use serde_json::{Value, json};
use std::time::Duration;

use crate::cloud::{Cloud, Reply, by_name, clouds, clouds_with, options, token_of};

const EC2: &str = "/v3/ec2tokens";
const S3: &str = "/v3/s3tokens";
const SECRET: &str = "sécret key/+";

/// The requests: name, expected status, path and body.
fn requests() -> Vec<(String, u16, String, Value)> {
    let all: Value = serde_json::from_str(include_str!("signatures.json")).unwrap();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    let read = |one: &Value| {
        let status = u16::try_from(one["status"].as_u64().unwrap()).unwrap();
        (text(one, "name"), status, text(one, "path"), one["body"].clone())
    };
    all.as_array().unwrap().iter().map(read).collect()
}

fn request(name: &str) -> Value {
    requests().into_iter().find(|one| one.0 == name).unwrap().3
}

/// A request that everybody may send without an end.
fn valid() -> Value {
    request("version 2")
}

/// Stores the access key `key` with this content.
async fn store(cloud: &Cloud, token: &str, user: &str, project: &str, more: Value) -> String {
    let mut blob = json!({"access": "key", "secret": SECRET});
    blob.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let body = json!({"credential": {
        "type": "ec2", "blob": blob.to_string(), "user_id": user, "project_id": project}});
    let made = cloud.as_user(token, "POST", "/v3/credentials", body).await;
    assert_eq!(made.status, 201, "{}", made.body);
    format!("/v3/credentials/{}", made.body["credential"]["id"].as_str().unwrap())
}

/// A user with a role on the project `service`; returns its token.
async fn service(cloud: &Cloud, name: &str, role: &str) -> String {
    let admin = cloud.admin().await;
    let place = json!({"name": format!("of-{name}")});
    let project = cloud.make(&admin, "project", place).await;
    let user = cloud.make(&admin, "user", json!({"name": name, "password": name})).await;
    let role = cloud.find(&admin, "role", role).await;
    let grant = format!("/v3/projects/{project}/users/{user}/roles/{role}");
    assert_eq!(cloud.as_user(&admin, "PUT", &grant, Value::Null).await.status, 204);
    cloud.token(name, name, &format!("of-{name}")).await
}

async fn ask(cloud: &Cloud, token: &str, body: Value) -> Reply {
    cloud.as_user(token, "POST", EC2, body).await
}

#[tokio::test]
async fn every_version_of_ec2_signatures_is_checked() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        store(&cloud, &demo, &user, &project, json!({})).await;
        let asker = service(&cloud, "swift", "service").await;
        for (name, status, path, body) in requests() {
            let reply = cloud.as_user(&asker, "POST", &path, body).await;
            assert_eq!(reply.status, status, "{name}: {}", reply.body);
            if status == 200 {
                assert_eq!(reply.body["token"]["user"]["id"], user, "{name}");
                assert_eq!(reply.headers.contains_key("x-subject-token"), path == EC2, "{name}");
            } else {
                let said = &reply.body["error"]["message"];
                assert_eq!(said, "The request you have made requires authentication.", "{name}");
                assert!(reply.headers.contains_key("www-authenticate"), "{name}");
            }
        }
    }
}

#[tokio::test]
async fn an_ec2_token_is_for_the_project_and_for_other_services() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let stored = store(&cloud, &demo, &user, &project, json!({})).await;
        let asker = service(&cloud, "heat", "service").await;
        let reply = ask(&cloud, &asker, valid()).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let token = &reply.body["token"];
        assert_eq!(token["methods"], json!(["ec2credential"]));
        assert_eq!(token["project"]["id"], project);
        assert_eq!(token["project"]["name"], "demo");
        let roles = token["roles"].as_array().unwrap();
        let names: Vec<_> = roles.iter().map(|role| role["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["member", "reader"]);
        assert_eq!(token["catalog"].as_array().unwrap().len(), 2);
        assert_eq!(token["audit_ids"].as_array().unwrap().len(), 1);

        let made = token_of(&reply);
        assert!(cloud.opens(&made).await, "other services accept it");
        let headers = [("x-auth-token", asker.as_str()), ("x-subject-token", made.as_str())];
        let seen = cloud.call("GET", "/v3/auth/tokens", &headers, Value::Null).await;
        assert_eq!(
            (seen.status.as_u16(), &seen.body["token"]["methods"]),
            (200, &token["methods"])
        );
        let again = json!({"auth": {"identity": {"methods": ["token"], "token": {"id": made}}}});
        let again = cloud.login(again).await;
        assert_eq!(again.status, 201, "{}", again.body);
        assert_eq!(again.body["token"]["methods"], json!(["token", "ec2credential"]));
        let own = [("x-auth-token", made.as_str()), ("x-subject-token", made.as_str())];
        let itself = cloud.call("GET", "/v3/auth/tokens", &own, Value::Null).await;
        assert_eq!(itself.status, 403);
        for token in [&made, &token_of(&again)] {
            for path in [format!("/v3/users/{user}"), "/v3/credentials".into(), stored.clone()] {
                let refused = cloud.as_user(token, "GET", &path, Value::Null).await;
                let said = &refused.body["error"]["message"];
                assert_eq!(refused.status, 403, "{path}");
                assert_eq!(said, "You are not authorized to perform the requested action.");
            }
        }
    }
}

#[tokio::test]
async fn only_services_and_administrators_ask_for_ec2_tokens() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let (admin, demo) = (cloud.admin().await, cloud.token("demo", "demo", "demo").await);
        store(&cloud, &demo, &user, &project, json!({})).await;
        let body = || request("S3 version 1");
        for (path, body, rule) in [
            (EC2, valid(), "identity:ec2tokens_validate"),
            (S3, body(), "identity:s3tokens_validate"),
        ] {
            assert_eq!(cloud.call("POST", path, &[], body.clone()).await.status, 401);
            for (name, role) in [("m", "manager"), ("r", "reader")] {
                let asker = service(&cloud, &format!("{name}-{}", &path[4..]), role).await;
                let refused = cloud.as_user(&asker, "POST", path, body.clone()).await;
                let said = refused.body["error"]["message"].as_str().unwrap();
                assert_eq!(refused.status, 403);
                assert!(said.contains(rule), "{said}");
            }
            // The signer cannot ask either, and the rule comes before the body.
            assert_eq!(cloud.as_user(&demo, "POST", path, json!({})).await.status, 403);
            assert_eq!(cloud.as_user(&admin, "POST", path, body.clone()).await.status, 200);
            let got = cloud.as_user(&admin, "GET", path, Value::Null).await;
            assert_eq!(got.status, 405);
            let ended = service(&cloud, &format!("s-{}", &path[4..]), "service").await;
            let made = cloud.as_user(&ended, "POST", path, body).await;
            assert_eq!(made.status, 200, "{}", made.body);
        }
        // A token from a signature is not a service's.
        let signer = format!("/v3/users/{user}");
        assert_eq!(cloud.as_user(&admin, "DELETE", &signer, Value::Null).await.status, 204);
        let (chief, place) = (
            cloud.find(&admin, "user", "admin").await,
            cloud.find(&admin, "project", "admin").await,
        );
        store(&cloud, &admin, &chief, &place, json!({})).await;
        let made = ask(&cloud, &admin, valid()).await;
        assert_eq!(ask(&cloud, &token_of(&made), valid()).await.status, 403);
    }
}

#[tokio::test]
async fn malformed_ec2_requests_are_refused() {
    let changed = |key: &str, value: Value| {
        let mut body = valid();
        body["ec2Credentials"][key] = value;
        body
    };
    let without = |name: &str, key: &str| {
        let mut body = request(name);
        body["ec2Credentials"].as_object_mut().unwrap().remove(key);
        body
    };
    let param = |name: &str, key: &str, value: Value| {
        let mut body = request(name);
        body["ec2Credentials"]["params"][key] = value;
        body
    };
    let header = |key: &str, value: Value| {
        let mut body = request("version 4 in a header");
        body["ec2Credentials"]["headers"][key] = value;
        body
    };
    let four = "version 4 in a header";
    let in_params = "version 4 in parameters";
    let cases = [
        (Value::Null, 400),
        (json!({}), 400),
        (json!([]), 400),
        (json!([1]), 400),
        (json!("text"), 400),
        (json!({"other": 1}), 401),
        (json!({"credentials": {}}), 401),
        (json!({"credentials": null, "credential": 0, "ec2Credentials": ""}), 401),
        (json!({"credentials": [1]}), 400),
        (json!({"credentials": {"access": 7}}), 400),
        (json!({"credentials": {"access": null}}), 400),
        (json!({"credentials": {"access": "unknown"}}), 404),
        (json!({"credentials": {"access": "key"}}), 400),
        (changed("params", json!([])), 400),
        (changed("params", json!({})), 400),
        (changed("signature", Value::Null), 401),
        (changed("signature", json!("")), 401),
        (changed("signature", json!(7)), 401),
        (changed("signature", json!("é")), 401),
        (without("version 2", "signature"), 401),
        (without("version 2", "host"), 400),
        (without("version 2", "verb"), 400),
        (without("version 2", "path"), 400),
        (changed("host", json!({})), 400),
        (param("version 2", "SignatureVersion", json!(2)), 400),
        (param("version 2", "SignatureVersion", json!("3")), 400),
        (param("version 2", "x", json!(["y"])), 400),
        (param("version 1", "x", json!({})), 400),
        (param("version 0", "Action", json!(7)), 400),
        (param("version 0", "Timestamp", Value::Null), 400),
        (without(four, "headers"), 400),
        (without(four, "body_hash"), 400),
        (without(in_params, "headers"), 400),
        (param(in_params, "X-Amz-Credential", json!("key")), 400),
        (param(in_params, "X-Amz-Credential", json!("key/20990101/region")), 400),
        (param(in_params, "X-Amz-Credential", json!("key//r/s/aws4_request")), 401),
        (param(in_params, "X-Amz-Credential", json!(7)), 400),
        (param(in_params, "X-Amz-Date", json!(7)), 400),
        (header("Authorization", json!("AWS4-HMAC-SHA256")), 400),
        (header("Authorization", json!("Basic x")), 400),
        (header("Authorization", json!(7)), 400),
        (header("X-Amz-Date", json!("")), 401),
        (header("X-Extra", json!(7)), 400),
    ];
    let of_s3 = |key: &str, value: Value| {
        let mut body = request("S3 version 1");
        body["credentials"][key] = value;
        body
    };
    let cases_of_s3 = [
        (of_s3("token", json!(7)), 400),
        (of_s3("token", json!("a?b")), 400),
        (of_s3("token", json!("")), 401),
        (of_s3("token", json!("QVdTNA==")), 401),
        (of_s3("signature", Value::Null), 400),
        (of_s3("signature", json!("no")), 401),
    ];
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let (admin, demo) = (cloud.admin().await, cloud.token("demo", "demo", "demo").await);
        store(&cloud, &demo, &user, &project, json!({})).await;
        let cases = cases.iter().map(|case| (EC2, case));
        for (path, (body, status)) in cases.chain(cases_of_s3.iter().map(|case| (S3, case))) {
            let reply = cloud.as_user(&admin, "POST", path, body.clone()).await;
            assert_eq!(reply.status, *status, "{body}: {}", reply.body);
        }
        let unknown = ask(&cloud, &admin, json!({"credentials": {"access": "unknown"}})).await;
        assert_eq!(unknown.body["error"]["message"], "EC2 access key not found.");
        let empty = ask(&cloud, &admin, json!({})).await;
        assert_eq!(empty.body["error"]["message"], "request must include a request body");
        // A long request takes no longer than reading it.
        let mut long = request(four);
        let signed = "host;".repeat(150_000);
        let text = format!(
            "AWS4-HMAC-SHA256 Credential=key/20990101/r/s/aws4_request, SignedHeaders={signed}, "
        );
        long["ec2Credentials"]["headers"]["Authorization"] = json!(text);
        long["ec2Credentials"]["headers"]["Host"] = json!("h".repeat(200_000));
        assert_eq!(ask(&cloud, &admin, long).await.status, 401);
        let huge = changed("path", json!("x".repeat(2_000_000)));
        assert_eq!(ask(&cloud, &admin, huge).await.status, 413);
    }
}

#[tokio::test]
async fn disabled_and_deleted_owners_get_no_ec2_token() {
    for cloud in clouds().await {
        let (project, user, role) = cloud.demo().await;
        let (admin, demo) = (cloud.admin().await, cloud.token("demo", "demo", "demo").await);
        let stored = store(&cloud, &demo, &user, &project, json!({})).await;
        let change = async |path: String, body: Value| {
            let method = if body.is_null() { "DELETE" } else { "PATCH" };
            let reply = cloud.as_user(&admin, method, &path, body).await;
            assert!(reply.status.is_success(), "{path}: {}", reply.body);
        };
        let status = async || ask(&cloud, &admin, valid()).await.status.as_u16();
        assert_eq!(status().await, 200);
        for (kind, id) in [("user", &user), ("project", &project)] {
            for (enabled, expected) in [(false, 401), (true, 200)] {
                let body = json!({kind: {"enabled": enabled}});
                change(format!("/v3/{kind}s/{id}"), body).await;
                assert_eq!(status().await, expected, "{kind} {enabled}");
            }
        }
        let before = token_of(&ask(&cloud, &admin, valid()).await);
        change(format!("/v3/projects/{project}/users/{user}/roles/{role}"), Value::Null).await;
        assert_eq!(status().await, 401, "the user has no role on the project");
        assert!(!cloud.opens(&before).await);
        change(stored.clone(), json!({"credential": {"type": "cert"}})).await;
        assert_eq!(status().await, 404, "it is no EC2 credential");
        change(stored, Value::Null).await;
        assert_eq!(status().await, 404);
    }
}

#[tokio::test]
async fn an_ec2_credential_without_a_secret_or_a_project_is_useless() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let admin = cloud.admin().await;
        let stored = store(&cloud, &admin, &user, &project, json!({})).await;
        for (change, status) in [
            (json!({"project_id": null}), 401),
            (json!({"project_id": project}), 200),
            (json!({"blob": json!({"access": "key"}).to_string()}), 401),
            (json!({"blob": json!({"access": "key", "secret": ""}).to_string()}), 401),
            (json!({"blob": json!({"access": "key", "secret": 7}).to_string()}), 401),
        ] {
            let body = json!({"credential": change});
            let changed = cloud.as_user(&admin, "PATCH", &stored, body).await;
            assert_eq!(changed.status, 200, "{}", changed.body);
            assert_eq!(ask(&cloud, &admin, valid()).await.status, status, "{change}");
        }
    }
}

#[tokio::test]
async fn an_ec2_token_has_the_limits_of_its_trust() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let (admin, demo) = (cloud.admin().await, cloud.token("demo", "demo", "demo").await);
        let heat = cloud.make(&admin, "user", json!({"name": "heat", "password": "heat"})).await;
        for impersonation in [true, false] {
            let trust = json!({"trust": {"trustor_user_id": user, "trustee_user_id": heat,
                "project_id": project, "impersonation": impersonation, "remaining_uses": 2,
                "roles": [{"name": "reader"}]}});
            let trust = cloud.as_user(&demo, "POST", "/v3/OS-TRUST/trusts", trust).await;
            let id = trust.body["trust"]["id"].as_str().unwrap().to_owned();
            let mut login = by_name("heat", "heat", None);
            login["auth"]["scope"] = json!({"OS-TRUST:trust": {"id": id}});
            let acting = token_of(&cloud.login(login).await);
            let actor = if impersonation { &user } else { &heat };
            let stored = store(&cloud, &acting, actor, &project, json!({})).await;
            for _ in 0..3 {
                let reply = ask(&cloud, &admin, valid()).await;
                assert_eq!(reply.status, 200, "{}", reply.body);
                let token = &reply.body["token"];
                assert_eq!(
                    (&token["user"]["id"], &token["project"]["id"]),
                    (&json!(actor), &json!(project))
                );
                assert_eq!(token["OS-TRUST:trust"]["id"], id);
                assert_eq!(token["OS-TRUST:trust"]["trustee_user"]["id"], heat);
                let roles = token["roles"].as_array().unwrap();
                assert_eq!((roles.len(), &roles[0]["name"]), (1, &json!("reader")));
                assert!(cloud.opens(&token_of(&reply)).await);
            }
            let ends = format!("/v3/OS-TRUST/trusts/{id}");
            assert_eq!(cloud.as_user(&demo, "DELETE", &ends, Value::Null).await.status, 204);
            let gone = ask(&cloud, &admin, valid()).await;
            let said = gone.body["error"]["message"].as_str().unwrap();
            assert_eq!(
                (gone.status.as_u16(), said),
                (404, &*format!("Could not find trust: {id}."))
            );
            assert_eq!(cloud.as_user(&admin, "DELETE", &stored, Value::Null).await.status, 204);
        }
    }
}

#[tokio::test]
async fn an_ec2_credential_names_nobody_elses_limits() {
    for cloud in clouds().await {
        let (project, user, role) = cloud.demo().await;
        let (admin, demo) = (cloud.admin().await, cloud.token("demo", "demo", "demo").await);
        let heat = cloud.make(&admin, "user", json!({"name": "heat", "password": "heat"})).await;
        let eve = cloud.make(&admin, "user", json!({"name": "eve", "password": "eve"})).await;
        let grant = format!("/v3/projects/{project}/users/{eve}/roles/{role}");
        assert_eq!(cloud.as_user(&admin, "PUT", &grant, Value::Null).await.status, 204);
        let spy = cloud.token("eve", "eve", "demo").await;
        let mut trusts = Vec::new();
        for impersonation in [true, false] {
            let trust = json!({"trust": {"trustor_user_id": user, "trustee_user_id": heat,
                "project_id": project, "impersonation": impersonation, "roles": [{"name": "member"}]}});
            let trust = cloud.as_user(&demo, "POST", "/v3/OS-TRUST/trusts", trust).await;
            trusts.push(trust.body["trust"]["id"].clone());
        }
        let path = format!("/v3/users/{user}/application_credentials");
        let body = json!({"application_credential": {"name": "robot"}});
        let robot = cloud.as_user(&demo, "POST", &path, body).await;
        let robot = robot.body["application_credential"]["id"].clone();
        for (owner, token, more, status) in [
            (&eve, &spy, json!({"trust_id": trusts[0]}), 403),
            (&eve, &spy, json!({"trust_id": trusts[1]}), 403),
            (&user, &demo, json!({"trust_id": trusts[1]}), 403),
            (&eve, &spy, json!({"app_cred_id": robot}), 401),
            (&user, &demo, json!({"app_cred_id": robot}), 200),
            (&user, &demo, json!({"trust_id": "nothing"}), 404),
            (&user, &demo, json!({"trust_id": "a\tb"}), 404),
            (&user, &demo, json!({"trust_id": 7}), 404),
            (&user, &demo, json!({"trust_id": {"id": trusts[0]}}), 404),
            (&user, &demo, json!({"app_cred_id": user}), 404),
            (&user, &demo, json!({"app_cred_id": [robot]}), 404),
            (&user, &demo, json!({"access_token_id": "t"}), 404),
            (&user, &demo, json!({"trust_id": null, "app_cred_id": "", "access_token_id": 0}), 200),
        ] {
            let stored = store(&cloud, token, owner, &project, more.clone()).await;
            let reply = ask(&cloud, &admin, valid()).await;
            assert_eq!(reply.status, status, "{more}: {}", reply.body);
            assert_eq!(cloud.as_user(&admin, "DELETE", &stored, Value::Null).await.status, 204);
        }
    }
}

#[tokio::test]
async fn an_ec2_token_has_the_limits_of_its_application_credential() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let (admin, demo) = (cloud.admin().await, cloud.token("demo", "demo", "demo").await);
        let path = format!("/v3/users/{user}/application_credentials");
        let body = json!({"application_credential": {"name": "robot", "secret": "s",
            "unrestricted": true, "roles": [{"name": "reader"}], "expires_at": "2099-02-27T18:30:59Z"}});
        let made = cloud.as_user(&demo, "POST", &path, body).await;
        let id = made.body["application_credential"]["id"].as_str().unwrap().to_owned();
        let login = json!({"auth": {"identity": {"methods": ["application_credential"],
            "application_credential": {"id": id, "secret": "s"}}}});
        let robot = token_of(&cloud.login(login).await);
        store(&cloud, &robot, &user, &project, json!({})).await;
        let reply = ask(&cloud, &admin, valid()).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let token = &reply.body["token"];
        assert_eq!(
            token["application_credential"],
            json!({"id": id, "name": "robot", "restricted": false})
        );
        let roles = token["roles"].as_array().unwrap();
        assert_eq!((roles.len(), &roles[0]["name"]), (1, &json!("reader")));
        let ends = format!("{path}/{id}");
        assert_eq!(cloud.as_user(&demo, "DELETE", &ends, Value::Null).await.status, 204);
        assert!(!cloud.opens(&token_of(&reply)).await);
        assert_eq!(ask(&cloud, &admin, valid()).await.status, 404);
    }
}

#[tokio::test]
async fn the_operator_sets_how_long_an_ec2_signature_is_accepted() {
    let century = Duration::from_secs(100 * 366 * 24 * 3600);
    for cloud in clouds_with(IdentityOptions { signature_lifetime: century, ..options() }).await {
        let (project, user, _) = cloud.demo().await;
        let admin = cloud.admin().await;
        store(&cloud, &admin, &user, &project, json!({})).await;
        for (name, status) in [("version 2, expired", 200), ("version 2, no time", 401)] {
            let reply = ask(&cloud, &admin, request(name)).await;
            assert_eq!(reply.status, status, "{name}: {}", reply.body);
        }
    }
}
