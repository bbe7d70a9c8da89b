//! Server groups.

use serde_json::json;

use crate::compute::api::{ALL, Api};

pub async fn row(api: Api<'_>) {
    let group = match api.minor {
        ..15 => json!({"name": "g", "policies": ["anti-affinity"]}),
        15..64 => json!({"name": "g", "policies": ["soft-affinity"]}),
        64.. => json!({
            "name": "g", "policy": "anti-affinity", "rules": {"max_server_per_host": 2},
        }),
    };
    let made = api.send("POST /os-server-groups", json!({"server_group": group}), ALL, 200).await;
    let made = made.unwrap_or_default();
    let id = made["server_group"]["id"].as_str().expect("the group has an id");
    api.ask("GET /os-server-groups?all_projects=True&limit=5&offset=0", ALL, 200).await;
    api.ask(&format!("GET /os-server-groups/{id}"), ALL, 200).await;
    api.ask(&format!("DELETE /os-server-groups/{id}"), ALL, 204).await;
}
