//! `/os-hosts`, up to 2.42: hosts of services, usage by project, enable and disable.

use axum::body::Body;
use axum::http::Request;
use jiff::Timestamp;
use kilonova_ids::HostName;
use kilonova_wire::time;
use serde_json::{Value, json};

use crate::resources::kit::{ADMIN, ANN, Api, apis};

const MV: &str = "2.42";
const NOT_SUPPORTED: &str = "The requested functionality is not supported.";

fn unknown(host: &str) -> String {
    format!("Host '{host}' is not mapped to any cell")
}

/// Name, service and zone of each host. The name of this process's host is `-`, because it depends on the machine.
async fn listed(api: &Api, query: &str) -> Vec<(String, String, String)> {
    let list = api.get(ADMIN, MV, &format!("/os-hosts{query}")).await.expect(200);
    let hosts = list["hosts"].as_array().expect("the answer has a list").iter();
    hosts
        .map(|host| {
            assert_eq!(host.as_object().map(serde_json::Map::len), Some(3), "{host}");
            let text = |key: &str| host[key].as_str().expect("the value is a string").to_owned();
            let name = if text("zone") == "internal" { "-".to_owned() } else { text("host_name") };
            (name, text("service"), text("zone"))
        })
        .collect()
}

fn row(host: &str, service: &str, zone: &str) -> (String, String, String) {
    (host.to_owned(), service.to_owned(), zone.to_owned())
}

async fn put(api: &Api, host: &str, body: Value) -> Value {
    api.admin(MV, &format!("PUT /os-hosts/{host}"), body).await.expect(200)
}

#[tokio::test]
async fn the_hosts_of_enabled_services_are_listed() {
    for api in apis().await {
        api.host("h1", time::now()).await;
        api.host("h2", Timestamp::UNIX_EPOCH).await;
        let body = json!({"aggregate": {"name": "e", "availability_zone": "east"}});
        let made = api.admin("2.1", "POST /os-aggregates", body).await.expect(200);
        let act = format!("POST /os-aggregates/{}/action", made["aggregate"]["id"]);
        api.admin("2.1", &act, json!({"add_host": {"host": "h2"}})).await.expect(200);
        let own = [row("-", "scheduler", "internal"), row("-", "conductor", "internal")];
        let (h1, h2) = (row("h1", "compute", "nova"), row("h2", "compute", "east"));
        let [scheduler, conductor] = own.clone();
        let all = vec![h1.clone(), h2.clone(), scheduler, conductor];
        assert_eq!(listed(&api, "").await, all, "a host that is down is listed too");
        assert_eq!(listed(&api, "?zone=").await, all);
        assert_eq!(listed(&api, "?other=x").await, all);
        assert_eq!(listed(&api, "?zone=internal").await, own);
        assert_eq!(listed(&api, "?zone=east").await, [h2]);
        assert_eq!(listed(&api, "?zone=west").await, []);
        put(&api, "h2", json!({"status": "disable"})).await;
        let [scheduler, conductor] = own;
        assert_eq!(listed(&api, "").await, [h1.clone(), scheduler, conductor]);
        assert_eq!(listed(&api, "?zone=east&zone=nova").await, [h1], "the last one counts");
    }
}

#[tokio::test]
async fn a_host_shows_its_usage_by_project() {
    for api in apis().await {
        api.host("h1", time::now()).await;
        api.host("h2", time::now()).await;
        let resource = |project: &str, cpu: i64, memory_mb: i64, disk_gb: i64| {
            json!({"resource": {"host": "h1", "project": project, "cpu": cpu,
                "memory_mb": memory_mb, "disk_gb": disk_gb}})
        };
        let total = resource("(total)", 8, 8192, 100);
        let idle = api.get(ADMIN, MV, "/os-hosts/h1").await.expect(200);
        let nothing = [resource("(used_now)", 0, 0, 0), resource("(used_max)", 0, 0, 0)];
        assert_eq!(idle, json!({"host": [total, nothing[0], nothing[1]]}));

        api.server("red", "ann", "h1", 2, 512).await;
        api.server("red", "eve", "h1", 1, 256).await;
        api.server("blue", "bob", "h1", 1, 64).await;
        api.server("blue", "bob", "h2", 4, 4096).await;
        let shown = api.get(ADMIN, "2.1", "/os-hosts/h1").await.expect(200);
        // Each server has a root disk of 5 GiB, an ephemeral one of 1 GiB and 1 MiB of swap.
        let used = [resource("(used_now)", 4, 832, 21), resource("(used_max)", 4, 832, 18)];
        let projects = [resource("blue", 1, 64, 6), resource("red", 3, 768, 12)];
        assert_eq!(shown, json!({"host": [total, used[0], used[1], projects[0], projects[1]]}));

        let same = api.get(ADMIN, "2.1", "/os-hypervisors/1").await.expect(200);
        let (same, used) = (&same["hypervisor"], &used[0]["resource"]);
        for (here, there) in
            [("cpu", "vcpus_used"), ("memory_mb", "memory_mb_used"), ("disk_gb", "local_gb_used")]
        {
            assert_eq!(used[here], same[there], "{here}");
        }
    }
}

#[tokio::test]
async fn a_host_is_enabled_and_disabled() {
    for api in apis().await {
        api.host("h1", time::now()).await;
        let service = async || {
            let list = api.get(ADMIN, MV, "/os-services?host=h1").await.expect(200);
            let service = &list["services"][0];
            (service["status"].clone(), service["disabled_reason"].clone())
        };
        for word in ["disable", "Disable", "DISABLE"] {
            let answer = put(&api, "h1", json!({"status": word})).await;
            assert_eq!(answer, json!({"host": "h1", "status": "disabled"}));
        }
        assert_eq!(service().await, (json!("disabled"), Value::Null));
        let host = api.compute.fleet.by_name(&HostName::verbatim("h1")).expect("the host is known");
        assert!(!host.takes_servers(time::now()));
        let why = json!({"host": "h1", "binary": "nova-compute", "disabled_reason": "broken"});
        api.admin(MV, "PUT /os-services/disable-log-reason", why).await.expect(200);
        for word in ["enable", "Enable", "ENABLE"] {
            let answer = put(&api, "h1", json!({"status": word})).await;
            assert_eq!(answer, json!({"host": "h1", "status": "enabled"}));
        }
        assert_eq!(service().await, (json!("enabled"), Value::Null));
        assert!(host.takes_servers(time::now()));
    }
}

#[tokio::test]
async fn maintenance_and_power_are_not_supported() {
    for api in apis().await {
        api.host("h1", time::now()).await;
        for body in [
            json!({"maintenance_mode": "enable"}),
            json!({"maintenance_mode": "DISABLE"}),
            json!({"status": "disable", "maintenance_mode": "enable"}),
        ] {
            api.admin(MV, "PUT /os-hosts/h1", body.clone()).await.refused(501, NOT_SUPPORTED);
            api.admin(MV, "PUT /os-hosts/h9", body).await.refused(404, &unknown("h9"));
        }
        let services = api.get(ADMIN, MV, "/os-services?host=h1").await.expect(200);
        assert_eq!(
            services["services"][0]["status"], "enabled",
            "a refused request changes nothing"
        );
        for action in ["startup", "shutdown", "reboot"] {
            let path = format!("/os-hosts/h1/{action}");
            let answer = api.get(ADMIN, MV, &path).await;
            assert_eq!(answer.message(), NOT_SUPPORTED);
            let body = answer.expect(501);
            assert_eq!(body, json!({"notImplemented": {"code": 501, "message": NOT_SUPPORTED}}));
            let path = format!("/os-hosts/h9/{action}");
            api.get(ADMIN, MV, &path).await.refused(404, &unknown("h9"));
        }
    }
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    for api in apis().await {
        api.host("h1", time::now()).await;
        for (body, part) in [
            (json!({}), "{} is not valid under any of the given schemas"),
            (json!({"status": "off"}), "status"),
            (json!({"status": "eNABLE"}), "status"),
            (json!({"status": null}), "status"),
            (json!({"status": "enable", "maintenance_mode": "x"}), "maintenance_mode"),
            (json!({"status": "enable", "reason": "x"}), "'reason' was unexpected"),
            (json!([]), "is not of type 'object'"),
        ] {
            api.admin(MV, "PUT /os-hosts/h1", body).await.refused(400, part);
        }
        api.raw(ADMIN, MV, "PUT /os-hosts/h1", "{".into()).await.is(400);
        let enable = json!({"status": "enable"});
        api.get(ADMIN, MV, "/os-hosts/h9").await.refused(404, &unknown("h9"));
        api.admin(MV, "PUT /os-hosts/h9", enable.clone()).await.refused(404, &unknown("h9"));
        let list = api.get(ADMIN, MV, "/os-hosts?zone=internal").await.expect(200);
        let own = list["hosts"][0]["host_name"].as_str().expect("the value is a string");
        api.get(ADMIN, MV, &format!("/os-hosts/{own}")).await.refused(404, &unknown(own));
        for newer in ["2.43", "2.104"] {
            let part = format!("API version {newer} is not supported on this method.");
            api.get(ADMIN, newer, "/os-hosts").await.refused(404, &part);
            api.get(ADMIN, newer, "/os-hosts/h1").await.refused(404, &part);
            api.get(ADMIN, newer, "/os-hosts/h1/reboot").await.refused(404, &part);
            api.admin(newer, "PUT /os-hosts/h1", enable.clone()).await.refused(404, &part);
        }
    }
}

#[tokio::test]
async fn only_administrators_use_hosts() {
    for api in apis().await {
        api.host("h1", time::now()).await;
        for (what, rule) in [
            ("GET /os-hosts", "list"),
            ("GET /os-hosts/h1", "show"),
            ("GET /os-hosts/h9", "show"),
            ("PUT /os-hosts/h1", "update"),
            ("GET /os-hosts/h1/reboot", "reboot"),
            ("GET /os-hosts/h1/shutdown", "shutdown"),
            ("GET /os-hosts/h1/startup", "start"),
        ] {
            let rule = format!("os_compute_api:os-hosts:{rule} ");
            let (method, path) = what.split_once(' ').expect("the call is a method and a path");
            for role in ["manager", "member", "reader"] {
                let body = match method {
                    "PUT" => Body::from(json!({"status": "disable"}).to_string()),
                    _ => Body::empty(),
                };
                let request = Request::builder()
                    .method(method)
                    .uri(format!("/v2.1{path}"))
                    .header("x-auth-token", ANN)
                    .header("x-roles", role)
                    .header("openstack-api-version", format!("compute {MV}"))
                    .body(body)
                    .expect("the request is valid");
                api.send(request).await.refused(403, &rule);
            }
        }
        let services = api.get(ADMIN, MV, "/os-services?host=h1").await.expect(200);
        assert_eq!(services["services"][0]["status"], "enabled");
    }
}
