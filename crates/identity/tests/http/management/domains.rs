//! Domains.

use serde_json::{Value, json};

use crate::cloud::clouds;

#[tokio::test]
async fn the_domain_is_the_one_project_that_acts_as_a_domain() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        let names = async |filter: &str| -> Vec<String> {
            let path = format!("/v3/projects?{filter}");
            let found = cloud.as_user(&admin, "GET", &path, Value::Null).await.body;
            let all = found["projects"].as_array().unwrap().iter();
            all.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
        };
        for word in ["true", "1", "yes"] {
            assert_eq!(names(&format!("is_domain={word}")).await, ["Default"], "{word}");
        }
        let after = names("is_domain=1&limit=1&marker=default").await;
        assert_eq!(after, Vec::<String>::new());
        for word in ["false", "0", "no"] {
            let found = names(&format!("is_domain={word}")).await;
            assert_eq!(found, ["admin", "service"], "{word}");
        }
        for filter in ["name=x", "enabled=0", "domain_id=default", "parent_id=default", "tags=a"] {
            let found = names(&format!("is_domain=1&{filter}")).await;
            assert_eq!(found, Vec::<String>::new(), "{filter}");
        }
        let path = "/v3/projects?is_domain=1&name__startswith=Def";
        let shown = cloud.as_user(&admin, "GET", path, Value::Null).await.body;
        let shown = &shown["projects"][0];
        assert_eq!((&shown["id"], &shown["is_domain"]), (&json!("default"), &json!(true)));
        assert_eq!((&shown["domain_id"], &shown["parent_id"]), (&Value::Null, &Value::Null));
    }
}

#[tokio::test]
async fn the_description_of_the_domain_can_be_changed() {
    for cloud in clouds().await {
        cloud.demo().await;
        let admin = cloud.admin().await;
        let patch = async |token: &str, id: &str, fields: Value| {
            let path = format!("/v3/domains/{id}");
            cloud.as_user(token, "PATCH", &path, json!({"domain": fields})).await
        };
        let described = json!({"description": "ours", "name": "Default", "enabled": true});
        let reply = patch(&admin, "default", described).await;
        assert_eq!(
            (reply.status.as_u16(), &reply.body["domain"]["description"]),
            (200, &json!("ours"))
        );
        for path in ["/v3/domains/default", "/v3/domains"] {
            let reply = cloud.as_user(&admin, "GET", path, Value::Null).await;
            assert!(reply.body.to_string().contains("ours"), "{}", reply.body);
        }
        for fields in [
            json!({"name": "other"}),
            json!({"description": "x", "enabled": false}),
            json!({"options": {"immutable": true}}),
            json!({"tags": ["a"]}),
            json!({"colour": "red"}),
            json!({"description": "a\u{0}b"}),
        ] {
            let reply = patch(&admin, "default", fields.clone()).await;
            assert_eq!(reply.status, 400, "{fields}");
        }
        let shown = cloud.as_user(&admin, "GET", "/v3/domains/default", Value::Null).await;
        assert_eq!(shown.body["domain"]["description"], "ours");
        assert_eq!(patch(&admin, "other", json!({"description": "x"})).await.status, 404);
        let demo = cloud.token("demo", "demo", "demo").await;
        assert_eq!(patch(&demo, "default", json!({"description": "x"})).await.status, 403);
    }
}

#[tokio::test]
async fn domains_are_neither_created_nor_deleted() {
    for cloud in clouds().await {
        cloud.demo().await;
        let admin = cloud.admin().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let new = json!({"domain": {"name": "second", "enabled": true}});
        let same = json!({"domain": {"name": "default"}});
        for (method, path, body, status, words) in [
            ("POST", "/v3/domains", new, 403, "another one cannot be created."),
            (
                "POST",
                "/v3/domains",
                same,
                409,
                "it is not possible to store the name Default twice.",
            ),
            ("DELETE", "/v3/domains/default", Value::Null, 403, "it cannot be deleted."),
            ("DELETE", "/v3/domains/second", Value::Null, 404, "Could not find domain: second."),
        ] {
            let reply = cloud.as_user(&admin, method, path, body.clone()).await;
            let message = reply.body["error"]["message"].as_str().unwrap();
            assert_eq!(reply.status, status, "{method} {path}: {message}");
            assert!(message.ends_with(words), "{method} {path}: {message}");
            let refused = cloud.as_user(&demo, method, path, body).await;
            assert_eq!(refused.status, 403, "{method} {path}");
            let message = refused.body["error"]["message"].as_str().unwrap();
            assert!(message.contains("_domain"), "the rule refuses first: {message}");
        }
        let all = cloud.as_user(&admin, "GET", "/v3/domains", Value::Null).await;
        assert_eq!(all.body["domains"].as_array().unwrap().len(), 1);
    }
}
