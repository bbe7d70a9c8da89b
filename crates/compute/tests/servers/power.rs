//! Power actions in every state, allowed and refused.

use serde_json::{Value, json};

use crate::kit::{Cloud, FPGA, GPU, Up, hosts};

fn stop() -> Value {
    json!({"os-stop": null})
}

fn start() -> Value {
    json!({"os-start": null})
}

fn reboot(kind: &str) -> Value {
    json!({"reboot": {"type": kind}})
}

async fn refused(up: &Up, id: &str, action: Value, words: &str) {
    let name = action.as_object().and_then(|keys| keys.keys().next().cloned()).unwrap_or_default();
    let name = name.trim_start_matches("os-");
    let message = format!("Cannot '{name}' instance {id} while it is in {words}");
    let answer = up.try_act(id, action).await;
    assert_eq!(answer.message(), message);
    answer.expect(409);
}

#[tokio::test]
async fn power_actions_in_idle_states() {
    for (cloud, up) in Cloud::all_running(hosts(&[("a", &[GPU, FPGA])])).await {
        for flavor in ["vgpu", "fpga"] {
            let id = up.active_server(&cloud, "one", flavor).await;
            refused(&up, &id, start(), "vm_state active").await;
            up.act(&id, reboot("SOFT")).await;
            up.wait_for_status(&id, "ACTIVE").await;
            up.act(&id, reboot("hard")).await;
            up.wait_for_status(&id, "ACTIVE").await;
            cloud.assert_consistent(&up, "rebooted").await;
            up.act(&id, stop()).await;
            let server = up.wait_for_status(&id, "SHUTOFF").await;
            assert_eq!(server["OS-EXT-STS:power_state"], 4);
            cloud.assert_consistent(&up, "stopped").await;
            refused(&up, &id, stop(), "vm_state stopped").await;
            refused(&up, &id, reboot("SOFT"), "vm_state stopped").await;
            up.act(&id, start()).await;
            assert_eq!(up.wait_for_status(&id, "ACTIVE").await["OS-EXT-STS:power_state"], 1);
            up.act(&id, stop()).await;
            up.wait_for_status(&id, "SHUTOFF").await;
            up.act(&id, reboot("HARD")).await;
            up.wait_for_status(&id, "ACTIVE").await;
            cloud.assert_consistent(&up, "started").await;
            cloud.teardown(&up, flavor).await;
        }
    }
}

#[tokio::test]
async fn power_actions_during_the_build() {
    for (cloud, mut up) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        up.nodes.kill("a").await;
        let id = up.boot(&cloud, "one", "vgpu").await;
        for action in [stop(), start(), reboot("SOFT"), reboot("HARD")] {
            refused(&up, &id, action, "vm_state building").await;
        }
        up.start_node(&cloud, "a").await;
        up.wait_for_status(&id, "ACTIVE").await;
        cloud.teardown(&up, "built").await;
    }
}

#[tokio::test]
async fn power_actions_without_a_host() {
    for (cloud, up) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = up.boot(&cloud, "one", "vgpu").await;
        up.wait_for_status(&id, "ERROR").await;
        for action in [stop(), start()] {
            let answer = up.try_act(&id, action).await;
            assert_eq!(answer.message(), format!("Instance {id} is not ready"));
            answer.expect(409);
        }
        refused(&up, &id, reboot("SOFT"), "vm_state error").await;
        let answer = up.try_act(&id, reboot("HARD")).await;
        let words = format!("Instance {id} is in an invalid state for 'reboot'");
        assert_eq!(answer.message(), words);
        answer.expect(409);
        cloud.teardown(&up, "without a host").await;
    }
}

#[tokio::test]
async fn power_actions_during_another_action() {
    for (cloud, mut up) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = up.active_server(&cloud, "one", "vgpu").await;
        up.nodes.kill("a").await;
        up.act(&id, stop()).await;
        for action in [stop(), reboot("SOFT"), reboot("HARD")] {
            refused(&up, &id, action, "task_state powering-off").await;
        }
        refused(&up, &id, start(), "vm_state active").await;
        up.start_node(&cloud, "a").await;
        up.wait_for_status(&id, "SHUTOFF").await;
        up.nodes.kill("a").await;
        up.act(&id, start()).await;
        refused(&up, &id, start(), "task_state powering-on").await;
        up.start_node(&cloud, "a").await;
        up.wait_for_status(&id, "ACTIVE").await;
        up.nodes.kill("a").await;
        up.act(&id, reboot("SOFT")).await;
        assert_eq!(up.server(&id).await["status"], "REBOOT");
        refused(&up, &id, reboot("SOFT"), "task_state rebooting").await;
        refused(&up, &id, stop(), "task_state rebooting").await;
        up.start_node(&cloud, "a").await;
        up.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&up, "one action at a time").await;
        cloud.teardown(&up, "one action at a time").await;
    }
}

/// A guest may not answer a soft reboot; a hard reboot replaces it.
#[tokio::test]
async fn a_hard_reboot_replaces_a_running_reboot() {
    let slow = "times_ms = { reboot = 1500, start = 1500 }";
    for (cloud, up) in Cloud::all_running(hosts(&[("a", &[GPU, slow])])).await {
        let id = up.active_server(&cloud, "one", "vgpu").await;
        up.act(&id, reboot("SOFT")).await;
        up.act(&id, reboot("HARD")).await;
        assert_eq!(up.server(&id).await["status"], "HARD_REBOOT");
        up.act(&id, reboot("HARD")).await;
        up.wait_for_status(&id, "ACTIVE").await;
        let ends = "SELECT outcome FROM operations WHERE kind = 'reboot' ORDER BY created_at";
        assert_eq!(cloud.column(ends).await, ["cancelled", "cancelled", "done"]);
        cloud.assert_consistent(&up, "hard reboot during a soft one").await;
        cloud.teardown(&up, "hard reboot during a soft one").await;
    }
}

#[tokio::test]
async fn malformed_actions() {
    for (cloud, up) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = up.active_server(&cloud, "one", "plain").await;
        for (action, part) in [
            (json!({}), "exactly one action"),
            (json!({"os-stop": null, "os-start": null}), "exactly one action"),
            (json!({"os-stop": {"now": true}}), "takes no argument"),
            (json!({"reboot": {}}), "required property"),
            (json!({"reboot": {"type": "WARM"}}), "is not one of"),
            (json!({"dance": null}), "There is no such action: dance."),
        ] {
            up.try_act(&id, action).await.refused(400, part);
        }
        assert_eq!(up.wait_until_idle(&id).await["status"], "ACTIVE");
        up.try_act("nobody", stop()).await.refused(404, "Instance nobody could not be found.");
        cloud.teardown(&up, "malformed").await;
    }
}
