//! Flavors: lifecycle, views of each microversion, access and extra specs.

use serde_json::{Value, json};

use crate::resources::kit::{ADMIN, ANN, Api, BOB, apis};

fn ids(list: &Value) -> Vec<&str> {
    let list = list["flavors"].as_array().expect("the answer has a list");
    list.iter().filter_map(|flavor| flavor["id"].as_str()).collect()
}

async fn detail(api: &Api, version: &str) -> Value {
    api.get(ADMIN, version, "/flavors/w").await.expect(200)["flavor"].clone()
}

#[tokio::test]
async fn create_show_and_delete_a_flavor() {
    for api in apis().await {
        let body = json!({"flavor": {
            "vcpus": 2, "os-flavor-access:is_public": true, "name": "w1", "swap": 0, "ram": 128,
            "id": null, "disk": 1, "OS-FLV-EXT-DATA:ephemeral": 0,
        }});
        let made = api.admin("2.61", "POST /flavors", body).await.expect(200);
        let id = made["flavor"]["id"].as_str().expect("the answer has an id").to_owned();
        assert_eq!(
            made,
            json!({"flavor": {
                "id": id, "name": "w1", "ram": 128, "disk": 1, "swap": "", "vcpus": 2,
                "OS-FLV-EXT-DATA:ephemeral": 0, "OS-FLV-DISABLED:disabled": false,
                "os-flavor-access:is_public": true, "rxtx_factor": 1.0, "description": null,
                "extra_specs": {},
                "links": [
                    {"rel": "self", "href": format!("http://cloud:1234/compute/v2.1/flavors/{id}")},
                    {"rel": "bookmark", "href": format!("http://cloud:1234/compute/flavors/{id}")},
                ],
            }})
        );
        let shown = api.get(ANN, "2.61", &format!("/flavors/{id}")).await.expect(200);
        assert_eq!(shown, made);
        let path = format!("DELETE /flavors/{id}");
        api.call(ANN, "2.61", &path, None).await.refused(403, "os-flavor-manage:delete");
        api.call(ADMIN, "2.61", &path, None).await.expect(202);
        let gone = api.call(ADMIN, "2.61", &path, None).await;
        gone.refused(404, &format!("Flavor {id} could not be found."));
        api.get(ANN, "2.61", "/flavors/w1").await.refused(404, "Flavor w1 could not be found.");
    }
}

#[tokio::test]
async fn each_microversion_shows_its_keys() {
    for api in apis().await {
        api.flavor("w", json!({"description": "d"})).await;
        let first = detail(&api, "2.54").await;
        assert!(first.get("description").is_none() && first.get("extra_specs").is_none());
        let second = detail(&api, "2.60").await;
        assert!(second["description"] == "d" && second.get("extra_specs").is_none());
        assert_eq!(detail(&api, "2.74").await["swap"], "");
        assert_eq!(detail(&api, "2.75").await["swap"], 0);
        let last = detail(&api, "2.102").await;
        assert!(last.get("rxtx_factor").is_none());
        assert!(last.get("OS-FLV-DISABLED:disabled").is_none());
        let brief = api.get(ANN, "2.55", "/flavors").await.expect(200);
        let mut keys: Vec<_> =
            brief["flavors"][0].as_object().expect("the value is an object").keys().collect();
        keys.sort();
        assert_eq!(keys, ["description", "id", "links", "name"]);
    }
}

#[tokio::test]
async fn listings_filter_order_and_page() {
    for api in apis().await {
        api.flavor("b", json!({"ram": 256})).await;
        api.flavor("a", json!({"disk": 20})).await;
        api.flavor("c", json!({"os-flavor-access:is_public": false})).await;
        let list = async |path: &str| {
            let list = api.get(ADMIN, "2.102", &format!("/flavors{path}")).await.expect(200);
            ids(&list).join(" ")
        };
        assert_eq!(list("").await, "a b");
        assert_eq!(list("?is_public=None").await, "a b c");
        assert_eq!(list("?is_public=False").await, "c");
        assert_eq!(list("?sort_key=memory_mb&sort_dir=desc").await, "b a");
        assert_eq!(list("?minRam=100").await, "b");
        assert_eq!(list("/detail?minDisk=10").await, "a");
        assert_eq!(list("?name=%5E%5Bbx%5D").await, "b");
        assert_eq!(list("?limit=1&marker=a").await, "b");
        assert_eq!(list("?minRam=100&marker=a").await, "b", "the filters exclude the marker");
        assert_eq!(list("?is_public=False&marker=b").await, "c");
        assert_eq!(list("?sort_key=memory_mb&sort_dir=desc&marker=c").await, "a");
        api.get(ANN, "2.61", "/flavors?marker=c").await.refused(400, "marker [c] not found");
        let page = api.get(ADMIN, "2.61", "/flavors?limit=1&is_public=None").await.expect(200);
        assert_eq!(
            page["flavors_links"],
            json!([{"rel": "next", "href":
                "http://cloud:1234/compute/v2.1/flavors?limit=1&is_public=None&marker=a"}])
        );
        let all = api.get(ANN, "2.61", "/flavors?is_public=None").await.expect(200);
        assert_eq!(ids(&all), ["a", "b"]);
        assert!(all.get("flavors_links").is_none());
    }
}

#[tokio::test]
async fn the_description_may_change_from_2_55_on() {
    for api in apis().await {
        api.flavor("w", json!({})).await;
        let body = json!({"flavor": {"description": "hello"}});
        let path = "PUT /flavors/w";
        let changed = api.admin("2.61", path, body.clone()).await.expect(200);
        assert_eq!(changed["flavor"]["description"], "hello");
        api.admin("2.54", path, body.clone()).await.refused(404, "2.54 is not supported on this");
        api.call(ANN, "2.61", path, Some(body.clone())).await.refused(403, "update");
        api.admin("2.61", "PUT /flavors/x", body).await.refused(404, "Flavor x");
        let null = json!({"flavor": {"description": null}});
        let changed = api.admin("2.61", path, null).await.expect(200);
        assert_eq!(changed["flavor"]["description"], Value::Null);
        api.admin("2.61", path, json!({"flavor": {"name": "n"}})).await.refused(400, "name");
    }
}

#[tokio::test]
async fn private_flavors_are_visible_to_projects_with_access() {
    for api in apis().await {
        api.flavor("w", json!({"os-flavor-access:is_public": false})).await;
        let grant = json!({"addTenantAccess": {"tenant": "red"}});
        let path = "POST /flavors/w/action";
        api.get(ANN, "2.61", "/flavors/w").await.refused(404, "Flavor w");
        let list = api.admin("2.1", path, grant.clone()).await.expect(200);
        assert_eq!(list, json!({"flavor_access": [{"flavor_id": "w", "tenant_id": "red"}]}));
        api.admin("2.1", path, grant.clone()).await.refused(409, "already exists for flavor w");
        api.get(ANN, "2.61", "/flavors/w").await.expect(200);
        assert_eq!(ids(&api.get(ANN, "2.61", "/flavors").await.expect(200)), ["w"]);
        api.get(BOB, "2.61", "/flavors/w").await.refused(404, "Flavor w");
        let access = api.get(ADMIN, "2.61", "/flavors/w/os-flavor-access").await.expect(200);
        assert_eq!(access, list);
        api.get(ANN, "2.61", "/flavors/w/os-flavor-access").await.refused(403, "os-flavor-access");
        let revoke = json!({"removeTenantAccess": {"tenant": "red"}});
        let list = api.admin("2.1", path, revoke.clone()).await.expect(200);
        assert_eq!(list, json!({"flavor_access": []}));
        api.admin("2.1", path, revoke).await.refused(404, "access not found for w / red");
        api.call(ANN, "2.1", path, Some(grant.clone())).await.refused(403, "add_tenant_access");
        api.admin("2.1", path, grant.clone()).await.expect(200);
        api.call(ADMIN, "2.1", "DELETE /flavors/w", None).await.expect(202);
        api.admin("2.1", path, grant).await.refused(404, "Flavor w");
    }
}

#[tokio::test]
async fn public_flavors_have_no_access_list() {
    for api in apis().await {
        api.flavor("w", json!({})).await;
        let grant = json!({"addTenantAccess": {"tenant": "red"}});
        let path = "POST /flavors/w/action";
        api.admin("2.7", path, grant.clone()).await.refused(409, "public flavor");
        api.admin("2.6", path, grant).await.expect(200);
        let answer = api.get(ADMIN, "2.1", "/flavors/w/os-flavor-access").await;
        answer.refused(404, "Access list not available for public flavors.");
        api.admin("2.1", path, json!({"dance": {}})).await.refused(400, "no such action: dance");
        api.admin("2.1", path, json!([])).await.refused(400, "Malformed request body");
        let wrong = json!({"addTenantAccess": {"tenant": ""}});
        api.admin("2.1", path, wrong).await.refused(400, "tenant");
    }
}

#[tokio::test]
async fn create_update_and_delete_extra_specs() {
    for api in apis().await {
        api.flavor("w", json!({})).await;
        let path = "/flavors/w/os-extra_specs";
        let body = json!({"extra_specs": {"hw:cpu_policy": "shared", "a": 1}});
        let made = api.admin("2.61", &format!("POST {path}"), body.clone()).await.expect(200);
        assert_eq!(made, body);
        let list = api.get(ANN, "2.61", path).await.expect(200);
        assert_eq!(list, json!({"extra_specs": {"hw:cpu_policy": "shared", "a": "1"}}));
        let put = api.admin("2.61", &format!("PUT {path}/a"), json!({"a": "2"})).await.expect(200);
        assert_eq!(put, json!({"a": "2"}));
        assert_eq!(api.get(ANN, "2.61", &format!("{path}/a")).await.expect(200), put);
        let mismatch = api.admin("2.61", &format!("PUT {path}/a"), json!({"b": "2"})).await;
        mismatch.refused(400, "Request body and URI mismatch");
        let two = api.admin("2.61", &format!("PUT {path}/a"), json!({"a": "1", "b": "2"})).await;
        assert_eq!(two.status.as_u16(), 400);
        api.call(ANN, "2.61", &format!("POST {path}"), Some(body)).await.refused(403, "create");
        api.call(ADMIN, "2.61", &format!("DELETE {path}/a"), None).await.expect(200);
        let again = api.call(ADMIN, "2.61", &format!("DELETE {path}/a"), None).await;
        again.refused(404, "Flavor w has no extra specs with key a.");
        api.get(ANN, "2.61", &format!("{path}/a")).await.refused(404, "no extra specs with key a");
        let shown = api.get(ANN, "2.61", "/flavors/w").await.expect(200);
        assert_eq!(shown["flavor"]["extra_specs"], json!({"hw:cpu_policy": "shared"}));
    }
}

#[tokio::test]
async fn known_extra_specs_are_checked_from_2_86_on() {
    for api in apis().await {
        api.flavor("w", json!({})).await;
        let path = "POST /flavors/w/os-extra_specs";
        let wrong = json!({"extra_specs": {"resources:VGPU": "many"}});
        api.admin("2.85", path, wrong.clone()).await.expect(200);
        api.admin("2.86", path, wrong).await.refused(400, "'many' is not a valid integer value");
        let typo = json!({"extra_specs": {"accel:device_profil": "p"}});
        api.admin("2.86", path, typo)
            .await
            .refused(400, "does not appear to be a valid extra spec");
        let right = json!({"extra_specs": {"accel:device_profile": "p", "own:x": "y"}});
        api.admin("2.86", path, right).await.expect(200);
    }
}
