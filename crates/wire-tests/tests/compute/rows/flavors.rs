//! Flavors, their extra specs, and access lists.

use serde_json::json;

use crate::compute::api::{ALL, Api};

pub async fn row(api: Api<'_>) {
    let id = api.flavor("f").await;
    let path = format!("/flavors/{id}");
    let mut private = json!({
        "name": format!("private-{}", api.minor), "ram": 64, "vcpus": 1, "disk": 0, "swap": 512,
        "OS-FLV-EXT-DATA:ephemeral": 1, "os-flavor-access:is_public": false,
    });
    if api.minor >= 55 {
        private["description"] = json!("for a few");
    }
    let made = api.send("POST /flavors", json!({"flavor": private}), ALL, 200).await;
    let private = made.map(|made| made["flavor"]["id"].as_str().unwrap_or_default().to_owned());
    let private = private.unwrap_or_default();

    let specs = format!("{path}/os-extra_specs");
    let two = json!({"extra_specs": {"hw:cpu_policy": "shared", "resources:VGPU": "1"}});
    api.send(&format!("POST {specs}"), two, ALL, 200).await;
    api.ask(&format!("GET {specs}"), ALL, 200).await;
    let one = format!("{specs}/hw:cpu_policy");
    api.send(&format!("PUT {one}"), json!({"hw:cpu_policy": "shared"}), ALL, 200).await;
    api.ask(&format!("GET {one}"), ALL, 200).await;
    api.ask(&format!("GET {path}"), ALL, 200).await;
    api.ask("GET /flavors?limit=2", ALL, 200).await;
    api.ask("GET /flavors/detail?is_public=None", ALL, 200).await;
    if api.minor >= 102 {
        api.ask(&format!("GET /flavors/detail?name={id}"), ALL, 200).await;
    }
    api.ask(&format!("DELETE {one}"), ALL, 200).await;
    let described = json!({"flavor": {"description": "small"}});
    api.send(&format!("PUT {path}"), described, 55..=104, 200).await;

    let action = format!("POST /flavors/{private}/action");
    for name in ["addTenantAccess", "removeTenantAccess"] {
        api.send(&action, json!({name: {"tenant": "red"}}), ALL, 200).await;
        api.ask(&format!("GET /flavors/{private}/os-flavor-access"), ALL, 200).await;
    }
    for id in [id, private] {
        api.ask(&format!("DELETE /flavors/{id}"), ALL, 202).await;
    }
}
