//! What is looked at: the port by the network API, the requests in the ledger, the guest's domain.

use serde_json::{Value, json};

use crate::kit::{ANN, Cloud, Up};
use crate::servers::networks::xml;

/// A port that is a device of a profile.
pub async fn accelerator(up: &Up, net: &str, profile: &str) -> String {
    let more = json!({"binding:vnic_type": "accelerator-direct", "device_profile": profile});
    up.port(ANN, net, more).await
}

/// The server is where its port is, which is one device, its own; returns the request for it.
pub async fn has(cloud: &Cloud, up: &Up, id: &str, port: &str) -> String {
    let server = up.server(id).await;
    let host = server["OS-EXT-SRV-ATTR:host"].as_str().expect("a host").to_owned();
    let now = up.port_now(port).await;
    assert_eq!((&now["binding:host_id"], &now["device_id"]), (&json!(host), &json!(id)), "{now}");
    let profile = &now["binding:profile"];
    let arq = profile["arq_uuid"].as_str().expect("a request").to_owned();
    let slot = profile["pci_slot"].as_str().expect("an address").to_owned();
    let bound = cloud
        .column(
            "SELECT a.uuid || ' ' || COALESCE(a.port_id, '') || ' ' || a.host || ' ' || h.address FROM arqs a
             JOIN attach_handles h ON h.arq_id = a.uuid JOIN servers s ON s.id = a.consumer_id",
        )
        .await;
    assert!(bound.contains(&format!("{arq} {port} {host} {slot}")), "{bound:?}: {profile}");
    let domain = xml(cloud, &host, id);
    assert!(domain.contains(&format!("address='{slot}'")), "{domain}");
    assert!(domain.contains(now["mac_address"].as_str().expect("a mac")), "{domain}");
    cloud.sound(up, "with a port").await;
    arq
}

/// The port is there and nobody's, and nothing is held.
pub async fn is_free(cloud: &Cloud, up: &Up, port: &str) {
    let now = up.port_now(port).await;
    assert_eq!((&now["binding:host_id"], &now["device_id"]), (&json!(""), &json!("")), "{now}");
    assert_eq!(now["binding:profile"], json!({}), "{now}");
    assert_eq!(cloud.column("SELECT uuid FROM arqs").await, Vec::<String>::new());
    cloud.audit("free").await;
}

/// Asks for a server with these ports, and a flavor.
pub fn with(cloud: &Cloud, up: &Up, flavor: &str, ports: &[&str]) -> Value {
    let mut wish = up.wish(cloud, "accel_server1", flavor);
    wish["server"]["networks"] = ports.iter().map(|port| json!({"port": port})).collect();
    wish
}

/// A server with these ports, `ACTIVE`.
pub async fn active(cloud: &Cloud, up: &Up, flavor: &str, ports: &[&str]) -> String {
    let wish = with(cloud, up, flavor, ports);
    let made = up.call(ANN, "2.90", "POST /servers", Some(wish)).await.expect(202);
    let id = made["server"]["id"].as_str().expect("an id").to_owned();
    up.becomes(&id, "ACTIVE").await;
    id
}
