//! Power operations that fail on the host: the resulting state, and the retry.

use serde_json::{Value, json};

use crate::kit::{Cloud, GPU, Up, fault, hosts};

/// Runs an action that fails once on the host, and checks the fault that the user sees.
async fn act_and_expect_failure(up: &Up, cloud: &Cloud, id: &str, action: Value, step: &str) {
    up.act(id, action).await;
    let server = up.wait_for_status(id, "ERROR").await;
    assert!(fault(&server).contains(&format!("a: {step}: ")), "{server}");
    assert_eq!(server["OS-EXT-SRV-ATTR:host"], "a");
    cloud.audit(step).await;
    assert_eq!(cloud.used("VGPU").await, 1, "{step}: a failed operation keeps the device");
}

#[tokio::test]
async fn a_failed_stop_can_be_repeated() {
    for (cloud, mut up) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = up.active_server(&cloud, "one", "vgpu").await;
        up.restart_failing(&cloud, "a", &[("stop", Some(1))]).await;
        act_and_expect_failure(&up, &cloud, &id, json!({"os-stop": null}), "stop").await;
        up.act(&id, json!({"os-stop": null})).await;
        let server = up.wait_for_status(&id, "SHUTOFF").await;
        assert!(server["fault"].is_null(), "{server}");
        cloud.assert_consistent(&up, "stopped").await;
        cloud.teardown(&up, "stopped").await;
    }
}

#[tokio::test]
async fn a_hard_reboot_recovers_from_a_failed_start() {
    for (cloud, mut up) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = up.active_server(&cloud, "one", "vgpu").await;
        up.act(&id, json!({"os-stop": null})).await;
        up.wait_for_status(&id, "SHUTOFF").await;
        up.restart_failing(&cloud, "a", &[("start", Some(1))]).await;
        act_and_expect_failure(&up, &cloud, &id, json!({"os-start": null}), "start").await;
        up.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        up.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&up, "started").await;
        cloud.teardown(&up, "started").await;
    }
}

#[tokio::test]
async fn a_hard_reboot_recovers_from_failed_reboots() {
    for (cloud, mut up) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = up.active_server(&cloud, "one", "vgpu").await;
        for (kind, step) in [("SOFT", "reboot"), ("HARD", "destroy"), ("HARD", "start")] {
            up.restart_failing(&cloud, "a", &[(step, Some(1))]).await;
            act_and_expect_failure(&up, &cloud, &id, json!({"reboot": {"type": kind}}), step).await;
            up.act(&id, json!({"reboot": {"type": "HARD"}})).await;
            up.wait_for_status(&id, "ACTIVE").await;
            cloud.assert_consistent(&up, step).await;
        }
        cloud.teardown(&up, "rebooted").await;
    }
}

#[tokio::test]
async fn a_server_that_failed_can_be_deleted() {
    for (cloud, mut up) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = up.active_server(&cloud, "one", "vgpu").await;
        up.restart_failing(&cloud, "a", &[("stop", None)]).await;
        act_and_expect_failure(&up, &cloud, &id, json!({"os-stop": null}), "stop").await;
        up.delete(&id).await;
        up.wait_until_gone(&id).await;
        cloud.assert_empty(&up, "deleted").await;
    }
}
