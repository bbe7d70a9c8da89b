//! Creation of one or several servers, and deletion.

use std::collections::BTreeMap;

use kilonova_testkit::shared;
use serde_json::{Value, json};

use super::{ALL, flavors, print, row};
use crate::kit::{ADMIN, Cloud, RunningCloud, hosts};
use crate::servers::checklist::inspect::devices;

const OPERATIONS: &[&str] = &[
    "create and delete",
    "create two",
    "create as many as fit, of ten",
    "create two in a group, apart",
    "create two in a group, together",
    "create in a zone",
    "create on a host",
    "create on a host by zone",
    "delete while the node is down",
];

/// How many of ten servers fit on the two hosts.
fn fitting(flavor: &str) -> usize {
    match flavor {
        "vgpu-pair" => 8,
        "whole" | "aliased" => 4,
        _ => 10,
    }
}

/// The number of devices of a guest with the flavor.
fn of(flavor: &str) -> usize {
    match flavor {
        "plain" => 0,
        "vgpu-pair" => 2,
        _ => 1,
    }
}

/// Boots servers as an admin, and returns the number on each host.
async fn ask(
    cloud: &Cloud,
    running: &RunningCloud,
    flavor: &str,
    more: Value,
    hints: Value,
) -> BTreeMap<String, usize> {
    let mut boot_request = running.boot_request(cloud, "some", flavor);
    if let (Some(server), Value::Object(more)) = (boot_request["server"].as_object_mut(), more) {
        server.extend(more);
    }
    boot_request["os:scheduler_hints"] = hints;
    running.admin("2.90", "POST /servers", boot_request).await.expect(202);
    let mut spread = BTreeMap::new();
    for server in running.wait_all_idle().await {
        assert_eq!(server["status"], "ACTIVE", "{server}");
        let host =
            server["OS-EXT-SRV-ATTR:host"].as_str().expect("the server has a host").to_owned();
        let id = server["id"].as_str().expect("the answer has an id");
        assert_eq!(devices(cloud, &host, id).len(), of(flavor), "{server}");
        *spread.entry(host).or_default() += 1;
    }
    spread
}

async fn group(running: &RunningCloud, policy: &str) -> Value {
    let body = json!({"server_group": {"name": policy, "policy": policy}});
    let made = running.admin("2.64", "POST /os-server-groups", body).await.expect(200);
    json!({"group": made["server_group"]["id"]})
}

async fn perform(
    cloud: &Cloud,
    running: &mut RunningCloud,
    flavor: &str,
    operation: &str,
) -> String {
    let none = json!({});
    match operation {
        "create and delete" => {
            let id = running.active_server(cloud, "one", flavor).await;
            cloud.assert_consistent(running, operation).await;
            running.delete(&id).await;
            running.wait_until_gone(&id).await;
            cloud.assert_empty(running, operation).await;
        }
        "create two" => {
            let spread = ask(cloud, running, flavor, json!({"min_count": 2}), none).await;
            assert_eq!(spread.values().sum::<usize>(), 2);
        }
        "create as many as fit, of ten" => {
            let more = json!({"min_count": 2, "max_count": 10});
            let spread = ask(cloud, running, flavor, more, none).await;
            assert_eq!(spread.values().sum::<usize>(), fitting(flavor), "{spread:?}");
        }
        "create two in a group, apart" => {
            let hints = group(running, "anti-affinity").await;
            let spread = ask(cloud, running, flavor, json!({"min_count": 2}), hints).await;
            assert_eq!(spread, [("a".into(), 1), ("b".into(), 1)].into());
        }
        "create two in a group, together" => {
            let hints = group(running, "affinity").await;
            let spread = ask(cloud, running, flavor, json!({"min_count": 2}), hints).await;
            assert_eq!(spread.into_values().collect::<Vec<_>>(), [2]);
        }
        "create in a zone" => {
            let spread =
                ask(cloud, running, flavor, json!({"availability_zone": "nova"}), none).await;
            assert_eq!(spread.len(), 1);
        }
        "create on a host" => {
            let spread = ask(cloud, running, flavor, json!({"host": "b"}), none).await;
            assert_eq!(spread, [("b".into(), 1)].into());
        }
        "create on a host by zone" => {
            let more = json!({"availability_zone": "nova:b"});
            let spread = ask(cloud, running, flavor, more, none).await;
            assert_eq!(spread, [("b".into(), 1)].into());
        }
        "delete while the node is down" => {
            let id = running.active_server_on(cloud, "a", flavor).await;
            running.nodes.kill("a").await;
            running.force_down("a", true).await;
            running.call(ADMIN, "2.90", &format!("DELETE /servers/{id}"), None).await.expect(204);
            assert!(running.server(&id).await.is_null(), "the delete does not wait for the host");
            cloud.audit(operation).await;
            running.start_node(cloud, "a").await;
            running.force_down("a", false).await;
        }
        other => panic!("no such operation: {other}"),
    }
    "works".into()
}

#[tokio::test]
async fn every_create_with_every_accelerator() {
    let clouds = Cloud::all_running(hosts(&[("a", &[ALL]), ("b", &[ALL])])).await;
    for (share, (cloud, mut running)) in shared(clouds) {
        let quota = json!({"quota_set": {
            "instances": -1, "cores": -1, "ram": -1, "server_groups": -1,
        }});
        running.admin("2.90", "PUT /os-quota-sets/admin", quota).await.expect(200);
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
        let left = running.get(ADMIN, "2.90", "/servers").await.expect(200);
        assert_eq!(left["servers"], json!([]));
    }
}
