//! Hosts: services, hypervisors, the older list of hosts, zones and aggregates.

use serde_json::{Value, json};

use crate::compute::api::{ALL, Api};

fn of_h1<'v>(list: &'v Value, key: &str, host: &str) -> Option<&'v Value> {
    list[key].as_array()?.iter().find(|item| item[host] == "h1")
}

fn id(item: &Value) -> String {
    item["id"].as_str().map_or_else(|| item["id"].to_string(), str::to_owned)
}

pub async fn row(api: Api<'_>) {
    services(api).await;
    hypervisors(api).await;
    hosts(api).await;
    api.ask("GET /os-availability-zone", ALL, 200).await;
    api.ask("GET /os-availability-zone/detail", ALL, 200).await;
}

async fn services(api: Api<'_>) {
    let list = api.ask("GET /os-services?host=h1", ALL, 200).await.unwrap_or_default();
    let service = of_h1(&list, "services", "host").map(id).expect("h1 has a service");
    if api.minor < 53 {
        let host = json!({"host": "h1", "binary": "nova-compute"});
        let mut why = host.clone();
        why["disabled_reason"] = json!("broken");
        api.send("PUT /os-services/disable-log-reason", why, ALL, 200).await;
        api.send("PUT /os-services/disable", host.clone(), ALL, 200).await;
        api.send("PUT /os-services/enable", host.clone(), ALL, 200).await;
        let mut down = host;
        down["forced_down"] = json!(false);
        if api.minor >= 11 {
            api.send("PUT /os-services/force-down", down, ALL, 200).await;
        }
    } else {
        let path = format!("PUT /os-services/{service}");
        let off = json!({"status": "disabled", "disabled_reason": "broken"});
        api.send(&path, off, ALL, 200).await;
        api.send(&path, json!({"status": "enabled"}), ALL, 200).await;
        api.send(&path, json!({"forced_down": false}), ALL, 200).await;
    }
    let spare = spare(api).await;
    api.ask(&format!("DELETE /os-services/{spare}"), ALL, 204).await;
}

/// The id of the service of an unused host.
async fn spare(api: Api<'_>) -> String {
    let host = format!("spare-{}", api.minor);
    api.cloud.spare_host(&host).await;
    let list = api.ask(&format!("GET /os-services?host={host}"), ALL, 200).await;
    id(&list.expect("services are listed")["services"][0])
}

async fn hypervisors(api: Api<'_>) {
    let list = api.ask("GET /os-hypervisors", ALL, 200).await.unwrap_or_default();
    let hypervisor =
        of_h1(&list, "hypervisors", "hypervisor_hostname").map(id).expect("h1 has a hypervisor");
    api.ask("GET /os-hypervisors/detail", ALL, 200).await;
    if api.minor >= 33 {
        api.ask("GET /os-hypervisors/detail?limit=1", ALL, 200).await;
    }
    if api.minor >= 53 {
        let query = "hypervisor_hostname_pattern=h1&with_servers=True";
        api.ask(&format!("GET /os-hypervisors?{query}"), ALL, 200).await;
    }
    api.ask(&format!("GET /os-hypervisors/{hypervisor}"), ALL, 200).await;
    api.ask("GET /os-hypervisors/statistics", 1..=87, 200).await;
    api.ask("GET /os-hypervisors/h1/search", 1..=52, 200).await;
    api.ask("GET /os-hypervisors/h1/servers", 1..=52, 200).await;
}

async fn hosts(api: Api<'_>) {
    let span = 1..=42;
    api.ask("GET /os-hosts", span.clone(), 200).await;
    api.ask("GET /os-hosts?zone=nova", span.clone(), 200).await;
    api.ask("GET /os-hosts/h1", span.clone(), 200).await;
    api.send("PUT /os-hosts/h1", json!({"status": "disable"}), span.clone(), 200).await;
    api.send("PUT /os-hosts/h1", json!({"status": "Enable"}), span, 200).await;
}

pub async fn aggregates(api: Api<'_>) {
    let name = format!("a{}", api.minor);
    let sent = json!({"aggregate": {"name": name, "availability_zone": "z1"}});
    let made = api.send("POST /os-aggregates", sent, ALL, 200).await.unwrap_or_default();
    let path = format!("/os-aggregates/{}", made["aggregate"]["id"]);
    api.ask("GET /os-aggregates", ALL, 200).await;
    api.ask(&format!("GET {path}"), ALL, 200).await;
    let renamed = json!({"aggregate": {"name": format!("b{}", api.minor)}});
    api.send(&format!("PUT {path}"), renamed, ALL, 200).await;
    let act = format!("POST {path}/action");
    let metadata = json!({"metadata": {"x": "y", "z": null}});
    api.send(&act, json!({"set_metadata": metadata}), ALL, 200).await;
    api.send(&act, json!({"add_host": {"host": "h1"}}), ALL, 200).await;
    api.send(&act, json!({"remove_host": {"host": "h1"}}), ALL, 200).await;
    api.ask(&format!("DELETE {path}"), ALL, 200).await;
}
