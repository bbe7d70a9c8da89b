//! Unified limits: registered limits, and those of projects.

use serde_json::{Value, json};

use crate::cloud::{Cloud, clouds};

async fn register(cloud: &Cloud, admin: &str, fields: Value) -> Value {
    let body = json!({"registered_limits": [fields]});
    let reply = cloud.as_user(admin, "POST", "/v3/registered_limits", body).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    assert!(reply.body.get("links").is_none());
    reply.body["registered_limits"][0].clone()
}

async fn refused(
    cloud: &Cloud,
    token: &str,
    (method, path): (&str, &str),
    body: Value,
) -> (u16, String) {
    let reply = cloud.as_user(token, method, path, body).await;
    let message = reply.body["error"]["message"].as_str().unwrap_or_default().to_owned();
    (reply.status.as_u16(), message)
}

#[tokio::test]
async fn limits_override_registered_limits() {
    for cloud in clouds().await {
        let (project, _, _) = cloud.demo().await;
        let admin = cloud.admin().await;
        let nova = cloud.find(&admin, "service", "nova").await;
        let fields = json!({"service_id": nova, "resource_name": "class:VCPU", "default_limit": 10,
                            "region_id": "RegionOne", "description": "cores"});
        let made = register(&cloud, &admin, fields.clone()).await;
        let id = made["id"].as_str().unwrap();
        assert_eq!(
            made,
            json!({"id": id, "service_id": nova, "resource_name": "class:VCPU",
                   "default_limit": 10, "region_id": "RegionOne", "description": "cores",
                   "links": {"self": format!("http://cloud.example:8000/identity/v3/registered_limits/{id}")}})
        );
        let plain = register(
            &cloud,
            &admin,
            json!({"service_id": nova, "resource_name": "class:VCPU", "default_limit": -1}),
        )
        .await;
        assert_eq!((&plain["region_id"], &plain["description"]), (&Value::Null, &Value::Null));
        let again = ("POST", "/v3/registered_limits");
        assert_eq!(
            refused(&cloud, &admin, again, json!({"registered_limits": [fields]})).await,
            (
                409,
                "Conflict occurred attempting to store registered_limit - Duplicate entry.".into()
            )
        );

        let new = |project: &str, resource: &str, limit: i64| {
            json!({"project_id": project, "service_id": nova, "resource_name": resource,
                   "resource_limit": limit, "region_id": "RegionOne"})
        };
        let create = async |items: Value| {
            cloud.as_user(&admin, "POST", "/v3/limits", json!({"limits": items})).await
        };
        let reply = create(json!([new(&project, "class:VCPU", 3)])).await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        let limit = reply.body["limits"][0].clone();
        assert_eq!((&limit["project_id"], &limit["domain_id"]), (&json!(project), &Value::Null));
        assert_eq!(create(json!([new(&project, "class:VCPU", 3)])).await.status, 409);
        // A request is stored completely or not at all.
        let mut of_domain = new("x", "class:VCPU", 5);
        of_domain.as_object_mut().unwrap().remove("project_id");
        of_domain["domain_id"] = json!("default");
        let reply = create(json!([of_domain, new(&project, "class:VGPU", 1)])).await;
        assert_eq!(reply.status, 403);
        assert_eq!(
            reply.body["error"]["message"],
            "Unable to create a limit that has no corresponding registered limit."
        );
        let reply = create(json!([of_domain])).await;
        assert_eq!(reply.body["limits"][0]["domain_id"], "default");
        for (wrong, status) in [
            (json!([]), 400),
            (json!([new("unknown", "class:VCPU", 3)]), 400),
            (json!([new(&project, "class:VCPU", -2)]), 400),
            (json!([new(&project, "class\0", 1)]), 400),
        ] {
            assert_eq!(create(wrong.clone()).await.status, status, "{wrong}");
        }

        let path = format!("/v3/registered_limits/{id}");
        let why = format!(
            "Unable to update or delete registered limit {id} because there are project limits \
             associated with it."
        );
        let change = json!({"registered_limit": {"default_limit": 20}});
        assert_eq!(
            refused(&cloud, &admin, ("PATCH", &path), change.clone()).await,
            (403, why.clone())
        );
        assert_eq!(refused(&cloud, &admin, ("DELETE", &path), Value::Null).await, (403, why));

        // A project sees its own limits, the administrator all of them.
        let demo = cloud.token("demo", "demo", "demo").await;
        let listed = async |token: &str, query: &str| {
            let reply =
                cloud.as_user(token, "GET", &format!("/v3/limits{query}"), Value::Null).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            reply.body["limits"].as_array().unwrap().clone()
        };
        assert_eq!(listed(&demo, "").await, std::slice::from_ref(&limit));
        assert_eq!(listed(&admin, "").await.len(), 2);
        assert_eq!(
            listed(&admin, &format!("?project_id={project}")).await,
            std::slice::from_ref(&limit)
        );
        assert_eq!(listed(&admin, "?resource_name=class:VGPU").await, [Value::Null; 0]);
        let own = format!("/v3/limits/{}", limit["id"].as_str().unwrap());
        assert_eq!(cloud.as_user(&demo, "GET", &own, Value::Null).await.body["limit"], limit);
        let change = json!({"limit": {"resource_limit": 4}});
        assert_eq!(refused(&cloud, &demo, ("PATCH", &own), change.clone()).await.0, 403);
        let reply = cloud.as_user(&admin, "PATCH", &own, change).await;
        assert_eq!(reply.body["limit"]["resource_limit"], 4);
        let moved = json!({"limit": {"project_id": "x"}});
        assert_eq!(refused(&cloud, &admin, ("PATCH", &own), moved).await.0, 400);
        let model = cloud.as_user(&demo, "GET", "/v3/limits/model", Value::Null).await;
        assert_eq!(model.body["model"]["name"], "flat");

        assert_eq!(cloud.as_user(&demo, "DELETE", &path, Value::Null).await.status, 403);
        let listed_by = cloud.as_user(&demo, "GET", "/v3/registered_limits", Value::Null).await;
        assert_eq!(listed_by.body["registered_limits"].as_array().unwrap().len(), 2);

        // The limits of a project are deleted with it.
        let gone = format!("/v3/projects/{project}");
        assert_eq!(cloud.as_user(&admin, "DELETE", &gone, Value::Null).await.status, 204);
        assert_eq!(
            refused(&cloud, &admin, ("GET", &own), Value::Null).await,
            (404, format!("Could not find limit for {}.", limit["id"].as_str().unwrap()))
        );
        let other = listed(&admin, "").await[0]["id"].as_str().unwrap().to_owned();
        let other = format!("/v3/limits/{other}");
        assert_eq!(cloud.as_user(&admin, "DELETE", &other, Value::Null).await.status, 204);
        assert_eq!(cloud.as_user(&admin, "DELETE", &other, Value::Null).await.status, 404);
        let change = json!({"registered_limit": {"default_limit": 20, "region_id": null,
                                                 "description": null}});
        assert_eq!(
            refused(&cloud, &admin, ("PATCH", &path), change).await.0,
            409,
            "a registered limit without a region exists"
        );
        let change =
            json!({"registered_limit": {"default_limit": 20, "resource_name": "class:VGPU"}});
        let reply = cloud.as_user(&admin, "PATCH", &path, change).await;
        assert_eq!(reply.body["registered_limit"]["default_limit"], 20);
        let listed = cloud.as_user(&admin, "GET", "/v3/registered_limits", Value::Null).await;
        assert_eq!(listed.body["registered_limits"].as_array().unwrap().len(), 2);
        assert_eq!(cloud.as_user(&admin, "DELETE", &path, Value::Null).await.status, 204);
        assert_eq!(
            refused(&cloud, &admin, ("GET", &path), Value::Null).await,
            (404, format!("Could not find registered limit for {id}."))
        );
    }
}

#[tokio::test]
async fn limits_outlive_their_service_and_region() {
    for cloud in clouds().await {
        let admin = cloud.admin().await;
        let service =
            cloud.make(&admin, "service", json!({"type": "share", "name": "manila"})).await;
        let region = cloud.make(&admin, "region", json!({"id": "west"})).await;
        let fields = json!({"service_id": service, "resource_name": "shares", "default_limit": 1,
                            "region_id": region});
        let id = register(&cloud, &admin, fields).await["id"].as_str().unwrap().to_owned();
        for path in [format!("/v3/services/{service}"), format!("/v3/regions/{region}")] {
            assert_eq!(cloud.as_user(&admin, "DELETE", &path, Value::Null).await.status, 204);
        }
        let path = format!("/v3/registered_limits/{id}");
        let kept = cloud.as_user(&admin, "GET", &path, Value::Null).await;
        assert_eq!(kept.body["registered_limit"]["service_id"], service);
        let change = json!({"registered_limit": {"default_limit": 2}});
        assert_eq!(cloud.as_user(&admin, "PATCH", &path, change).await.status, 200);
        assert_eq!(cloud.as_user(&admin, "DELETE", &path, Value::Null).await.status, 204);
        let unknown = json!({"registered_limits": [{"service_id": service, "resource_name": "x",
                                                    "default_limit": 1}]});
        assert_eq!(
            refused(&cloud, &admin, ("POST", "/v3/registered_limits"), unknown).await,
            (
                400,
                "Expecting to find service_id in registered_limit. The server could not comply with the \
                 request since it is either malformed or otherwise incorrect. The client is assumed to \
                 be in error."
                    .into()
            )
        );
    }
}
