//! Tenant usage, deletion of services, and external events.

use jiff::Timestamp;
use kilonova_compute_db::servers;
use kilonova_store::{Store, params};
use serde_json::{Value, json};

use crate::resources::kit::{ADMIN, ANN, Api, BOB, apis};

const HOUR: i64 = 3_600_000_000;
const PATH: &str = "/os-simple-tenant-usage";

/// Adds a server that ran from hour `from` after the start of 1970 until hour `to`, or still runs.
async fn add_server_that_ran(api: &Api, project: &str, from: i64, to: Option<i64>) {
    api.server(project, "u", "h1", 2, 512).await;
    let spec =
        json!({"flavor": {"name": "small", "disk": 5, "ephemeral": 1, "swap": 1}}).to_string();
    api.store
        .write(move |tx| {
            let row = tx.row("SELECT id FROM servers ORDER BY seq DESC LIMIT 1", params![])?;
            let id = row.expect("the server exists").id(0)?;
            tx.execute(
                "UPDATE servers SET launched_at = ?2, spec = ?3 WHERE id = ?1",
                params![id, from * HOUR, &spec],
            )?;
            let Some(to) = to else { return Ok(()) };
            servers::delete(tx, id)?;
            tx.execute(
                "UPDATE deleted_servers SET deleted_at = ?2 WHERE id = ?1",
                params![id, to * HOUR],
            )?;
            Ok::<_, kilonova_compute_app::Error>(())
        })
        .await
        .expect("the server exists");
}

async fn count(store: &Store, sql: &'static str) -> i64 {
    let row = store.read(move |tx| tx.row(sql, params![])).await.expect("the row is read");
    row.expect("the row exists").int(0).expect("the value is a number")
}

#[tokio::test]
async fn usage_counts_elapsed_hours_within_the_span() {
    for api in apis().await {
        api.host("h1", Timestamp::UNIX_EPOCH).await;
        add_server_that_ran(&api, "red", 1, Some(3)).await;
        add_server_that_ran(&api, "red", 2, None).await;
        add_server_that_ran(&api, "blue", 30, None).await;
        let span = "start=1970-01-01T00:00:00&end=1970-01-01T05:00:00.000000";
        let all = api.get(ADMIN, "2.39", &format!("{PATH}?{span}")).await.expect(200);
        let usages = all["tenant_usages"].as_array().expect("the answer has a list");
        assert_eq!(usages.len(), 1, "{all}");
        assert_eq!(usages[0]["total_hours"], 5.0);
        assert_eq!(usages[0]["total_vcpus_usage"], 10.0);
        assert_eq!(usages[0]["total_memory_mb_usage"], 5.0 * 512.0);
        assert_eq!(usages[0]["total_local_gb_usage"], 30.0);
        let one = api.get(ANN, "2.39", &format!("{PATH}/red?{span}")).await.expect(200);
        let servers =
            one["tenant_usage"]["server_usages"].as_array().expect("the answer has a list").clone();
        let mut states: Vec<&str> =
            servers.iter().filter_map(|server| server["state"].as_str()).collect();
        states.sort_unstable();
        assert_eq!(states, ["active", "terminated"]);
        let none =
            api.get(ANN, "2.39", &format!("{PATH}/red?start=1969-01-01&end=1969-01-02")).await;
        assert_eq!(none.expect(200), json!({"tenant_usage": {}}));
        let tomorrow = "start=1970-01-01T00:00:00&end=2100-01-01T00:00:00";
        let list = api.get(ADMIN, "2.39", &format!("{PATH}?{tomorrow}")).await.expect(200);
        let one = api.get(ANN, "2.39", &format!("{PATH}/red?{tomorrow}")).await.expect(200);
        for usage in [&list["tenant_usages"][0], &one["tenant_usage"]] {
            let stop = usage["stop"].as_str().expect("the usage has an end");
            assert!(stop < "2100", "the period ends now: {usage}");
        }
        let future = "start=2100-01-01T00:00:00&end=2100-01-02T00:00:00";
        let future = api.get(ADMIN, "2.39", &format!("{PATH}?{future}")).await.expect(200);
        for usage in future["tenant_usages"].as_array().expect("the answer has a list") {
            assert_eq!(usage["total_hours"], 0.0, "{usage}");
        }
    }
}

#[tokio::test]
async fn usage_is_paged_and_restricted_by_policy() {
    for api in apis().await {
        api.host("h1", Timestamp::UNIX_EPOCH).await;
        for from in 1..4 {
            add_server_that_ran(&api, "red", from, Some(from + 1)).await;
        }
        let span = "start=1970-01-01T00:00:00&end=1970-01-02T00:00:00";
        let mut path = format!("{PATH}/red?{span}&limit=2");
        let mut sizes = Vec::new();
        loop {
            let page = api.get(ADMIN, "2.40", &path).await.expect(200);
            sizes.push(
                page["tenant_usage"]["server_usages"]
                    .as_array()
                    .expect("the answer has a list")
                    .len(),
            );
            let Some(next) = page["tenant_usage_links"][0]["href"].as_str() else { break };
            path = next
                .split_once("/v2.1")
                .expect("the answer has a link to the next page")
                .1
                .to_owned();
        }
        assert_eq!(sizes, [2, 1]);
        api.get(ANN, "2.40", PATH).await.refused(403, "os-simple-tenant-usage:list");
        api.get(BOB, "2.40", &format!("{PATH}/red")).await.refused(403, "show");
        let wrong = format!("{PATH}?start=1970-01-02&end=1970-01-01");
        api.get(ADMIN, "2.40", &wrong).await.refused(400, "Invalid start time");
        api.get(ADMIN, "2.40", &format!("{PATH}?start=soon")).await.refused(400, "start");
    }
}

/// Horizon and the `nova` command send the last server of the last project that a page shows as the marker.
#[tokio::test]
async fn a_client_that_continues_after_the_last_project_shown_counts_each_server_once() {
    for api in apis().await {
        api.host("h1", Timestamp::UNIX_EPOCH).await;
        for (project, to) in
            [("red", None), ("blue", Some(3)), ("red", Some(3)), ("blue", None), ("red", None)]
        {
            add_server_that_ran(&api, project, 1, to).await;
        }
        let span = "detailed=1&start=1970-01-01T00:00:00&end=1970-01-02T00:00:00";
        for limit in 1..6 {
            let mut counted: Vec<(String, String)> = Vec::new();
            let mut marker = String::new();
            loop {
                let path = format!("{PATH}?{span}&limit={limit}{marker}");
                let page = api.get(ADMIN, "2.40", &path).await.expect(200);
                for usage in page["tenant_usages"].as_array().expect("the answer has a list") {
                    for server in usage["server_usages"].as_array().expect("it has servers") {
                        let text = |key: &str| server[key].as_str().expect("a text").to_owned();
                        counted.push((text("tenant_id"), text("instance_id")));
                    }
                }
                if page.get("tenant_usages_links").is_none() {
                    break;
                }
                let (_, last) = counted.last().expect("a page before the last has servers");
                marker = format!("&marker={last}");
                assert!(counted.len() < 10, "limit {limit}: {counted:?}");
            }
            assert!(counted.is_sorted(), "limit {limit}: {counted:?}");
            let mut servers: Vec<&String> = counted.iter().map(|(_, id)| id).collect();
            servers.dedup();
            assert_eq!((servers.len(), counted.len()), (5, 5), "limit {limit}: {counted:?}");
            // A project after the marker's is complete, one before it is over.
            let (blue, red) = (&counted[0].1, &counted[4].1);
            for (project, marker, count) in [("red", blue, 3), ("blue", red, 0)] {
                let path = format!("{PATH}/{project}?{span}&marker={marker}");
                let usage = api.get(ADMIN, "2.40", &path).await.expect(200);
                let servers = usage["tenant_usage"]["server_usages"].as_array();
                assert_eq!(servers.map_or(0, Vec::len), count, "{path}: {usage}");
            }
        }
    }
}

#[tokio::test]
async fn deleting_a_service_removes_a_host_without_servers() {
    for api in apis().await {
        api.host("h1", Timestamp::UNIX_EPOCH).await;
        api.server("red", "u", "h1", 1, 64).await;
        let list = api.get(ADMIN, "2.53", "/os-services?host=h1").await.expect(200);
        let delete = format!(
            "DELETE /os-services/{}",
            list["services"][0]["id"].as_str().expect("the answer has an id")
        );
        api.call(ANN, "2.53", &delete, None).await.refused(403, "os-services:delete");
        api.call(ADMIN, "2.53", &delete, None).await.refused(409, "hosting instances");
        api.store
            .write(|tx| tx.execute("DELETE FROM servers", params![]))
            .await
            .expect("the row is deleted");
        let gone = api.call(ADMIN, "2.53", &delete, None).await;
        assert_eq!(gone.status.as_u16(), 204, "{}", gone.body);
        assert_eq!(count(&api.store, "SELECT COUNT(*) FROM hosts").await, 0);
        api.call(ADMIN, "2.53", &delete, None).await.refused(404, "not found");
        let own = api.get(ADMIN, "2.53", "/os-services?binary=nova-conductor").await.expect(200);
        let own = format!(
            "DELETE /os-services/{}",
            own["services"][0]["id"].as_str().expect("the answer has an id")
        );
        api.call(ADMIN, "2.53", &own, None).await.refused(400, "nova-conductor");
        api.call(ADMIN, "2.53", "DELETE /os-services/x", None).await.refused(400, "x");
    }
}

#[tokio::test]
async fn a_service_with_a_live_agent_is_not_deleted() {
    for api in apis().await {
        api.host("h1", kilonova_wire::time::now()).await;
        let list = api.get(ADMIN, "2.1", "/os-services?host=h1").await.expect(200);
        let delete = format!("DELETE /os-services/{}", list["services"][0]["id"]);
        api.call(ADMIN, "2.1", &delete, None).await.refused(409, "Stop the agent first");
    }
}

#[tokio::test]
async fn each_external_event_has_its_own_result() {
    for api in apis().await {
        api.host("h1", Timestamp::UNIX_EPOCH).await;
        api.server("red", "u", "h1", 1, 64).await;
        let list = api.get(ADMIN, "2.1", "/os-services").await.expect(200);
        assert!(list["services"].is_array());
        let row = api.store.read(|tx| tx.row("SELECT id FROM servers", params![])).await;
        let id = row
            .expect("the row is read")
            .expect("the row exists")
            .string(0)
            .expect("the answer has an id");
        let unknown = "5ee90d0c-2b5e-4a3f-a1cc-9fb7e6a0d75b";
        let bound = "accelerator-request-bound";
        let events = json!({"events": [
            {"name": bound, "server_uuid": unknown, "tag": "t"},
            {"name": bound, "server_uuid": id},
        ]});
        let post = "POST /os-server-external-events";
        api.call(ANN, "2.82", post, Some(events.clone())).await.refused(403, "external-events");
        api.call(ADMIN, "2.81", post, Some(events.clone())).await.refused(400, bound);
        let answer = api.call(ADMIN, "2.82", post, Some(events)).await.expect(207);
        let codes: Vec<&Value> = answer["events"]
            .as_array()
            .expect("the answer has a list")
            .iter()
            .map(|event| &event["code"])
            .collect();
        assert_eq!(codes, [404, 400]);
        for status in ["failed", "in-progress", "completed"] {
            let event = json!({"name": "network-changed", "server_uuid": id, "status": status});
            let body = json!({"events": [event]});
            let answer = api.call(ADMIN, "2.82", post, Some(body)).await.expect(200);
            let event = &answer["events"][0];
            assert_eq!((&event["status"], &event["code"]), (&json!("completed"), &json!(200)));
        }
    }
}
