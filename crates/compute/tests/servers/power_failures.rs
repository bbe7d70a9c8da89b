//! Power operations that fail on the host: the resulting state, and the retry.

use serde_json::{Value, json};

use crate::kit::{Cloud, GPU, RunningCloud, fault, hosts};

/// Runs an action that fails once on the host, and checks the fault that the user sees.
async fn act_and_expect_failure(
    running: &RunningCloud,
    cloud: &Cloud,
    id: &str,
    action: Value,
    step: &str,
) {
    running.act(id, action).await;
    let server = running.wait_for_status(id, "ERROR").await;
    assert!(fault(&server).contains(&format!("a: {step}: ")), "{server}");
    assert_eq!(server["OS-EXT-SRV-ATTR:host"], "a");
    cloud.audit(step).await;
    assert_eq!(cloud.used("VGPU").await, 1, "{step}: a failed operation keeps the device");
}

#[tokio::test]
async fn a_failed_stop_can_be_repeated() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.restart_failing(&cloud, "a", &[("stop", Some(1))]).await;
        act_and_expect_failure(&running, &cloud, &id, json!({"os-stop": null}), "stop").await;
        running.act(&id, json!({"os-stop": null})).await;
        let server = running.wait_for_status(&id, "SHUTOFF").await;
        assert!(server["fault"].is_null(), "{server}");
        cloud.assert_consistent(&running, "stopped").await;
        cloud.teardown(&running, "stopped").await;
    }
}

#[tokio::test]
async fn a_hard_reboot_recovers_from_a_failed_start() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.act(&id, json!({"os-stop": null})).await;
        running.wait_for_status(&id, "SHUTOFF").await;
        running.restart_failing(&cloud, "a", &[("start", Some(1))]).await;
        act_and_expect_failure(&running, &cloud, &id, json!({"os-start": null}), "start").await;
        running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&running, "started").await;
        cloud.teardown(&running, "started").await;
    }
}

#[tokio::test]
async fn a_hard_reboot_recovers_from_failed_reboots() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        for (kind, step) in [("SOFT", "reboot"), ("HARD", "destroy"), ("HARD", "start")] {
            running.restart_failing(&cloud, "a", &[(step, Some(1))]).await;
            act_and_expect_failure(&running, &cloud, &id, json!({"reboot": {"type": kind}}), step)
                .await;
            running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
            running.wait_for_status(&id, "ACTIVE").await;
            cloud.assert_consistent(&running, step).await;
        }
        cloud.teardown(&running, "rebooted").await;
    }
}

#[tokio::test]
async fn a_server_that_failed_can_be_deleted() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.restart_failing(&cloud, "a", &[("stop", None)]).await;
        act_and_expect_failure(&running, &cloud, &id, json!({"os-stop": null}), "stop").await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.assert_empty(&running, "deleted").await;
    }
}
