//! Services, hypervisors and zones.

use std::time::Duration;

use jiff::Timestamp;
use kilonova_compute_nodes::Link;
use kilonova_ids::HostName;
use kilonova_node_api::ControlPlane;
use kilonova_wire::time;
use serde_json::{Value, json};

use crate::resources::kit::{ADMIN, ANN, Api, apis};

const LONG_AGO: Timestamp = Timestamp::UNIX_EPOCH;

async fn two_hosts(api: &Api) {
    api.host("h1", time::now()).await;
    api.host("h2", LONG_AGO).await;
}

async fn compute_services(api: &Api, version: &str) -> Vec<Value> {
    let list = api.get(ADMIN, version, "/os-services?binary=nova-compute").await.expect(200);
    list["services"].as_array().expect("the answer has a list").clone()
}

#[tokio::test]
async fn each_registration_begins_an_epoch() {
    for api in apis().await {
        assert_eq!(api.host("h", LONG_AGO).await, 1);
        assert_eq!(api.host("h", time::now()).await, 2);
        let services = compute_services(&api, "2.53").await;
        assert_eq!((services.len(), &services[0]["state"]), (1, &json!("up")));
    }
}

/// Polls must be cheap, because thousands of hosts always wait for documents.
#[tokio::test]
async fn a_poll_without_news_reads_nothing() {
    for api in apis().await {
        let (host, epoch) = (HostName::verbatim("h"), api.host("h", time::now()).await);
        let link = Link(api.compute.clone());
        let since = link.desired(&host, epoch, 0).await.expect("the session is valid").generation;
        let mut statements = Vec::new();
        for _ in 0..3 {
            let poll = link.desired(&host, epoch, since);
            tokio::time::timeout(Duration::from_millis(50), poll).await.expect_err("it waits");
            statements.push(api.meter.take());
        }
        assert_eq!(statements[1..], [0, 0], "{statements:?}");
    }
}

#[tokio::test]
async fn services_are_listed_with_their_state() {
    for api in apis().await {
        two_hosts(&api).await;
        let list = api.get(ADMIN, "2.69", "/os-services").await.expect(200);
        let binaries: Vec<_> = list["services"]
            .as_array()
            .expect("the answer has a list")
            .iter()
            .filter_map(|service| service["binary"].as_str())
            .collect();
        assert_eq!(binaries, ["nova-scheduler", "nova-conductor", "nova-compute", "nova-compute"]);
        assert_eq!(list["services"][0]["zone"], "internal");
        let services = compute_services(&api, "2.69").await;
        assert_eq!((&services[0]["state"], &services[1]["state"]), (&json!("up"), &json!("down")));
        assert_eq!(
            (&services[0]["zone"], &services[0]["status"]),
            (&json!("nova"), &json!("enabled"))
        );
        assert!(services[0]["id"].as_str().is_some_and(|id| id.len() == 36));
        let old = compute_services(&api, "2.10").await;
        assert!(old[0]["id"].is_i64() && old[0].get("forced_down").is_none());
        let one = api.get(ADMIN, "2.69", "/os-services?host=h2").await.expect(200);
        assert_eq!(one["services"].as_array().map(Vec::len), Some(1));
        api.get(ADMIN, "2.75", "/os-services?a=b").await.refused(400, "'a' was unexpected");
        api.get(ANN, "2.69", "/os-services").await.refused(403, "os-services:list");
    }
}

/// Only SQLite reports its work.
#[tokio::test]
async fn a_request_for_one_host_examines_no_other() {
    for api in apis().await {
        two_hosts(&api).await;
        let id = compute_services(&api, "2.69").await[0]["id"].clone();
        let list = api.get(ADMIN, "2.87", "/os-hypervisors").await.expect(200);
        let (id, root) = (id.as_str().expect("an id"), &list["hypervisors"][0]["id"]);
        let put = (format!("PUT /os-services/{id}"), Some(json!({"status": "enabled"})));
        let requests = [
            ("GET /os-services?host=h1".to_owned(), None),
            put,
            (format!("GET /os-hypervisors/{}", root.as_str().expect("an id")), None),
        ];
        let mut work = Vec::new();
        for more in [0, 50] {
            for number in 0..more {
                let host = format!("more{number}");
                api.host(&host, time::now()).await;
                api.server("admin", "admin", &host, 1, 512).await;
            }
            api.meter.take_work();
            for (request, body) in &requests {
                api.call(ADMIN, "2.87", request, body.clone()).await.expect(200);
            }
            work.push(api.meter.take_work());
        }
        assert_eq!(work[0], work[1]);
    }
}

/// Only SQLite reports its work.
#[tokio::test]
async fn a_page_of_hypervisors_reads_the_servers_of_its_hosts_alone() {
    for api in apis().await {
        two_hosts(&api).await;
        api.server("red", "ann", "h1", 2, 512).await;
        let mut work = Vec::new();
        for more in [1, 50] {
            for _ in 0..more {
                api.server("red", "ann", "h2", 1, 256).await;
            }
            api.meter.take_work();
            for (path, servers) in [
                ("/os-hypervisors/detail?limit=1", false),
                ("/os-hypervisors?hypervisor_hostname_pattern=h1&with_servers=true", true),
            ] {
                let list = api.get(ADMIN, "2.87", path).await.expect(200);
                let shown = &list["hypervisors"];
                assert_eq!(
                    (shown.as_array().map(Vec::len), &shown[0]["hypervisor_hostname"]),
                    (Some(1), &json!("h1"))
                );
                assert_eq!(shown[0]["servers"].is_array(), servers, "{shown}");
            }
            work.push(api.meter.take_work());
        }
        assert_eq!(work[0], work[1]);
        let all = api.get(ADMIN, "2.87", "/os-hypervisors?with_servers=true").await.expect(200);
        let counts = [0, 1].map(|at| all["hypervisors"][at]["servers"].as_array().map(Vec::len));
        assert_eq!(counts, [Some(1), Some(51)]);
        let sums = api.get(ADMIN, "2.87", "/os-hypervisors/statistics").await.expect(200);
        let sums = &sums["hypervisor_statistics"];
        for (what, expected) in [
            ("count", 2),
            ("running_vms", 52),
            ("vcpus_used", 53),
            ("memory_mb_used", 512 + 51 * 256),
            ("local_gb_used", 52 * 7),
            ("current_workload", 0),
        ] {
            assert_eq!(sums[what], expected, "{what}: {sums}");
        }
    }
}

#[tokio::test]
async fn service_updates_reach_the_row_and_the_scheduler() {
    for api in apis().await {
        two_hosts(&api).await;
        let id = compute_services(&api, "2.69").await[0]["id"]
            .as_str()
            .expect("the answer has an id")
            .to_owned();
        let path = format!("PUT /os-services/{id}");
        let body = json!({"status": "disabled", "disabled_reason": "test"});
        let put = api.admin("2.69", &path, body.clone()).await.expect(200);
        assert_eq!(put["service"]["status"], "disabled");
        assert_eq!(put["service"]["disabled_reason"], "test");
        let host = api.compute.fleet.by_name(&HostName::verbatim("h1")).expect("the host is known");
        assert!(host.is_up(time::now()) && !host.takes_servers(time::now()));
        let put = api.admin("2.69", &path, json!({"forced_down": true})).await.expect(200);
        assert_eq!(
            (&put["service"]["forced_down"], &put["service"]["state"]),
            (&json!(true), &json!("down"))
        );
        assert!(!host.is_up(time::now()));
        let put = api
            .admin("2.69", &path, json!({"status": "enabled", "forced_down": "no"}))
            .await
            .expect(200);
        assert_eq!(put["service"]["disabled_reason"], Value::Null);
        assert!(host.takes_servers(time::now()));
        api.call(ANN, "2.69", &path, Some(body)).await.refused(403, "os-services:update");
    }
}

#[tokio::test]
async fn invalid_service_updates_are_refused() {
    for api in apis().await {
        two_hosts(&api).await;
        let id = compute_services(&api, "2.69").await[0]["id"]
            .as_str()
            .expect("the answer has an id")
            .to_owned();
        let path = format!("PUT /os-services/{id}");
        for (body, part) in [
            (json!({}), "No updates were requested"),
            (json!({"disabled_reason": "x"}), "No updates were requested"),
            (json!({"status": "enabled", "disabled_reason": "x"}), "'disabled_reason' with status"),
            (json!({"status": "asleep"}), "status"),
            (json!({"status": "disabled", "disabled_reason": ""}), "disabled_reason"),
            (json!({"forced_down": "maybe"}), "forced_down"),
            (json!({"host": "h1"}), "host"),
        ] {
            api.admin("2.53", &path, body).await.refused(400, part);
        }
        let body = json!({"status": "enabled"});
        api.admin("2.53", "PUT /os-services/h1", body.clone())
            .await
            .refused(400, "Invalid uuid h1");
        let nobody = "8d2ba0fe-8c7b-4a7f-9b2f-5a6c5e4f1d11";
        api.admin("2.53", &format!("PUT /os-services/{nobody}"), body.clone())
            .await
            .refused(404, &format!("Service {nobody} could not be found."));
        let all = api.get(ADMIN, "2.53", "/os-services?binary=nova-scheduler").await.expect(200);
        let id = all["services"][0]["id"].as_str().expect("the answer has an id");
        api.admin("2.53", &format!("PUT /os-services/{id}"), body)
            .await
            .refused(400, "Updating a nova-scheduler service is not supported");
    }
}

#[tokio::test]
async fn before_2_53_the_path_names_the_action() {
    for api in apis().await {
        two_hosts(&api).await;
        let body = json!({"host": "h1", "binary": "nova-compute"});
        let put = api.admin("2.1", "PUT /os-services/disable", body.clone()).await.expect(200);
        assert_eq!(
            put["service"],
            json!({"host": "h1", "binary": "nova-compute", "status": "disabled"})
        );
        assert_eq!(compute_services(&api, "2.1").await[0]["status"], "disabled");
        api.admin("2.1", "PUT /os-services/enable", body.clone()).await.expect(200);
        assert_eq!(compute_services(&api, "2.1").await[0]["status"], "enabled");
        api.admin("2.1", "PUT /os-services/disable-log-reason", body.clone())
            .await
            .refused(400, "Missing disabled reason field");
        let why = json!({"host": "h1", "binary": "nova-compute", "disabled_reason": "r"});
        let put = api.admin("2.1", "PUT /os-services/disable-log-reason", why).await.expect(200);
        assert_eq!(put["service"]["disabled_reason"], "r");
        api.admin("2.10", "PUT /os-services/force-down", body.clone())
            .await
            .refused(404, "Unknown");
        api.admin("2.11", "PUT /os-services/force-down", body.clone())
            .await
            .refused(400, "Missing forced_down field");
        let down = json!({"host": "h1", "binary": "nova-compute", "forced_down": true});
        let put = api.admin("2.11", "PUT /os-services/force-down", down).await.expect(200);
        assert_eq!(put["service"]["forced_down"], true);
        api.admin("2.1", "PUT /os-services/dance", body).await.refused(404, "Unknown action");
        let other = json!({"host": "h9", "binary": "nova-compute"});
        api.admin("2.1", "PUT /os-services/enable", other)
            .await
            .refused(404, "Could not find binary nova-compute on host h9.");
        let other = json!({"host": "h1", "binary": "nova-scheduler"});
        api.admin("2.1", "PUT /os-services/enable", other).await.refused(400, "not supported");
        api.admin("2.1", "PUT /os-services/enable", json!({"host": "h1"}))
            .await
            .refused(400, "binary");
    }
}

#[tokio::test]
async fn hypervisors_are_listed_and_shown() {
    for api in apis().await {
        two_hosts(&api).await;
        api.server("red", "ann", "h1", 2, 512).await;
        let list = api.get(ADMIN, "2.88", "/os-hypervisors/detail").await.expect(200);
        let first = list["hypervisors"][0].clone();
        assert_eq!(
            first,
            json!({
                "id": first["id"], "hypervisor_hostname": "h1", "state": "up", "status": "enabled",
                "hypervisor_type": "simulated", "hypervisor_version": 1000, "host_ip": "127.0.0.1",
                "service": {"id": first["service"]["id"], "host": "h1", "disabled_reason": null},
                "uptime": null,
            })
        );
        let path =
            format!("/os-hypervisors/{}", first["id"].as_str().expect("the answer has an id"));
        let one = api.get(ADMIN, "2.88", &format!("{path}?with_servers=true")).await.expect(200);
        assert_eq!(one["hypervisor"]["servers"][0]["name"], "s");
        let old = api.get(ADMIN, "2.87", &path).await.expect(200)["hypervisor"].clone();
        assert_eq!((&old["vcpus"], &old["vcpus_used"]), (&json!(8), &json!(2)));
        assert_eq!((&old["free_ram_mb"], &old["local_gb_used"]), (&json!(7680), &json!(7)));
        assert_eq!((&old["running_vms"], &old["cpu_info"]), (&json!(1), &json!({})));
        let oldest = api.get(ADMIN, "2.1", "/os-hypervisors/1").await.expect(200);
        assert_eq!(
            (&oldest["hypervisor"]["id"], &oldest["hypervisor"]["cpu_info"]),
            (&json!(1), &json!("{}"))
        );
        let sums = api.get(ADMIN, "2.1", "/os-hypervisors/statistics").await.expect(200);
        assert_eq!(sums["hypervisor_statistics"]["vcpus"], 16);
        assert_eq!(sums["hypervisor_statistics"]["memory_mb_used"], 512);
        let body = json!({"host": "h1", "binary": "nova-compute"});
        api.admin("2.1", "PUT /os-services/disable", body).await.expect(200);
        let sums = api.get(ADMIN, "2.1", "/os-hypervisors/statistics").await.expect(200);
        let sums = &sums["hypervisor_statistics"];
        for (what, of_the_enabled_host) in [("count", 1), ("vcpus", 8), ("running_vms", 0)] {
            assert_eq!(sums[what], of_the_enabled_host, "{what}: {sums}");
        }
        api.get(ANN, "2.88", "/os-hypervisors").await.refused(403, "os-hypervisors:list");
    }
}

#[tokio::test]
async fn hypervisors_are_paged_and_matched() {
    for api in apis().await {
        two_hosts(&api).await;
        let page = api.get(ADMIN, "2.53", "/os-hypervisors?limit=1").await.expect(200);
        let id = page["hypervisors"][0]["id"].as_str().expect("the answer has an id").to_owned();
        assert!(
            page["hypervisors_links"][0]["href"].as_str().is_some_and(|href| href.contains(&id))
        );
        let next =
            api.get(ADMIN, "2.53", &format!("/os-hypervisors?marker={id}")).await.expect(200);
        assert_eq!(next["hypervisors"][0]["hypervisor_hostname"], "h2");
        let path = "/os-hypervisors?hypervisor_hostname_pattern=2&with_servers=1";
        let some = api.get(ADMIN, "2.75", path).await.expect(200);
        assert_eq!(some["hypervisors"][0]["servers"], json!([]));
        let some = api.get(ADMIN, "2.52", "/os-hypervisors/h2/search").await.expect(200);
        assert_eq!(some["hypervisors"][0]["id"], 2);
        let some = api.get(ADMIN, "2.52", "/os-hypervisors/h2/servers").await.expect(200);
        assert!(some["hypervisors"][0].get("servers").is_none());
        for (version, path, status, part) in [
            ("2.53", "/os-hypervisors?marker=x", 400, "marker [x] not found"),
            ("2.53", "/os-hypervisors?a=b", 400, "'a' was unexpected"),
            ("2.53", "/os-hypervisors?with_servers=maybe", 400, "with_servers"),
            ("2.53", "/os-hypervisors?hypervisor_hostname_pattern=h&limit=1", 400, "Paging over"),
            ("2.53", "/os-hypervisors?hypervisor_hostname_pattern=z", 404, "matching 'z'"),
            ("2.53", "/os-hypervisors/h1", 400, "Invalid uuid h1"),
            ("2.52", "/os-hypervisors/h1", 404, "Hypervisor with ID 'h1'"),
            ("2.53", "/os-hypervisors/8d2ba0fe-8c7b-4a7f-9b2f-5a6c5e4f1d11", 404, "8d2ba0fe"),
            ("2.52", "/os-hypervisors/zz/search", 404, "matching 'zz'"),
            ("2.53", "/os-hypervisors/h1/search", 404, "2.53 is not supported on this method"),
            ("2.88", "/os-hypervisors/statistics", 404, "2.88 is not supported on this method"),
            ("2.52", "/os-hypervisors/1/uptime", 501, "how long"),
            ("2.88", "/os-hypervisors/1/uptime", 404, "2.88 is not supported on this method"),
        ] {
            api.get(ADMIN, version, path).await.refused(status, part);
        }
    }
}

#[tokio::test]
async fn zones_are_available_while_a_host_in_them_is_enabled() {
    for api in apis().await {
        api.host("h1", time::now()).await;
        let brief = api.get(ANN, "2.1", "/os-availability-zone").await.expect(200);
        assert_eq!(
            brief,
            json!({"availabilityZoneInfo": [
                {"zoneName": "nova", "zoneState": {"available": true}, "hosts": null},
            ]})
        );
        let detail = api.get(ADMIN, "2.1", "/os-availability-zone/detail").await.expect(200);
        let zones =
            detail["availabilityZoneInfo"].as_array().expect("the answer has a list").clone();
        assert_eq!(
            (&zones[0]["zoneName"], &zones[1]["zoneName"]),
            (&json!("internal"), &json!("nova"))
        );
        assert_eq!(zones[1]["hosts"]["h1"]["nova-compute"]["available"], true);
        api.get(ANN, "2.1", "/os-availability-zone/detail").await.refused(403, "detail");
        api.get(ANN, "2.102", "/os-availability-zone?a=b").await.refused(400, "'a' was unexpected");
        let body = json!({"host": "h1", "binary": "nova-compute"});
        api.admin("2.1", "PUT /os-services/disable", body).await.expect(200);
        let brief = api.get(ANN, "2.1", "/os-availability-zone").await.expect(200);
        assert_eq!(brief["availabilityZoneInfo"][0]["zoneState"]["available"], false);
    }
}
