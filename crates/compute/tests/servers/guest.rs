//! What hosts and guests do by themselves.

use kilonova_node_api::Outcome;
use serde_json::json;

use crate::kit::{Cloud, GPU, hosts};

#[tokio::test]
async fn a_guest_that_shuts_down_is_shut_off() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        up.report(&cloud, "a", &id, Outcome::Stopped).await;
        let server = up.becomes(&id, "SHUTOFF").await;
        assert_eq!(server["OS-EXT-STS:power_state"], 4);
        cloud.audit("shut down").await;
        up.act(&id, json!({"os-start": null})).await;
        up.becomes(&id, "ACTIVE").await;
        cloud.sound(&up, "started").await;
        cloud.sweep(&up, "started").await;
    }
}

/// What keeps failing is told once, not at each try.
#[tokio::test]
async fn a_delete_that_keeps_failing_is_noted_once() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let id = up.active(&cloud, "one", "vgpu").await;
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
        up.goes(&id).await;
        cloud.empty(&up, "at last").await;
    }
}
