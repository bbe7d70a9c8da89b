//! Server groups: the form of each microversion, visibility and quotas.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use jiff::Timestamp;
use kilonova_compute_app::server_groups::join;
use kilonova_ids::ServerId;
use kilonova_store::params;
use serde_json::{Value, json};

use crate::resources::kit::{ADMIN, ANN, Answer, Api, BOB, apis};

async fn make(api: &Api, token: &str, name: &str, policy: &str) -> Answer {
    let body = json!({"server_group": {"name": name, "policy": policy}});
    api.call(token, "2.64", "POST /os-server-groups", Some(body)).await
}

async fn made(api: &Api, token: &str, name: &str, policy: &str) -> String {
    let group = make(api, token, name, policy).await.expect(200);
    group["server_group"]["id"].as_str().expect("the answer has an id").to_owned()
}

async fn names(api: &Api, token: &str, query: &str) -> Vec<String> {
    let list = api.get(token, "2.64", &format!("/os-server-groups{query}")).await.expect(200);
    let name = |group: &Value| group["name"].as_str().expect("the value has a name").to_owned();
    list["server_groups"].as_array().expect("the answer has a list").iter().map(name).collect()
}

#[tokio::test]
async fn each_microversion_shows_its_form_of_a_group() {
    for api in apis().await {
        let id = made(&api, ANN, "g", "affinity").await;
        let at = async |version: &str| {
            let shown = api.get(ANN, version, &format!("/os-server-groups/{id}")).await;
            shown.expect(200)["server_group"].take()
        };
        let old = json!({
            "id": id, "name": "g", "members": [], "metadata": {}, "policies": ["affinity"],
        });
        assert_eq!(at("2.12").await, old);
        let owned = at("2.13").await;
        assert_eq!((&owned["project_id"], &owned["user_id"]), (&json!("red"), &json!("ann")));
        let new = json!({
            "id": id, "name": "g", "members": [], "policy": "affinity", "rules": {},
            "project_id": "red", "user_id": "ann",
        });
        assert_eq!(at("2.64").await, new);
    }
}

#[tokio::test]
async fn a_group_is_visible_to_its_project_and_to_admins() {
    for api in apis().await {
        let id = made(&api, ANN, "g", "affinity").await;
        made(&api, BOB, "h", "anti-affinity").await;
        assert_eq!(names(&api, ANN, "").await, ["g"]);
        assert_eq!(names(&api, ANN, "?all_projects=1").await, ["g"]);
        assert_eq!(names(&api, ADMIN, "?all_projects=1").await, ["g", "h"]);
        assert_eq!(names(&api, ADMIN, "?all_projects=1&limit=1&offset=1").await, ["h"]);
        assert_eq!(names(&api, ADMIN, "?all_projects=1&limit=0").await, ["g", "h"]);
        let path = format!("/os-server-groups/{id}");
        api.get(BOB, "2.64", &path).await.refused(404, "Instance group");
        let delete = format!("DELETE {path}");
        api.call(BOB, "2.64", &delete, None).await.refused(404, &id);
        let gone = api.call(ANN, "2.64", &delete, None).await;
        assert_eq!(gone.status, StatusCode::NO_CONTENT);
        api.call(ANN, "2.64", &delete, None).await.refused(404, "could not be found");
        api.get(ANN, "2.64", "/os-server-groups/g").await.refused(404, "g");
    }
}

#[tokio::test]
async fn a_group_needs_a_project() {
    for api in apis().await {
        let body = json!({"server_group": {"name": "g", "policies": ["affinity"]}});
        let request = Request::post("/v2.1/os-server-groups")
            .header("host", "cloud:1234")
            .header("x-auth-token", ADMIN)
            .header("openstack-system-scope", "all")
            .body(Body::from(body.to_string()))
            .expect("the request is valid");
        let denied = "Policy doesn't allow os_compute_api:os-server-groups:create to be performed.";
        api.send(request).await.refused(403, denied);
    }
}

#[tokio::test]
async fn the_quota_limits_groups_and_members() {
    for api in apis().await {
        let quota = json!({"quota_set": {"server_groups": 1, "server_group_members": 1}});
        api.admin("2.56", "PUT /os-quota-sets/red", quota).await.expect(200);
        let id = made(&api, ANN, "g", "affinity").await;
        make(&api, ANN, "h", "affinity").await.refused(403, "too many server groups");
        made(&api, BOB, "h", "affinity").await;
        let detail = api.get(ANN, "2.56", "/os-quota-sets/red/detail").await.expect(200);
        assert_eq!(detail["quota_set"]["server_groups"]["in_use"], 1);

        api.host("h1", Timestamp::UNIX_EPOCH).await;
        api.server("red", "ann", "h1", 1, 64).await;
        api.server("red", "ann", "h1", 1, 64).await;
        let group = id.parse().expect("the value is a UUID");
        let ids = api
            .store
            .read(|tx| tx.rows("SELECT id FROM servers ORDER BY seq", params![]))
            .await
            .expect("the row is read");
        let ids: Vec<ServerId> =
            ids.iter().map(|row| row.id(0).expect("the answer has an id")).collect();
        for (server, fits) in [(ids[0], true), (ids[1], false)] {
            let joined = api.store.write(move |tx| join(tx, group, server, "red", "ann")).await;
            assert_eq!(joined.is_ok(), fits, "{joined:?}");
        }
        let shown = api.get(ANN, "2.64", &format!("/os-server-groups/{id}")).await.expect(200);
        assert_eq!(shown["server_group"]["members"], json!([ids[0]]));

        // A soft-deleted member is neither shown nor counted.
        let (soft, first) = ("UPDATE servers SET vm_state = 'soft-delete' WHERE id = ?1", ids[0]);
        let changed = api.store.write(move |tx| tx.execute(soft, params![first])).await;
        assert_eq!(changed.expect("the row is changed"), 1);
        let shown = api.get(ANN, "2.64", &format!("/os-server-groups/{id}")).await.expect(200);
        assert_eq!(shown["server_group"]["members"], json!([]));
        for (token, query) in [(ANN, ""), (ADMIN, "?all_projects=1")] {
            let path = format!("/os-server-groups{query}");
            let list = api.get(token, "2.64", &path).await.expect(200);
            assert_eq!(list["server_groups"][0]["members"], json!([]), "{query}");
        }
        let second = ids[1];
        let joined = api.store.write(move |tx| join(tx, group, second, "red", "ann")).await;
        assert!(joined.is_ok(), "{joined:?}");
    }
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    for api in apis().await {
        let post = async |version: &str, group: Value| {
            let body = json!({"server_group": group});
            api.call(ANN, version, "POST /os-server-groups", Some(body)).await
        };
        post("2.14", json!({"name": "g", "policies": ["soft-affinity"]}))
            .await
            .refused(400, "soft-affinity");
        post("2.64", json!({"name": "g"})).await.refused(400, "policy");
        post("2.64", json!({"name": " g", "policy": "affinity"})).await.refused(400, "name");
        post(
            "2.64",
            json!({"name": "g", "policy": "affinity", "rules": {"max_server_per_host": 2}}),
        )
        .await
        .refused(400, "Only anti-affinity policy supports rules.");
        api.get(ANN, "2.75", "/os-server-groups?colour=red").await.refused(400, "colour");
        api.get(ANN, "2.74", "/os-server-groups?colour=red").await.expect(200);
    }
}
