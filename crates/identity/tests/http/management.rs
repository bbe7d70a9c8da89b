//! Projects, users, roles, assignments, domains and the catalog resources.

use serde_json::{Value, json};

use crate::cloud::{by_name, clouds};

#[tokio::test]
async fn resources_are_created_updated_and_deleted() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        for kind in ["project", "user", "role"] {
            let listing = format!("/v3/{kind}s");
            let missing = format!("{listing}/thing");
            let reply = cloud.as_user(&admin, "GET", &missing, Value::Null).await;
            assert_eq!(reply.status, 404);
            let message = format!("Could not find {kind}: thing.");
            assert_eq!(reply.body["error"]["message"], message);

            let fields = json!({"name": "thing", "description": "a thing"});
            let id = cloud.make(&admin, kind, fields).await;
            assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()));
            assert_eq!(cloud.find(&admin, kind, "thing").await, id);
            let path = format!("{listing}/{id}");
            let shown = cloud.as_user(&admin, "GET", &path, Value::Null).await;
            assert_eq!(shown.status, 200);
            assert_eq!(shown.body[kind]["description"], "a thing");
            let link = format!("http://cloud.example:8000/identity/v3/{kind}s/{id}");
            assert_eq!(shown.body[kind]["links"]["self"], link);

            let twice = json!({kind: {"name": "thing"}});
            let reply = cloud.as_user(&admin, "POST", &listing, twice).await;
            assert_eq!(reply.status, 409, "{}", reply.body);

            let change = json!({kind: {"name": "other", "description": "changed"}});
            let reply = cloud.as_user(&admin, "PATCH", &path, change).await;
            assert_eq!(reply.status, 200);
            assert_eq!(reply.body[kind]["name"], "other");
            assert_eq!(reply.body[kind]["description"], "changed");
            let taken = json!({kind: {"name": "admin"}});
            assert_eq!(cloud.as_user(&admin, "PATCH", &path, taken).await.status, 409);

            assert_eq!(cloud.as_user(&admin, "DELETE", &path, Value::Null).await.status, 204);
            assert_eq!(cloud.as_user(&admin, "DELETE", &path, Value::Null).await.status, 404);
            assert_eq!(cloud.as_user(&admin, "PATCH", &path, json!({kind: {}})).await.status, 404);
        }
    }
}

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
async fn white_space_around_names_is_not_stored() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        for (kind, stored) in
            [("user", "one"), ("group", "one"), ("project", "one"), ("role", " one ")]
        {
            let id = cloud.make(&admin, kind, json!({"name": " one "})).await;
            let path = format!("/v3/{kind}s/{id}");
            let shown = cloud.as_user(&admin, "GET", &path, Value::Null).await;
            assert_eq!(shown.body[kind]["name"], stored, "{kind}");
            let change = json!({kind: {"name": "two "}});
            let changed = cloud.as_user(&admin, "PATCH", &path, change).await;
            let stored = if kind == "role" { "two " } else { "two" };
            assert_eq!(changed.body[kind]["name"], stored, "{kind}");
        }
        let taken = json!({"user": {"name": "\ttwo"}});
        assert_eq!(cloud.as_user(&admin, "POST", "/v3/users", taken).await.status, 409);
    }
}

#[tokio::test]
async fn additional_attributes_may_be_null() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        for (kind, path) in
            [("user", "users"), ("group", "groups"), ("project", "projects"), ("role", "roles")]
        {
            let fields = json!({"name": "one", "email": "a@b", "phone": null});
            let id = cloud.make(&admin, kind, fields).await;
            let path = format!("/v3/{path}/{id}");
            let change = json!({kind: {"email": null}});
            let shown = cloud.as_user(&admin, "GET", &path, Value::Null).await;
            assert_eq!(shown.body[kind]["email"], "a@b", "{kind}");
            assert_eq!(cloud.as_user(&admin, "PATCH", &path, change).await.status, 200);
            let shown = cloud.as_user(&admin, "GET", &path, Value::Null).await;
            for key in ["email", "phone"] {
                assert_eq!(shown.body[kind].get(key), Some(&Value::Null), "{kind}: {key}");
            }
        }
    }
}

#[tokio::test]
async fn ids_and_domains_do_not_change() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        let ask = async |method: &str, path: &str, body: Value| {
            let reply = cloud.as_user(&admin, method, path, body).await;
            (reply.status.as_u16(), reply.body["error"]["message"].clone())
        };
        for kind in ["user", "group", "project", "role", "region", "service"] {
            let fields = match kind {
                "region" => json!({"id": "one"}),
                "service" => json!({"type": "one"}),
                _ => json!({"name": "one"}),
            };
            let id = cloud.make(&admin, kind, fields).await;
            let path = format!("/v3/{kind}s/{id}");
            // Keystone compares the id of a user twice, and once also with null.
            let null = match kind {
                "user" => (400, json!("Cannot change user ID")),
                _ => (200, Value::Null),
            };
            for (id, answer) in [
                (json!("other"), (400, json!("Cannot change ID"))),
                (json!(id), (200, Value::Null)),
                (Value::Null, null),
            ] {
                let change = json!({kind: {"id": id, "description": "d"}});
                assert_eq!(ask("PATCH", &path, change).await, answer, "{kind} {id}");
            }
            if ["user", "group", "project"].contains(&kind) {
                let elsewhere = json!({kind: {"domain_id": "other"}});
                let answer = (400, json!("Cannot change Domain ID"));
                assert_eq!(ask("PATCH", &path, elsewhere).await, answer, "{kind}");
                let here = json!({kind: {"domain_id": "default"}});
                assert_eq!(ask("PATCH", &path, here).await.0, 200, "{kind}");
                let new = json!({kind: {"name": "two", "domain_id": "other"}});
                let status = if kind == "project" { 400 } else { 404 };
                let answer = (status, json!("Could not find domain: other."));
                assert_eq!(ask("POST", &format!("/v3/{kind}s"), new).await, answer, "{kind}");
            }
        }
    }
}

#[tokio::test]
async fn names_and_values_are_validated() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        for kind in ["project", "user", "role"] {
            let path = format!("/v3/{kind}s");
            for fields in [
                json!({}),
                json!({"name": ""}),
                json!({"name": "  "}),
                json!({"name": "a\u{0}b"}),
                json!({"name": "a\nb"}),
                json!({"name": 7}),
                json!({"name": "x".repeat(256)}),
                json!({"name": "x", "description": "a\u{0}b"}),
            ] {
                let reply =
                    cloud.as_user(&admin, "POST", &path, json!({kind: fields.clone()})).await;
                assert_eq!(reply.status, 400, "{kind} {fields}");
            }
            let query = format!("{path}?name=a%00b");
            let reply = cloud.as_user(&admin, "GET", &query, Value::Null).await;
            assert_eq!(reply.status, 400);
            let odd = format!("{path}/a%00b");
            assert_eq!(cloud.as_user(&admin, "GET", &odd, Value::Null).await.status, 400);
        }
        for fields in [
            json!({"name": "p", "enabled": "yes"}),
            json!({"name": "p", "parent_id": "0".repeat(32)}),
            json!({"name": "p", "is_domain": true}),
            json!({"name": "p", "tags": ["a", "a"]}),
            json!({"name": "p", "tags": "a"}),
        ] {
            let body = json!({"project": fields.clone()});
            let reply = cloud.as_user(&admin, "POST", "/v3/projects", body).await;
            assert_eq!(reply.status, 400, "{fields}");
        }
        let body = json!({"user": {"name": "u", "password": "x".repeat(5000)}});
        assert_eq!(cloud.as_user(&admin, "POST", "/v3/users", body).await.status, 400);
        let elsewhere = json!({"user": {"name": "u", "domain_id": "other"}});
        assert_eq!(cloud.as_user(&admin, "POST", "/v3/users", elsewhere).await.status, 404);
        let reply = cloud.as_user(&admin, "GET", "/v3/users?domain_id=other", Value::Null).await;
        assert_eq!(reply.body["users"], json!([]));
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
async fn the_domain_is_the_one_project_that_acts_as_a_domain() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        let names = async |filter: &str| -> Vec<String> {
            let path = format!("/v3/projects?{filter}");
            let found = cloud.as_user(&admin, "GET", &path, Value::Null).await.body;
            let all = found["projects"].as_array().unwrap().iter();
            all.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
        };
        for word in ["true", "1", "yes"] {
            assert_eq!(names(&format!("is_domain={word}")).await, ["Default"], "{word}");
        }
        let after = names("is_domain=1&limit=1&marker=default").await;
        assert_eq!(after, Vec::<String>::new());
        for word in ["false", "0", "no"] {
            let found = names(&format!("is_domain={word}")).await;
            assert_eq!(found, ["admin", "service"], "{word}");
        }
        for filter in ["name=x", "enabled=0", "domain_id=default", "parent_id=default", "tags=a"] {
            let found = names(&format!("is_domain=1&{filter}")).await;
            assert_eq!(found, Vec::<String>::new(), "{filter}");
        }
        let path = "/v3/projects?is_domain=1&name__startswith=Def";
        let shown = cloud.as_user(&admin, "GET", path, Value::Null).await.body;
        let shown = &shown["projects"][0];
        assert_eq!((&shown["id"], &shown["is_domain"]), (&json!("default"), &json!(true)));
        assert_eq!((&shown["domain_id"], &shown["parent_id"]), (&Value::Null, &Value::Null));
    }
}

#[tokio::test]
async fn the_catalog_is_available_as_resources() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        let get = async |path: &str| cloud.as_user(&admin, "GET", path, Value::Null).await;
        assert_eq!(get("/v3/auth/catalog").await.body["catalog"][0]["type"], "identity");
        let services = get("/v3/services?type=compute").await.body;
        assert_eq!(services["services"].as_array().unwrap().len(), 1);
        let id = services["services"][0]["id"].as_str().unwrap();
        assert_eq!(get(&format!("/v3/services/{id}")).await.body["service"]["name"], "nova");
        let endpoints = get(&format!("/v3/endpoints?service_id={id}&interface=public")).await.body;
        let url = &endpoints["endpoints"][0]["url"];
        assert_eq!(url, "http://cloud.example:8000/compute/v2.1");
        assert_eq!(get("/v3/regions").await.body["regions"][0]["id"], "RegionOne");
        assert_eq!(get("/v3/regions/R2").await.status, 404);
        assert_eq!(get("/v3/domains").await.body["domains"][0]["id"], "default");
        assert_eq!(get("/v3/domains/Default").await.status, 404);
        assert_eq!(get("/v3/domains?name=Default").await.body["domains"][0]["name"], "Default");
        assert_eq!(get("/v3/nothing").await.status, 404);
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
async fn lists_are_restricted_by_parts_of_names() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        for name in ["Tmp-one", "tmp-two"] {
            cloud.make(&admin, "project", json!({"name": name})).await;
            cloud.make(&admin, "user", json!({"name": name})).await;
            cloud.make(&admin, "group", json!({"name": name})).await;
            cloud.make(&admin, "role", json!({"name": name})).await;
        }
        for kind in ["projects", "users", "groups", "roles"] {
            for (filter, names) in [
                ("name__contains=mp-o", vec!["Tmp-one"]),
                ("name__contains=MP-", vec![]),
                ("name__icontains=MP-", vec!["Tmp-one", "tmp-two"]),
                ("name__startswith=tmp-", vec!["tmp-two"]),
                ("name__istartswith=tmp-", vec!["Tmp-one", "tmp-two"]),
                ("name__endswith=-two", vec!["tmp-two"]),
                ("name__endswith=-TWO", vec![]),
                ("name__iendswith=-TWO", vec!["tmp-two"]),
                ("name__icontains=t_p", vec![]),
                ("name__icontains=tmp&name__endswith=one", vec!["Tmp-one"]),
            ] {
                let path = format!("/v3/{kind}?{filter}");
                let reply = cloud.as_user(&admin, "GET", &path, Value::Null).await;
                assert_eq!(reply.status, 200, "{path}");
                let found = reply.body[kind].as_array().unwrap().iter();
                let mut found: Vec<&str> = found.map(|one| one["name"].as_str().unwrap()).collect();
                found.sort_unstable();
                assert_eq!(found, names, "{path}");
            }
        }
        for (kind, filter, count) in [
            ("services", "name__startswith=no", 1),
            ("services", "type__iendswith=TITY", 1),
            ("endpoints", "interface__contains=publ", 2),
            ("regions", "parent_region_id__contains=x", 0),
            ("domains", "name__startswith=Def", 1),
            ("domains", "name__startswith=def", 0),
            ("users", "domain_id__startswith=other", 0),
            ("domains", "enabled__equals=True", 1),
            ("domains", "enabled__equals=off", 0),
            ("domains", "enabled__contains=rue", 0),
        ] {
            let path = format!("/v3/{kind}?{filter}");
            let reply = cloud.as_user(&admin, "GET", &path, Value::Null).await;
            assert_eq!(reply.body[kind].as_array().unwrap().len(), count, "{path}");
        }
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

/// Horizon's tables send what their users type.
#[tokio::test]
async fn filters_by_enabled_take_keystones_words() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        let off = json!({"name": "off", "enabled": false, "password": "x"});
        cloud.make(&admin, "user", off).await;
        cloud.make(&admin, "project", json!({"name": "off", "enabled": false})).await;
        for (word, users, projects, domains) in [
            ("Yes", &["admin"][..], &["admin", "service"][..], 1),
            ("t", &["admin"], &["admin", "service"], 1),
            ("", &["admin"], &["admin", "service"], 1),
            ("No", &["off"], &["off"], 0),
            ("n", &["off"], &["off"], 0),
            ("0", &["off"], &["off"], 0),
        ] {
            for (kind, expected) in [("users", users), ("projects", projects)] {
                let path = format!("/v3/{kind}?enabled={word}");
                let reply = cloud.as_user(&admin, "GET", &path, Value::Null).await;
                assert_eq!(reply.status, 200, "{path}: {}", reply.body);
                let found = reply.body[kind].as_array().unwrap().iter();
                let names: Vec<&str> = found.map(|one| one["name"].as_str().unwrap()).collect();
                assert_eq!(names, expected, "{path}");
            }
            let path = format!("/v3/domains?enabled={word}");
            let reply = cloud.as_user(&admin, "GET", &path, Value::Null).await;
            assert_eq!(reply.body["domains"].as_array().unwrap().len(), domains, "{path}");
        }
    }
}

#[tokio::test]
async fn the_projects_of_a_user_and_the_users_of_a_group_are_filtered() {
    for cloud in clouds().await {
        let (project, user, member) = cloud.demo().await;
        let admin = cloud.admin().await;
        let off = json!({"name": "off", "enabled": false});
        let off = cloud.make(&admin, "project", off).await;
        let group = cloud.make(&admin, "group", json!({"name": "g"})).await;
        for path in [
            format!("/v3/projects/{off}/users/{user}/roles/{member}"),
            format!("/v3/groups/{group}/users/{user}"),
        ] {
            assert_eq!(cloud.as_user(&admin, "PUT", &path, Value::Null).await.status, 204);
        }
        let path = format!("/v3/users/{user}/projects");
        for (filter, ids) in [
            ("", vec![&project, &off]),
            ("name=off", vec![&off]),
            ("name__startswith=de", vec![&project]),
            ("enabled=true", vec![&project]),
            ("enabled=0", vec![&off]),
            ("enabled=Yes", vec![&project]),
            ("enabled=anything", vec![&project]),
            ("enabled=No", vec![&off]),
            ("enabled=%20OFF", vec![&off]),
            ("domain_id=default", vec![&project, &off]),
            ("domain_id=other", vec![]),
        ] {
            let path = format!("{path}?{filter}");
            let reply = cloud.as_user(&admin, "GET", &path, Value::Null).await;
            let found = reply.body["projects"].as_array().unwrap().iter();
            let found: Vec<&str> = found.map(|one| one["id"].as_str().unwrap()).collect();
            assert_eq!(found, ids, "{path}");
        }
        for (filter, count) in [("", 1), ("domain_id=other", 0), ("name__contains=x", 0)] {
            let path = format!("/v3/groups/{group}/users?{filter}");
            let reply = cloud.as_user(&admin, "GET", &path, Value::Null).await;
            assert_eq!(reply.body["users"].as_array().unwrap().len(), count, "{path}");
        }
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

#[tokio::test]
async fn lists_have_pages_in_the_order_of_ids() {
    for cloud in clouds().await {
        let (_, user, member) = cloud.demo().await;
        let admin = cloud.admin().await;
        let put = async |path: String| {
            assert_eq!(
                cloud.as_user(&admin, "PUT", &path, Value::Null).await.status,
                204,
                "{path}"
            );
        };
        let group = cloud.make(&admin, "group", json!({"name": "g"})).await;
        for name in ["c", "a", "b"] {
            let project = cloud.make(&admin, "project", json!({"name": name})).await;
            put(format!("/v3/projects/{project}/users/{user}/roles/{member}")).await;
            let one = cloud.make(&admin, "user", json!({"name": name})).await;
            put(format!("/v3/groups/{group}/users/{one}")).await;
            let other = cloud.make(&admin, "group", json!({"name": name})).await;
            put(format!("/v3/groups/{other}/users/{user}")).await;
        }
        for (path, kind) in [
            ("/v3/users".to_owned(), "users"),
            ("/v3/projects".to_owned(), "projects"),
            ("/v3/groups".to_owned(), "groups"),
            (format!("/v3/groups/{group}/users"), "users"),
            (format!("/v3/users/{user}/projects"), "projects"),
            (format!("/v3/users/{user}/groups"), "groups"),
        ] {
            let get = async |path: &str| cloud.as_user(&admin, "GET", path, Value::Null).await;
            let ids = |body: &Value| -> Vec<String> {
                let list = body[kind].as_array().unwrap().iter();
                list.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
            };
            let whole = get(&path).await.body;
            assert_eq!(whole["links"]["next"], Value::Null);
            let own = |path: &str| json!(format!("http://cloud.example:8000/identity{path}"));
            assert_eq!(whole["links"]["self"], own(&path));
            for query in ["limit=1", "name=%61b&x", "enabled"] {
                let path = format!("{path}?{query}");
                assert_eq!(get(&path).await.body["links"]["self"], own(&path));
            }
            assert!(whole.get("truncated").is_none());
            let mut all = ids(&whole);
            all.sort_unstable();

            let mut found = Vec::new();
            let mut next = format!("{path}?limit=2");
            loop {
                let page = get(&next).await;
                assert_eq!(page.status, 200, "{next}: {}", page.body);
                found.extend(ids(&page.body));
                let Some(link) = page.body["links"]["next"].as_str() else { break };
                assert_eq!(page.body["truncated"], true);
                let prefix = "http://cloud.example:8000/identity";
                next = link.strip_prefix(prefix).expect("the link is absolute").to_owned();
            }
            assert_eq!(found, all, "{path}");
            // The client asks for a page after the last one.
            let after = format!("{path}?limit=2&marker={}", all.last().unwrap());
            assert_eq!(ids(&get(&after).await.body), Vec::<String>::new(), "{path}");

            let unknown = get(&format!("{path}?marker=nothing")).await;
            let words = "Marker nothing could not be found.";
            assert_eq!(unknown.status, 404, "{path}");
            assert_eq!(unknown.body["error"]["message"], words);
            assert_eq!(get(&format!("{path}?marker=a%00b")).await.status, 400);
            assert_eq!(get(&format!("{path}?limit=-1")).await.status, 400);
        }
        // The marker need not match the filter.
        let admin_id = cloud.find(&admin, "user", "admin").await;
        let path = format!("/v3/users?name=nobody&limit=1&marker={admin_id}");
        assert_eq!(cloud.as_user(&admin, "GET", &path, Value::Null).await.body["users"], json!([]));
    }
}

#[tokio::test]
async fn the_description_of_the_domain_can_be_changed() {
    for cloud in clouds().await {
        cloud.demo().await;
        let admin = cloud.admin().await;
        let patch = async |token: &str, id: &str, fields: Value| {
            let path = format!("/v3/domains/{id}");
            cloud.as_user(token, "PATCH", &path, json!({"domain": fields})).await
        };
        let described = json!({"description": "ours", "name": "Default", "enabled": true});
        let reply = patch(&admin, "default", described).await;
        assert_eq!(
            (reply.status.as_u16(), &reply.body["domain"]["description"]),
            (200, &json!("ours"))
        );
        for path in ["/v3/domains/default", "/v3/domains"] {
            let reply = cloud.as_user(&admin, "GET", path, Value::Null).await;
            assert!(reply.body.to_string().contains("ours"), "{}", reply.body);
        }
        for fields in [
            json!({"name": "other"}),
            json!({"description": "x", "enabled": false}),
            json!({"options": {"immutable": true}}),
            json!({"tags": ["a"]}),
            json!({"colour": "red"}),
            json!({"description": "a\u{0}b"}),
        ] {
            let reply = patch(&admin, "default", fields.clone()).await;
            assert_eq!(reply.status, 400, "{fields}");
        }
        let shown = cloud.as_user(&admin, "GET", "/v3/domains/default", Value::Null).await;
        assert_eq!(shown.body["domain"]["description"], "ours");
        assert_eq!(patch(&admin, "other", json!({"description": "x"})).await.status, 404);
        let demo = cloud.token("demo", "demo", "demo").await;
        assert_eq!(patch(&demo, "default", json!({"description": "x"})).await.status, 403);
    }
}

#[tokio::test]
async fn no_update_clears_the_id_of_a_user_or_of_a_domain() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        for kind in ["user", "project", "group"] {
            let id = cloud.make(&admin, kind, json!({"name": "thing"})).await;
            let path = format!("/v3/{kind}s/{id}");
            let patch = async |fields: Value| {
                cloud.as_user(&admin, "PATCH", &path, json!({kind: fields})).await
            };
            let reply = patch(json!({"domain_id": null})).await;
            let message = reply.body["error"]["message"].as_str().unwrap();
            assert!(message.starts_with("Cannot change Domain ID"), "{message}");
            assert_eq!(reply.status, 400, "{kind}");
            assert_eq!(patch(json!({"domain_id": "default"})).await.status, 200, "{kind}");
            // Only users have an id that null would change.
            let status = if kind == "user" { 400 } else { 200 };
            assert_eq!(patch(json!({"id": null})).await.status, status, "{kind}");
        }
    }
}

#[tokio::test]
async fn domains_are_neither_created_nor_deleted() {
    for cloud in clouds().await {
        cloud.demo().await;
        let admin = cloud.admin().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let new = json!({"domain": {"name": "second", "enabled": true}});
        let same = json!({"domain": {"name": "default"}});
        for (method, path, body, status, words) in [
            ("POST", "/v3/domains", new, 403, "another one cannot be created."),
            (
                "POST",
                "/v3/domains",
                same,
                409,
                "it is not possible to store the name Default twice.",
            ),
            ("DELETE", "/v3/domains/default", Value::Null, 403, "it cannot be deleted."),
            ("DELETE", "/v3/domains/second", Value::Null, 404, "Could not find domain: second."),
        ] {
            let reply = cloud.as_user(&admin, method, path, body.clone()).await;
            let message = reply.body["error"]["message"].as_str().unwrap();
            assert_eq!(reply.status, status, "{method} {path}: {message}");
            assert!(message.ends_with(words), "{method} {path}: {message}");
            let refused = cloud.as_user(&demo, method, path, body).await;
            assert_eq!(refused.status, 403, "{method} {path}");
            let message = refused.body["error"]["message"].as_str().unwrap();
            assert!(message.contains("_domain"), "the rule refuses first: {message}");
        }
        let all = cloud.as_user(&admin, "GET", "/v3/domains", Value::Null).await;
        assert_eq!(all.body["domains"].as_array().unwrap().len(), 1);
    }
}
