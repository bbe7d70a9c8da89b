//! Deletes in every state of a server.

use serde_json::{Value, json};

use crate::kit::{ANN, Cloud, GPU, RunningCloud, hosts};

const SLOW: &str =
    "times_ms = { image = 40, define = 40, start = 40, stop = 40, reboot = 40, destroy = 40 }";

async fn delete_and_assert_empty(running: &RunningCloud, cloud: &Cloud, id: &str, when: &str) {
    running.delete(id).await;
    running.wait_until_gone(id).await;
    cloud.assert_empty(running, when).await;
    let path = format!("DELETE /servers/{id}");
    running.call(ANN, "2.90", &path, None).await.refused(404, "could not be found");
}

#[tokio::test]
async fn delete_in_idle_states() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        delete_and_assert_empty(&running, &cloud, &id, "ACTIVE").await;
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.act(&id, json!({"os-stop": null})).await;
        running.wait_for_status(&id, "SHUTOFF").await;
        delete_and_assert_empty(&running, &cloud, &id, "SHUTOFF").await;
        let id = running.boot(&cloud, "one", "fpga").await;
        running.wait_for_status(&id, "ERROR").await;
        delete_and_assert_empty(&running, &cloud, &id, "ERROR without a host").await;
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.restart_failing(&cloud, "a", &[("start", Some(1))]).await;
        running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        running.wait_for_status(&id, "ERROR").await;
        delete_and_assert_empty(&running, &cloud, &id, "ERROR on a host").await;
    }
}

#[tokio::test]
async fn delete_during_the_build() {
    for step in ["image", "define", "start"] {
        let slow_step = format!("times_ms = {{ {step} = 1000 }}");
        for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU, &slow_step])])).await {
            for wait in [0, 100] {
                let id = running.boot(&cloud, "one", "vgpu").await;
                tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
                delete_and_assert_empty(
                    &running,
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
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU, SLOW])])).await {
        for action in [
            json!({"os-stop": null}),
            json!({"reboot": {"type": "SOFT"}}),
            json!({"reboot": {"type": "HARD"}}),
        ] {
            let id = running.active_server(&cloud, "one", "vgpu").await;
            running.act(&id, action.clone()).await;
            delete_and_assert_empty(&running, &cloud, &id, &action.to_string()).await;
        }
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.act(&id, json!({"os-stop": null})).await;
        running.wait_for_status(&id, "SHUTOFF").await;
        running.act(&id, json!({"os-start": null})).await;
        delete_and_assert_empty(&running, &cloud, &id, "powering on").await;
    }
}

#[tokio::test]
async fn delete_during_the_cleanup_of_a_failed_boot() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU, SLOW])])).await {
        running.restart_failing(&cloud, "a", &[("start", None), ("destroy", Some(1))]).await;
        let id = running.boot(&cloud, "one", "vgpu").await;
        crate::kit::wait_until("the boot has failed", async || {
            let failed = "SELECT id FROM operation_events e JOIN operations o
                ON o.id = e.operation_id WHERE e.result = 'Error'";
            !cloud.column(failed).await.is_empty() || running.server(&id).await["status"] == "ERROR"
        })
        .await;
        delete_and_assert_empty(&running, &cloud, &id, "cleaning up").await;
    }
}

#[tokio::test]
async fn a_second_delete_joins_the_first() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.nodes.kill("a").await;
        running.delete(&id).await;
        let server = running.server(&id).await;
        assert_eq!(server["OS-EXT-STS:task_state"], "deleting");
        assert_eq!(server["status"], "ACTIVE");
        running.delete(&id).await;
        running.try_act(&id, json!({"forceDelete": null})).await.expect(202);
        let stop = running.try_act(&id, json!({"os-stop": null})).await;
        stop.refused(409, "while it is in task_state deleting");
        running.start_node(&cloud, "a").await;
        running.wait_until_gone(&id).await;
        let deletes = "SELECT id FROM operations WHERE kind = 'delete'";
        assert_eq!(cloud.column(deletes).await.len(), 1);
        cloud.assert_empty(&running, "deleted twice").await;
    }
}

#[tokio::test]
async fn a_delete_waits_for_an_agent_that_is_down() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.nodes.kill("a").await;
        running.delete(&id).await;
        assert_ne!(running.server(&id).await, Value::Null);
        assert_eq!(cloud.used("VGPU").await, 1, "the guest may still use its device");
        cloud.audit("waiting").await;
        running.start_node(&cloud, "a").await;
        running.wait_until_gone(&id).await;
        cloud.assert_empty(&running, "after the wait").await;
    }
}
