//! Implied roles, and their effect on tokens.

use serde_json::{Value, json};

use crate::cloud::{Cloud, clouds, mounted};

/// The names of the roles of a user's token on the project `demo`.
async fn roles(cloud: &Cloud) -> Vec<String> {
    let token = cloud.token("demo", "demo", "demo").await;
    let headers = [("x-auth-token", token.as_str()), ("x-subject-token", token.as_str())];
    let shown = cloud.call("GET", "/v3/auth/tokens", &headers, Value::Null).await;
    let roles = shown.body["token"]["roles"].as_array().expect("the token has roles").clone();
    roles
        .iter()
        .map(|role| role["name"].as_str().expect("the role has a name").to_owned())
        .collect()
}

#[tokio::test]
async fn the_default_roles_imply_each_other() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        let all = cloud.as_user(&admin, "GET", "/v3/role_inferences", Value::Null).await;
        assert_eq!(all.status, 200, "{}", all.body);
        let pairs: Vec<(&str, &str)> = all.body["role_inferences"]
            .as_array()
            .expect("the answer has a list")
            .iter()
            .map(|one| {
                assert_eq!(
                    one["implies"].as_array().expect("the answer has a list").len(),
                    1,
                    "{one}"
                );
                let name = |role: &'_ Value| role["name"].as_str().map(str::to_owned);
                let (prior, implied) = (name(&one["prior_role"]), name(&one["implies"][0]));
                (
                    prior.expect("the role has a name").leak() as &str,
                    implied.expect("the role has a name").leak() as &str,
                )
            })
            .collect();
        let chain = [("admin", "manager"), ("manager", "member"), ("member", "reader")];
        assert_eq!(pairs, chain);

        let ids = [
            cloud.find(&admin, "role", "member").await,
            cloud.find(&admin, "role", "reader").await,
        ];
        let path = format!("/v3/roles/{}/implies", ids[0]);
        let list = cloud.as_user(&admin, "GET", &path, Value::Null).await.body;
        let base = "http://cloud.example:8000/identity/v3/roles";
        let brief = |n: usize, name: &str| json!({"id": ids[n], "name": name, "links": {"self": format!("{base}/{}", ids[n])}});
        assert_eq!(
            list,
            json!({
                "role_inference": {
                    "prior_role": brief(0, "member"), "implies": [brief(1, "reader")]},
                "links": {"self": format!("{base}/{}/implies", ids[0])},
            })
        );
        let path = format!("{path}/{}", ids[1]);
        let one = cloud.as_user(&admin, "GET", &path, Value::Null).await.body;
        assert_eq!(
            one,
            json!({
                "role_inference": {"prior_role": brief(0, "member"), "implies": brief(1, "reader")},
                "links": {"self": format!("{base}/{}/implies/{}", ids[0], ids[1])},
            })
        );
        assert_eq!(cloud.as_user(&admin, "HEAD", &path, Value::Null).await.status, 204);
    }
}

#[tokio::test]
async fn an_implication_is_in_tokens_while_it_exists() {
    for cloud in clouds().await {
        cloud.demo().await;
        let admin = cloud.admin().await;
        let extra = cloud.make(&admin, "role", json!({"name": "extra"})).await;
        let member = cloud.find(&admin, "role", "member").await;
        let path = format!("/v3/roles/{member}/implies/{extra}");
        let reply = cloud.as_user(&admin, "GET", &path, Value::Null).await;
        assert_eq!(reply.status, 404);
        let words = format!("{member} does not imply {extra}.");
        assert_eq!(reply.body["error"]["message"], words);
        assert_eq!(cloud.as_user(&admin, "HEAD", &path, Value::Null).await.status, 404);
        assert_eq!(roles(&cloud).await, ["member", "reader"]);

        let made = cloud.as_user(&admin, "PUT", &path, Value::Null).await;
        assert_eq!(made.status, 201, "{}", made.body);
        assert_eq!(made.body["role_inference"]["implies"]["name"], "extra");
        assert_eq!(roles(&cloud).await, ["extra", "member", "reader"]);
        assert_eq!(cloud.as_user(&admin, "PUT", &path, Value::Null).await.status, 409);
        // A cycle is harmless.
        let back = format!("/v3/roles/{extra}/implies/{member}");
        assert_eq!(cloud.as_user(&admin, "PUT", &back, Value::Null).await.status, 201);
        assert_eq!(roles(&cloud).await, ["extra", "member", "reader"]);

        assert_eq!(cloud.as_user(&admin, "DELETE", &path, Value::Null).await.status, 204);
        assert_eq!(cloud.as_user(&admin, "DELETE", &path, Value::Null).await.status, 404);
        assert_eq!(roles(&cloud).await, ["member", "reader"]);
    }
}

#[tokio::test]
async fn nothing_implies_admin_and_only_admins_change_implications() {
    for cloud in clouds().await {
        cloud.demo().await;
        let admin = cloud.admin().await;
        let top = cloud.find(&admin, "role", "admin").await;
        let member = cloud.find(&admin, "role", "member").await;
        let path = format!("/v3/roles/{member}/implies/{top}");
        let refused = cloud.as_user(&admin, "PUT", &path, Value::Null).await;
        assert_eq!(refused.status, 403, "{}", refused.body);
        let words = format!("{top} cannot be an implied roles.");
        assert_eq!(refused.body["error"]["message"], words);
        let nothing = "0".repeat(32);
        let path = format!("/v3/roles/{member}/implies/{nothing}");
        assert_eq!(cloud.as_user(&admin, "PUT", &path, Value::Null).await.status, 404);

        let demo = cloud.token("demo", "demo", "demo").await;
        let reader = cloud.find(&admin, "role", "reader").await;
        let path = format!("/v3/roles/{member}/implies/{reader}");
        for (method, path) in [
            ("GET", "/v3/role_inferences"),
            ("GET", &format!("/v3/roles/{member}/implies")),
            ("GET", &path),
            ("HEAD", &path),
            ("PUT", &path),
            ("DELETE", &path),
        ] {
            let reply = cloud.as_user(&demo, method, path, Value::Null).await;
            assert_eq!(reply.status, 403, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_deleted_default_implication_is_not_restored() {
    for cloud in clouds().await {
        cloud.demo().await;
        let admin = cloud.admin().await;
        let member = cloud.find(&admin, "role", "member").await;
        let reader = cloud.find(&admin, "role", "reader").await;
        let path = format!("/v3/roles/{member}/implies/{reader}");
        assert_eq!(cloud.as_user(&admin, "DELETE", &path, Value::Null).await.status, 204);
        let again =
            cloud.identity.bootstrap(crate::cloud::PASSWORD).await.expect("the bootstrap succeeds");
        assert!(!again, "there is an admin already");
        drop(mounted(&cloud.identity));
        assert_eq!(roles(&cloud).await, ["member"]);
    }
}
