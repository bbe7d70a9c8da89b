//! EC2 credentials by their access keys (`OS-EC2`): creation, lists, deletion, and who may.

use serde_json::{Value, json};

use crate::cloud::{Cloud, Reply, by_name, clouds, token_of};

fn path(user: &str) -> String {
    format!("/v3/users/{user}/credentials/OS-EC2")
}

async fn create(cloud: &Cloud, token: &str, user: &str, project: &str) -> Reply {
    cloud.as_user(token, "POST", &path(user), json!({"tenant_id": project})).await
}

/// Creates a pair; returns it and its path.
async fn make(cloud: &Cloud, token: &str, user: &str, project: &str) -> (Value, String) {
    let reply = create(cloud, token, user, project).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    let pair = reply.body["credential"].clone();
    let one = format!("{}/{}", path(user), pair["access"].as_str().unwrap());
    (pair, one)
}

async fn list(cloud: &Cloud, token: &str, user: &str) -> Vec<Value> {
    let reply = cloud.as_user(token, "GET", &path(user), Value::Null).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.body["credentials"].as_array().unwrap().clone()
}

async fn status(cloud: &Cloud, token: &str, method: &str, path: &str) -> u16 {
    cloud.as_user(token, method, path, Value::Null).await.status.as_u16()
}

/// Another user with a role on another project; returns its token.
async fn other(cloud: &Cloud, name: &str, role: &str, place: &str) -> String {
    let admin = cloud.admin().await;
    let project = cloud.make(&admin, "project", json!({"name": place})).await;
    let user = cloud.make(&admin, "user", json!({"name": name, "password": name})).await;
    let role = cloud.find(&admin, "role", role).await;
    let grant = format!("/v3/projects/{project}/users/{user}/roles/{role}");
    assert_eq!(status(cloud, &admin, "PUT", &grant).await, 204);
    cloud.token(name, name, place).await
}

#[tokio::test]
async fn a_pair_of_ec2_is_a_stored_credential() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        assert_eq!(list(&cloud, &demo, &user).await, Vec::<Value>::new());
        let (pair, one) = make(&cloud, &demo, &user, &project).await;
        let (access, secret) = (pair["access"].as_str().unwrap(), pair["secret"].as_str().unwrap());
        assert!(access.len() == 32 && secret.len() == 32 && access != secret);
        let link = format!("http://cloud.example:8000/identity{one}");
        let whole = json!({"user_id": user, "tenant_id": project, "access": access,
            "secret": secret, "trust_id": null, "links": {"self": link}});
        assert_eq!(pair, whole);
        let shown = cloud.as_user(&demo, "GET", &one, Value::Null).await;
        assert_eq!(shown.body, json!({"credential": whole}));
        let listed = cloud.as_user(&demo, "GET", &path(&user), Value::Null).await;
        let links = json!({"next": null, "previous": null,
            "self": format!("http://cloud.example:8000/identity{}", path(&user))});
        assert_eq!(listed.body, json!({"credentials": [whole], "links": links}));

        // The other API shows it, and its credentials of this type are pairs.
        let stored = cloud.as_user(&demo, "GET", "/v3/credentials?type=ec2", Value::Null).await;
        let stored = &stored.body["credentials"][0];
        let blob: Value = serde_json::from_str(stored["blob"].as_str().unwrap()).unwrap();
        assert_eq!(blob, json!({"access": access, "secret": secret, "trust_id": null}));
        for (kind, blob) in
            [("ec2", r#"{"access": "a/b"}"#), ("totp", "x"), ("EC2", r#"{"access": "c"}"#)]
        {
            let body = json!({"credential": {
                "type": kind, "blob": blob, "user_id": user, "project_id": project}});
            let made = cloud.as_user(&demo, "POST", "/v3/credentials", body).await;
            assert_eq!(made.status, 201, "{}", made.body);
        }
        assert_eq!(list(&cloud, &demo, &user).await.len(), 2);
        let slash = format!("{}/a%2Fb", path(&user));
        let shown = cloud.as_user(&demo, "GET", &slash, Value::Null).await;
        assert_eq!(shown.body["credential"]["secret"], Value::Null, "{}", shown.body);
        assert_eq!(status(&cloud, &demo, "GET", &format!("{}/c", path(&user))).await, 401);

        assert_eq!(status(&cloud, &demo, "DELETE", &one).await, 204);
        for method in ["GET", "DELETE"] {
            let gone = cloud.as_user(&demo, method, &one, Value::Null).await;
            let message = gone.body["error"]["message"].as_str().unwrap().to_owned();
            let id = stored["id"].as_str().unwrap();
            assert_eq!(
                (gone.status.as_u16(), message),
                (404, format!("Could not find credential: {id}."))
            );
        }
        let others = format!("/v3/credentials/{}", stored["id"].as_str().unwrap());
        assert_eq!(status(&cloud, &demo, "GET", &others).await, 403);
    }
}

#[tokio::test]
async fn only_the_owner_and_administrators_reach_a_pair_of_ec2() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let (admin, demo) = (cloud.admin().await, cloud.token("demo", "demo", "demo").await);
        let stranger = other(&cloud, "stranger", "member", "elsewhere").await;
        let manager = other(&cloud, "boss", "manager", "office").await;
        let reader = other(&cloud, "reader", "reader", "library").await;
        let (_, one) = make(&cloud, &demo, &user, &project).await;
        for who in [&stranger, &manager, &reader] {
            let refused = cloud.as_user(who, "GET", &one, Value::Null).await;
            assert_eq!(
                refused.body["error"]["message"],
                "You are not authorized to perform the requested action: identity:ec2_get_credential."
            );
            assert_eq!(refused.status, 403);
            assert_eq!(status(&cloud, who, "DELETE", &one).await, 403);
            assert_eq!(status(&cloud, who, "GET", &path(&user)).await, 403);
            assert_eq!(create(&cloud, who, &user, &project).await.status, 403);
        }
        for (method, body) in [("GET", Value::Null), ("DELETE", Value::Null)] {
            assert_eq!(cloud.call(method, &one, &[], body).await.status, 401);
        }
        assert_eq!(cloud.call("POST", &path(&user), &[], json!({})).await.status, 401);
        // A reader sees its own, but creates and deletes none.
        let own = cloud.find(&admin, "user", "reader").await;
        assert_eq!(create(&cloud, &reader, &own, &project).await.status, 403);
        let (_, theirs) = make(&cloud, &admin, &own, &project).await;
        assert_eq!(status(&cloud, &reader, "GET", &theirs).await, 200);
        assert_eq!(status(&cloud, &reader, "DELETE", &theirs).await, 403);
        assert_eq!(list(&cloud, &reader, &own).await.len(), 1);
        // The owner of the credential counts, not the user of the URL.
        let key = one.rsplit('/').next().unwrap();
        let elsewhere = format!("{}/{key}", path(&own));
        assert_eq!(status(&cloud, &reader, "GET", &elsewhere).await, 403);
        assert_eq!(status(&cloud, &demo, "GET", &elsewhere).await, 200);
        let nobody = format!("{}/{key}", path("nobody"));
        assert_eq!(status(&cloud, &demo, "GET", &nobody).await, 404);

        assert_eq!(list(&cloud, &admin, &user).await.len(), 1);
        assert_eq!(status(&cloud, &admin, "GET", &path("nobody")).await, 404);
        assert_eq!(status(&cloud, &demo, "GET", &path("nobody")).await, 403);
        assert_eq!(status(&cloud, &admin, "DELETE", &one).await, 204);
        // Pairs are deleted with their user.
        assert_eq!(status(&cloud, &admin, "DELETE", &format!("/v3/users/{own}")).await, 204);
        assert_eq!(status(&cloud, &admin, "GET", &theirs).await, 404);
    }
}

#[tokio::test]
async fn wrong_requests_for_a_pair_of_ec2_are_refused() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let (admin, demo) = (cloud.admin().await, cloud.token("demo", "demo", "demo").await);
        for (body, status, said) in [
            (json!({"tenant_id": "nothing"}), 404, "Could not find project: nothing."),
            (json!({"tenant_id": "a\tb"}), 404, "Could not find project: a\\tb."),
            (json!({}), 404, "Could not find project: None."),
            (json!({"tenant_id": null}), 404, "Could not find project: None."),
            (json!({"tenant_id": [project]}), 400, "tenant_id must be a string."),
            (json!([project]), 400, "The request body must be an object."),
        ] {
            let reply = cloud.as_user(&demo, "POST", &path(&user), body.clone()).await;
            let message = reply.body["error"]["message"].as_str().unwrap();
            assert_eq!((reply.status.as_u16(), message), (status, said), "{body}");
        }
        let reply = create(&cloud, &admin, "nobody", &project).await;
        assert_eq!(reply.status, 404, "{}", reply.body);
        assert_eq!(list(&cloud, &demo, &user).await.len(), 0);
    }
}

#[tokio::test]
async fn a_delegated_token_reaches_the_pairs_of_ec2_of_its_project() {
    for cloud in clouds().await {
        let (project, user, role) = cloud.demo().await;
        let (admin, demo) = (cloud.admin().await, cloud.token("demo", "demo", "demo").await);
        let second = cloud.make(&admin, "project", json!({"name": "second"})).await;
        let grant = format!("/v3/projects/{second}/users/{user}/roles/{role}");
        assert_eq!(status(&cloud, &admin, "PUT", &grant).await, 204);
        let (_, there) = make(&cloud, &demo, &user, &second).await;
        let mut tokens = Vec::new();
        for unrestricted in [false, true] {
            let path = format!("/v3/users/{user}/application_credentials");
            let body = json!({"application_credential": {"name": unrestricted.to_string(), "secret": "s",
                "unrestricted": unrestricted}});
            let made = cloud.as_user(&demo, "POST", &path, body).await;
            let id = made.body["application_credential"]["id"].clone();
            let login = cloud
                .login(json!({"auth": {"identity": {"methods": ["application_credential"],
                    "application_credential": {"id": id, "secret": "s"}}}}))
                .await;
            tokens.push((token_of(&login), id));
        }
        let refused = create(&cloud, &tokens[0].0, &user, &project).await;
        assert_eq!(refused.status, 403);
        let message = refused.body["error"]["message"].as_str().unwrap();
        assert!(
            message.ends_with("for managing additional application credentials.."),
            "{message}"
        );
        let (robot, id) = &tokens[1];
        let refused = create(&cloud, robot, &user, &second).await;
        assert_eq!(refused.status, 403);
        let message = refused.body["error"]["message"].as_str().unwrap();
        assert!(message.contains("does not match the project scope"), "{message}");
        let (pair, here) = make(&cloud, robot, &user, &project).await;
        assert_eq!(pair["trust_id"], Value::Null);
        // It is bound to the application credential.
        let stored = cloud.as_user(&demo, "GET", "/v3/credentials", Value::Null).await;
        let stored = stored.body["credentials"].as_array().unwrap().clone();
        let bound = stored.iter().find(|one| one["project_id"] == project).unwrap();
        let blob: Value = serde_json::from_str(bound["blob"].as_str().unwrap()).unwrap();
        assert_eq!(&blob["app_cred_id"], id);
        // That does not change, even if it is no EC2 credential for a while.
        let one = format!("/v3/credentials/{}", bound["id"].as_str().unwrap());
        let free = json!({"access": pair["access"], "secret": "s", "trust_id": null}).to_string();
        for (change, status) in [
            (json!({"blob": free}), 400),
            (json!({"type": "other"}), 200),
            (json!({"blob": free}), 400),
            (json!({"blob": "text"}), 400),
            (json!({"type": "ec2"}), 200),
        ] {
            let reply = cloud.as_user(robot, "PATCH", &one, json!({"credential": change})).await;
            assert_eq!(reply.status, status, "{change} {}", reply.body);
        }

        for (token, _) in &tokens {
            assert_eq!(list(&cloud, token, &user).await.len(), 1);
            assert_eq!(status(&cloud, token, "GET", &here).await, 200);
            assert_eq!(status(&cloud, token, "GET", &there).await, 403);
            assert_eq!(status(&cloud, token, "DELETE", &there).await, 403);
        }
        assert_eq!(list(&cloud, &demo, &user).await.len(), 2);

        // The pair of a trust's token names the trust.
        let heat = cloud.make(&admin, "user", json!({"name": "heat", "password": "heat"})).await;
        let trust = json!({"trust": {"trustor_user_id": user, "trustee_user_id": heat,
            "project_id": project, "impersonation": true, "roles": [{"name": "member"}]}});
        let trust = cloud.as_user(&demo, "POST", "/v3/OS-TRUST/trusts", trust).await;
        let trust = trust.body["trust"]["id"].clone();
        let mut login = by_name("heat", "heat", None);
        login["auth"]["scope"] = json!({"OS-TRUST:trust": {"id": trust}});
        let acting = token_of(&cloud.login(login).await);
        let (pair, _) = make(&cloud, &acting, &user, &project).await;
        assert_eq!((&pair["trust_id"], &pair["user_id"]), (&trust, &json!(user)));
        assert_eq!(create(&cloud, &acting, &user, &second).await.status, 403);
        assert_eq!(status(&cloud, &acting, "GET", &there).await, 403);
        assert_eq!(list(&cloud, &acting, &user).await.len(), 2);
    }
}
