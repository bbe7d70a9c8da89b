//! Groups, the roles that their members have, and token scopes: project, domain and system.

use serde_json::{Value, json};

use crate::cloud::{Cloud, PASSWORD, by_name, clouds, token_of};

async fn put(cloud: &Cloud, token: &str, path: &str) {
    let reply = cloud.as_user(token, "PUT", path, Value::Null).await;
    assert_eq!(reply.status, 204, "{path}: {}", reply.body);
}

fn scoped(user: &str, password: &str, scope: Value) -> Value {
    let mut body = by_name(user, password, None);
    body["auth"]["scope"] = scope;
    body
}

#[tokio::test]
async fn members_have_a_groups_roles_until_they_leave() {
    for cloud in clouds().await {
        let (_, user, _) = cloud.demo().await;
        let admin = cloud.admin().await;
        let red = cloud.make(&admin, "project", json!({"name": "red"})).await;
        let group = cloud.make(&admin, "group", json!({"name": "g", "description": "d"})).await;
        let reader = cloud.find(&admin, "role", "reader").await;
        let manager = cloud.find(&admin, "role", "manager").await;
        let member_of = format!("/v3/groups/{group}/users/{user}");
        let grant = format!("/v3/projects/{red}/groups/{group}/roles/{manager}");
        assert_eq!(cloud.as_user(&admin, "HEAD", &member_of, Value::Null).await.status, 404);
        put(&cloud, &admin, &member_of).await;
        put(&cloud, &admin, &member_of).await;
        assert_eq!(cloud.as_user(&admin, "HEAD", &member_of, Value::Null).await.status, 204);
        assert_eq!(cloud.as_user(&admin, "HEAD", &grant, Value::Null).await.status, 404);
        assert_eq!(cloud.login(by_name("demo", "demo", Some("red"))).await.status, 401);
        put(&cloud, &admin, &grant).await;
        assert_eq!(cloud.as_user(&admin, "HEAD", &grant, Value::Null).await.status, 204);

        let reply = cloud.login(by_name("demo", "demo", Some("red"))).await;
        assert_eq!(reply.status, 201);
        let names: Vec<&str> = reply.body["token"]["roles"]
            .as_array()
            .unwrap()
            .iter()
            .map(|role| role["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["manager", "member", "reader"]);
        let token = token_of(&reply);
        assert!(cloud.opens(&token).await);
        for path in ["/v3/auth/projects".to_owned(), format!("/v3/users/{user}/projects")] {
            let own = cloud.as_user(&token, "GET", &path, Value::Null).await;
            assert_eq!(own.body["projects"].as_array().unwrap().len(), 2, "{path}");
        }
        let path = format!("/v3/users/{user}/groups");
        let own = cloud.as_user(&token, "GET", &path, Value::Null).await;
        assert_eq!(own.body["groups"][0]["name"], "g");
        let members =
            cloud.as_user(&admin, "GET", &format!("/v3/groups/{group}/users"), Value::Null).await;
        assert_eq!(members.body["users"][0]["name"], "demo");

        let query = async |query: String| {
            let path = format!("/v3/role_assignments?{query}");
            let reply = cloud.as_user(&admin, "GET", &path, Value::Null).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            reply.body["role_assignments"].as_array().unwrap().clone()
        };
        let direct = query(format!("group.id={group}&include_names=true")).await;
        assert_eq!(direct.len(), 1);
        assert_eq!(direct[0]["group"]["name"], "g");
        assert_eq!(direct[0]["scope"]["project"]["name"], "red");
        assert_eq!(direct[0]["role"]["name"], "manager");
        assert!(query(format!("user.id={user}&scope.project.id={red}")).await.is_empty());
        let effective =
            query(format!("user.id={user}&scope.project.id={red}&effective&include_names")).await;
        let held: Vec<&Value> = effective.iter().map(|one| &one["role"]["name"]).collect();
        assert_eq!(held, ["manager", "member", "reader"]);
        let link = effective[0]["links"]["membership"].as_str().unwrap();
        assert!(link.ends_with(&format!("/v3/groups/{group}/users/{user}")), "{link}");
        let narrowed = query(format!("role.id={reader}&user.id={user}&effective")).await;
        assert_eq!(narrowed.len(), 2, "member on demo, manager on red: {narrowed:?}");
        let wrong = format!("/v3/role_assignments?effective&group.id={group}");
        assert_eq!(cloud.as_user(&admin, "GET", &wrong, Value::Null).await.status, 400);

        assert_eq!(cloud.as_user(&admin, "DELETE", &member_of, Value::Null).await.status, 204);
        assert!(!cloud.opens(&token).await, "the user left the group");
        assert_eq!(cloud.as_user(&admin, "DELETE", &member_of, Value::Null).await.status, 404);
        put(&cloud, &admin, &member_of).await;
        assert!(cloud.opens(&token).await);
        let path = format!("/v3/groups/{group}");
        assert_eq!(cloud.as_user(&admin, "DELETE", &path, Value::Null).await.status, 204);
        assert!(!cloud.opens(&token).await, "the group is gone");
    }
}

#[tokio::test]
async fn the_system_is_a_scope() {
    for cloud in clouds().await {
        let (_, user, _) = cloud.demo().await;
        let system = json!({"system": {"all": true}});
        let reply = cloud.login(scoped("admin", PASSWORD, system.clone())).await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        let token = &reply.body["token"];
        assert_eq!(token["system"], json!({"all": true}));
        assert!(token.get("project").is_none() && token["catalog"].is_array());
        assert_eq!(token["roles"].as_array().unwrap().len(), 4);
        let root = token_of(&reply);
        assert_eq!(cloud.as_user(&root, "GET", "/v3/users", Value::Null).await.status, 200);
        let rescope = async |scope: Value| {
            let identity = json!({"methods": ["token"], "token": {"id": root}});
            cloud.login(json!({"auth": {"identity": identity, "scope": scope}})).await
        };
        let project = json!({"name": "admin", "domain": {"id": "default"}});
        for scope in [json!({"project": project}), json!({"domain": {"id": "default"}})] {
            let refused = rescope(scope).await;
            assert_eq!(refused.status, 403, "{}", refused.body);
            let message = refused.body["error"]["message"].as_str().unwrap();
            assert!(message.contains("Using a system-scoped token to create"), "{message}");
        }
        for scope in [system.clone(), json!("unscoped")] {
            assert_eq!(rescope(scope).await.status, 201);
        }

        let refused = cloud.login(scoped("demo", "demo", system.clone())).await;
        assert_eq!(refused.status, 401, "demo has no role on the system");
        let reader = cloud.find(&root, "role", "reader").await;
        let grant = format!("/v3/system/users/{user}/roles/{reader}");
        assert_eq!(cloud.as_user(&root, "HEAD", &grant, Value::Null).await.status, 404);
        put(&cloud, &root, &grant).await;
        assert_eq!(cloud.as_user(&root, "HEAD", &grant, Value::Null).await.status, 204);
        let path = format!("/v3/system/users/{user}/roles");
        let listed = cloud.as_user(&root, "GET", &path, Value::Null).await;
        assert_eq!(listed.body["roles"][0]["name"], "reader");
        let auditor = token_of(&cloud.login(scoped("demo", "demo", system)).await);
        for path in ["/v3/users", "/v3/projects", "/v3/groups", "/v3/role_assignments"] {
            let status = cloud.as_user(&auditor, "GET", path, Value::Null).await.status;
            assert_eq!(status, 200, "{path}");
        }
        let body = json!({"group": {"name": "x"}});
        assert_eq!(cloud.as_user(&auditor, "POST", "/v3/groups", body).await.status, 403);
        let scopes = cloud.as_user(&auditor, "GET", "/v3/auth/system", Value::Null).await;
        assert_eq!(scopes.body["system"], json!([{"all": true}]));
        let query = "/v3/role_assignments?scope.system=all";
        let all = cloud.as_user(&auditor, "GET", query, Value::Null).await;
        let all = all.body["role_assignments"].as_array().unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0]["scope"], json!({"system": {"all": true}}));
        assert_eq!(cloud.as_user(&root, "DELETE", &grant, Value::Null).await.status, 204);
        assert!(!cloud.opens(&auditor).await);

        let group = cloud.make(&root, "group", json!({"name": "auditors"})).await;
        put(&cloud, &root, &format!("/v3/groups/{group}/users/{user}")).await;
        put(&cloud, &root, &format!("/v3/system/groups/{group}/roles/{reader}")).await;
        assert!(cloud.opens(&auditor).await, "the role comes from the group");
        // No project has these ids.
        for project in ["system", "domain"] {
            for effective in ["", "&effective"] {
                let query = format!("/v3/role_assignments?scope.project.id={project}{effective}");
                let found = cloud.as_user(&root, "GET", &query, Value::Null).await;
                assert_eq!(found.body["role_assignments"], json!([]), "{query}");
            }
        }
        for wrong in [json!({"system": {"all": false}}), json!({"system": {}}), json!({"x": {}})] {
            assert_eq!(cloud.login(scoped("demo", "demo", wrong)).await.status, 400);
        }
    }
}

#[tokio::test]
async fn a_domain_manager_manages_only_the_domain() {
    for cloud in clouds().await {
        let (project, user, _) = cloud.demo().await;
        let admin = cloud.admin().await;
        let manager = cloud.find(&admin, "role", "manager").await;
        let reader = cloud.find(&admin, "role", "reader").await;
        let admin_role = cloud.find(&admin, "role", "admin").await;
        put(&cloud, &admin, &format!("/v3/domains/default/users/{user}/roles/{manager}")).await;
        let nowhere = format!("/v3/domains/other/users/{user}/roles/{manager}");
        assert_eq!(cloud.as_user(&admin, "PUT", &nowhere, Value::Null).await.status, 404);
        let reply = cloud.login(scoped("demo", "demo", json!({"domain": {"id": "default"}}))).await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        assert_eq!(reply.body["token"]["domain"], json!({"id": "default", "name": "Default"}));
        let demo = token_of(&reply);
        let other = json!({"domain": {"name": "Other"}});
        assert_eq!(cloud.login(scoped("demo", "demo", other)).await.status, 401);
        let body = json!({"user": {"name": "made", "password": "made"}});
        let made = cloud.as_user(&demo, "POST", "/v3/users", body).await;
        assert_eq!(made.status, 201, "{}", made.body);
        let made = made.body["user"]["id"].as_str().unwrap().to_owned();
        put(&cloud, &demo, &format!("/v3/projects/{project}/users/{made}/roles/{reader}")).await;
        let much = format!("/v3/projects/{project}/users/{made}/roles/{admin_role}");
        assert_eq!(cloud.as_user(&demo, "PUT", &much, Value::Null).await.status, 403);
        let all = format!("/v3/system/users/{made}/roles/{reader}");
        assert_eq!(cloud.as_user(&demo, "PUT", &all, Value::Null).await.status, 403);
        let body = json!({"service": {"type": "x"}});
        assert_eq!(cloud.as_user(&demo, "POST", "/v3/services", body).await.status, 403);
        let scopes = cloud.as_user(&demo, "GET", "/v3/auth/domains", Value::Null).await;
        assert_eq!(scopes.body["domains"][0]["id"], "default");
    }
}
