//! Successful and failed logins.

use axum::body::Body;
use axum::http::Request;
use kilonova_identity::{Identity, IdentityOptions};
use kilonova_wire::Authenticator as _;
use serde_json::{Value, json};
use std::time::Duration;

use crate::cloud::{PASSWORD, by_name, clouds, mounted, options, send, token_of};

const REFUSAL: &str = r#"{"error":{"code":401,"message":"The request you have made requires authentication.","title":"Unauthorized"}}"#;

#[tokio::test]
async fn version_documents_are_public() {
    for cloud in clouds().await {
        let reply = cloud.call("GET", "", &[], Value::Null).await;
        assert_eq!(reply.status, 300);
        let link = &reply.body["versions"]["values"][0]["links"][0]["href"];
        assert_eq!(link, "http://cloud.example:8000/identity/v3/");
        for path in ["/v3", "/v3/"] {
            let reply = cloud.call("GET", path, &[], Value::Null).await;
            assert_eq!(reply.status, 200);
            assert_eq!(reply.body["version"]["id"], "v3.14");
        }
    }
}

#[tokio::test]
async fn a_password_login_returns_a_token_with_the_catalog() {
    for cloud in clouds().await {
        let reply = cloud.login(by_name("admin", PASSWORD, Some("admin"))).await;
        assert_eq!(reply.status, 201);
        let token = &reply.body["token"];
        assert_eq!(token["methods"], json!(["password"]));
        assert_eq!(token["user"]["name"], "admin");
        assert_eq!(token["user"]["domain"], json!({"id": "default", "name": "Default"}));
        assert_eq!(token["project"]["name"], "admin");
        assert_eq!(token["is_domain"], false);
        assert_eq!(token["audit_ids"][0].as_str().unwrap().len(), 22);
        let id = token["user"]["id"].as_str().unwrap();
        assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()));
        let roles: Vec<&str> = token["roles"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["name"].as_str().unwrap())
            .collect();
        assert_eq!(roles, ["admin", "manager", "member", "reader"]);
        let compute = &token["catalog"][1];
        assert_eq!(compute["type"], "compute");
        assert_eq!(compute["endpoints"].as_array().unwrap().len(), 3);
        let endpoint = &compute["endpoints"][0];
        assert_eq!(endpoint["url"], "http://cloud.example:8000/compute/v2.1");
        assert_eq!(endpoint["region"], "RegionOne");
        assert_eq!(endpoint["region_id"], "RegionOne");
        assert!(endpoint["id"].is_string());

        let by_id = json!({"auth": {
            "identity": {"methods": ["password"],
                         "password": {"user": {"id": id, "password": PASSWORD}}},
            "scope": {"project": {"id": token["project"]["id"]}},
        }});
        assert_eq!(cloud.login(by_id).await.status, 201);
    }
}

#[tokio::test]
async fn every_failed_login_looks_the_same() {
    for cloud in clouds().await {
        cloud.demo().await;
        let admin = cloud.admin().await;
        let off = json!({"name": "off", "password": "off", "enabled": false});
        cloud.make(&admin, "user", off).await;
        cloud.make(&admin, "user", json!({"name": "keyless"})).await;
        let elsewhere = json!({"auth": {"identity": {"methods": ["password"], "password": {
            "user": {"name": "demo", "domain": {"name": "Other"}, "password": "demo"}}}}});
        for body in [
            by_name("demo", "wrong", Some("demo")),
            by_name("nobody", "demo", Some("demo")),
            by_name("off", "off", None),
            by_name("keyless", "", None),
            by_name("demo", "demo", Some("admin")),
            by_name("demo", "demo", Some("nothing")),
            by_name("demo", &"x".repeat(10_000), Some("demo")),
            by_name("demo", "demo", Some("de\nmo")),
            elsewhere,
        ] {
            let reply = cloud.login(body).await;
            assert_eq!(reply.status, 401);
            assert_eq!(reply.body.to_string(), REFUSAL);
            assert_eq!(
                reply.headers["www-authenticate"],
                "Keystone uri=\"http://cloud.example:8000/identity/v3\""
            );
        }
    }
}

#[tokio::test]
async fn an_incomplete_body_is_refused_with_a_reason() {
    for cloud in clouds().await {
        for body in [
            json!({}),
            json!([1]),
            json!({"auth": {}}),
            json!({"auth": {"identity": {"methods": []}}}),
            json!({"auth": {"identity": {"methods": ["kerberos"]}}}),
            json!({"auth": {"identity": {"methods": ["password", "totp"], "totp": {}}}}),
            json!({"auth": {"identity": {"methods": ["password", "token"], "password": {}, "token": {}}}}),
            json!({"auth": {"identity": {"methods": ["password"], "password": {"user": {}}}}}),
            json!({"auth": {"identity": {"methods": ["token"], "token": {"id": 7}}}}),
        ] {
            let reply = cloud.login(body).await;
            assert_eq!(reply.status, 400, "{}", reply.body);
            assert_eq!(reply.body["error"]["code"], 400);
        }
    }
}

#[tokio::test]
async fn a_login_with_an_unsupported_method_is_unauthorized() {
    for cloud in clouds().await {
        let mut second = by_name("admin", PASSWORD, None);
        second["auth"]["identity"]["methods"] = json!(["password", "totp"]);
        second["auth"]["identity"]["totp"] = json!({"user": {"id": "x", "passcode": "1"}});
        for body in [
            json!({"auth": {"identity": {"methods": ["totp"], "totp": {"user": {}}}}}),
            json!({"auth": {"identity": {"methods": ["oauth1"], "oauth1": {}}}}),
            json!({"auth": {"identity": {"methods": ["external"], "external": null}}}),
            second,
        ] {
            let reply = cloud.login(body).await;
            assert_eq!(reply.status, 401, "{}", reply.body);
            assert_eq!(
                reply.body["error"]["message"],
                "Attempted to authenticate with an unsupported method."
            );
            assert!(reply.headers.contains_key("www-authenticate"));
        }
    }
}

#[tokio::test]
async fn a_huge_body_is_not_read() {
    for cloud in clouds().await {
        let request = || Request::post("/identity/v3/auth/tokens");
        let sent = request().body(Body::from(vec![b'['; 100_000_000])).unwrap();
        assert_eq!(send(&cloud.router, sent).await.status, 413);
        let announced = request().header("content-length", 100_000_000).body(Body::empty());
        assert_eq!(send(&cloud.router, announced.unwrap()).await.status, 413);
        let longer = by_name("admin", &"x".repeat(17_000), None);
        assert_eq!(cloud.login(longer).await.status, 413);
        let longest = by_name("admin", &"x".repeat(15_000), None);
        assert_eq!(cloud.login(longest).await.status, 401);
    }
}

#[tokio::test]
async fn an_unscoped_token_has_no_project_and_no_catalog() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let reply = cloud.login(by_name("demo", "demo", None)).await;
        assert_eq!(reply.status, 201);
        assert!(reply.body["token"].get("project").is_none());
        assert!(reply.body["token"].get("catalog").is_none());
        let unscoped = token_of(&reply);
        let own = cloud.as_user(&unscoped, "GET", "/v3/auth/projects", Value::Null).await;
        assert_eq!(own.body["projects"][0]["id"], project);

        let rescope = json!({"auth": {
            "identity": {"methods": ["token"], "token": {"id": unscoped}},
            "scope": {"project": {"id": project}},
        }});
        let scoped = cloud.login(rescope.clone()).await;
        assert_eq!(scoped.status, 201);
        assert_eq!(scoped.body["token"]["methods"], json!(["password", "token"]));
        assert_eq!(scoped.body["token"]["audit_ids"][1], reply.body["token"]["audit_ids"][0]);
        assert_eq!(scoped.body["token"]["expires_at"], reply.body["token"]["expires_at"]);

        let admin = cloud.admin().await;
        let change = json!({"user": {"default_project_id": project}});
        let path = format!("/v3/users/{user}");
        assert_eq!(cloud.as_user(&admin, "PATCH", &path, change).await.status, 200);
        let by_default = cloud.login(by_name("demo", "demo", None)).await;
        assert_eq!(by_default.body["token"]["project"]["id"], project);
        let mut body = by_name("demo", "demo", None);
        body["auth"]["scope"] = json!("unscoped");
        assert!(cloud.login(body).await.body["token"].get("project").is_none());
    }
}

#[tokio::test]
async fn authentication_adds_the_service_roles() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let admin = cloud.admin().await;
        let service = cloud.find(&admin, "project", "service").await;
        let role = cloud.find(&admin, "role", "service").await;
        let nova = cloud.make(&admin, "user", json!({"name": "nova", "password": "nova"})).await;
        let path = format!("/v3/projects/{service}/users/{nova}/roles/{role}");
        cloud.as_user(&admin, "PUT", &path, Value::Null).await;

        let mut headers = axum::http::HeaderMap::new();
        let token = cloud.token("demo", "demo", "demo").await;
        headers.insert("x-auth-token", token.parse().unwrap());
        let context = cloud.identity.authenticate(&headers).await.unwrap();
        assert_eq!((context.user_id, context.project_id), (user, project));
        assert_eq!(context.roles, ["member", "reader"]);
        assert!(context.service_roles.is_empty());

        let token = cloud.token("nova", "nova", "service").await;
        headers.insert("x-service-token", token.parse().unwrap());
        let context = cloud.identity.authenticate(&headers).await.unwrap();
        assert!(context.is_service() && !context.is_admin());
        headers.insert("x-service-token", "gAAAAnonsense".parse().unwrap());
        assert!(cloud.identity.authenticate(&headers).await.is_err());
        // A user cannot pose as a service.
        headers.insert("x-service-token", headers["x-auth-token"].clone());
        assert!(cloud.identity.authenticate(&headers).await.is_err());
        // The accepted roles, not a role named `service`, make a caller a service.
        let service_tokens = kilonova_identity::ServiceTokens {
            roles: vec!["member".to_owned()],
            roles_required: true,
        };
        let options = IdentityOptions { service_tokens, ..options() };
        let other = Identity::open(cloud.store.clone(), cloud.keys.clone(), options).await.unwrap();
        let context = other.authenticate(&headers).await.unwrap();
        assert_eq!(context.service_roles, ["member", "reader"]);
        assert!(context.is_service());
    }
}

#[tokio::test]
async fn a_service_vouches_for_an_expired_token() {
    for cloud in clouds().await {
        cloud.demo().await;
        let admin = cloud.admin().await;
        let service = cloud.find(&admin, "project", "service").await;
        let role = cloud.find(&admin, "role", "service").await;
        let nova = cloud.make(&admin, "user", json!({"name": "nova", "password": "nova"})).await;
        let path = format!("/v3/projects/{service}/users/{nova}/roles/{role}");
        cloud.as_user(&admin, "PUT", &path, Value::Null).await;
        let vouching = cloud.token("nova", "nova", "service").await;

        let short = |window| IdentityOptions {
            token_expiration: Duration::from_secs(1),
            allow_expired_window: Duration::from_secs(window),
            ..options()
        };
        let open = |options| Identity::open(cloud.store.clone(), cloud.keys.clone(), options);
        let (brief, generous) = (open(short(1)).await.unwrap(), open(short(3600)).await.unwrap());
        let token = token_at(&generous, "demo").await;
        // On a slow machine the token may expire before it is revoked.
        let revoked = loop {
            let token = token_at(&generous, "demo").await;
            let pair = [("x-auth-token", admin.as_str()), ("x-subject-token", token.as_str())];
            if cloud.call("DELETE", "/v3/auth/tokens", &pair, Value::Null).await.status == 204 {
                break token;
            }
        };

        let admit = async |identity: &Identity, token: &str, with_service: bool| {
            let mut headers = axum::http::HeaderMap::new();
            headers.insert("x-auth-token", token.parse().unwrap());
            if with_service {
                headers.insert("x-service-token", vouching.parse().unwrap());
            }
            identity.authenticate(&headers).await.map(|context| context.user_name).ok()
        };
        // Past the end of the window of one second.
        tokio::time::sleep(Duration::from_millis(2100)).await;
        assert_eq!(admit(&generous, &token, true).await.as_deref(), Some("demo"));
        assert_eq!(admit(&generous, &token, false).await, None, "no service vouches for the user");
        assert_eq!(admit(&generous, &revoked, true).await, None, "the token was revoked");
        assert_eq!(admit(&brief, &token, true).await, None, "the window has ended");

        // Keystone's own API accepts no expired token: there the service vouches for nothing.
        let router = mounted(&generous);
        let live = token_at(&cloud.identity, "demo").await;
        let user = live_user(&router, &live).await;
        for (token, status) in [(&live, 200), (&token, 401)] {
            for path in ["/v3/auth/projects".to_owned(), format!("/v3/users/{user}")] {
                let request = axum::http::Request::get(format!("/identity{path}"))
                    .header("x-auth-token", token)
                    .header("x-service-token", &vouching);
                let reply = send(&router, request.body(Default::default()).unwrap()).await;
                assert_eq!(reply.status, status, "{path}: {}", reply.body);
                let challenge = reply.headers.contains_key("www-authenticate");
                assert_eq!(challenge, status == 401, "{path}");
            }
            let request = axum::http::Request::get("/identity/v3/auth/tokens?allow_expired=1")
                .header("x-auth-token", token)
                .header("x-subject-token", token)
                .header("x-service-token", &vouching);
            let reply = send(&router, request.body(Default::default()).unwrap()).await;
            assert_eq!(reply.status, status, "{}", reply.body);
        }

        // Another service validates the token as `keystonemiddleware` does.
        let pair = [("x-auth-token", vouching.as_str()), ("x-subject-token", token.as_str())];
        let validate = "/v3/auth/tokens?nocatalog&allow_expired=1";
        assert_eq!(cloud.call("GET", validate, &pair, Value::Null).await.status, 200);
        for refused in ["/v3/auth/tokens", "/v3/auth/tokens?allow_expired=0"] {
            assert_eq!(cloud.call("GET", refused, &pair, Value::Null).await.status, 404);
        }
        // A revocation is kept as long as the token can be presented.
        let own = [("x-auth-token", admin.as_str()), ("x-subject-token", admin.as_str())];
        assert_eq!(cloud.call("DELETE", "/v3/auth/tokens", &own, Value::Null).await.status, 204);
        assert_eq!(admit(&generous, &revoked, true).await, None, "the revocation was deleted");
    }
}

/// The id of the token's user.
async fn live_user(router: &axum::Router, token: &str) -> String {
    let request = axum::http::Request::get("/identity/v3/auth/tokens")
        .header("x-auth-token", token)
        .header("x-subject-token", token);
    let reply = send(router, request.body(Default::default()).unwrap()).await;
    reply.body["token"]["user"]["id"].as_str().unwrap().to_owned()
}

/// A token of the user on the project of the same name, issued by this controller.
async fn token_at(identity: &Identity, user: &str) -> String {
    let router = mounted(identity);
    let request = axum::http::Request::post("/identity/v3/auth/tokens");
    let body = by_name(user, user, Some(user)).to_string();
    let reply = send(&router, request.body(body.into()).unwrap()).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    token_of(&reply)
}

/// Keystone routes before it authenticates: a client of another API or method learns that its path does not exist.
#[tokio::test]
async fn an_unknown_path_is_not_found_without_a_token() {
    for cloud in clouds().await {
        for (method, path) in
            [("POST", "/v2.0/tokens"), ("GET", "/v3/nope"), ("POST", "/v3/OS-OAUTH2/token")]
        {
            let reply = cloud.as_user("", method, path, json!({})).await;
            assert_eq!(reply.status, 404, "{method} {path}: {}", reply.body);
        }
        let reply = cloud.as_user("", "GET", "/v3/projects", Value::Null).await;
        assert_eq!(reply.status, 401, "a path that exists: {}", reply.body);
    }
}
