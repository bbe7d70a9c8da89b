//! Application credentials: creation, use, restriction, expiry.

use serde_json::{Value, json};

use kilonova_identity::IdentityOptions;

use crate::cloud::{Cloud, clouds, clouds_with, options, token_of};

async fn make(cloud: &Cloud, token: &str, user: &str, fields: Value) -> Value {
    let path = format!("/v3/users/{user}/application_credentials");
    let body = json!({"application_credential": fields});
    let reply = cloud.as_user(token, "POST", &path, body).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    reply.body["application_credential"].clone()
}

fn by(credential: Value) -> Value {
    json!({"auth": {"identity": {
        "methods": ["application_credential"], "application_credential": credential}}})
}

#[tokio::test]
async fn the_secret_is_shown_once_and_grants_the_project() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let made = make(&cloud, &demo, &user, json!({"name": "robot", "description": "d"})).await;
        let (id, secret) = (made["id"].as_str().unwrap(), made["secret"].as_str().unwrap());
        assert!(secret.len() >= 64);
        let path = format!("/v3/users/{user}/application_credentials");
        let shown = cloud.as_user(&demo, "GET", &format!("{path}/{id}"), Value::Null).await;
        assert!(shown.body["application_credential"].get("secret").is_none());
        let listed = cloud.as_user(&demo, "GET", &format!("{path}?name=robot"), Value::Null).await;
        assert_eq!(listed.body["application_credentials"][0]["id"], id);

        let reply = cloud.login(by(json!({"id": id, "secret": secret}))).await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        assert_eq!(reply.body["token"]["project"]["id"], project);
        assert_eq!(reply.body["token"]["methods"], json!(["application_credential"]));
        assert_eq!(reply.body["token"]["application_credential"]["restricted"], true);
        let by_name = json!({"name": "robot", "user": {"id": user}, "secret": secret});
        assert_eq!(cloud.login(by(by_name)).await.status, 201);
        for wrong in [
            json!({"id": id, "secret": "no"}),
            json!({"id": "no", "secret": secret}),
            json!({"name": "robot", "user": {"name": "admin", "domain": {"id": "default"}},
                   "secret": secret}),
        ] {
            assert_eq!(cloud.login(by(wrong)).await.status, 401);
        }

        let robot = token_of(&reply);
        let body = json!({"application_credential": {"name": "child"}});
        assert_eq!(cloud.as_user(&robot, "POST", &path, body).await.status, 403);
        let own = format!("{path}/{id}");
        assert_eq!(cloud.as_user(&robot, "DELETE", &own, Value::Null).await.status, 403);
        // The token creates another one of the same credential only.
        let mut again =
            json!({"auth": {"identity": {"methods": ["token"], "token": {"id": robot}}}});
        let second = cloud.login(again.clone()).await;
        assert_eq!(second.status, 201, "{}", second.body);
        let (first, token) = (&reply.body["token"], &second.body["token"]);
        assert_eq!(token["methods"], json!(["token", "application_credential"]));
        for key in ["project", "roles", "application_credential", "expires_at"] {
            assert_eq!(token[key], first[key], "{key}");
        }
        let second = token_of(&second);
        assert_eq!(cloud.as_user(&second, "DELETE", &own, Value::Null).await.status, 403);
        for scope in [
            json!("unscoped"),
            json!({"project": {"id": project}}),
            json!({"domain": {"id": "default"}}),
            json!({"system": {"all": true}}),
        ] {
            again["auth"]["scope"] = scope;
            let refused = cloud.login(again.clone()).await;
            assert_eq!(refused.status, 403, "{again}");
            let message = refused.body["error"]["message"].as_str().unwrap();
            assert!(message.contains("to create a scoped token is not allowed."), "{message}");
        }

        assert_eq!(cloud.as_user(&demo, "DELETE", &own, Value::Null).await.status, 204);
        assert!(!cloud.opens(&robot).await && !cloud.opens(&second).await);
    }
}

#[tokio::test]
async fn a_credential_never_exceeds_its_users_roles() {
    for cloud in clouds().await {
        let (project, user, role) = cloud.demo().await;
        let (admin, demo) = (cloud.admin().await, cloud.token("demo", "demo", "demo").await);
        let path = format!("/v3/users/{user}/application_credentials");
        for fields in [
            json!({"name": "x", "roles": [{"name": "admin"}]}),
            json!({"name": "x", "roles": [{}]}),
            json!({"name": "a\u{0}b"}),
            json!({"name": "x", "expires_at": "2001-01-01T00:00:00"}),
            json!({"name": "x", "expires_at": "soon"}),
            json!({"name": "x", "access_rules": [{"path": "/"}]}),
        ] {
            let body = json!({"application_credential": fields.clone()});
            let reply = cloud.as_user(&demo, "POST", &path, body).await;
            assert_eq!(reply.status, 400, "{fields}");
        }
        let body = json!({"application_credential": {"name": "x"}});
        assert_eq!(cloud.as_user(&admin, "POST", &path, body).await.status, 403);

        let fields = json!({"name": "reader", "roles": [{"name": "reader"}], "secret": "s3cret"});
        let made = make(&cloud, &demo, &user, fields).await;
        let reply = cloud.login(by(json!({"id": made["id"], "secret": "s3cret"}))).await;
        let roles = reply.body["token"]["roles"].as_array().unwrap();
        assert_eq!((roles.len(), &roles[0]["name"]), (1, &json!("reader")));
        let token = token_of(&reply);
        assert!(cloud.opens(&token).await);
        let grant = format!("/v3/projects/{project}/users/{user}/roles/{role}");
        assert_eq!(cloud.as_user(&admin, "DELETE", &grant, Value::Null).await.status, 204);
        assert!(!cloud.opens(&token).await);
        let again = cloud.login(by(json!({"id": made["id"], "secret": "s3cret"}))).await;
        assert_eq!(again.status, 401);
    }
}

#[tokio::test]
async fn a_disabled_users_credentials_work_again_with_the_user() {
    for cloud in clouds().await {
        let (_, user, _) = cloud.demo().await;
        let (admin, demo) = (cloud.admin().await, cloud.token("demo", "demo", "demo").await);
        let made = make(&cloud, &demo, &user, json!({"name": "robot", "secret": "s3cret"})).await;
        let robot = by(json!({"id": made["id"], "secret": "s3cret"}));
        let change = async |fields: Value| {
            let path = format!("/v3/users/{user}");
            let reply = cloud.as_user(&admin, "PATCH", &path, json!({"user": fields})).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
        };
        // A change of another attribute of the user does not affect the credential.
        change(json!({"description": "x", "enabled": true})).await;
        let before = cloud.login(robot.clone()).await;
        assert_eq!(before.status, 201);
        change(json!({"enabled": false})).await;
        assert_eq!(cloud.login(robot.clone()).await.status, 401);
        change(json!({"enabled": true})).await;
        assert!(!cloud.opens(&token_of(&before)).await, "the earlier token stays revoked");
        assert_eq!(cloud.login(robot).await.status, 201);
    }
}

#[tokio::test]
async fn a_deleted_role_takes_the_credentials_that_grant_it() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let admin = cloud.admin().await;
        let role = cloud.make(&admin, "role", json!({"name": "operator"})).await;
        let grant = format!("/v3/projects/{project}/users/{user}/roles/{role}");
        assert_eq!(cloud.as_user(&admin, "PUT", &grant, Value::Null).await.status, 204);
        let demo = cloud.token("demo", "demo", "demo").await;
        let both = json!({"name": "both", "secret": "s"});
        let both = make(&cloud, &demo, &user, both).await;
        let other = json!({"name": "other", "secret": "s", "roles": [{"name": "reader"}]});
        let other = make(&cloud, &demo, &user, other).await;
        let path = format!("/v3/roles/{role}");
        assert_eq!(cloud.as_user(&admin, "DELETE", &path, Value::Null).await.status, 204);
        for (made, status) in [(both, 401), (other, 201)] {
            let reply = cloud.login(by(json!({"id": made["id"], "secret": "s"}))).await;
            assert_eq!(reply.status, status, "{}", made["name"]);
        }
    }
}

#[tokio::test]
async fn expiry_keeps_fractions_of_a_second() {
    for cloud in clouds().await {
        let (_, user, _) = cloud.demo().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        for (given, shown) in [
            ("2099-02-27T18:30:59.999999Z", "2099-02-27T18:30:59.999999"),
            ("2099-02-27T18:30:59", "2099-02-27T18:30:59.000000"),
        ] {
            let fields = json!({"name": given, "expires_at": given});
            let made = make(&cloud, &demo, &user, fields).await;
            assert_eq!(made["expires_at"], shown);
        }
    }
}

#[tokio::test]
async fn the_number_and_length_of_credentials_are_limited() {
    for cloud in clouds_with(IdentityOptions { credential_limit: Some(2), ..options() }).await {
        let (_, user, _) = cloud.demo().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let path = format!("/v3/users/{user}/application_credentials");
        for fields in [
            json!({"name": "x".repeat(256)}),
            json!({"name": "x", "description": "x".repeat(1025)}),
        ] {
            let body = json!({"application_credential": fields});
            assert_eq!(cloud.as_user(&demo, "POST", &path, body).await.status, 400);
        }
        make(&cloud, &demo, &user, json!({"name": "1"})).await;
        let second = make(&cloud, &demo, &user, json!({"name": "2"})).await;
        let before = cloud.identity.hash_statistics().hashes;
        let third = || json!({"application_credential": {"name": "3"}});
        let reply = cloud.as_user(&demo, "POST", &path, third()).await;
        assert_eq!(reply.status, 403);
        let message = reply.body["error"]["message"].as_str().unwrap();
        assert!(message.contains("maximum of 2 already exceeded"), "{message}");
        assert_eq!(cloud.identity.hash_statistics().hashes, before, "the refusal costs no hash");
        let one = format!("{path}/{}", second["id"].as_str().unwrap());
        assert_eq!(cloud.as_user(&demo, "DELETE", &one, Value::Null).await.status, 204);
        assert_eq!(cloud.as_user(&demo, "POST", &path, third()).await.status, 201);
    }
}

#[tokio::test]
async fn concurrent_requests_do_not_exceed_the_limit_of_credentials() {
    for cloud in clouds_with(IdentityOptions { credential_limit: Some(2), ..options() }).await {
        let (_, user, _) = cloud.demo().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let path = format!("/v3/users/{user}/application_credentials");
        let one = |name: &'static str| {
            let body = json!({"application_credential": {"name": name}});
            cloud.as_user(&demo, "POST", &path, body)
        };
        let (a, b, c, d) = tokio::join!(one("a"), one("b"), one("c"), one("d"));
        let mut statuses = [a, b, c, d].map(|reply| reply.status.as_u16());
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 201, 403, 403]);
    }
}

#[tokio::test]
async fn the_roles_of_a_credential_are_limited_and_distinct() {
    for cloud in clouds().await {
        let (_, user, _) = cloud.demo().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let fields =
            |roles: usize| json!({"name": "n", "roles": vec![json!({"name": "member"}); roles]});
        let path = format!("/v3/users/{user}/application_credentials");
        let body = json!({"application_credential": fields(101)});
        assert_eq!(cloud.as_user(&demo, "POST", &path, body).await.status, 400);
        let made = make(&cloud, &demo, &user, fields(100)).await;
        assert_eq!(made["roles"].as_array().unwrap().len(), 1);
    }
}
