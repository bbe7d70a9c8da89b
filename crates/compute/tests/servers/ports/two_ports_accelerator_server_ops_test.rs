//! Upstream's `TwoPortsAcceleratorServerOpsTest`.

use serde_json::json;

use super::inspect::{accelerator_port, active_server_with_ports, assert_bound, assert_free, with};
use super::{FIRST, SECOND};
use crate::kit::{ANN, Cloud, hosts};

#[tokio::test]
async fn create_server_with_two_ports() {
    for (cloud, running) in Cloud::all_running(hosts(&[("accel_host0", &[FIRST])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let one = accelerator_port(&running, &net, "fpga").await;
        let two = accelerator_port(&running, &net, "fpga").await;
        let id = active_server_with_ports(&cloud, &running, "plain", &[&one, &two]).await;
        let (first, second) = (
            assert_bound(&cloud, &running, &id, &one).await,
            assert_bound(&cloud, &running, &id, &two).await,
        );
        assert_ne!(first, second);
        assert_eq!(cloud.used("FPGA").await, 2);
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        assert_free(&cloud, &running, &one).await;
        assert_free(&cloud, &running, &two).await;
        cloud.teardown(&running, "two ports").await;
    }
}

/// Upstream fails to bind the ARQ of the second port. Here both are one claim: if it fails, or no host
/// can start the guest, both ports are free again.
#[tokio::test]
async fn create_server_with_two_ports_one_fails() {
    for (cloud, mut running) in
        Cloud::all_running(hosts(&[("accel_host0", &[FIRST]), ("accel_host1", &[SECOND])])).await
    {
        cloud.profile("none", &json!([{"resources:PGPU": "1"}])).await;
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let one = accelerator_port(&running, &net, "fpga").await;
        let two = accelerator_port(&running, &net, "fpga").await;
        let lost = accelerator_port(&running, &net, "none").await;
        let boot_request = with(&cloud, &running, "plain", &[&one, &lost]);
        let made = running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await.expect(202);
        running
            .wait_for_status(made["server"]["id"].as_str().expect("the answer has an id"), "ERROR")
            .await;
        assert_free(&cloud, &running, &one).await;
        assert_free(&cloud, &running, &lost).await;
        let boot_request = with(&cloud, &running, "plain", &[&one, &two]);
        for host in ["accel_host0", "accel_host1"] {
            running.restart_failing(&cloud, host, &[("define", None)]).await;
        }
        let made = running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await.expect(202);
        running
            .wait_for_status(made["server"]["id"].as_str().expect("the answer has an id"), "ERROR")
            .await;
        assert_free(&cloud, &running, &one).await;
        assert_free(&cloud, &running, &two).await;
        cloud.teardown(&running, "failed").await;
    }
}
