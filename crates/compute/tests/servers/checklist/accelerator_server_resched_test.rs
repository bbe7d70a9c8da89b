//! Upstream's `AcceleratorServerReschedTest`: the first host, or every host, fails to spawn.

use serde_json::json;

use super::inspect::{arqs, assert_bound, assert_no_claims};
use super::{FIRST, ONE, SECOND};
use crate::kit::{ADMIN, Cloud, RunningCloud, fault, hosts};

/// Hosts on which an attempt to build the server failed.
async fn failed_on(running: &RunningCloud, id: &str) -> Vec<String> {
    let path = format!("/servers/{id}/os-instance-actions");
    let list = running.get(ADMIN, "2.90", &path).await.expect(200);
    let request = list["instanceActions"][0]["request_id"]
        .as_str()
        .expect("the server has an action")
        .to_owned();
    let shown = running.get(ADMIN, "2.90", &format!("{path}/{request}")).await.expect(200);
    let events =
        shown["instanceAction"]["events"].as_array().expect("the action has events").clone();
    let failed = events.iter().filter(|event| event["result"] == "Error");
    failed.filter_map(|event| event["host"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn resched() {
    let topology = hosts(&[("accel_host0", &[FIRST]), ("accel_host1", &[SECOND])]);
    for (cloud, mut running) in Cloud::all_running(topology).await {
        let quota = json!({"quota_set": {"cores": -1, "ram": -1}});
        running.admin("2.90", "PUT /os-quota-sets/admin", quota).await.expect(200);
        // The filler makes the failing host the scheduler's first choice.
        running.flavor("filler", json!({"ram": 60000, "vcpus": 60})).await;
        let filler = running.active_server_on(&cloud, "accel_host1", "filler").await;
        running.restart_failing(&cloud, "accel_host0", &[("start", Some(1))]).await;
        let id = running.active_server(&cloud, "accel_server1", "fpga").await;
        assert_eq!(running.server(&id).await["OS-EXT-SRV-ATTR:host"], "accel_host1");
        assert_eq!(failed_on(&running, &id).await, ["accel_host0"]);
        assert_bound(&cloud, &running, &id, ONE).await;
        assert_eq!(arqs(&running, &filler).await.len(), 0);
        cloud.assert_consistent(&running, "rescheduled").await;
        cloud.teardown(&running, "rescheduled").await;
    }
}

#[tokio::test]
async fn resched_fails() {
    let topology = hosts(&[("accel_host0", &[FIRST]), ("accel_host1", &[SECOND])]);
    for (cloud, mut running) in Cloud::all_running(topology).await {
        for host in ["accel_host0", "accel_host1"] {
            running.restart_failing(&cloud, host, &[("start", None)]).await;
        }
        let id = running.boot(&cloud, "accel_server1", "fpga").await;
        let server = running.wait_for_status(&id, "ERROR").await;
        assert!(fault(&server).contains("start: "), "{server}");
        let mut hosts = failed_on(&running, &id).await;
        hosts.sort();
        assert_eq!(hosts, ["accel_host0", "accel_host1"]);
        assert_no_claims(&running, &id).await;
        cloud.assert_consistent(&running, "every host failed").await;
        cloud.teardown(&running, "every host failed").await;
    }
}
