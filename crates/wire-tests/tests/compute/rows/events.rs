//! Events from other services.

use serde_json::json;

use crate::compute::api::{ALL, Api};

pub async fn row(api: Api<'_>) {
    let flavor = api.flavor("events").await;
    let server = api.server("events", &flavor).await;
    let names: &[(&str, u32)] = &[
        ("network-changed", 1),
        ("network-vif-plugged", 1),
        ("network-vif-unplugged", 1),
        ("network-vif-deleted", 1),
        ("volume-extended", 51),
        ("accelerator-request-bound", 82),
    ];
    let events: Vec<_> = names
        .iter()
        .filter(|(_, first)| api.minor >= *first)
        .map(|(name, _)| {
            json!({
                "name": name, "server_uuid": server, "status": "completed",
                "tag": "5ee90d0c-2b5e-4a3f-a1cc-9fb7e6a0d75b",
            })
        })
        .collect();
    api.send("POST /os-server-external-events", json!({"events": events}), ALL, 200).await;
    let unknown = "0f7c3b44-65f6-4f3e-9b9a-7b2f8f3a5b6c";
    let lost = json!({"events": [{"name": "network-changed", "server_uuid": unknown}]});
    api.send("POST /os-server-external-events", lost, ALL, 207).await;
    api.ask(&format!("DELETE /servers/{server}"), ALL, 204).await;
}
