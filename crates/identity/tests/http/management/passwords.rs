//! Passwords of users.

use serde_json::{Value, json};

use crate::cloud::{by_name, clouds};

#[tokio::test]
async fn a_user_changes_its_own_password() {
    for cloud in clouds().await {
        let (_, user, _) = cloud.demo().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let path = format!("/v3/users/{user}/password");
        let wrong = json!({"user": {"original_password": "no", "password": "new"}});
        assert_eq!(cloud.as_user(&demo, "POST", &path, wrong.clone()).await.status, 401);
        // The old password suffices, without a token.
        assert_eq!(cloud.call("POST", &path, &[], wrong.clone()).await.status, 401);
        let nobody = "/v3/users/nobody/password";
        assert_eq!(cloud.call("POST", nobody, &[], wrong).await.status, 401);
        let once = json!({"user": {"original_password": "demo", "password": "once"}});
        assert_eq!(cloud.call("POST", &path, &[], once).await.status, 204);
        let demo = cloud.token("demo", "once", "demo").await;
        let right = json!({"user": {"original_password": "once", "password": "new"}});
        assert_eq!(cloud.as_user(&demo, "POST", &path, right).await.status, 204);
        assert!(!cloud.opens(&demo).await);
        cloud.token("demo", "new", "demo").await;
    }
}

#[tokio::test]
async fn a_locked_password_is_changed_by_administrators_only() {
    for cloud in clouds().await {
        let (_, user, _) = cloud.demo().await;
        let admin = cloud.admin().await;
        let path = format!("/v3/users/{user}");
        let lock = json!({"user": {"options": {"lock_password": true}}});
        assert_eq!(cloud.as_user(&admin, "PATCH", &path, lock).await.status, 200);
        let change = json!({"user": {"original_password": "demo", "password": "new"}});
        let reply = cloud.call("POST", &format!("{path}/password"), &[], change).await;
        let message = reply.body["error"]["message"].as_str().unwrap();
        assert_eq!(reply.status, 400, "{message}");
        assert!(message.contains("due to password policy disallowing password changes."));
        let change = json!({"user": {"password": "new"}});
        assert_eq!(cloud.as_user(&admin, "PATCH", &path, change).await.status, 200);
        cloud.token("demo", "new", "demo").await;
    }
}

#[tokio::test]
async fn null_removes_a_password_and_keeps_the_tokens() {
    for cloud in clouds().await {
        let (_, user, _) = cloud.demo().await;
        let (admin, demo) = (cloud.admin().await, cloud.token("demo", "demo", "demo").await);
        let set = async |password: Value| {
            let body = json!({"user": {"password": password}});
            cloud.as_user(&admin, "PATCH", &format!("/v3/users/{user}"), body).await.status
        };
        let login = async || cloud.login(by_name("demo", "demo", Some("demo"))).await.status;
        assert_eq!(set(Value::Null).await, 200);
        assert_eq!(login().await, 401);
        assert!(cloud.opens(&demo).await);
        assert_eq!(set(json!("demo")).await, 200);
        assert_eq!(login().await, 201);
        assert!(!cloud.opens(&demo).await, "a new password revokes the tokens");
    }
}

#[tokio::test]
async fn no_user_has_an_expiring_password_or_is_federated() {
    for cloud in clouds().await {
        let (_, user, _) = cloud.demo().await;
        let admin = cloud.admin().await;
        let group = cloud.make(&admin, "group", json!({"name": "g"})).await;
        let member = format!("/v3/groups/{group}/users/{user}");
        assert_eq!(cloud.as_user(&admin, "PUT", &member, Value::Null).await.status, 204);
        let of_group = format!("/v3/groups/{group}/users");
        let get = async |path: &str, filter: &str| {
            cloud.as_user(&admin, "GET", &format!("{path}?{filter}"), Value::Null).await
        };
        for path in ["/v3/users", of_group.as_str()] {
            for filter in [
                "lt:2099-12-08T22:02:00Z",
                "neq:2016-12-08T22:02:00Z",
                "2016-12-08T22:02:00Z",
                "lt:9999-12-31T23:59:59Z",
                "gt:0001-01-01T00:00:00",
                "2016-12-08",
            ] {
                let reply = get(path, &format!("password_expires_at={filter}")).await;
                assert_eq!(
                    (reply.status.as_u16(), &reply.body["users"]),
                    (200, &json!([])),
                    "{filter}"
                );
            }
            for (filter, words) in [
                ("lt:soon", "Timestamp not in expected format."),
                ("", "Timestamp not in expected format."),
                ("bt:2016-12-08T22:02:00Z", "The given operator bt is not valid."),
            ] {
                let reply = get(path, &format!("password_expires_at={filter}")).await;
                let message = reply.body["error"]["message"].as_str().unwrap();
                assert_eq!(reply.status, 400, "{message}");
                assert!(message.contains(words), "{message}");
            }
        }
        for filter in ["idp_id=x", "protocol_id=x", "unique_id=demo", "unique_id__contains=d"] {
            assert_eq!(get("/v3/users", filter).await.body["users"], json!([]), "{filter}");
        }
    }
}

#[tokio::test]
async fn of_concurrent_changes_of_one_password_one_succeeds() {
    for cloud in clouds().await {
        let (_, user, _) = cloud.demo().await;
        let path = format!("/v3/users/{user}/password");
        let change = |n: usize| {
            let body =
                json!({"user": {"original_password": "demo", "password": format!("new{n}")}});
            let (cloud, path) = (&cloud, &path);
            async move { cloud.call("POST", path, &[], body).await.status.as_u16() }
        };
        let (a, b, c, d) = tokio::join!(change(0), change(1), change(2), change(3));
        let answers = [a, b, c, d];
        let made = answers.iter().position(|status| *status == 204).expect("one change succeeds");
        let refused = answers.iter().filter(|status| **status == 401).count();
        assert_eq!(refused, 3, "{answers:?}");
        cloud.token("demo", &format!("new{made}"), "demo").await;
    }
}
