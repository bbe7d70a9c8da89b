//! Upstream's `TwoPortsAcceleratorServerOpsTest`.

use serde_json::json;

use super::eyes::{accelerator, active, has, is_free, with};
use super::{FIRST, SECOND};
use crate::kit::{ANN, Cloud, hosts};

#[tokio::test]
async fn create_server_with_two_ports() {
    for (cloud, up) in Cloud::all_up(hosts(&[("accel_host0", &[FIRST])])).await {
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let one = accelerator(&up, &net, "fpga").await;
        let two = accelerator(&up, &net, "fpga").await;
        let id = active(&cloud, &up, "plain", &[&one, &two]).await;
        let (first, second) =
            (has(&cloud, &up, &id, &one).await, has(&cloud, &up, &id, &two).await);
        assert_ne!(first, second);
        assert_eq!(cloud.used("FPGA").await, 2);
        up.delete(&id).await;
        up.goes(&id).await;
        is_free(&cloud, &up, &one).await;
        is_free(&cloud, &up, &two).await;
        cloud.sweep(&up, "two ports").await;
    }
}

/// Upstream's request for the second port fails to be bound. Here there is one claim: where it cannot
/// be had, or no host can make the guest, both ports are free again.
#[tokio::test]
async fn create_server_with_two_ports_one_fails() {
    for (cloud, mut up) in
        Cloud::all_up(hosts(&[("accel_host0", &[FIRST]), ("accel_host1", &[SECOND])])).await
    {
        cloud.profile("none", &json!([{"resources:PGPU": "1"}])).await;
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let one = accelerator(&up, &net, "fpga").await;
        let two = accelerator(&up, &net, "fpga").await;
        let lost = accelerator(&up, &net, "none").await;
        let wish = with(&cloud, &up, "plain", &[&one, &lost]);
        let made = up.call(ANN, "2.90", "POST /servers", Some(wish)).await.expect(202);
        up.becomes(made["server"]["id"].as_str().expect("an id"), "ERROR").await;
        is_free(&cloud, &up, &one).await;
        is_free(&cloud, &up, &lost).await;
        let wish = with(&cloud, &up, "plain", &[&one, &two]);
        for host in ["accel_host0", "accel_host1"] {
            up.restart_failing(&cloud, host, &[("define", None)]).await;
        }
        let made = up.call(ANN, "2.90", "POST /servers", Some(wish)).await.expect(202);
        up.becomes(made["server"]["id"].as_str().expect("an id"), "ERROR").await;
        is_free(&cloud, &up, &one).await;
        is_free(&cloud, &up, &two).await;
        cloud.sweep(&up, "failed").await;
    }
}
