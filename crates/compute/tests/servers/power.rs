//! Power actions in every state, allowed and refused.

use serde_json::{Value, json};

use crate::kit::{Cloud, FPGA, GPU, RunningCloud, hosts};

fn stop() -> Value {
    json!({"os-stop": null})
}

fn start() -> Value {
    json!({"os-start": null})
}

fn reboot(kind: &str) -> Value {
    json!({"reboot": {"type": kind}})
}

async fn refused(running: &RunningCloud, id: &str, action: Value, words: &str) {
    let name = action.as_object().and_then(|keys| keys.keys().next().cloned()).unwrap_or_default();
    let name = name.trim_start_matches("os-");
    let message = format!("Cannot '{name}' instance {id} while it is in {words}");
    let answer = running.try_act(id, action).await;
    assert_eq!(answer.message(), message);
    answer.expect(409);
}

#[tokio::test]
async fn power_actions_in_idle_states() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU, FPGA])])).await {
        for flavor in ["vgpu", "fpga"] {
            let id = running.active_server(&cloud, "one", flavor).await;
            refused(&running, &id, start(), "vm_state active").await;
            running.act(&id, reboot("SOFT")).await;
            running.wait_for_status(&id, "ACTIVE").await;
            running.act(&id, reboot("hard")).await;
            running.wait_for_status(&id, "ACTIVE").await;
            cloud.assert_consistent(&running, "rebooted").await;
            running.act(&id, stop()).await;
            let server = running.wait_for_status(&id, "SHUTOFF").await;
            assert_eq!(server["OS-EXT-STS:power_state"], 4);
            cloud.assert_consistent(&running, "stopped").await;
            refused(&running, &id, stop(), "vm_state stopped").await;
            refused(&running, &id, reboot("SOFT"), "vm_state stopped").await;
            running.act(&id, start()).await;
            assert_eq!(running.wait_for_status(&id, "ACTIVE").await["OS-EXT-STS:power_state"], 1);
            running.act(&id, stop()).await;
            running.wait_for_status(&id, "SHUTOFF").await;
            running.act(&id, reboot("HARD")).await;
            running.wait_for_status(&id, "ACTIVE").await;
            cloud.assert_consistent(&running, "started").await;
            cloud.teardown(&running, flavor).await;
        }
    }
}

#[tokio::test]
async fn power_actions_during_the_build() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        running.nodes.kill("a").await;
        let id = running.boot(&cloud, "one", "vgpu").await;
        for action in [stop(), start(), reboot("SOFT"), reboot("HARD")] {
            refused(&running, &id, action, "vm_state building").await;
        }
        running.start_node(&cloud, "a").await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.teardown(&running, "built").await;
    }
}

#[tokio::test]
async fn power_actions_without_a_host() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.boot(&cloud, "one", "vgpu").await;
        running.wait_for_status(&id, "ERROR").await;
        for action in [stop(), start()] {
            let answer = running.try_act(&id, action).await;
            assert_eq!(answer.message(), format!("Instance {id} is not ready"));
            answer.expect(409);
        }
        refused(&running, &id, reboot("SOFT"), "vm_state error").await;
        let answer = running.try_act(&id, reboot("HARD")).await;
        let words = format!("Instance {id} is in an invalid state for 'reboot'");
        assert_eq!(answer.message(), words);
        answer.expect(409);
        cloud.teardown(&running, "without a host").await;
    }
}

#[tokio::test]
async fn power_actions_during_another_action() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.nodes.kill("a").await;
        running.act(&id, stop()).await;
        for action in [stop(), reboot("SOFT"), reboot("HARD")] {
            refused(&running, &id, action, "task_state powering-off").await;
        }
        refused(&running, &id, start(), "vm_state active").await;
        running.start_node(&cloud, "a").await;
        running.wait_for_status(&id, "SHUTOFF").await;
        running.nodes.kill("a").await;
        running.act(&id, start()).await;
        refused(&running, &id, start(), "task_state powering-on").await;
        running.start_node(&cloud, "a").await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.nodes.kill("a").await;
        running.act(&id, reboot("SOFT")).await;
        assert_eq!(running.server(&id).await["status"], "REBOOT");
        refused(&running, &id, reboot("SOFT"), "task_state rebooting").await;
        refused(&running, &id, stop(), "task_state rebooting").await;
        running.start_node(&cloud, "a").await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&running, "one action at a time").await;
        cloud.teardown(&running, "one action at a time").await;
    }
}

/// A guest may not answer a soft reboot; a hard reboot replaces it.
#[tokio::test]
async fn a_hard_reboot_replaces_a_running_reboot() {
    let slow = "times_ms = { reboot = 1500, start = 1500 }";
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU, slow])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.act(&id, reboot("SOFT")).await;
        running.act(&id, reboot("HARD")).await;
        assert_eq!(running.server(&id).await["status"], "HARD_REBOOT");
        running.act(&id, reboot("HARD")).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let ends = "SELECT outcome FROM operations WHERE kind = 'reboot' ORDER BY created_at";
        assert_eq!(cloud.column(ends).await, ["cancelled", "cancelled", "done"]);
        cloud.assert_consistent(&running, "hard reboot during a soft one").await;
        cloud.teardown(&running, "hard reboot during a soft one").await;
    }
}

#[tokio::test]
async fn malformed_actions() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        for (action, part) in [
            (json!({}), "exactly one action"),
            (json!({"os-stop": null, "os-start": null}), "exactly one action"),
            (json!({"os-stop": {"now": true}}), "takes no argument"),
            (json!({"reboot": {}}), "required property"),
            (json!({"reboot": {"type": "WARM"}}), "is not one of"),
            (json!({"dance": null}), "There is no such action: dance."),
        ] {
            running.try_act(&id, action).await.refused(400, part);
        }
        assert_eq!(running.wait_until_idle(&id).await["status"], "ACTIVE");
        running.try_act("nobody", stop()).await.refused(404, "Instance nobody could not be found.");
        cloud.teardown(&running, "malformed").await;
    }
}
