//! Filters and pages of lists.

use serde_json::{Value, json};

use crate::cloud::clouds;

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
