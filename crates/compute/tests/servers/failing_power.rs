//! Power operations that fail on the host: what the server is then, and that a retry works.

use serde_json::{Value, json};

use crate::kit::{Cloud, GPU, Up, fault, hosts};

/// Does what fails once on the host, and checks what the user then sees.
async fn fails(up: &Up, cloud: &Cloud, id: &str, action: Value, step: &str) {
    up.act(id, action).await;
    let server = up.becomes(id, "ERROR").await;
    assert!(fault(&server).contains(&format!("a: {step}: ")), "{server}");
    assert_eq!(server["OS-EXT-SRV-ATTR:host"], "a");
    cloud.audit(step).await;
    assert_eq!(cloud.used("VGPU").await, 1, "{step}: a failed operation keeps the device");
}

#[tokio::test]
async fn a_failed_stop_can_be_repeated() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        up.restart_failing(&cloud, "a", &[("stop", Some(1))]).await;
        fails(&up, &cloud, &id, json!({"os-stop": null}), "stop").await;
        up.act(&id, json!({"os-stop": null})).await;
        let server = up.becomes(&id, "SHUTOFF").await;
        assert!(server["fault"].is_null(), "{server}");
        cloud.sound(&up, "stopped").await;
        cloud.sweep(&up, "stopped").await;
    }
}

#[tokio::test]
async fn after_a_failed_start_a_hard_reboot_helps() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        up.act(&id, json!({"os-stop": null})).await;
        up.becomes(&id, "SHUTOFF").await;
        up.restart_failing(&cloud, "a", &[("start", Some(1))]).await;
        fails(&up, &cloud, &id, json!({"os-start": null}), "start").await;
        up.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        up.becomes(&id, "ACTIVE").await;
        cloud.sound(&up, "started").await;
        cloud.sweep(&up, "started").await;
    }
}

#[tokio::test]
async fn failed_reboots_can_be_followed_by_a_hard_one() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        for (kind, step) in [("SOFT", "reboot"), ("HARD", "destroy"), ("HARD", "start")] {
            up.restart_failing(&cloud, "a", &[(step, Some(1))]).await;
            fails(&up, &cloud, &id, json!({"reboot": {"type": kind}}), step).await;
            up.act(&id, json!({"reboot": {"type": "HARD"}})).await;
            up.becomes(&id, "ACTIVE").await;
            cloud.sound(&up, step).await;
        }
        cloud.sweep(&up, "rebooted").await;
    }
}

#[tokio::test]
async fn a_server_that_failed_can_be_deleted() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        up.restart_failing(&cloud, "a", &[("stop", None)]).await;
        fails(&up, &cloud, &id, json!({"os-stop": null}), "stop").await;
        up.delete(&id).await;
        up.goes(&id).await;
        cloud.empty(&up, "deleted").await;
    }
}
