//! Upstream's `PortAndFlavorAccelsServerCreateTest`, and a port that is a real function.

use serde_json::json;

use super::FIRST;
use super::eyes::{accelerator, active, has, is_free};
use crate::kit::{ANN, Cloud, cards, hosts};
use crate::servers::networks::xml;

#[tokio::test]
async fn create_server() {
    for (cloud, up) in Cloud::all_up(hosts(&[("accel_host0", &[FIRST])])).await {
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let port = accelerator(&up, &net, "fpga").await;
        let id = active(&cloud, &up, "fpga", &[&port]).await;
        let of_port = has(&cloud, &up, &id, &port).await;
        let all = cloud.column("SELECT uuid FROM arqs").await;
        assert_eq!(all.len(), 2);
        assert!(all.contains(&of_port));
        let own = cloud.column("SELECT uuid FROM arqs WHERE port_id IS NULL").await;
        assert_eq!(own.len(), 1, "the flavor's is no port");
        assert_eq!(cloud.used("FPGA").await, 2);
        up.delete(&id).await;
        up.goes(&id).await;
        is_free(&cloud, &up, &port).await;
        cloud.sweep(&up, "both").await;
    }
}

#[tokio::test]
async fn a_function_of_a_card_is_the_interface() {
    for (cloud, up) in Cloud::all_up(hosts(&[("accel_host0", &[&cards(2)])])).await {
        cloud.profile("vf", &json!([{"resources:CUSTOM_X710_VF": "1"}])).await;
        let net = up.net(ANN, "private", "10.0.0.0/24").await;
        let port = accelerator(&up, &net, "vf").await;
        let id = active(&cloud, &up, "plain", &[&port]).await;
        has(&cloud, &up, &id, &port).await;
        let domain = xml(&cloud, "accel_host0", &id);
        assert!(domain.contains("<interface type='hostdev' managed='yes'>"), "{domain}");
        assert!(!domain.contains("<hostdev "), "it is not there twice: {domain}");
        assert_eq!(up.port_now(&port).await["binding:vif_type"], "hostdev_physical");
        cloud.sweep(&up, "a function").await;
        is_free(&cloud, &up, &port).await;
    }
}
