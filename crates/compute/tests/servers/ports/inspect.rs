//! Checks of a port by the network API, of its ARQ in the ledger, and of the guest's domain XML.

use serde_json::{Value, json};

use crate::kit::{ANN, Cloud, RunningCloud};
use crate::servers::networks::domain_xml;

/// A port with a device profile.
pub async fn accelerator_port(running: &RunningCloud, net: &str, profile: &str) -> String {
    let more = json!({"binding:vnic_type": "accelerator-direct", "device_profile": profile});
    running.port(ANN, net, more).await
}

/// Checks that the port is bound to the server's host with one device; returns its ARQ.
pub async fn assert_bound(cloud: &Cloud, running: &RunningCloud, id: &str, port: &str) -> String {
    let server = running.server(id).await;
    let host = server["OS-EXT-SRV-ATTR:host"].as_str().expect("the server has a host").to_owned();
    let now = running.show_port(port).await;
    assert_eq!((&now["binding:host_id"], &now["device_id"]), (&json!(host), &json!(id)), "{now}");
    let profile = &now["binding:profile"];
    let arq = profile["arq_uuid"].as_str().expect("the answer has an ARQ").to_owned();
    let slot = profile["pci_slot"].as_str().expect("the value has an address").to_owned();
    let bound = cloud
        .column(
            "SELECT a.uuid || ' ' || COALESCE(a.port_id, '') || ' ' || a.host || ' ' || h.address FROM arqs a
             JOIN attach_handles h ON h.arq_id = a.uuid JOIN servers s ON s.id = a.consumer_id",
        )
        .await;
    assert!(bound.contains(&format!("{arq} {port} {host} {slot}")), "{bound:?}: {profile}");
    let domain = domain_xml(cloud, &host, id);
    assert!(domain.contains(&format!("address='{slot}'")), "{domain}");
    assert!(
        domain.contains(now["mac_address"].as_str().expect("the port has a MAC address")),
        "{domain}"
    );
    cloud.assert_consistent(running, "with a port").await;
    arq
}

/// Checks that the port exists, is unbound, and has no device.
pub async fn assert_free(cloud: &Cloud, running: &RunningCloud, port: &str) {
    let now = running.show_port(port).await;
    assert_eq!((&now["binding:host_id"], &now["device_id"]), (&json!(""), &json!("")), "{now}");
    assert_eq!(now["binding:profile"], json!({}), "{now}");
    assert_eq!(cloud.column("SELECT uuid FROM arqs").await, Vec::<String>::new());
    cloud.audit("free").await;
}

/// The request for a server with these ports and a flavor.
pub fn with(cloud: &Cloud, running: &RunningCloud, flavor: &str, ports: &[&str]) -> Value {
    let mut boot_request = running.boot_request(cloud, "accel_server1", flavor);
    boot_request["server"]["networks"] = ports.iter().map(|port| json!({"port": port})).collect();
    boot_request
}

/// A server with these ports, `ACTIVE`.
pub async fn active_server_with_ports(
    cloud: &Cloud,
    running: &RunningCloud,
    flavor: &str,
    ports: &[&str],
) -> String {
    let boot_request = with(cloud, running, flavor, ports);
    let made = running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await.expect(202);
    let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
    running.wait_for_status(&id, "ACTIVE").await;
    id
}
