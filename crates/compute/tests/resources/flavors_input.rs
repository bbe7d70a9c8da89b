//! Invalid input for flavors, each kind once.

use serde_json::{Value, json};

use crate::resources::kit::{ADMIN, ANN, apis};

fn with(more: Value) -> Value {
    let mut flavor = json!({"id": "x", "name": "x", "ram": 64, "vcpus": 1, "disk": 1});
    if let (Some(flavor), Value::Object(more)) = (flavor.as_object_mut(), more) {
        flavor.extend(more);
    }
    json!({"flavor": flavor})
}

#[tokio::test]
async fn invalid_bodies_are_refused() {
    for api in apis().await {
        for (more, field) in [
            (json!({"ram": 0}), "ram"),
            (json!({"ram": "x"}), "ram"),
            (json!({"ram": "9999999999"}), "ram"),
            (json!({"vcpus": -1}), "vcpus"),
            (json!({"vcpus": 1.5}), "vcpus"),
            (json!({"disk": 2_147_483_648_i64}), "disk"),
            (json!({"swap": null}), "swap"),
            (json!({"OS-FLV-EXT-DATA:ephemeral": -1}), "ephemeral"),
            (json!({"name": ""}), "name"),
            (json!({"name": " "}), "name"),
            (json!({"name": " x"}), "name"),
            (json!({"name": "a\u{7}b"}), "name"),
            (json!({"name": "x".repeat(256)}), "name"),
            (json!({"name": 5}), "name"),
            (json!({"id": ""}), "id"),
            (json!({"id": "a/b"}), "id"),
            (json!({"id": " a"}), "id"),
            (json!({"os-flavor-access:is_public": "perhaps"}), "is_public"),
            (json!({"rxtx_factor": 0}), "rxtx_factor"),
            (json!({"rxtx_factor": "0.0"}), "rxtx_factor"),
            (json!({"rxtx_factor": "-1"}), "rxtx_factor"),
            (json!({"description": 5}), "description"),
            (json!({"description": "a\u{0}"}), "NUL"),
            (json!({"colour": "red"}), "colour"),
        ] {
            api.admin("2.61", "POST /flavors", with(more)).await.refused(400, field);
        }
        api.admin("2.54", "POST /flavors", with(json!({"description": "d"})))
            .await
            .refused(400, "description");
        api.admin("2.102", "POST /flavors", with(json!({"rxtx_factor": 1})))
            .await
            .refused(400, "rxtx_factor");
        for body in [json!({}), json!([]), json!({"flavor": {"name": "x"}}), json!({"flavor": 1})] {
            let answer = api.admin("2.61", "POST /flavors", body).await;
            assert_eq!(answer.status.as_u16(), 400, "{}", answer.body);
        }
        let body = Some(with(json!({})));
        api.call(ANN, "2.61", "POST /flavors", body).await.refused(403, "os-flavor-manage:create");
        api.admin("2.61", "POST /flavors", with(json!({"ram": "64", "id": 5}))).await.expect(200);
        api.get(ANN, "2.61", "/flavors/5").await.expect(200);
    }
}

#[tokio::test]
async fn names_and_ids_in_use_are_refused() {
    for api in apis().await {
        api.flavor("x", json!({})).await;
        let same_id = with(json!({"name": "y"}));
        api.admin("2.61", "POST /flavors", same_id).await.refused(409, "Flavor with ID x already");
        let same_name = with(json!({"id": "y"}));
        api.admin("2.61", "POST /flavors", same_name)
            .await
            .refused(409, "Flavor with name x already");
    }
}

#[tokio::test]
async fn invalid_queries_are_refused() {
    for api in apis().await {
        for (query, part) in [
            ("is_public=maybe", "Invalid is_public filter [maybe]"),
            ("minRam=x", "Invalid minRam filter [x]"),
            ("minDisk=x", "Invalid minDisk filter [x]"),
            ("sort_key=colour", "sort_key"),
            ("sort_dir=up", "sort_dir"),
            ("limit=-1", "limit"),
            ("limit=x", "limit"),
            ("marker=none", "marker [none] not found"),
            ("colour=red", "'colour' was unexpected"),
            ("name=x", "'name' was unexpected"),
        ] {
            api.get(ADMIN, "2.101", &format!("/flavors?{query}")).await.refused(400, part);
        }
        api.get(ADMIN, "2.74", "/flavors?colour=red&name=x").await.expect(200);
        api.get(ADMIN, "2.102", "/flavors?name=%28").await.refused(400, "regular expression");
        api.get(ADMIN, "2.102", "/flavors?sort_key=rxtx_factor").await.refused(400, "sort_key");
        api.flavor("x", json!({})).await;
        for path in ["/flavors/x?a=b", "/flavors/x/os-extra_specs?a=b"] {
            api.get(ADMIN, "2.101", path).await.expect(200);
            api.get(ADMIN, "2.102", path).await.refused(400, "'a' was unexpected");
        }
    }
}

#[tokio::test]
async fn invalid_extra_specs_are_refused() {
    for api in apis().await {
        api.flavor("x", json!({})).await;
        for specs in [
            json!({"a/b": "1"}),
            json!({"": "1"}),
            json!({"a": null}),
            json!({"a": ["1"]}),
            json!({"a": "x".repeat(256)}),
        ] {
            let body = json!({"extra_specs": specs});
            let answer = api.admin("2.61", "POST /flavors/x/os-extra_specs", body).await;
            assert_eq!(answer.status.as_u16(), 400, "{}", answer.body);
        }
        let body = json!({"extra_specs": {"a": "1"}});
        api.admin("2.61", "POST /flavors/y/os-extra_specs", body).await.refused(404, "Flavor y");
    }
}
