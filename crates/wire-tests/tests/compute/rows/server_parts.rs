//! Sub-resources of a server.

use serde_json::json;

use crate::compute::api::{ALL, Api};

/// The reads of Nova's proxy of Neutron's security groups.
pub async fn security_groups(api: Api<'_>) {
    let found = api.ask("GET /os-security-groups", 1..=35, 200).await.unwrap_or_default();
    let id = found["security_groups"][0]["id"]
        .as_str()
        .unwrap_or("c0ffee00-0000-4000-8000-000000000000");
    api.ask(&format!("GET /os-security-groups/{id}"), 1..=35, 200).await;
}

pub async fn row(api: Api<'_>) {
    let flavor = api.flavor("parts").await;
    let id = api.server("parts", &flavor).await;
    let path = format!("/servers/{id}");
    metadata(api, &path).await;
    tags(api, &path).await;
    history(api, &path).await;
    api.ask(&format!("GET {path}/ips"), ALL, 200).await;
    api.ask(&format!("GET {path}/migrations"), 23..=104, 200).await;
    api.ask(&format!("GET {path}/diagnostics"), ALL, 200).await;
    api.ask(&format!("GET {path}/topology"), 78..=104, 200).await;
    api.ask(&format!("GET {path}/os-security-groups"), ALL, 200).await;
    api.ask(&format!("GET {path}/os-interface"), ALL, 200).await;
    api.ask(&format!("GET {path}/os-volume_attachments"), ALL, 200).await;
    api.ask(&format!("GET {path}/shares"), 97..=104, 200).await;
    api.ask(&format!("GET {path}/os-server-password"), ALL, 200).await;
    api.ask(&format!("DELETE {path}/os-server-password"), ALL, 204).await;
    let console = json!({"remote_console": {"protocol": "vnc", "type": "novnc"}});
    let made = api.send(&format!("POST {path}/remote-consoles"), console, 6..=104, 200).await;
    if api.minor >= 31 {
        let made = made.unwrap_or_default();
        let url = made["remote_console"]["url"].as_str().expect("the answer has a URL");
        let (_, token) = url.rsplit_once("%3D").expect("the URL has a token");
        api.ask(&format!("GET /os-console-auth-tokens/{token}"), ALL, 200).await;
    } else {
        api.ask("GET /os-console-auth-tokens/any", ALL, 400).await;
    }
    api.gone(&id).await;
}

async fn metadata(api: Api<'_>, path: &str) {
    let all = format!("{path}/metadata");
    api.ask(&format!("GET {all}"), ALL, 200).await;
    api.send(&format!("POST {all}"), json!({"metadata": {"a": "b"}}), ALL, 200).await;
    api.send(&format!("PUT {all}"), json!({"metadata": {"a": "c", "d": "e"}}), ALL, 200).await;
    api.send(&format!("PUT {all}/a"), json!({"meta": {"a": "f"}}), ALL, 200).await;
    api.ask(&format!("GET {all}/a"), ALL, 200).await;
    api.ask(&format!("DELETE {all}/a"), ALL, 204).await;
}

async fn tags(api: Api<'_>, path: &str) {
    let (all, within) = (format!("{path}/tags"), 26..=104);
    api.send(&format!("PUT {all}"), json!({"tags": ["a", "b"]}), within.clone(), 200).await;
    api.ask(&format!("GET {all}"), within.clone(), 200).await;
    api.ask(&format!("PUT {all}/c"), within.clone(), 201).await;
    api.ask(&format!("GET {all}/c"), within.clone(), 204).await;
    api.ask(&format!("DELETE {all}/c"), within.clone(), 204).await;
    api.ask(&format!("DELETE {all}"), within, 204).await;
}

async fn history(api: Api<'_>, path: &str) {
    let all = format!("{path}/os-instance-actions");
    let list = api.ask(&format!("GET {all}"), ALL, 200).await.unwrap_or_default();
    let request =
        list["instanceActions"][0]["request_id"].as_str().expect("the server has an action");
    api.ask(&format!("GET {all}/{request}"), ALL, 200).await;
    if api.minor >= 58 {
        let query = "limit=1&changes-since=2020-01-01T00:00:00Z";
        api.ask(&format!("GET {all}?{query}"), ALL, 200).await;
    }
    if api.minor >= 66 {
        api.ask(&format!("GET {all}?changes-before=2100-01-01T00:00:00Z"), ALL, 200).await;
    }
}
