//! Trusts: creation, use, redelegation, expiry.

use kilonova_store::params;
use serde_json::{Value, json};

use crate::cloud::{Cloud, Reply, by_name, clouds, token_of};

/// Creates the trustee `heat` (password `heat`) in addition to trustor `demo`; returns trustor, trustee, project.
async fn two(cloud: &Cloud) -> (String, String, String) {
    let (project, trustor, _) = cloud.demo().await;
    let admin = cloud.admin().await;
    let trustee = cloud.make(&admin, "user", json!({"name": "heat", "password": "heat"})).await;
    (trustor, trustee, project)
}

async fn give(cloud: &Cloud, token: &str, fields: Value) -> Reply {
    cloud.as_user(token, "POST", "/v3/OS-TRUST/trusts", json!({"trust": fields})).await
}

fn by_trust(user: &str, id: &str) -> Value {
    let mut body = by_name(user, user, None);
    body["auth"]["scope"] = json!({"OS-TRUST:trust": {"id": id}});
    body
}

#[tokio::test]
async fn a_trustee_acts_with_the_roles_of_the_trust() {
    for cloud in clouds().await {
        let (trustor, trustee, project) = two(&cloud).await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let fields = json!({
            "trustor_user_id": trustor, "trustee_user_id": trustee, "project_id": project,
            "impersonation": true, "roles": [{"name": "reader"}],
            "expires_at": "2099-02-27T18:30:59.123456Z",
        });
        let made = give(&cloud, &demo, fields.clone()).await;
        assert_eq!(made.status, 201, "{}", made.body);
        let trust = &made.body["trust"];
        assert_eq!(trust["expires_at"], "2099-02-27T18:30:59.123456Z");
        assert_eq!(trust["redelegation_count"], 0);
        assert_eq!(trust["roles"][0]["name"], "reader");
        let id = trust["id"].as_str().unwrap().to_owned();

        let reply = cloud.login(by_trust("heat", &id)).await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        let token = &reply.body["token"];
        assert_eq!(token["user"]["id"], trustor, "the trust impersonates the trustor");
        assert_eq!(token["project"]["id"], project);
        assert_eq!(token["OS-TRUST:trust"]["trustee_user"]["id"], trustee);
        assert_eq!(token["roles"].as_array().unwrap().len(), 1);
        let acting = token_of(&reply);
        assert!(cloud.opens(&acting).await);
        let rescope = json!({"auth": {"identity": {"methods": ["token"],
            "token": {"id": acting}}}});
        assert_eq!(cloud.login(rescope).await.status, 403);
        assert_eq!(cloud.login(by_trust("demo", &id)).await.status, 403, "demo is not the trustee");
        let path = format!("/v3/users/{trustor}/application_credentials");
        let body = json!({"application_credential": {"name": "x"}});
        assert_eq!(cloud.as_user(&acting, "POST", &path, body.clone()).await.status, 403);
        let made = cloud.as_user(&demo, "POST", &path, body).await;
        let own = made.body["application_credential"]["id"].as_str().unwrap();
        let own = format!("{path}/{own}");
        for (method, path) in [("GET", &path), ("GET", &own), ("DELETE", &own)] {
            let reply = cloud.as_user(&acting, method, path, Value::Null).await;
            assert_eq!(reply.status, 403, "{method} {path}");
            let message = reply.body["error"]["message"].as_str().unwrap();
            assert!(message.contains("with a token issued via delegation."), "{message}");
        }
        assert_eq!(cloud.as_user(&demo, "GET", &own, Value::Null).await.status, 200);
        let again = give(&cloud, &acting, fields.clone()).await;
        assert_eq!(again.status, 403, "the trust does not allow redelegation");

        let mut plain = fields.clone();
        plain["impersonation"] = json!(false);
        let plain = give(&cloud, &demo, plain).await;
        let reply =
            cloud.login(by_trust("heat", plain.body["trust"]["id"].as_str().unwrap())).await;
        assert_eq!(reply.body["token"]["user"]["id"], trustee);

        let one = format!("/v3/OS-TRUST/trusts/{id}");
        let heat = token_of(&cloud.login(by_name("heat", "heat", None)).await);
        assert_eq!(cloud.as_user(&demo, "GET", &one, Value::Null).await.status, 200);
        let roles = cloud.as_user(&heat, "GET", &format!("{one}/roles"), Value::Null).await;
        assert_eq!(roles.body["roles"][0]["name"], "reader");
        let admin = cloud.admin().await;
        for (token, query, count) in [
            (&demo, format!("trustor_user_id={trustor}"), 2),
            (&heat, format!("trustee_user_id={trustee}"), 2),
            (&admin, String::new(), 2),
        ] {
            let path = format!("/v3/OS-TRUST/trusts?{query}");
            let reply = cloud.as_user(token, "GET", &path, Value::Null).await;
            assert_eq!(reply.body["trusts"].as_array().unwrap().len(), count, "{query}");
        }
        let others = format!("/v3/OS-TRUST/trusts?trustor_user_id={trustor}");
        assert_eq!(cloud.as_user(&heat, "GET", &others, Value::Null).await.status, 403);
        assert_eq!(cloud.as_user(&heat, "DELETE", &one, Value::Null).await.status, 403);
        assert_eq!(cloud.as_user(&demo, "DELETE", &one, Value::Null).await.status, 204);
        assert!(!cloud.opens(&acting).await, "the trust is gone");
        assert_eq!(cloud.login(by_trust("heat", &id)).await.status, 401);
        assert_eq!(cloud.as_user(&demo, "GET", &one, Value::Null).await.status, 404);
    }
}

#[tokio::test]
async fn a_trust_never_exceeds_the_trustors_roles() {
    for cloud in clouds().await {
        let (trustor, trustee, project) = two(&cloud).await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let good = json!({
            "trustor_user_id": trustor, "trustee_user_id": trustee, "project_id": project,
            "impersonation": true, "roles": [{"name": "member"}],
        });
        for (key, value, status) in [
            ("roles", json!([{"name": "admin"}]), 404),
            ("roles", json!([{"name": "nothing"}]), 404),
            ("roles", json!([]), 403),
            ("trustor_user_id", json!(trustee), 403),
            ("trustee_user_id", json!("nobody"), 404),
            ("project_id", json!("nothing"), 404),
            ("project_id", Value::Null, 400),
            ("impersonation", Value::Null, 400),
            ("expires_at", json!("2001-01-01T00:00:00Z"), 400),
            ("expires_at", json!("soon"), 400),
            ("remaining_uses", json!(0), 400),
            ("redelegation_count", json!(-1), 400),
        ] {
            let mut fields = good.clone();
            fields[key] = value.clone();
            let reply = give(&cloud, &demo, fields).await;
            assert_eq!(reply.status, status, "{key}: {value}: {}", reply.body);
        }
        let made = give(&cloud, &demo, good).await;
        let id = made.body["trust"]["id"].as_str().unwrap().to_owned();
        let acting = token_of(&cloud.login(by_trust("heat", &id)).await);
        let admin = cloud.admin().await;
        let member = cloud.find(&admin, "role", "member").await;
        let grant = format!("/v3/projects/{project}/users/{trustor}/roles/{member}");
        assert_eq!(cloud.as_user(&admin, "DELETE", &grant, Value::Null).await.status, 204);
        assert!(!cloud.opens(&acting).await, "the trustor no longer has the role");
        assert_eq!(cloud.login(by_trust("heat", &id)).await.status, 401);
        assert_eq!(cloud.as_user(&admin, "PUT", &grant, Value::Null).await.status, 204);
        assert!(cloud.opens(&acting).await);
        let off = json!({"user": {"enabled": false}});
        let path = format!("/v3/users/{trustor}");
        assert_eq!(cloud.as_user(&admin, "PATCH", &path, off).await.status, 200);
        assert!(!cloud.opens(&acting).await, "the trustor is disabled");
    }
}

#[tokio::test]
async fn uses_are_counted_and_expiry_ends_a_trust() {
    for cloud in clouds().await {
        let (trustor, trustee, project) = two(&cloud).await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let soon = jiff::Timestamp::now() + std::time::Duration::from_millis(1500);
        let base = json!({
            "trustor_user_id": trustor, "trustee_user_id": trustee, "project_id": project,
            "impersonation": false, "roles": [{"name": "member"}],
        });
        let mut twice = base.clone();
        twice["remaining_uses"] = json!(2);
        let made = give(&cloud, &demo, twice).await;
        let id = made.body["trust"]["id"].as_str().unwrap().to_owned();
        let first = cloud.login(by_trust("heat", &id)).await;
        assert_eq!(first.status, 201);
        assert_eq!(cloud.login(by_trust("heat", &id)).await.status, 201);
        assert_eq!(cloud.login(by_trust("heat", &id)).await.status, 401);
        assert!(cloud.opens(&token_of(&first)).await, "an issued token remains valid");

        let mut brief = base;
        brief["expires_at"] = json!(soon.to_string());
        let made = give(&cloud, &demo, brief).await;
        assert_eq!(made.status, 201, "{}", made.body);
        let id = made.body["trust"]["id"].as_str().unwrap().to_owned();
        let reply = cloud.login(by_trust("heat", &id)).await;
        assert_eq!(reply.body["token"]["expires_at"], made.body["trust"]["expires_at"]);
        tokio::time::sleep(std::time::Duration::from_millis(1600)).await;
        assert!(!cloud.opens(&token_of(&reply)).await);
        assert_eq!(cloud.login(by_trust("heat", &id)).await.status, 401);
    }
}

#[tokio::test]
async fn redelegation_never_adds_rights() {
    for cloud in clouds().await {
        let (trustor, trustee, project) = two(&cloud).await;
        let admin = cloud.admin().await;
        let third = cloud.make(&admin, "user", json!({"name": "third", "password": "third"})).await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let fields = json!({
            "trustor_user_id": trustor, "trustee_user_id": trustee, "project_id": project,
            "impersonation": true, "roles": [{"name": "reader"}], "allow_redelegation": true,
        });
        let mut deep = fields.clone();
        deep["redelegation_count"] = json!(4);
        assert_eq!(give(&cloud, &demo, deep).await.status, 403);
        let mut counted = fields.clone();
        counted["remaining_uses"] = json!(1);
        assert_eq!(give(&cloud, &demo, counted).await.status, 400);
        let made = give(&cloud, &demo, fields.clone()).await;
        assert_eq!(made.body["trust"]["redelegation_count"], 3);
        let first = made.body["trust"]["id"].as_str().unwrap().to_owned();
        let acting = token_of(&cloud.login(by_trust("heat", &first)).await);

        let mut next = fields.clone();
        next["trustee_user_id"] = json!(third);
        let mut more = next.clone();
        more["roles"] = json!([{"name": "member"}]);
        assert_eq!(give(&cloud, &acting, more).await.status, 403);
        let passed = give(&cloud, &acting, next).await;
        assert_eq!(passed.status, 201, "{}", passed.body);
        assert_eq!(passed.body["trust"]["redelegated_trust_id"], first);
        assert_eq!(passed.body["trust"]["redelegation_count"], 2);
        let second = passed.body["trust"]["id"].as_str().unwrap().to_owned();
        let reply = cloud.login(by_trust("third", &second)).await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        assert_eq!(reply.body["token"]["user"]["id"], trustor);
        let path = format!("/v3/OS-TRUST/trusts/{first}");
        assert_eq!(cloud.as_user(&demo, "DELETE", &path, Value::Null).await.status, 204);
        assert!(!cloud.opens(&token_of(&reply)).await, "redelegated trusts end with the trust");
    }
}

#[tokio::test]
async fn the_roles_and_the_number_of_trusts_are_limited() {
    /// Rows up to one below the limit.
    const ROWS: &str = "INSERT INTO identity_trusts (id, trustor_id, trustee_id, impersonation,
            redelegation_count, extra)
        WITH RECURSIVE numbers (number) AS
            (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < 9999)
        SELECT 'trust' || number, CAST(?1 AS TEXT), CAST(?2 AS TEXT), 0, 0, '{}' FROM numbers";
    for cloud in clouds().await {
        let (trustor, trustee, project) = two(&cloud).await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let fields = |roles: usize| {
            json!({"trustor_user_id": trustor, "trustee_user_id": trustee, "project_id": project,
                "impersonation": true, "roles": vec![json!({"name": "member"}); roles]})
        };
        let reply = give(&cloud, &demo, fields(101)).await;
        assert_eq!(reply.status, 400, "{}", reply.body);
        let reply = give(&cloud, &demo, fields(100)).await;
        assert_eq!(reply.body["trust"]["roles"].as_array().unwrap().len(), 1);
        let made = format!("/v3/OS-TRUST/trusts/{}", reply.body["trust"]["id"].as_str().unwrap());
        assert_eq!(cloud.as_user(&demo, "DELETE", &made, Value::Null).await.status, 204);

        let (giver, receiver) = (trustor.clone(), trustee.clone());
        let rows = cloud.store.write(move |tx| tx.execute(ROWS, params![&giver, &receiver]));
        assert_eq!(rows.await.unwrap(), 9999);
        let one = || give(&cloud, &demo, fields(1));
        let (first, second, third) = tokio::join!(one(), one(), one());
        let mut statuses = [first, second, third].map(|reply| reply.status.as_u16());
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 403, 403]);
    }
}

#[tokio::test]
async fn an_application_credential_neither_reads_nor_manages_trusts() {
    for cloud in clouds().await {
        let (trustor, trustee, project) = two(&cloud).await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let fields = json!({"trustor_user_id": trustor, "trustee_user_id": trustee,
            "project_id": project, "impersonation": true, "roles": [{"name": "reader"}]});
        let made = give(&cloud, &demo, fields.clone()).await;
        let trust = made.body["trust"]["id"].as_str().unwrap();
        let path = format!("/v3/users/{trustor}/application_credentials");
        let body = json!({"application_credential": {
            "name": "robot", "secret": "s3cret", "unrestricted": true}});
        let made = cloud.as_user(&demo, "POST", &path, body).await;
        let reply = cloud
            .login(json!({"auth": {"identity": {"methods": ["application_credential"],
                "application_credential": {
                    "id": made.body["application_credential"]["id"], "secret": "s3cret"}}}}))
            .await;
        let robot = token_of(&reply);
        let one = format!("/v3/OS-TRUST/trusts/{trust}");
        let member = &roles_of(&cloud, &demo, &one).await[0];
        for (method, path) in [
            ("GET", format!("/v3/OS-TRUST/trusts?trustor_user_id={trustor}")),
            ("GET", one.clone()),
            ("GET", format!("{one}/roles")),
            ("GET", format!("{one}/roles/{member}")),
            ("DELETE", one.clone()),
        ] {
            let reply = cloud.as_user(&robot, method, &path, Value::Null).await;
            assert_eq!(reply.status, 403, "{method} {path}: {}", reply.body);
        }
        assert_eq!(give(&cloud, &robot, fields).await.status, 403);
        assert_eq!(cloud.as_user(&demo, "GET", &one, Value::Null).await.status, 200);
    }
}

/// The ids of a trust's roles.
async fn roles_of(cloud: &Cloud, token: &str, trust: &str) -> Vec<String> {
    let reply = cloud.as_user(token, "GET", &format!("{trust}/roles"), Value::Null).await;
    let roles = reply.body["roles"].as_array().unwrap();
    roles.iter().map(|role| role["id"].as_str().unwrap().to_owned()).collect()
}
