//! Limits and quotas.

use serde_json::json;

use crate::compute::api::{ALL, Api};

pub async fn row(api: Api<'_>) {
    api.ask("GET /limits", ALL, 200).await;
    api.ask("GET /limits?tenant_id=red", ALL, 200).await;
    let set = json!({"quota_set": {"instances": 50, "cores": -1, "force": true}});
    api.send("PUT /os-quota-sets/red", set, ALL, 200).await;
    for part in ["", "/detail", "/defaults"] {
        api.ask(&format!("GET /os-quota-sets/red{part}"), ALL, 200).await;
    }
    let own = json!({"quota_set": {"instances": 5}});
    api.send("PUT /os-quota-sets/red?user_id=ann", own, ALL, 200).await;
    api.ask("GET /os-quota-sets/red?user_id=ann", ALL, 200).await;
    api.ask("DELETE /os-quota-sets/red", ALL, 202).await;
    let class = json!({"quota_class_set": {"instances": 1000, "cores": -1, "ram": -1}});
    api.send("PUT /os-quota-class-sets/default", class, ALL, 200).await;
    api.ask("GET /os-quota-class-sets/default", ALL, 200).await;
}
