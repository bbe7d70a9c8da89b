//! Projects, users, roles, assignments, domains and the catalog resources.

mod domains;
mod lists;
mod passwords;
mod projects;
mod roles;
mod users;

use serde_json::{Value, json};

use crate::cloud::clouds;

#[tokio::test]
async fn resources_are_created_updated_and_deleted() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        for kind in ["project", "user", "role"] {
            let listing = format!("/v3/{kind}s");
            let missing = format!("{listing}/thing");
            let reply = cloud.as_user(&admin, "GET", &missing, Value::Null).await;
            assert_eq!(reply.status, 404);
            let message = format!("Could not find {kind}: thing.");
            assert_eq!(reply.body["error"]["message"], message);

            let fields = json!({"name": "thing", "description": "a thing"});
            let id = cloud.make(&admin, kind, fields).await;
            assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()));
            assert_eq!(cloud.find(&admin, kind, "thing").await, id);
            let path = format!("{listing}/{id}");
            let shown = cloud.as_user(&admin, "GET", &path, Value::Null).await;
            assert_eq!(shown.status, 200);
            assert_eq!(shown.body[kind]["description"], "a thing");
            let link = format!("http://cloud.example:8000/identity/v3/{kind}s/{id}");
            assert_eq!(shown.body[kind]["links"]["self"], link);

            let twice = json!({kind: {"name": "thing"}});
            let reply = cloud.as_user(&admin, "POST", &listing, twice).await;
            assert_eq!(reply.status, 409, "{}", reply.body);

            let change = json!({kind: {"name": "other", "description": "changed"}});
            let reply = cloud.as_user(&admin, "PATCH", &path, change).await;
            assert_eq!(reply.status, 200);
            assert_eq!(reply.body[kind]["name"], "other");
            assert_eq!(reply.body[kind]["description"], "changed");
            let taken = json!({kind: {"name": "admin"}});
            assert_eq!(cloud.as_user(&admin, "PATCH", &path, taken).await.status, 409);

            assert_eq!(cloud.as_user(&admin, "DELETE", &path, Value::Null).await.status, 204);
            assert_eq!(cloud.as_user(&admin, "DELETE", &path, Value::Null).await.status, 404);
            assert_eq!(cloud.as_user(&admin, "PATCH", &path, json!({kind: {}})).await.status, 404);
        }
    }
}

#[tokio::test]
async fn white_space_around_names_is_not_stored() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        for (kind, stored) in
            [("user", "one"), ("group", "one"), ("project", "one"), ("role", " one ")]
        {
            let id = cloud.make(&admin, kind, json!({"name": " one "})).await;
            let path = format!("/v3/{kind}s/{id}");
            let shown = cloud.as_user(&admin, "GET", &path, Value::Null).await;
            assert_eq!(shown.body[kind]["name"], stored, "{kind}");
            let change = json!({kind: {"name": "two "}});
            let changed = cloud.as_user(&admin, "PATCH", &path, change).await;
            let stored = if kind == "role" { "two " } else { "two" };
            assert_eq!(changed.body[kind]["name"], stored, "{kind}");
        }
        let taken = json!({"user": {"name": "\ttwo"}});
        assert_eq!(cloud.as_user(&admin, "POST", "/v3/users", taken).await.status, 409);
    }
}

#[tokio::test]
async fn additional_attributes_may_be_null() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        for (kind, path) in
            [("user", "users"), ("group", "groups"), ("project", "projects"), ("role", "roles")]
        {
            let fields = json!({"name": "one", "email": "a@b", "phone": null});
            let id = cloud.make(&admin, kind, fields).await;
            let path = format!("/v3/{path}/{id}");
            let change = json!({kind: {"email": null}});
            let shown = cloud.as_user(&admin, "GET", &path, Value::Null).await;
            assert_eq!(shown.body[kind]["email"], "a@b", "{kind}");
            assert_eq!(cloud.as_user(&admin, "PATCH", &path, change).await.status, 200);
            let shown = cloud.as_user(&admin, "GET", &path, Value::Null).await;
            for key in ["email", "phone"] {
                assert_eq!(shown.body[kind].get(key), Some(&Value::Null), "{kind}: {key}");
            }
        }
    }
}

#[tokio::test]
async fn ids_and_domains_do_not_change() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        let ask = async |method: &str, path: &str, body: Value| {
            let reply = cloud.as_user(&admin, method, path, body).await;
            (reply.status.as_u16(), reply.body["error"]["message"].clone())
        };
        for kind in ["user", "group", "project", "role", "region", "service"] {
            let fields = match kind {
                "region" => json!({"id": "one"}),
                "service" => json!({"type": "one"}),
                _ => json!({"name": "one"}),
            };
            let id = cloud.make(&admin, kind, fields).await;
            let path = format!("/v3/{kind}s/{id}");
            // Keystone compares the id of a user twice, and once also with null.
            let null = match kind {
                "user" => (400, json!("Cannot change user ID")),
                _ => (200, Value::Null),
            };
            for (id, answer) in [
                (json!("other"), (400, json!("Cannot change ID"))),
                (json!(id), (200, Value::Null)),
                (Value::Null, null),
            ] {
                let change = json!({kind: {"id": id, "description": "d"}});
                assert_eq!(ask("PATCH", &path, change).await, answer, "{kind} {id}");
            }
            if ["user", "group", "project"].contains(&kind) {
                let elsewhere = json!({kind: {"domain_id": "other"}});
                let answer = (400, json!("Cannot change Domain ID"));
                assert_eq!(ask("PATCH", &path, elsewhere).await, answer, "{kind}");
                let here = json!({kind: {"domain_id": "default"}});
                assert_eq!(ask("PATCH", &path, here).await.0, 200, "{kind}");
                let new = json!({kind: {"name": "two", "domain_id": "other"}});
                let status = if kind == "project" { 400 } else { 404 };
                let answer = (status, json!("Could not find domain: other."));
                assert_eq!(ask("POST", &format!("/v3/{kind}s"), new).await, answer, "{kind}");
            }
        }
    }
}

#[tokio::test]
async fn names_and_values_are_validated() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        for kind in ["project", "user", "role"] {
            let path = format!("/v3/{kind}s");
            for fields in [
                json!({}),
                json!({"name": ""}),
                json!({"name": "  "}),
                json!({"name": "a\u{0}b"}),
                json!({"name": "a\nb"}),
                json!({"name": 7}),
                json!({"name": "x".repeat(256)}),
                json!({"name": "x", "description": "a\u{0}b"}),
            ] {
                let reply =
                    cloud.as_user(&admin, "POST", &path, json!({kind: fields.clone()})).await;
                assert_eq!(reply.status, 400, "{kind} {fields}");
            }
            let query = format!("{path}?name=a%00b");
            let reply = cloud.as_user(&admin, "GET", &query, Value::Null).await;
            assert_eq!(reply.status, 400);
            let odd = format!("{path}/a%00b");
            assert_eq!(cloud.as_user(&admin, "GET", &odd, Value::Null).await.status, 400);
        }
        for fields in [
            json!({"name": "p", "enabled": "yes"}),
            json!({"name": "p", "parent_id": "0".repeat(32)}),
            json!({"name": "p", "is_domain": true}),
            json!({"name": "p", "tags": ["a", "a"]}),
            json!({"name": "p", "tags": "a"}),
        ] {
            let body = json!({"project": fields.clone()});
            let reply = cloud.as_user(&admin, "POST", "/v3/projects", body).await;
            assert_eq!(reply.status, 400, "{fields}");
        }
        let body = json!({"user": {"name": "u", "password": "x".repeat(5000)}});
        assert_eq!(cloud.as_user(&admin, "POST", "/v3/users", body).await.status, 400);
        let elsewhere = json!({"user": {"name": "u", "domain_id": "other"}});
        assert_eq!(cloud.as_user(&admin, "POST", "/v3/users", elsewhere).await.status, 404);
        let reply = cloud.as_user(&admin, "GET", "/v3/users?domain_id=other", Value::Null).await;
        assert_eq!(reply.body["users"], json!([]));
    }
}

#[tokio::test]
async fn the_catalog_is_available_as_resources() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        let get = async |path: &str| cloud.as_user(&admin, "GET", path, Value::Null).await;
        assert_eq!(get("/v3/auth/catalog").await.body["catalog"][0]["type"], "identity");
        let services = get("/v3/services?type=compute").await.body;
        assert_eq!(services["services"].as_array().unwrap().len(), 1);
        let id = services["services"][0]["id"].as_str().unwrap();
        assert_eq!(get(&format!("/v3/services/{id}")).await.body["service"]["name"], "nova");
        let endpoints = get(&format!("/v3/endpoints?service_id={id}&interface=public")).await.body;
        let url = &endpoints["endpoints"][0]["url"];
        assert_eq!(url, "http://cloud.example:8000/compute/v2.1");
        assert_eq!(get("/v3/regions").await.body["regions"][0]["id"], "RegionOne");
        assert_eq!(get("/v3/regions/R2").await.status, 404);
        assert_eq!(get("/v3/domains").await.body["domains"][0]["id"], "default");
        assert_eq!(get("/v3/domains/Default").await.status, 404);
        assert_eq!(get("/v3/domains?name=Default").await.body["domains"][0]["name"], "Default");
        assert_eq!(get("/v3/nothing").await.status, 404);
    }
}

#[tokio::test]
async fn no_update_clears_the_id_of_a_user_or_of_a_domain() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        for kind in ["user", "project", "group"] {
            let id = cloud.make(&admin, kind, json!({"name": "thing"})).await;
            let path = format!("/v3/{kind}s/{id}");
            let patch = async |fields: Value| {
                cloud.as_user(&admin, "PATCH", &path, json!({kind: fields})).await
            };
            let reply = patch(json!({"domain_id": null})).await;
            let message = reply.body["error"]["message"].as_str().unwrap();
            assert!(message.starts_with("Cannot change Domain ID"), "{message}");
            assert_eq!(reply.status, 400, "{kind}");
            assert_eq!(patch(json!({"domain_id": "default"})).await.status, 200, "{kind}");
            // Only users have an id that null would change.
            let status = if kind == "user" { 400 } else { 200 };
            assert_eq!(patch(json!({"id": null})).await.status, status, "{kind}");
        }
    }
}
