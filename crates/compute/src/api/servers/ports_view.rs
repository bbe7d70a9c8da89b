//! The views of a server's ports: its addresses, and the body of an interface.

use std::collections::BTreeMap;

use kilonova_compute_app::ports::ServerPort;
use serde_json::{Value, json};

/// Addresses by network. `detailed` adds the fields of a server's detailed view.
pub(super) fn addresses(ports: &[ServerPort], detailed: bool) -> BTreeMap<String, Vec<Value>> {
    let mut by_network: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for port in ports {
        let list = by_network.entry(port.network_name.clone()).or_default();
        for fixed in &port.fixed {
            let version = if fixed.address.is_ipv4() { 4 } else { 6 };
            let mut view = json!({"version": version, "addr": fixed.address});
            if detailed {
                view["OS-EXT-IPS:type"] = json!("fixed");
                view["OS-EXT-IPS-MAC:mac_addr"] = json!(port.mac);
            }
            list.push(view);
            for floating in &fixed.floating {
                let version = if floating.is_ipv4() { 4 } else { 6 };
                let mut view = json!({"version": version, "addr": floating});
                if detailed {
                    view["OS-EXT-IPS:type"] = json!("floating");
                    view["OS-EXT-IPS-MAC:mac_addr"] = json!(port.mac);
                }
                list.push(view);
            }
        }
    }
    by_network
}

/// A port in the form of `os-interface`.
pub(super) fn interface(port: &ServerPort, with_tag: bool) -> Value {
    let fixed: Vec<Value> = port
        .fixed
        .iter()
        .map(|fixed| json!({"subnet_id": fixed.subnet, "ip_address": fixed.address}))
        .collect();
    let state = if port.host.is_none() { "DOWN" } else { "ACTIVE" };
    let mut view = json!({
        "port_state": state, "fixed_ips": fixed, "port_id": port.id, "net_id": port.network,
        "mac_addr": port.mac,
    });
    if with_tag {
        view["tag"] = json!(port.tag);
    }
    view
}
