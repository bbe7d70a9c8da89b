//! Upstream's `PortAcceleratorServerCreateRejectTest`.

use serde_json::json;

use super::FIRST;
use super::inspect::{accelerator_port, assert_free, with};
use crate::kit::{ANN, Cloud, hosts};

#[tokio::test]
async fn create_server_with_multi_devices_port_fails() {
    for (cloud, running) in Cloud::all_running(hosts(&[("accel_host0", &[FIRST])])).await {
        cloud.profile("fakedev-dp-multi", &json!([{"resources:FPGA": "2"}])).await;
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let port = accelerator_port(&running, &net, "fakedev-dp-multi").await;
        let boot_request = with(&cloud, &running, "plain", &[&port]);
        running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await.refused(
            400,
            "Device profile name fakedev-dp-multi: request multiple devices for single port.",
        );
        assert_free(&cloud, &running, &port).await;
        cloud.teardown(&running, "refused").await;
    }
}

/// Upstream refuses the port while an old compute service exists. Agents here get documents, so only
/// a port without a profile, or with an unknown one, is refused.
#[tokio::test]
async fn create_server_with_port_old_compute_fails() {
    for (cloud, running) in Cloud::all_running(hosts(&[("accel_host0", &[FIRST])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let bare = json!({"binding:vnic_type": "accelerator-direct"});
        let bare = running.port(ANN, &net, bare).await;
        let lost = accelerator_port(&running, &net, "no-such").await;
        for (port, words) in [
            (&bare, format!("No device profile for port {bare}.")),
            (
                &lost,
                "Device profile name no-such: Expected 1 device profile but got nothing.".into(),
            ),
        ] {
            let boot_request = with(&cloud, &running, "plain", &[port]);
            running
                .call(ANN, "2.90", "POST /servers", Some(boot_request))
                .await
                .refused(400, &words);
            assert_free(&cloud, &running, port).await;
        }
        cloud.teardown(&running, "refused").await;
    }
}
