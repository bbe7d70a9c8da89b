//! Servers: list, show, create, update, delete; and actions that other rows do not cover.

use serde_json::json;

use crate::compute::api::{ALL, Api};

pub async fn row(api: Api<'_>) {
    let flavor = api.flavor("servers").await;
    let id = api.server("first", &flavor).await;
    for path in ["/servers", "/servers/detail"] {
        api.ask(&format!("GET {path}"), ALL, 200).await;
        let query =
            "all_tenants=1&name=fi&status=ACTIVE&host=h1&sort_key=display_name&sort_dir=asc";
        api.ask(&format!("GET {path}?{query}&sort_key=created_at&limit=1"), ALL, 200).await;
        let since = "changes-since=2020-01-01T00:00:00Z";
        api.ask(&format!("GET {path}?{since}&deleted=False"), ALL, 200).await;
        api.ask(&format!("GET {path}?deleted=True&all_tenants=1&limit=3"), ALL, 200).await;
        if api.minor >= 26 {
            let tags = "tags=red&tags-any=red,blue&not-tags=blue&not-tags-any=green";
            api.ask(&format!("GET {path}?{tags}"), ALL, 200).await;
        }
        if api.minor >= 66 {
            api.ask(&format!("GET {path}?changes-before=2100-01-01T00:00:00Z"), ALL, 200).await;
        }
        if api.minor >= 73 {
            api.ask(&format!("GET {path}?locked=False"), ALL, 200).await;
        }
    }
    api.ask(&format!("GET /servers/{id}"), ALL, 200).await;
    let mut change = json!({"name": "renamed", "accessIPv4": "10.0.0.1"});
    if api.minor >= 19 {
        change["description"] = json!("a test");
    }
    if api.minor >= 90 {
        change["hostname"] = json!("renamed");
    }
    api.send(&format!("PUT /servers/{id}"), json!({"server": change}), ALL, 200).await;
    let act = format!("POST /servers/{id}/action");
    for (action, status) in [
        (json!({"os-stop": null}), "SHUTOFF"),
        (json!({"os-start": null}), "ACTIVE"),
        (json!({"reboot": {"type": "SOFT"}}), "ACTIVE"),
    ] {
        api.send(&act, action, ALL, 202).await;
        api.becomes(&id, status).await;
    }
    api.gone(&id).await;
}
