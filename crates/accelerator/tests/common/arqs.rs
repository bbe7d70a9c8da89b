//! Accelerator requests as users and services send them.

use http::StatusCode;
use kilonova_ids::ProviderId;
use serde_json::{Value, json};

use super::{Api, HOST};

pub const PATH: &str = "/v2/accelerator_requests";
pub const ABSENT: &str = "9f199406-cfac-4402-b5c3-b8b38d8929aa";
pub const SERVER: &str = "284d8648-0c0a-42dd-a771-dfc12fa12f00";

/// Creates a device profile unless it exists, and accelerator requests from it.
pub async fn request(api: &Api, class: &str, amount: &str) -> Vec<String> {
    let name = format!("dp-{class}-{amount}");
    let groups = json!([{format!("resources:{class}"): amount}]);
    Api::admin(&api.store)
        .post("/v2/device_profiles", json!([{"name": name, "groups": groups}]))
        .await;
    let made = api.post(PATH, json!({"device_profile_name": name})).await;
    assert_eq!(made.status, StatusCode::CREATED);
    let arqs = made.body["arqs"].as_array().unwrap();
    arqs.iter().map(|arq| arq["uuid"].as_str().unwrap().to_owned()).collect()
}

pub fn steps(provider: ProviderId, server: &str) -> Value {
    json!([
        {"path": "/hostname", "op": "add", "value": HOST},
        {"path": "/device_rp_uuid", "op": "add", "value": provider.to_string()},
        {"path": "/instance_uuid", "op": "add", "value": server},
    ])
}

pub fn bind(arqs: &[String], provider: ProviderId, server: &str) -> Value {
    let all = arqs.iter().map(|arq| (arq.clone(), steps(provider, server)));
    Value::Object(all.collect())
}

pub fn unbind(arq: &str) -> Value {
    json!({arq: [{"path": "/hostname", "op": "remove"}]})
}
