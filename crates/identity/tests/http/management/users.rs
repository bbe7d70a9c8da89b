//! Users.

use serde_json::{Value, json};

use crate::cloud::clouds;

#[tokio::test]
async fn a_user_has_its_attributes_but_never_shows_its_password() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        let fields = json!({"name": "u", "password": "hidden!", "email": "u@example.org"});
        let id = cloud.make(&admin, "user", fields).await;
        let shown = cloud.as_user(&admin, "GET", &format!("/v3/users/{id}"), Value::Null).await;
        assert_eq!(shown.body["user"]["email"], "u@example.org");
        assert_eq!(shown.body["user"]["password_expires_at"], Value::Null);
        let text = shown.body.to_string();
        assert!(!text.contains("hidden!") && !text.contains("argon2"));
    }
}

#[tokio::test]
async fn a_deleted_project_is_no_default_project() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let admin = cloud.admin().await;
        let other = cloud.make(&admin, "project", json!({"name": "other"})).await;
        let path = format!("/v3/users/{user}");
        let set = json!({"user": {"default_project_id": project}});
        assert_eq!(cloud.as_user(&admin, "PATCH", &path, set).await.status, 200);
        for (deleted, default) in [(&other, Some(json!(project))), (&project, None)] {
            let of_project = format!("/v3/projects/{deleted}");
            let gone = cloud.as_user(&admin, "DELETE", &of_project, Value::Null).await;
            assert_eq!(gone.status, 204);
            let shown = cloud.as_user(&admin, "GET", &path, Value::Null).await;
            assert_eq!(shown.body["user"].get("default_project_id"), default.as_ref());
        }
    }
}

#[tokio::test]
async fn a_user_sees_itself_and_its_projects_and_changes_nothing() {
    for cloud in clouds().await {
        let (project, user, role) = cloud.demo().await;
        let admin = cloud.admin().await;
        let admin_id = cloud.find(&admin, "user", "admin").await;
        let admin_project = cloud.find(&admin, "project", "admin").await;
        let demo = cloud.token("demo", "demo", "demo").await;
        for (path, status) in [
            (format!("/v3/users/{user}"), 200),
            (format!("/v3/users/{user}/projects"), 200),
            (format!("/v3/projects/{project}"), 200),
            ("/v3/auth/projects".into(), 200),
            (format!("/v3/users/{admin_id}"), 403),
            (format!("/v3/users/{admin_id}/projects"), 403),
            (format!("/v3/users/{admin_id}/application_credentials"), 403),
            (format!("/v3/projects/{admin_project}"), 403),
            ("/v3/users/nobody".into(), 403),
            ("/v3/users".into(), 403),
            ("/v3/projects".into(), 403),
            ("/v3/groups".into(), 403),
            ("/v3/roles".into(), 403),
            ("/v3/role_assignments".into(), 403),
            ("/v3/domains".into(), 403),
            ("/v3/domains/default".into(), 200),
        ] {
            let reply = cloud.as_user(&demo, "GET", &path, Value::Null).await;
            assert_eq!(reply.status, status, "{path}");
        }
        let grant = format!("/v3/projects/{project}/users/{user}/roles/{role}");
        for (method, path) in [
            ("POST", "/v3/projects".to_owned()),
            ("POST", "/v3/users".to_owned()),
            ("POST", "/v3/roles".to_owned()),
            ("PATCH", format!("/v3/users/{user}")),
            ("DELETE", format!("/v3/users/{user}")),
            ("PATCH", format!("/v3/projects/{project}")),
            ("DELETE", format!("/v3/projects/{project}")),
            ("DELETE", format!("/v3/roles/{role}")),
            ("PUT", grant.clone()),
            ("DELETE", grant),
        ] {
            let reply = cloud.as_user(&demo, method, &path, json!({})).await;
            assert_eq!(reply.status, 403, "{method} {path}");
        }
    }
}

/// Clients reset all options of a user at once (`keystone/identity/backends/resource_options.py`).
#[tokio::test]
async fn every_option_of_a_user_can_be_reset() {
    for cloud in clouds().await {
        let (_, user, _) = cloud.demo().await;
        let admin = cloud.admin().await;
        let path = format!("/v3/users/{user}");
        let set = async |options: Value| {
            let body = json!({"user": {"options": options}});
            cloud.as_user(&admin, "PATCH", &path, body).await
        };
        let shown = set(json!({
            "multi_factor_auth_rules": [], "multi_factor_auth_enabled": false, "lock_password": true,
        }));
        let stored = json!({
            "multi_factor_auth_rules": [], "multi_factor_auth_enabled": false, "lock_password": true,
        });
        assert_eq!(shown.await.body["user"]["options"], stored);
        for rules in [json!([["password", "totp"]]), json!([[]]), json!("password"), json!({})] {
            let refused = set(json!({"multi_factor_auth_rules": rules})).await;
            let message = refused.body["error"]["message"].as_str().unwrap();
            assert_eq!(refused.status, 400, "{message}");
            assert!(message.contains("must be null or an empty list"), "{message}");
        }
        assert_eq!(set(json!({"multi_factor_auth_enabled": "no"})).await.status, 400);
        let shown = cloud.as_user(&admin, "GET", &path, Value::Null).await;
        assert_eq!(shown.body["user"]["options"], stored, "a refusal changes nothing");
        let reset = set(json!({
            "ignore_change_password_upon_first_use": null, "ignore_password_expiry": null,
            "ignore_lockout_failure_attempts": null, "ignore_user_inactivity": null,
            "lock_password": null, "multi_factor_auth_rules": null, "multi_factor_auth_enabled": null,
        }))
        .await;
        assert_eq!(reset.status, 200, "{}", reset.body);
        assert_eq!(reset.body["user"]["options"], json!({}));
    }
}
