//! Credentials that users store for other services.

use kilonova_store::params;
use serde_json::{Value, json};

use crate::cloud::{Cloud, Reply, clouds, token_of};

const PATH: &str = "/v3/credentials";
/// The SHA-256 of `key`.
const OF_KEY: &str = "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683";

async fn post(cloud: &Cloud, token: &str, credential: Value) -> Reply {
    cloud.as_user(token, "POST", PATH, json!({"credential": credential})).await
}

async fn make(cloud: &Cloud, token: &str, credential: Value) -> Value {
    let reply = post(cloud, token, credential).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    reply.body["credential"].clone()
}

async fn ids(cloud: &Cloud, token: &str, query: &str) -> Vec<String> {
    let reply = cloud.as_user(token, "GET", &format!("{PATH}{query}"), Value::Null).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let all = reply.body["credentials"].as_array().unwrap().iter();
    let mut ids: Vec<String> = all.map(|one| one["id"].as_str().unwrap().to_owned()).collect();
    ids.sort_unstable();
    ids
}

fn path_of(credential: &Value) -> String {
    format!("{PATH}/{}", credential["id"].as_str().unwrap())
}

#[tokio::test]
async fn a_user_has_credentials_whose_content_the_database_does_not_show() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        assert_eq!(ids(&cloud, &demo, "").await, Vec::<String>::new());
        let totp = json!({"type": "totp", "blob": "JBSWY3DPEHPK3PXP", "user_id": user, "note": 1});
        let made = make(&cloud, &demo, totp).await;
        let path = path_of(&made);
        assert_eq!((&made["type"], &made["blob"]), (&json!("totp"), &json!("JBSWY3DPEHPK3PXP")));
        assert_eq!((&made["project_id"], &made["note"]), (&Value::Null, &json!(1)));
        let link = made["links"]["self"].as_str().unwrap();
        assert!(link.ends_with(&format!("/identity{path}")), "{link}");
        let shown = cloud.as_user(&demo, "GET", &path, Value::Null).await;
        assert_eq!(shown.body["credential"], made);

        let row =
            cloud.store.read(|tx| tx.row("SELECT encrypted_blob FROM identity_secrets", params![]));
        let stored = row.await.unwrap().unwrap().string("encrypted_blob").unwrap();
        assert!(!stored.contains("JBSWY3DPEHPK3PXP"), "{stored}");

        let change = json!({"credential": {"blob": "NEW", "project_id": project, "note": null}});
        let changed = cloud.as_user(&demo, "PATCH", &path, change).await;
        assert_eq!(changed.status, 200, "{}", changed.body);
        let shown = cloud.as_user(&demo, "GET", &path, Value::Null).await;
        assert_eq!(changed.body, shown.body);
        let shown = &shown.body["credential"];
        assert_eq!((&shown["blob"], &shown["type"]), (&json!("NEW"), &json!("totp")));
        assert_eq!(
            (&shown["project_id"], shown.get("note")),
            (&json!(project), Some(&Value::Null))
        );
        let other = json!({"credential": {"id": "x", "blob": "NEW"}});
        assert_eq!(cloud.as_user(&demo, "PATCH", &path, other).await.status, 400);
        assert_eq!(cloud.as_user(&demo, "DELETE", &path, Value::Null).await.status, 204);
        let admin = cloud.admin().await;
        assert_eq!(cloud.as_user(&admin, "GET", &path, Value::Null).await.status, 404);
        assert_eq!(cloud.as_user(&demo, "GET", &path, Value::Null).await.status, 403);
    }
}

#[tokio::test]
async fn users_see_and_change_their_own_credentials_only() {
    for cloud in clouds().await {
        let (_, user, _) = cloud.demo().await;
        let (admin, demo) = (cloud.admin().await, cloud.token("demo", "demo", "demo").await);
        let chief = cloud.find(&admin, "user", "admin").await;
        let own = json!({"type": "cert", "blob": "b", "user_id": user});
        let own = make(&cloud, &demo, own).await;
        let others = json!({"type": "totp", "blob": "b", "user_id": chief});
        assert_eq!(post(&cloud, &demo, others.clone()).await.status, 403);
        let others = make(&cloud, &admin, others).await;
        let id = |one: &Value| one["id"].as_str().unwrap().to_owned();
        let mut all = vec![id(&own), id(&others)];
        all.sort_unstable();
        for (token, query, expected) in [
            (&demo, String::new(), vec![id(&own)]),
            (&demo, format!("?user_id={chief}"), vec![]),
            (&demo, "?type=totp".to_owned(), vec![]),
            (&admin, String::new(), all),
            (&admin, format!("?user_id={user}"), vec![id(&own)]),
            (&admin, "?type=totp".to_owned(), vec![id(&others)]),
            (&admin, "?type__contains=er".to_owned(), vec![id(&own)]),
        ] {
            assert_eq!(ids(&cloud, token, &query).await, expected, "{query}");
        }
        let body = json!({"credential": {"blob": "mine"}});
        for method in ["GET", "PATCH", "DELETE"] {
            let reply = cloud.as_user(&demo, method, &path_of(&others), body.clone()).await;
            assert_eq!(reply.status, 403, "{method}");
        }
        // A credential cannot be given to another user, except by an administrator.
        let give = json!({"credential": {"user_id": chief}});
        let given = cloud.as_user(&demo, "PATCH", &path_of(&own), give.clone()).await;
        assert_eq!(given.status, 403);
        let given = cloud.as_user(&admin, "PATCH", &path_of(&own), give).await;
        assert_eq!(
            (given.status.as_u16(), &given.body["credential"]["user_id"]),
            (200, &json!(chief))
        );
        let take = json!({"credential": {"user_id": user}});
        assert_eq!(cloud.as_user(&admin, "PATCH", &path_of(&own), take).await.status, 200);
        // A user's credentials are deleted with the user.
        let gone = cloud.as_user(&admin, "DELETE", &format!("/v3/users/{user}"), Value::Null).await;
        assert_eq!(gone.status, 204);
        assert_eq!(ids(&cloud, &admin, "").await, [id(&others)]);
    }
}

#[tokio::test]
async fn an_ec2_credential_has_the_hash_of_its_access_key_as_id() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let blob = r#"{"access": "key", "secret": "s"}"#;
        let ec2 = json!({"type": "ec2", "blob": blob, "user_id": user, "project_id": project});
        let made = make(&cloud, &demo, ec2.clone()).await;
        assert_eq!((&made["id"], &made["blob"]), (&json!(OF_KEY), &json!(blob)));
        let again = post(&cloud, &demo, ec2.clone()).await;
        let message = again.body["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(again.status, 409);
        assert!(message.contains(&format!("Duplicate entry found with ID {OF_KEY}")), "{message}");
        for (key, value) in [
            ("blob", json!("text")),
            ("blob", json!("{}")),
            ("blob", json!("[1]")),
            ("blob", json!(r#"{"secret": "s"}"#)),
            ("blob", json!({"access": "key"})),
            ("blob", Value::Null),
            ("type", json!(7)),
            ("type", json!("x".repeat(256))),
            ("user_id", Value::Null),
            ("project_id", Value::Null),
        ] {
            let mut wrong = ec2.clone();
            wrong[key] = value;
            assert_eq!(post(&cloud, &demo, wrong.clone()).await.status, 400, "{wrong}");
        }
        let admin = cloud.admin().await;
        for key in ["user_id", "project_id"] {
            let mut wrong = ec2.clone();
            wrong[key] = json!("nothing");
            assert_eq!(post(&cloud, &admin, wrong).await.status, 404, "{key}");
        }
        let path = path_of(&made);
        for (blob, status) in [
            (r#"{"access": "key", "secret": "other"}"#, 200),
            (r#"{"access": "key", "trust_id": "t"}"#, 400),
            ("text", 400),
        ] {
            let change = json!({"credential": {"blob": blob}});
            assert_eq!(cloud.as_user(&demo, "PATCH", &path, change).await.status, status, "{blob}");
        }
        let totp = json!({"type": "totp", "blob": "b", "user_id": user});
        let totp = make(&cloud, &demo, totp).await;
        let change = json!({"credential": {"type": "ec2"}});
        let changed = cloud.as_user(&demo, "PATCH", &path_of(&totp), change).await;
        assert_eq!(changed.status, 400, "an EC2 credential needs a project");
        assert_eq!(cloud.as_user(&demo, "PATCH", &path, json!({})).await.status, 400);
    }
}

#[tokio::test]
async fn a_delegated_token_reaches_the_credentials_of_its_project_only() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let seed = json!({"type": "totp", "blob": "b", "user_id": user});
        let seed = make(&cloud, &demo, seed).await;
        let mut tokens = Vec::new();
        for unrestricted in [false, true] {
            let name = unrestricted.to_string();
            let path = format!("/v3/users/{user}/application_credentials");
            let body = json!({"application_credential": {"name": name, "secret": "s",
                "unrestricted": unrestricted}});
            let made = cloud.as_user(&demo, "POST", &path, body).await;
            let credential =
                json!({"id": made.body["application_credential"]["id"], "secret": "s"});
            let login = cloud
                .login(json!({"auth": {"identity": {"methods": ["application_credential"],
                    "application_credential": credential}}}))
                .await;
            tokens.push((token_of(&login), made.body["application_credential"]["id"].clone()));
        }
        let ec2 = |key: &str| {
            json!({"type": "ec2", "blob": json!({"access": key}).to_string(), "user_id": user,
                "project_id": project})
        };
        assert_eq!(post(&cloud, &tokens[0].0, ec2("key")).await.status, 403, "it is restricted");
        let made = make(&cloud, &tokens[1].0, ec2("key")).await;
        let blob: Value = serde_json::from_str(made["blob"].as_str().unwrap()).unwrap();
        assert_eq!(blob, json!({"access": "key", "app_cred_id": tokens[1].1}));
        for (token, _) in &tokens {
            assert_eq!(ids(&cloud, token, "").await, [OF_KEY]);
            for method in ["GET", "DELETE"] {
                let reply = cloud.as_user(token, method, &path_of(&seed), Value::Null).await;
                assert_eq!(reply.status, 403, "{method}");
            }
        }
        let totp = json!({"type": "totp", "blob": "b", "user_id": user});
        assert_eq!(post(&cloud, &tokens[1].0, totp).await.status, 403);
        assert_eq!(ids(&cloud, &demo, "").await.len(), 2);
    }
}

#[tokio::test]
async fn additional_attributes_are_bounded() {
    for cloud in clouds().await {
        let (_, user, _) = cloud.demo().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let noted = |length: usize| json!({"type": "totp", "blob": "b", "user_id": user, "note": "x".repeat(length)});
        let reply = post(&cloud, &demo, noted(5000)).await;
        assert_eq!(reply.status, 400, "{}", reply.body);
        let path = path_of(&make(&cloud, &demo, noted(3000)).await);
        for (change, status) in [
            (json!({"other": "x".repeat(2000)}), 400),
            (json!({"other": "x".repeat(500)}), 200),
            (json!({"note": null, "more": "x".repeat(2000)}), 200),
        ] {
            let body = json!({"credential": change});
            let reply = cloud.as_user(&demo, "PATCH", &path, body).await;
            assert_eq!(reply.status, status, "{}", reply.body);
        }
    }
}

#[tokio::test]
async fn the_number_of_credentials_of_a_user_is_limited() {
    /// Rows up to one below the limit.
    const ROWS: &str = "INSERT INTO identity_secrets (id, user_id, type, encrypted_blob, extra)
        WITH RECURSIVE numbers (number) AS
            (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < 999)
        SELECT 'secret' || number, CAST(?1 AS TEXT), 'totp', '', '{}' FROM numbers";
    for cloud in clouds().await {
        let (_, user, _) = cloud.demo().await;
        let (admin, demo) = (cloud.admin().await, cloud.token("demo", "demo", "demo").await);
        let owner = user.clone();
        let rows = cloud.store.write(move |tx| tx.execute(ROWS, params![&owner]));
        assert_eq!(rows.await.unwrap(), 999);
        let own = json!({"type": "totp", "blob": "b", "user_id": user});
        let one = || post(&cloud, &demo, own.clone());
        let (first, second, third) = tokio::join!(one(), one(), one());
        let mut statuses = [first, second, third].map(|reply| reply.status.as_u16());
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 403, 403]);
        // An administrator cannot give the user another one either.
        let chief = cloud.find(&admin, "user", "admin").await;
        let others = json!({"type": "totp", "blob": "b", "user_id": chief});
        let path = path_of(&make(&cloud, &admin, others).await);
        for (change, status) in [(json!({"user_id": user}), 403), (json!({"user_id": chief}), 200)]
        {
            let body = json!({"credential": change});
            let reply = cloud.as_user(&admin, "PATCH", &path, body).await;
            assert_eq!(reply.status, status, "{}", reply.body);
        }
    }
}
