//! Registered services in the catalogs of tokens.

use serde_json::{Value, json};

use crate::cloud::{by_name, clouds};

#[tokio::test]
async fn a_registered_service_is_in_the_catalog_until_it_is_deleted() {
    for cloud in clouds().await {
        let (project, _, _) = cloud.demo().await;
        let admin = cloud.admin().await;
        let fields = json!({"type": "volumev3", "name": "cinderv3", "description": "blocks"});
        let service = cloud.make(&admin, "service", fields).await;
        let endpoint = |interface: &str| {
            json!({"service_id": service, "interface": interface, "region_id": "RegionOne",
                   "url": "http://cinder.example:8776/v3/%(project_id)s"})
        };
        let public = cloud.make(&admin, "endpoint", endpoint("public")).await;
        cloud.make(&admin, "endpoint", endpoint("internal")).await;
        let entry = async |token: &Value| {
            let all = token["catalog"].as_array().unwrap().clone();
            all.into_iter().find(|entry| entry["type"] == "volumev3")
        };
        let login = cloud.login(by_name("demo", "demo", Some("demo"))).await;
        let found = entry(&login.body["token"]).await.expect("the service is in the token");
        assert_eq!(found["name"], "cinderv3");
        let url = format!("http://cinder.example:8776/v3/{project}");
        assert_eq!(found["endpoints"][0]["url"], url);
        assert_eq!(found["endpoints"].as_array().unwrap().len(), 2);
        let demo = crate::cloud::token_of(&login);
        let own = cloud.as_user(&demo, "GET", "/v3/auth/catalog", Value::Null).await;
        assert!(entry(&own.body).await.is_some());
        let mut system = by_name("admin", crate::cloud::PASSWORD, None);
        system["auth"]["scope"] = json!({"system": {"all": true}});
        let system = cloud.login(system).await;
        let found = entry(&system.body["token"]).await.expect("the service is in the token");
        assert_eq!(found["endpoints"], json!([]), "its URL contains a project");

        let path = format!("/v3/endpoints/{public}");
        let off = json!({"endpoint": {"enabled": false, "region_id": "RegionOne"}});
        let reply = cloud.as_user(&admin, "PATCH", &path, off).await;
        assert_eq!(
            (reply.status.as_u16(), &reply.body["endpoint"]["enabled"]),
            (200, &json!(false))
        );
        let login = cloud.login(by_name("demo", "demo", Some("demo"))).await;
        let found = entry(&login.body["token"]).await.unwrap();
        assert_eq!(found["endpoints"].as_array().unwrap().len(), 1);
        let path = format!("/v3/services/{service}");
        let renamed = json!({"service": {"name": "other"}});
        let reply = cloud.as_user(&admin, "PATCH", &path, renamed).await;
        assert_eq!(reply.body["service"]["name"], "other");
        assert_eq!(cloud.as_user(&admin, "DELETE", &path, Value::Null).await.status, 204);
        assert_eq!(cloud.as_user(&admin, "DELETE", &path, Value::Null).await.status, 404);
        let login = cloud.login(by_name("demo", "demo", Some("demo"))).await;
        assert!(entry(&login.body["token"]).await.is_none());
        let gone = format!("/v3/endpoints/{public}");
        assert_eq!(cloud.as_user(&admin, "GET", &gone, Value::Null).await.status, 404);
    }
}

#[tokio::test]
async fn built_in_entries_cannot_be_changed() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        let nova = cloud.find(&admin, "service", "nova").await;
        let path = format!("/v3/endpoints?service_id={nova}");
        let endpoints = cloud.as_user(&admin, "GET", &path, Value::Null).await;
        let endpoint = endpoints.body["endpoints"][0]["id"].as_str().unwrap().to_owned();
        let new =
            json!({"endpoint": {"service_id": nova, "interface": "public", "url": "http://x"}});
        for (method, path, body) in [
            ("PATCH", format!("/v3/services/{nova}"), json!({"service": {"name": "x"}})),
            ("DELETE", format!("/v3/services/{nova}"), Value::Null),
            (
                "PATCH",
                format!("/v3/endpoints/{endpoint}"),
                json!({"endpoint": {"url": "http://x"}}),
            ),
            ("DELETE", format!("/v3/endpoints/{endpoint}"), Value::Null),
            ("POST", "/v3/endpoints".into(), new),
            ("PATCH", "/v3/regions/RegionOne".into(), json!({"region": {"description": "x"}})),
            ("DELETE", "/v3/regions/RegionOne".into(), Value::Null),
        ] {
            let reply = cloud.as_user(&admin, method, &path, body).await;
            assert_eq!(reply.status, 403, "{method} {path}");
            let message = reply.body["error"]["message"].as_str().unwrap();
            assert!(message.contains("this cloud"), "{message}");
        }
        let taken = json!({"region": {"id": "RegionOne"}});
        assert_eq!(cloud.as_user(&admin, "POST", "/v3/regions", taken).await.status, 409);
    }
}

#[tokio::test]
async fn invalid_entries_are_refused() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        for fields in
            [json!({}), json!({"type": ""}), json!({"type": 7}), json!({"type": "x".repeat(256)})]
        {
            let body = json!({"service": fields.clone()});
            let reply = cloud.as_user(&admin, "POST", "/v3/services", body).await;
            assert_eq!(reply.status, 400, "{fields}");
        }
        let service = cloud.make(&admin, "service", json!({"type": "x"})).await;
        let good = json!({"service_id": service, "interface": "public", "url": "http://x/"});
        for (key, value) in [
            ("service_id", json!("nothing")),
            ("service_id", Value::Null),
            ("interface", json!("private")),
            ("url", json!("ftp://x")),
            ("url", json!("http://x/%(admin_token)s")),
            ("url", json!("http://x/ y")),
            ("region_id", json!("Nowhere")),
        ] {
            let mut fields = good.clone();
            fields[key] = value;
            let body = json!({"endpoint": fields});
            let reply = cloud.as_user(&admin, "POST", "/v3/endpoints", body.clone()).await;
            assert_eq!(reply.status, 400, "{body}");
        }
        let mut old = good;
        old["region"] = json!("RegionTwo");
        let endpoint = cloud.make(&admin, "endpoint", old).await;
        let two = cloud.as_user(&admin, "GET", "/v3/regions/RegionTwo", Value::Null).await;
        assert_eq!(two.status, 200, "older clients expect the region to be created");
        let path = "/v3/regions/RegionTwo";
        assert_eq!(cloud.as_user(&admin, "DELETE", path, Value::Null).await.status, 403);
        let child = json!({"region": {"id": "Child", "parent_region_id": "RegionTwo"}});
        assert_eq!(cloud.as_user(&admin, "POST", "/v3/regions", child).await.status, 201);
        let circle = json!({"region": {"parent_region_id": "Child"}});
        assert_eq!(cloud.as_user(&admin, "PATCH", path, circle).await.status, 400);
        let grandchild = json!({"region": {"id": "Grandchild", "parent_region_id": "Child"}});
        assert_eq!(cloud.as_user(&admin, "POST", "/v3/regions", grandchild).await.status, 201);
        // The endpoint is first in the region itself, then in one below it, and then gone.
        let move_to = async |region: &str| {
            let body = json!({"endpoint": {"region_id": region}});
            let path = format!("/v3/endpoints/{endpoint}");
            assert_eq!(cloud.as_user(&admin, "PATCH", &path, body).await.status, 200);
        };
        for (region, status) in [("RegionTwo", 403), ("Grandchild", 403), ("RegionOne", 204)] {
            move_to(region).await;
            let reply = cloud.as_user(&admin, "DELETE", path, Value::Null).await;
            assert_eq!(reply.status, status, "{region}: {}", reply.body);
        }
        for region in ["RegionTwo", "Child", "Grandchild"] {
            let path = format!("/v3/regions/{region}");
            let reply = cloud.as_user(&admin, "GET", &path, Value::Null).await;
            assert_eq!(reply.status, 404, "{region}");
        }
        let again = cloud.as_user(&admin, "DELETE", path, Value::Null).await;
        assert_eq!(again.status, 404);
        let named = json!({"region": {"description": "d"}});
        let reply = cloud.as_user(&admin, "PUT", "/v3/regions/Three", named).await;
        assert_eq!((reply.status.as_u16(), &reply.body["region"]["id"]), (201, &json!("Three")));
        assert_eq!(
            cloud.as_user(&admin, "DELETE", "/v3/regions/Three", Value::Null).await.status,
            204
        );
        cloud.demo().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        for (method, path) in [
            ("POST", "/v3/services"),
            ("GET", "/v3/services"),
            ("POST", "/v3/endpoints"),
            ("GET", "/v3/endpoints"),
            ("POST", "/v3/regions"),
        ] {
            assert_eq!(cloud.as_user(&demo, method, path, json!({})).await.status, 403, "{path}");
        }
        assert_eq!(cloud.as_user(&demo, "GET", "/v3/regions", Value::Null).await.status, 200);
    }
}

/// Another controller deletes a region while this one adds an endpoint or a region to it.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_added_to_a_region_that_another_controller_deletes() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        let service = cloud.make(&admin, "service", json!({"type": "x"})).await;
        let endpoint = |key: &str| {
            json!({"endpoint": {"service_id": service, "interface": "public", "url": "http://x/",
                                key: "Gone"}})
        };
        let moved = cloud.make(&admin, "region", json!({"id": "Moved"})).await;
        for (method, path, body, status) in [
            ("POST", "/v3/endpoints".to_owned(), endpoint("region_id"), 400),
            // The region is created again for an older client.
            ("POST", "/v3/endpoints".to_owned(), endpoint("region"), 201),
            (
                "POST",
                "/v3/regions".to_owned(),
                json!({"region": {"id": "Child", "parent_region_id": "Below"}}),
                404,
            ),
            (
                "PATCH",
                format!("/v3/regions/{moved}"),
                json!({"region": {"parent_region_id": "Below"}}),
                404,
            ),
        ] {
            cloud.make(&admin, "region", json!({"id": "Gone"})).await;
            cloud.make(&admin, "region", json!({"id": "Below", "parent_region_id": "Gone"})).await;
            let (begun, wait) = std::sync::mpsc::channel();
            let store = cloud.store.clone();
            let other = tokio::spawn(async move {
                store
                    .write(move |tx| {
                        for id in ["Gone", "Below"] {
                            let sql = "DELETE FROM identity_regions WHERE id = ?1";
                            tx.execute(sql, kilonova_store::params![id])?;
                        }
                        begun.send(()).ok();
                        std::thread::sleep(std::time::Duration::from_millis(300));
                        Ok::<_, kilonova_store::Error>(())
                    })
                    .await
            });
            wait.recv().unwrap();
            let reply = cloud.as_user(&admin, method, &path, body).await;
            other.await.unwrap().unwrap();
            assert_eq!(reply.status, status, "{path}: {}", reply.body);
            let reply = cloud.as_user(&admin, "GET", "/v3/regions", Value::Null).await;
            for region in reply.body["regions"].as_array().unwrap() {
                let parent = &region["parent_region_id"];
                assert_eq!(parent, &Value::Null, "{region} is below a region that is gone");
            }
            let listed = cloud.as_user(&admin, "GET", "/v3/endpoints", Value::Null).await;
            for made in listed.body["endpoints"].as_array().unwrap() {
                if made["service_id"] == service {
                    let path = format!("/v3/endpoints/{}", made["id"].as_str().unwrap());
                    cloud.as_user(&admin, "DELETE", &path, Value::Null).await;
                    let region = cloud.as_user(&admin, "DELETE", "/v3/regions/Gone", Value::Null);
                    assert_eq!(region.await.status, 204);
                }
            }
        }
    }
}
