//! Deletes in every state of a server.

use serde_json::{Value, json};

use crate::kit::{ANN, Cloud, GPU, Up, hosts};

const SLOW: &str =
    "times_ms = { image = 40, define = 40, start = 40, stop = 40, reboot = 40, destroy = 40 }";

async fn delete_and_assert_empty(up: &Up, cloud: &Cloud, id: &str, when: &str) {
    up.delete(id).await;
    up.wait_until_gone(id).await;
    cloud.assert_empty(up, when).await;
    let path = format!("DELETE /servers/{id}");
    up.call(ANN, "2.90", &path, None).await.refused(404, "could not be found");
}

#[tokio::test]
async fn delete_in_idle_states() {
    for (cloud, mut up) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = up.active_server(&cloud, "one", "vgpu").await;
        delete_and_assert_empty(&up, &cloud, &id, "ACTIVE").await;
        let id = up.active_server(&cloud, "one", "vgpu").await;
        up.act(&id, json!({"os-stop": null})).await;
        up.wait_for_status(&id, "SHUTOFF").await;
        delete_and_assert_empty(&up, &cloud, &id, "SHUTOFF").await;
        let id = up.boot(&cloud, "one", "fpga").await;
        up.wait_for_status(&id, "ERROR").await;
        delete_and_assert_empty(&up, &cloud, &id, "ERROR without a host").await;
        up.restart_failing(&cloud, "a", &[("stop", Some(1))]).await;
        let id = up.active_server(&cloud, "one", "vgpu").await;
        up.act(&id, json!({"os-stop": null})).await;
        up.wait_for_status(&id, "ERROR").await;
        delete_and_assert_empty(&up, &cloud, &id, "ERROR on a host").await;
    }
}

#[tokio::test]
async fn delete_during_the_build() {
    for step in ["image", "define", "start"] {
        let slow_step = format!("times_ms = {{ {step} = 1000 }}");
        for (cloud, up) in Cloud::all_running(hosts(&[("a", &[GPU, &slow_step])])).await {
            for wait in [0, 100] {
                let id = up.boot(&cloud, "one", "vgpu").await;
                tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
                delete_and_assert_empty(
                    &up,
                    &cloud,
                    &id,
                    &format!("{step} of a BUILD for {wait} ms"),
                )
                .await;
            }
            let outcomes = "SELECT DISTINCT outcome FROM operations WHERE kind = 'create'";
            assert_eq!(cloud.column(outcomes).await, ["cancelled"]);
        }
    }
}

#[tokio::test]
async fn delete_during_an_operation() {
    for (cloud, up) in Cloud::all_running(hosts(&[("a", &[GPU, SLOW])])).await {
        for action in [
            json!({"os-stop": null}),
            json!({"reboot": {"type": "SOFT"}}),
            json!({"reboot": {"type": "HARD"}}),
        ] {
            let id = up.active_server(&cloud, "one", "vgpu").await;
            up.act(&id, action.clone()).await;
            delete_and_assert_empty(&up, &cloud, &id, &action.to_string()).await;
        }
        let id = up.active_server(&cloud, "one", "vgpu").await;
        up.act(&id, json!({"os-stop": null})).await;
        up.wait_for_status(&id, "SHUTOFF").await;
        up.act(&id, json!({"os-start": null})).await;
        delete_and_assert_empty(&up, &cloud, &id, "powering on").await;
    }
}

#[tokio::test]
async fn delete_during_the_cleanup_of_a_failed_boot() {
    for (cloud, mut up) in Cloud::all_running(hosts(&[("a", &[GPU, SLOW])])).await {
        up.restart_failing(&cloud, "a", &[("start", None), ("destroy", Some(1))]).await;
        let id = up.boot(&cloud, "one", "vgpu").await;
        crate::kit::wait_until("the boot has failed", async || {
            let failed = "SELECT id FROM operation_events e JOIN operations o
                ON o.id = e.operation_id WHERE e.result = 'Error'";
            !cloud.column(failed).await.is_empty() || up.server(&id).await["status"] == "ERROR"
        })
        .await;
        delete_and_assert_empty(&up, &cloud, &id, "cleaning up").await;
    }
}

#[tokio::test]
async fn a_second_delete_joins_the_first() {
    for (cloud, mut up) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = up.active_server(&cloud, "one", "vgpu").await;
        up.nodes.kill("a").await;
        up.delete(&id).await;
        let server = up.server(&id).await;
        assert_eq!(server["OS-EXT-STS:task_state"], "deleting");
        assert_eq!(server["status"], "ACTIVE");
        up.delete(&id).await;
        up.try_act(&id, json!({"forceDelete": null})).await.expect(202);
        let stop = up.try_act(&id, json!({"os-stop": null})).await;
        stop.refused(409, "while it is in task_state deleting");
        up.start_node(&cloud, "a").await;
        up.wait_until_gone(&id).await;
        let deletes = "SELECT id FROM operations WHERE kind = 'delete'";
        assert_eq!(cloud.column(deletes).await.len(), 1);
        cloud.assert_empty(&up, "deleted twice").await;
    }
}

#[tokio::test]
async fn a_delete_waits_for_an_agent_that_is_down() {
    for (cloud, mut up) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = up.active_server(&cloud, "one", "vgpu").await;
        up.nodes.kill("a").await;
        up.delete(&id).await;
        assert_ne!(up.server(&id).await, Value::Null);
        assert_eq!(cloud.used("VGPU").await, 1, "the guest may still use its device");
        cloud.audit("waiting").await;
        up.start_node(&cloud, "a").await;
        up.wait_until_gone(&id).await;
        cloud.assert_empty(&up, "after the wait").await;
    }
}
