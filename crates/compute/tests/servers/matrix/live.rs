//! Live migrations that an operator aborts or forces to complete.

use kilonova_testkit::shared;
use serde_json::json;

use super::{ALL, flavors, print, row};
use crate::kit::{ADMIN, Cloud, RunningCloud, hosts, wait_until};
use crate::servers::resize::admin;

const OPERATIONS: &[&str] = &["live migrate, aborted", "live migrate, forced to complete"];

async fn perform(cloud: &Cloud, running: &RunningCloud, flavor: &str, operation: &str) -> String {
    let id = &running.active_server_on(cloud, "a", flavor).await;
    let action = json!({"os-migrateLive": {"host": "b", "block_migration": "auto"}});
    let answer = admin(running, "2.90", id, action).await;
    if answer.status == 400 {
        assert!(answer.message().contains("cannot live-migrate"), "{}", answer.body);
        return "refused".into();
    }
    answer.expect(202);
    let mut number = 0;
    wait_until("the migration runs", async || {
        let list =
            running.get(ADMIN, "2.80", &format!("/servers/{id}/migrations")).await.expect(200);
        let one = &list["migrations"][0];
        number = one["id"].as_i64().unwrap_or_default();
        one["memory_processed_bytes"].as_i64() > Some(0)
    })
    .await;
    cloud.audit("migrating").await;
    let path = format!("/servers/{id}/migrations/{number}");
    let ends = if operation.ends_with("aborted") {
        running.call(ADMIN, "2.80", &format!("DELETE {path}"), None).await.expect(202);
        "a"
    } else {
        let force = json!({"force_complete": null});
        running.admin("2.80", &format!("POST {path}/action"), force).await.expect(202);
        "b"
    };
    assert_eq!(running.wait_for_status(id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], ends);
    "works".into()
}

#[tokio::test]
async fn live_migrations_with_every_accelerator() {
    let lasting = "times_ms = { migrate = 60000 }";
    let clouds = Cloud::all_running(hosts(&[("a", &[ALL, lasting]), ("b", &[ALL])])).await;
    for (share, (cloud, mut running)) in shared(clouds) {
        flavors(&running).await;
        let mut table = Vec::new();
        for (number, operation) in OPERATIONS.iter().enumerate() {
            let perform = async |cloud: &Cloud, running: &mut RunningCloud, flavor: &str| {
                perform(cloud, running, flavor, operation).await
            };
            let done = row(share, &cloud, &mut running, (number, operation), perform).await;
            table.push((*operation, done));
        }
        print(cloud.name, &table);
    }
}
