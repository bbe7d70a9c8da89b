//! Roles and assignments.

use serde_json::{Value, json};

use crate::cloud::clouds;

#[tokio::test]
async fn roles_are_granted_checked_listed_and_revoked() {
    for cloud in clouds().await {
        let (project, user, member) = cloud.demo().await;
        let admin = cloud.admin().await;
        let manager = cloud.find(&admin, "role", "manager").await;
        let roles = format!("/v3/projects/{project}/users/{user}/roles");
        let grant = format!("{roles}/{manager}");
        assert_eq!(cloud.as_user(&admin, "HEAD", &grant, Value::Null).await.status, 404);
        for _ in 0..2 {
            assert_eq!(cloud.as_user(&admin, "PUT", &grant, Value::Null).await.status, 204);
        }
        assert_eq!(cloud.as_user(&admin, "HEAD", &grant, Value::Null).await.status, 204);
        let listed = cloud.as_user(&admin, "GET", &roles, Value::Null).await;
        assert_eq!(listed.body["roles"].as_array().unwrap().len(), 2);

        let query = format!("/v3/role_assignments?user.id={user}&include_names=True");
        let reply = cloud.as_user(&admin, "GET", &query, Value::Null).await;
        let names: Vec<&Value> = reply.body["role_assignments"]
            .as_array()
            .unwrap()
            .iter()
            .map(|a| &a["role"]["name"])
            .collect();
        assert_eq!(names, ["manager", "member"]);
        let effective = format!("/v3/role_assignments?user.id={user}&effective");
        let reply = cloud.as_user(&admin, "GET", &effective, Value::Null).await;
        assert_eq!(reply.body["role_assignments"].as_array().unwrap().len(), 3);

        assert_eq!(cloud.as_user(&admin, "DELETE", &grant, Value::Null).await.status, 204);
        assert_eq!(cloud.as_user(&admin, "DELETE", &grant, Value::Null).await.status, 404);
        let nowhere = format!("/v3/projects/{project}/users/nobody/roles/{member}");
        assert_eq!(cloud.as_user(&admin, "PUT", &nowhere, Value::Null).await.status, 404);
    }
}

#[tokio::test]
async fn the_assignments_of_a_tree_are_those_of_its_projects() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let admin = cloud.admin().await;
        let reader = cloud.find(&admin, "role", "reader").await;
        for place in ["system", "domains/default"] {
            let path = format!("/v3/{place}/users/{user}/roles/{reader}");
            assert_eq!(cloud.as_user(&admin, "PUT", &path, Value::Null).await.status, 204);
        }
        let get = async |root: &str| {
            let path = format!(
                "/v3/role_assignments?user.id={user}&include_subtree&scope.project.id={root}"
            );
            cloud.as_user(&admin, "GET", &path, Value::Null).await
        };
        for root in [project.as_str(), "default"] {
            let found = get(root).await.body;
            let found = found["role_assignments"].as_array().unwrap();
            assert_eq!(found.len(), 1, "{root}");
            assert_eq!(found[0]["scope"]["project"]["id"], project, "{root}");
        }
        let missing = get("nothing").await;
        assert_eq!(missing.status, 404);
        assert_eq!(missing.body["error"]["message"], "Could not find project: nothing.");
    }
}

#[tokio::test]
async fn default_roles_are_immutable_and_role_names_are_unique_ignoring_case() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        for name in ["admin", "manager", "member", "reader", "service"] {
            let id = cloud.find(&admin, "role", name).await;
            let path = format!("/v3/roles/{id}");
            let shown = cloud.as_user(&admin, "GET", &path, Value::Null).await;
            assert_eq!(shown.body["role"]["options"], json!({"immutable": true}));
            let reply = cloud.as_user(&admin, "DELETE", &path, Value::Null).await;
            assert_eq!(reply.status, 403, "{name}");
            let message = reply.body["error"]["message"].as_str().unwrap();
            assert!(message.contains("\"immutable\" to false first"), "{message}");
            let rename = json!({"role": {"name": "other"}});
            assert_eq!(cloud.as_user(&admin, "PATCH", &path, rename).await.status, 403);
            let both = json!({"role": {"name": "other", "options": {"immutable": false}}});
            assert_eq!(cloud.as_user(&admin, "PATCH", &path, both).await.status, 403);
        }
        let spelt = json!({"role": {"name": "Admin"}});
        assert_eq!(cloud.as_user(&admin, "POST", "/v3/roles", spelt.clone()).await.status, 409);
        let clerk = cloud.make(&admin, "role", json!({"name": "Clérk"})).await;
        let path = format!("/v3/roles/{clerk}");
        assert_eq!(cloud.as_user(&admin, "PATCH", &path, spelt).await.status, 409);
        let other = json!({"role": {"name": "CLÉRK"}});
        assert_eq!(cloud.as_user(&admin, "POST", "/v3/roles", other.clone()).await.status, 409);
        assert_eq!(
            cloud.as_user(&admin, "PATCH", &path, other).await.status,
            200,
            "the role keeps its name"
        );
        let reader = cloud.find(&admin, "role", "reader").await;
        let path = format!("/v3/roles/{reader}");
        let release = json!({"role": {"options": {"immutable": false}}});
        assert_eq!(cloud.as_user(&admin, "PATCH", &path, release).await.status, 200);
        assert_eq!(cloud.as_user(&admin, "DELETE", &path, Value::Null).await.status, 204);
    }
}

#[tokio::test]
async fn no_role_belongs_to_a_domain() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        for domain in ["default", "other", ""] {
            let path = format!("/v3/roles?domain_id={domain}");
            let reply = cloud.as_user(&admin, "GET", &path, Value::Null).await;
            assert_eq!((reply.status.as_u16(), &reply.body["roles"]), (200, &json!([])), "{path}");
        }
        cloud.demo().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let reply = cloud.as_user(&demo, "GET", "/v3/roles?domain_id=default", Value::Null).await;
        assert_eq!(reply.status, 403);
    }
}
