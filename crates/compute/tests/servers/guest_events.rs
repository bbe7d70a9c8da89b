//! Reports of guests that stop, and deletes that fail on the host.

use kilonova_node_api::Outcome;
use serde_json::json;

use crate::kit::{Cloud, GPU, hosts};

#[tokio::test]
async fn a_guest_that_shuts_down_becomes_shutoff() {
    for (cloud, up) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = up.active_server(&cloud, "one", "vgpu").await;
        up.report(&cloud, "a", &id, Outcome::Stopped).await;
        let server = up.wait_for_status(&id, "SHUTOFF").await;
        assert_eq!(server["OS-EXT-STS:power_state"], 4);
        cloud.audit("shut down").await;
        up.act(&id, json!({"os-start": null})).await;
        up.wait_for_status(&id, "ACTIVE").await;
        cloud.assert_consistent(&up, "started").await;
        cloud.teardown(&up, "started").await;
    }
}

/// A repeated failure is recorded once, not at every attempt.
#[tokio::test]
async fn a_delete_that_keeps_failing_is_recorded_once() {
    for (cloud, mut up) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = up.active_server(&cloud, "one", "vgpu").await;
        up.nodes.kill("a").await;
        up.delete(&id).await;
        for message in ["busy", "busy", "busy", "locked", "locked"] {
            let (step, message) = ("destroy".to_owned(), message.to_owned());
            up.report(&cloud, "a", &id, Outcome::Failed { step, message }).await;
        }
        let details = "SELECT e.details FROM operation_events e
            JOIN operations o ON o.id = e.operation_id WHERE o.kind = 'delete' ORDER BY e.seq";
        assert_eq!(cloud.column(details).await, ["a: destroy: busy", "a: destroy: locked"]);
        up.start_node(&cloud, "a").await;
        up.wait_until_gone(&id).await;
        cloud.assert_empty(&up, "deleted").await;
    }
}
