//! Upstream's `PortAndFlavorAccelsServerCreateTest`, and a port on a real virtual function.

use serde_json::json;

use super::FIRST;
use super::inspect::{accelerator_port, active_server_with_ports, assert_bound, assert_free};
use crate::kit::{ANN, Cloud, hosts, network_cards};
use crate::servers::networks::domain_xml;

#[tokio::test]
async fn create_server() {
    for (cloud, running) in Cloud::all_running(hosts(&[("accel_host0", &[FIRST])])).await {
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let port = accelerator_port(&running, &net, "fpga").await;
        let id = active_server_with_ports(&cloud, &running, "fpga", &[&port]).await;
        let of_port = assert_bound(&cloud, &running, &id, &port).await;
        let all = cloud.column("SELECT uuid FROM arqs").await;
        assert_eq!(all.len(), 2);
        assert!(all.contains(&of_port));
        let own = cloud.column("SELECT uuid FROM arqs WHERE port_id IS NULL").await;
        assert_eq!(own.len(), 1, "the flavor's ARQ has no port");
        assert_eq!(cloud.used("FPGA").await, 2);
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        assert_free(&cloud, &running, &port).await;
        cloud.teardown(&running, "both").await;
    }
}

#[tokio::test]
async fn a_function_of_a_card_is_the_interface() {
    for (cloud, running) in
        Cloud::all_running(hosts(&[("accel_host0", &[&network_cards(2)])])).await
    {
        cloud.profile("vf", &json!([{"resources:CUSTOM_X710_VF": "1"}])).await;
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let port = accelerator_port(&running, &net, "vf").await;
        let id = active_server_with_ports(&cloud, &running, "plain", &[&port]).await;
        assert_bound(&cloud, &running, &id, &port).await;
        let domain = domain_xml(&cloud, "accel_host0", &id);
        assert!(domain.contains("<interface type='hostdev' managed='yes'>"), "{domain}");
        assert!(!domain.contains("<hostdev "), "it is not there twice: {domain}");
        assert_eq!(running.show_port(&port).await["binding:vif_type"], "hostdev_physical");
        cloud.teardown(&running, "a function").await;
        assert_free(&cloud, &running, &port).await;
    }
}
