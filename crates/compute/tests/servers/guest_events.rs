//! Reports of guests that stop, and deletes that fail on the host.

use kilonova_node_api::Outcome;
use serde_json::json;

use crate::kit::{Cloud, GPU, hosts};

#[tokio::test]
async fn a_guest_that_shuts_down_becomes_shutoff() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.report(&cloud, "a", &id, Outcome::Stopped).await;
        let server = running.wait_for_status(&id, "SHUTOFF").await;
        assert_eq!(server["OS-EXT-STS:power_state"], 4);
        cloud.audit("shut down").await;
        running.act(&id, json!({"os-start": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&running, "started").await;
        cloud.teardown(&running, "started").await;
    }
}

/// A repeated failure is recorded once, not at every attempt.
#[tokio::test]
async fn a_delete_that_keeps_failing_is_recorded_once() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.nodes.kill("a").await;
        running.delete(&id).await;
        for message in ["busy", "busy", "busy", "locked", "locked"] {
            let (step, message) = ("destroy".to_owned(), message.to_owned());
            running.report(&cloud, "a", &id, Outcome::Failed { step, message }).await;
        }
        let details = "SELECT e.details FROM operation_events e
            JOIN operations o ON o.id = e.operation_id WHERE o.kind = 'delete' ORDER BY e.seq";
        assert_eq!(cloud.column(details).await, ["a: destroy: busy", "a: destroy: locked"]);
        running.start_node(&cloud, "a").await;
        running.wait_until_gone(&id).await;
        cloud.assert_empty(&running, "deleted").await;
    }
}
