//! Validation of tokens, and everything that invalidates one.

use std::time::Duration;

use kilonova_identity::{Identity, IdentityOptions, TokenKeys};
use serde_json::{Value, json};

use crate::cloud::{clouds, clouds_with, mounted, options};

#[tokio::test]
async fn a_token_is_validated_and_revoked() {
    for cloud in clouds().await {
        cloud.demo().await;
        let (admin, demo) = (cloud.admin().await, cloud.token("demo", "demo", "demo").await);
        let pair = [("x-auth-token", admin.as_str()), ("x-subject-token", demo.as_str())];
        let reply = cloud.call("GET", "/v3/auth/tokens", &pair, Value::Null).await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.headers["x-subject-token"], demo);
        assert_eq!(reply.body["token"]["user"]["name"], "demo");
        assert!(reply.body["token"]["catalog"].is_array());
        let short = cloud.call("GET", "/v3/auth/tokens?nocatalog", &pair, Value::Null).await;
        assert!(short.body["token"].get("catalog").is_none());
        let head = cloud.call("HEAD", "/v3/auth/tokens", &pair, Value::Null).await;
        assert_eq!(head.status, 200);

        let turned = [("x-auth-token", demo.as_str()), ("x-subject-token", admin.as_str())];
        let reply = cloud.call("GET", "/v3/auth/tokens", &turned, Value::Null).await;
        assert_eq!(reply.status, 403);
        for (token, method, status) in [
            (&admin, "GET", 404),
            (&admin, "HEAD", 404),
            (&admin, "DELETE", 404),
            (&demo, "GET", 403),
        ] {
            let reply = cloud.as_user(token, method, "/v3/auth/tokens", Value::Null).await;
            assert_eq!(reply.status, status, "{method} without a subject");
            if (method, status) == ("GET", 404) {
                assert_eq!(reply.body["error"]["message"], "No token in the request");
            }
        }
        let none = [("x-subject-token", demo.as_str())];
        assert_eq!(cloud.call("GET", "/v3/auth/tokens", &none, Value::Null).await.status, 401);

        assert!(cloud.opens(&demo).await);
        let own = [("x-auth-token", demo.as_str()), ("x-subject-token", demo.as_str())];
        let reply = cloud.call("DELETE", "/v3/auth/tokens", &own, Value::Null).await;
        assert_eq!(reply.status, 204);
        assert!(!cloud.opens(&demo).await, "the cache must not outlive the token");
        let reply = cloud.call("GET", "/v3/auth/tokens", &pair, Value::Null).await;
        assert_eq!(reply.status, 404);
        assert_eq!(reply.body["error"]["message"], "Could not recognize Fernet token");
        let again = cloud.token("demo", "demo", "demo").await;
        let ended = [("x-auth-token", again.as_str()), ("x-subject-token", demo.as_str())];
        let reply = cloud.call("HEAD", "/v3/auth/tokens", &ended, Value::Null).await;
        assert_eq!(reply.status, 404, "a revoked token is not found");
        assert!(cloud.opens(&admin).await);
    }
}

#[tokio::test]
async fn an_expired_token_is_refused() {
    let short = IdentityOptions { token_expiration: Duration::from_secs(1), ..options() };
    for cloud in clouds_with(short).await {
        // On a slow machine the token may expire before it is used.
        let token = loop {
            let token = cloud.admin().await;
            if cloud.opens(&token).await {
                break token;
            }
        };
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert!(!cloud.opens(&token).await, "the cache must not outlive the token");
        let reply = cloud.as_user(&token, "GET", "/v3/users", Value::Null).await;
        assert_eq!(reply.status, 401);
    }
}

#[tokio::test]
async fn a_foreign_token_is_refused() {
    for cloud in clouds().await {
        let token = cloud.admin().await;
        let keys = TokenKeys::in_memory().unwrap();
        let other = Identity::open(cloud.store.clone(), keys, options()).await.unwrap();
        let mut foreign = cloud.call("GET", "/v3", &[], Value::Null).await;
        assert_eq!(foreign.status, 200);
        let request = axum::http::Request::get("/identity/v3/users")
            .header("x-auth-token", &token)
            .body(axum::body::Body::empty())
            .unwrap();
        foreign = crate::cloud::send(&mounted(&other), request).await;
        assert_eq!(foreign.status, 401);
        for wrong in ["", "x", "gAAAAA", &token[1..], &format!("{token}A"), &"é".repeat(9)] {
            let reply = cloud.as_user(wrong, "GET", "/v3/users", Value::Null).await;
            assert_eq!(reply.status, 401);
        }
    }
}

#[tokio::test]
async fn each_relevant_change_ends_a_token_at_once() {
    for cloud in clouds().await {
        let (project, user, role) = cloud.demo().await;
        let admin = cloud.admin().await;
        let grant = format!("/v3/projects/{project}/users/{user}/roles/{role}");
        let (user, project) = (format!("/v3/users/{user}"), format!("/v3/projects/{project}"));
        let steps = [
            ("DELETE", &grant, Value::Null, 204),
            ("PATCH", &user, json!({"user": {"enabled": false}}), 200),
            ("PATCH", &project, json!({"project": {"enabled": false}}), 200),
            ("PATCH", &user, json!({"user": {"password": "other"}}), 200),
            ("DELETE", &project, Value::Null, 204),
        ];
        for (method, path, body, status) in steps {
            let token = cloud.token("demo", "demo", "demo").await;
            assert!(cloud.opens(&token).await);
            let reply = cloud.as_user(&admin, method, path, body).await;
            assert_eq!(reply.status, status);
            assert!(!cloud.opens(&token).await, "{method} {path}");
            let restore = [
                ("PATCH", &user, json!({"user": {"enabled": true, "password": "demo"}})),
                ("PATCH", &project, json!({"project": {"enabled": true}})),
                ("PUT", &grant, Value::Null),
            ];
            for (method, path, body) in restore {
                cloud.as_user(&admin, method, path, body).await;
            }
        }
        let token = {
            let body = crate::cloud::by_name("demo", "demo", None);
            crate::cloud::token_of(&cloud.login(body).await)
        };
        assert!(cloud.opens(&token).await);
        assert_eq!(cloud.as_user(&admin, "DELETE", &user, Value::Null).await.status, 204);
        assert!(!cloud.opens(&token).await);
    }
}

#[tokio::test]
async fn a_service_validates_any_token_but_revokes_only_its_own() {
    for cloud in clouds().await {
        cloud.demo().await;
        let admin = cloud.admin().await;
        let service = cloud.find(&admin, "project", "service").await;
        let role = cloud.find(&admin, "role", "service").await;
        let nova = cloud.make(&admin, "user", json!({"name": "nova", "password": "nova"})).await;
        let path = format!("/v3/projects/{service}/users/{nova}/roles/{role}");
        assert_eq!(cloud.as_user(&admin, "PUT", &path, Value::Null).await.status, 204);
        let demo = cloud.token("demo", "demo", "demo").await;
        let nova = cloud.token("nova", "nova", "service").await;
        let pair = [("x-auth-token", nova.as_str()), ("x-subject-token", demo.as_str())];
        assert_eq!(cloud.call("GET", "/v3/auth/tokens", &pair, Value::Null).await.status, 200);
        assert_eq!(cloud.call("DELETE", "/v3/auth/tokens", &pair, Value::Null).await.status, 403);
        assert!(cloud.opens(&demo).await);
        let own = [("x-auth-token", nova.as_str()), ("x-subject-token", nova.as_str())];
        assert_eq!(cloud.call("DELETE", "/v3/auth/tokens", &own, Value::Null).await.status, 204);
        let theirs = [("x-auth-token", admin.as_str()), ("x-subject-token", demo.as_str())];
        assert_eq!(cloud.call("DELETE", "/v3/auth/tokens", &theirs, Value::Null).await.status, 204);
        assert!(!cloud.opens(&demo).await, "an admin revokes any token");
    }
}
