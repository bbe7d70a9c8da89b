//! Projects, their tree and their tags.

use serde_json::{Value, json};

use crate::cloud::clouds;

#[tokio::test]
async fn a_project_shows_what_is_above_and_below_it() {
    for cloud in clouds().await {
        let (project, _, _) = cloud.demo().await;
        let admin = cloud.admin().await;
        let show = async |query: &str| {
            let path = format!("/v3/projects/{project}?{query}");
            cloud.as_user(&admin, "GET", &path, Value::Null).await
        };
        for (query, parents, subtree) in [
            ("", None, None),
            ("parents_as_ids=0&subtree_as_list=0", None, None),
            ("parents_as_ids&subtree_as_ids", Some(json!({"default": null})), Some(Value::Null)),
            ("parents_as_list=True&subtree_as_list", Some(json!([])), Some(json!([]))),
        ] {
            let shown = show(query).await;
            assert_eq!(shown.status, 200, "{query}");
            let shown = &shown.body["project"];
            assert_eq!(shown.get("parents"), parents.as_ref(), "{query}");
            assert_eq!(shown.get("subtree"), subtree.as_ref(), "{query}");
        }
        for kind in ["parents", "subtree"] {
            let both = show(&format!("{kind}_as_list&{kind}_as_ids")).await;
            assert_eq!(both.status, 400);
            assert_eq!(
                both.body["error"]["message"],
                format!(
                    "Cannot use {kind}_as_list and {kind}_as_ids query params at the same time."
                )
            );
        }
    }
}

#[tokio::test]
async fn projects_have_tags_and_are_filtered_by_them() {
    for cloud in clouds().await {
        let (project, _, _) = cloud.demo().await;
        let admin = cloud.admin().await;
        let tags = format!("/v3/projects/{project}/tags");
        let one = |tag: &str| format!("{tags}/{tag}");
        let ask = async |method: &str, path: &str, body: Value| {
            cloud.as_user(&admin, method, path, body).await
        };
        assert_eq!(ask("PUT", &one("a"), Value::Null).await.status, 201);
        assert_eq!(ask("PUT", &one("a"), Value::Null).await.status, 201);
        assert_eq!(ask("HEAD", &one("a"), Value::Null).await.status, 204);
        assert_eq!(ask("HEAD", &one("b"), Value::Null).await.status, 404);
        let put = ask("PUT", &tags, json!({"tags": ["b", "c"]})).await;
        assert_eq!((put.status.as_u16(), &put.body["tags"]), (200, &json!(["b", "c"])));
        assert_eq!(ask("PUT", &tags, json!({"tags": ["b", "b"]})).await.status, 400);
        assert_eq!(ask("PUT", &tags, json!({})).await.status, 400);
        assert_eq!(ask("PUT", &one(&"x".repeat(256)), Value::Null).await.status, 400);
        for (query, count) in [
            ("tags=b,c", 1),
            ("tags=b,d", 0),
            ("tags-any=b,d", 1),
            ("not-tags=b,d&name=demo", 1),
            ("not-tags-any=b,d&name=demo", 0),
        ] {
            let found = ask("GET", &format!("/v3/projects?{query}"), Value::Null).await;
            assert_eq!(found.body["projects"].as_array().unwrap().len(), count, "{query}");
        }
        let demo = cloud.token("demo", "demo", "demo").await;
        assert_eq!(cloud.as_user(&demo, "GET", &tags, Value::Null).await.status, 200);
        assert_eq!(cloud.as_user(&demo, "DELETE", &tags, Value::Null).await.status, 403);
        assert_eq!(ask("DELETE", &one("b"), Value::Null).await.status, 204);
        assert_eq!(ask("DELETE", &one("b"), Value::Null).await.status, 404);
        assert_eq!(ask("DELETE", &tags, Value::Null).await.status, 204);
        assert_eq!(ask("GET", &tags, Value::Null).await.body["tags"], json!([]));
    }
}

#[tokio::test]
async fn an_immutable_project_changes_only_after_its_release() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        let ask = async |method: &str, path: &str, body: Value| {
            cloud.as_user(&admin, method, path, body).await
        };
        let options = |value: Value| json!({"options": {"immutable": value}});
        let fields = json!({"name": "kept", "tags": ["a"], "options": {"immutable": true}});
        let id = cloud.make(&admin, "project", fields).await;
        let path = format!("/v3/projects/{id}");
        let shown = ask("GET", &path, Value::Null).await;
        assert_eq!(shown.body["project"]["options"], json!({"immutable": true}));

        let both = json!({"description": "d", "options": {"immutable": false}});
        for fields in [json!({"name": "x"}), options(json!(true)), both] {
            let reply = ask("PATCH", &path, json!({"project": fields})).await;
            let words = format!(
                "Unable to update immutable project resource: `{id}`. Set resource option \
                 \"immutable\" to false first."
            );
            assert_eq!(
                (reply.status.as_u16(), &reply.body["error"]["message"]),
                (403, &json!(words))
            );
        }
        assert_eq!(ask("DELETE", &path, Value::Null).await.status, 403);
        let tags = format!("{path}/tags");
        for (method, path, body, verb) in [
            ("PUT", tags.clone(), json!({"tags": ["b"]}), "update"),
            ("DELETE", tags.clone(), Value::Null, "update"),
            ("PUT", format!("{tags}/b"), Value::Null, "create"),
            ("DELETE", format!("{tags}/a"), Value::Null, "delete"),
            ("DELETE", format!("{tags}/b"), Value::Null, "delete"),
        ] {
            let reply = ask(method, &path, body).await;
            let words = format!(
                "Cannot {verb} project tags for {id}, project is immutable. Set \"immutable\" option \
                 to false before creating project tags."
            );
            let message = &reply.body["error"]["message"];
            assert_eq!((reply.status.as_u16(), message), (403, &json!(words)), "{method} {path}");
        }
        assert_eq!(ask("GET", &tags, Value::Null).await.body["tags"], json!(["a"]));

        let release = json!({"project": options(Value::Null)});
        let released = ask("PATCH", &path, release).await;
        assert_eq!(released.status, 200);
        assert_eq!(released.body["project"]["options"], json!({}));
        assert_eq!(ask("DELETE", &path, Value::Null).await.status, 204);
        for options in [json!({"colour": true}), json!({"immutable": "yes"}), json!(7)] {
            let body = json!({"project": {"name": "p", "options": options}});
            assert_eq!(ask("POST", "/v3/projects", body).await.status, 400);
        }
    }
}
