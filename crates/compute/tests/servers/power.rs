//! Power operations in every state, legal and not.

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
async fn what_is_allowed_when() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU, FPGA])])).await {
        for flavor in ["vgpu", "fpga"] {
            let id = up.active(&cloud, "one", flavor).await;
            refused(&up, &id, start(), "vm_state active").await;
            up.act(&id, reboot("SOFT")).await;
            up.becomes(&id, "ACTIVE").await;
            up.act(&id, reboot("hard")).await;
            up.becomes(&id, "ACTIVE").await;
            cloud.sound(&up, "rebooted").await;
            up.act(&id, stop()).await;
            let server = up.becomes(&id, "SHUTOFF").await;
            assert_eq!(server["OS-EXT-STS:power_state"], 4);
            cloud.sound(&up, "stopped").await;
            refused(&up, &id, stop(), "vm_state stopped").await;
            refused(&up, &id, reboot("SOFT"), "vm_state stopped").await;
            up.act(&id, start()).await;
            assert_eq!(up.becomes(&id, "ACTIVE").await["OS-EXT-STS:power_state"], 1);
            up.act(&id, stop()).await;
            up.becomes(&id, "SHUTOFF").await;
            up.act(&id, reboot("HARD")).await;
            up.becomes(&id, "ACTIVE").await;
            cloud.sound(&up, "started").await;
            cloud.sweep(&up, flavor).await;
        }
    }
}

#[tokio::test]
async fn while_it_is_built() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        up.nodes.kill("a").await;
        let id = up.boot(&cloud, "one", "vgpu").await;
        for action in [stop(), start(), reboot("SOFT"), reboot("HARD")] {
            refused(&up, &id, action, "vm_state building").await;
        }
        up.start_node(&cloud, "a").await;
        up.becomes(&id, "ACTIVE").await;
        cloud.sweep(&up, "built").await;
    }
}

#[tokio::test]
async fn without_a_host() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[])])).await {
        let id = up.boot(&cloud, "one", "vgpu").await;
        up.becomes(&id, "ERROR").await;
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
        cloud.sweep(&up, "without a host").await;
    }
}

#[tokio::test]
async fn while_something_else_is_done() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        up.nodes.kill("a").await;
        up.act(&id, stop()).await;
        for action in [stop(), reboot("SOFT"), reboot("HARD")] {
            refused(&up, &id, action, "task_state powering-off").await;
        }
        refused(&up, &id, start(), "vm_state active").await;
        up.start_node(&cloud, "a").await;
        up.becomes(&id, "SHUTOFF").await;
        up.nodes.kill("a").await;
        up.act(&id, start()).await;
        refused(&up, &id, start(), "task_state powering-on").await;
        up.start_node(&cloud, "a").await;
        up.becomes(&id, "ACTIVE").await;
        up.nodes.kill("a").await;
        up.act(&id, reboot("SOFT")).await;
        assert_eq!(up.server(&id).await["status"], "REBOOT");
        refused(&up, &id, reboot("SOFT"), "task_state rebooting").await;
        refused(&up, &id, stop(), "task_state rebooting").await;
        up.start_node(&cloud, "a").await;
        up.becomes(&id, "ACTIVE").await;
        cloud.sound(&up, "one at a time").await;
        cloud.sweep(&up, "one at a time").await;
    }
}

/// A guest that does not answer a soft reboot is why hard ones exist.
#[tokio::test]
async fn a_hard_reboot_takes_the_place_of_a_running_reboot() {
    let slow = "times_ms = { reboot = 1500, start = 1500 }";
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU, slow])])).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        up.act(&id, reboot("SOFT")).await;
        up.act(&id, reboot("HARD")).await;
        assert_eq!(up.server(&id).await["status"], "HARD_REBOOT");
        up.act(&id, reboot("HARD")).await;
        up.becomes(&id, "ACTIVE").await;
        let ends = "SELECT outcome FROM operations WHERE kind = 'reboot' ORDER BY created_at";
        assert_eq!(cloud.column(ends).await, ["cancelled", "cancelled", "done"]);
        cloud.sound(&up, "hard over soft").await;
        cloud.sweep(&up, "hard over soft").await;
    }
}

#[tokio::test]
async fn malformed_actions() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[])])).await {
        let id = up.active(&cloud, "one", "plain").await;
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
        assert_eq!(up.rest(&id).await["status"], "ACTIVE");
        up.try_act("nobody", stop()).await.refused(404, "Instance nobody could not be found.");
        cloud.sweep(&up, "malformed").await;
    }
}
