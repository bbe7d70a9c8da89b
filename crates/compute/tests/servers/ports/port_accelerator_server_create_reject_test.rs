//! Upstream's `PortAcceleratorServerCreateRejectTest`.

use serde_json::json;

use super::FIRST;
use super::eyes::{accelerator, is_free, with};
use crate::kit::{ANN, Cloud, hosts};

#[tokio::test]
async fn create_server_with_multi_devices_port_fails() {
    for (cloud, up) in Cloud::all_up(hosts(&[("accel_host0", &[FIRST])])).await {
        cloud.profile("fakedev-dp-multi", &json!([{"resources:FPGA": "2"}])).await;
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let port = accelerator(&up, &net, "fakedev-dp-multi").await;
        let wish = with(&cloud, &up, "plain", &[&port]);
        up.call(ANN, "2.90", "POST /servers", Some(wish)).await.refused(
            400,
            "Device profile name fakedev-dp-multi: request multiple devices for single port.",
        );
        is_free(&cloud, &up, &port).await;
        cloud.sweep(&up, "refused").await;
    }
}

/// Upstream refuses the port while an old compute service is about. Agents here get documents: what
/// there is to refuse is a port without a profile, or with one that is not there.
#[tokio::test]
async fn create_server_with_port_old_compute_fails() {
    for (cloud, up) in Cloud::all_up(hosts(&[("accel_host0", &[FIRST])])).await {
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let bare = json!({"binding:vnic_type": "accelerator-direct"});
        let bare = up.port(ANN, &net, bare).await;
        let lost = accelerator(&up, &net, "no-such").await;
        for (port, words) in [
            (&bare, format!("No device profile for port {bare}.")),
            (
                &lost,
                "Device profile name no-such: Expected 1 device profile but got nothing.".into(),
            ),
        ] {
            let wish = with(&cloud, &up, "plain", &[port]);
            up.call(ANN, "2.90", "POST /servers", Some(wish)).await.refused(400, &words);
            is_free(&cloud, &up, port).await;
        }
        cloud.sweep(&up, "refused").await;
    }
}
