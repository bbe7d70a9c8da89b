//! Power operations that fail on the host: the resulting state, and the retry.

use serde_json::{Value, json};

use crate::kit::{ADMIN, Cloud, GPU, RunningCloud, fault, hosts};
use crate::servers::instance_actions::actions;

/// Runs an action that fails once on the host, and checks the resulting status and the reason in the action.
async fn act_and_expect_failure(
    running: &RunningCloud,
    cloud: &Cloud,
    id: &str,
    action: Value,
    (step, status): (&str, &str),
) {
    running.act(id, action).await;
    let server = running.wait_for_status(id, status).await;
    if status == "ERROR" {
        assert!(fault(&server).contains(&format!("a: {step}: ")), "{server}");
    } else {
        assert!(server["fault"].is_null(), "{server}");
        cloud.assert_consistent(running, step).await;
    }
    let (_, message, events) = actions(running, id).await.pop().expect("the server has an action");
    assert_eq!((message, events[0].1.as_str()), (json!("Error"), "Error"), "{step}");
    let path = format!("/servers/{id}/os-instance-actions");
    let newest = running.get(ADMIN, "2.90", &path).await.expect(200)["instanceActions"][0].clone();
    let request = newest["request_id"].as_str().expect("the action has a request");
    let shown = running.get(ADMIN, "2.90", &format!("{path}/{request}")).await.expect(200);
    let details = shown["instanceAction"]["events"][0]["details"].to_string();
    assert!(details.contains(&format!("a: {step}: ")), "{details}");
    assert_eq!(server["OS-EXT-SRV-ATTR:host"], "a");
    cloud.audit(step).await;
    assert_eq!(cloud.used("VGPU").await, 1, "{step}: a failed operation keeps the device");
}

/// As upstream, the server stays as it was, and so does its guest.
#[tokio::test]
async fn a_failed_stop_can_be_repeated() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.restart_failing(&cloud, "a", &[("stop", Some(1))]).await;
        let stop = json!({"os-stop": null});
        act_and_expect_failure(&running, &cloud, &id, stop, ("stop", "ACTIVE")).await;
        let documents = cloud.column("SELECT body FROM documents").await.concat();
        assert!(documents.contains(r#""power":"on""#), "the guest is not taken for stopped");
        running.act(&id, json!({"os-stop": null})).await;
        let server = running.wait_for_status(&id, "SHUTOFF").await;
        assert!(server["fault"].is_null(), "{server}");
        cloud.assert_consistent(&running, "stopped").await;
        cloud.teardown(&running, "stopped").await;
    }
}

#[tokio::test]
async fn a_failed_start_can_be_repeated() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        for again in [json!({"os-start": null}), json!({"reboot": {"type": "HARD"}})] {
            running.act(&id, json!({"os-stop": null})).await;
            running.wait_for_status(&id, "SHUTOFF").await;
            running.restart_failing(&cloud, "a", &[("start", Some(1))]).await;
            let start = json!({"os-start": null});
            act_and_expect_failure(&running, &cloud, &id, start, ("start", "SHUTOFF")).await;
            running.act(&id, again).await;
            running.wait_for_status(&id, "ACTIVE").await;
            cloud.assert_consistent(&running, "started").await;
        }
        cloud.teardown(&running, "started").await;
    }
}

#[tokio::test]
async fn a_hard_reboot_recovers_from_failed_reboots() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        // A guest that the host cannot shut off still runs.
        for failure in [("destroy", "ACTIVE"), ("start", "ERROR")] {
            running.restart_failing(&cloud, "a", &[(failure.0, Some(1))]).await;
            let hard = json!({"reboot": {"type": "HARD"}});
            act_and_expect_failure(&running, &cloud, &id, hard.clone(), failure).await;
            running.act(&id, hard).await;
            running.wait_for_status(&id, "ACTIVE").await;
            cloud.assert_consistent(&running, failure.0).await;
        }
        cloud.teardown(&running, "rebooted").await;
    }
}

/// Upstream: `reboot` in `nova/virt/libvirt/driver.py`.
#[tokio::test]
async fn a_soft_reboot_that_the_host_refuses_becomes_a_hard_one() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.restart_failing(&cloud, "a", &[("reboot", Some(1))]).await;
        running.act(&id, json!({"reboot": {"type": "SOFT"}})).await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert!(server["fault"].is_null(), "{server}");
        let (action, message, _) = actions(&running, &id).await.pop().expect("an action");
        assert_eq!((action.as_str(), message), ("reboot", Value::Null));
        cloud.assert_consistent(&running, "rebooted").await;
        cloud.teardown(&running, "rebooted").await;
    }
}

#[tokio::test]
async fn a_server_that_failed_can_be_deleted() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.restart_failing(&cloud, "a", &[("stop", None)]).await;
        let stop = json!({"os-stop": null});
        act_and_expect_failure(&running, &cloud, &id, stop, ("stop", "ACTIVE")).await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.assert_empty(&running, "deleted").await;
    }
}
