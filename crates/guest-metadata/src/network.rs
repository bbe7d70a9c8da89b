//! `network_data.json`: links, networks and DNS servers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kilonova_node_api::{Address, Interface, Vif};
use serde_json::{Value, json};

/// The network data of a guest's interfaces; an empty object if there are none, as in Nova.
pub(crate) fn data(interfaces: &[Interface]) -> Value {
    if interfaces.is_empty() {
        return json!({});
    }
    let (mut links, mut networks) = (Vec::new(), Vec::new());
    let mut servers: Vec<IpAddr> = Vec::new();
    for interface in interfaces {
        let id = interface.tap();
        links.push(json!({
            "id": id,
            "vif_id": interface.port,
            "type": kind(interface),
            "mtu": mtu(interface),
            "ethernet_mac_address": interface.mac,
        }));
        for address in &interface.addresses {
            let number = networks.len();
            networks.push(network(number, &id, interface, address));
            for server in &address.dns {
                if !servers.contains(server) {
                    servers.push(*server);
                }
            }
        }
    }
    json!({"links": links, "networks": networks, "services": services(&servers)})
}

/// The type of a link: the backend that upstream names, or a physical one.
fn kind(interface: &Interface) -> &'static str {
    match (&interface.device, &interface.vif) {
        (Some(_), _) | (None, Some(Vif::Macvtap { .. })) => "phy",
        (None, Some(Vif::Ovs { .. } | Vif::OvsHybrid { .. })) => "ovs",
        (None, None) => "bridge",
    }
}

/// The device metadata of the interfaces with tags; newer versions of the format include the VLAN
/// of a function and whether the host trusts it. Where they include the VLAN, they also list
/// functions that have one but no tag (`_build_interface_metadata` in `nova/virt/libvirt/driver.py`).
pub(crate) fn tagged(interfaces: &[Interface], vlans: bool, trust: bool) -> Vec<Value> {
    let tagged = interfaces.iter().filter_map(|interface| {
        let vlan = interface.vlan.filter(|_| vlans && interface.device.is_some());
        if interface.tag.is_none() && vlan.is_none() {
            return None;
        }
        let mut entry = json!({
            "type": "nic", "bus": "none", "address": "none", "mac": interface.mac,
        });
        if let Some(tag) = &interface.tag {
            entry["tags"] = json!([tag]);
        }
        if let Some(vlan) = vlan {
            entry["vlan"] = vlan.into();
        }
        if trust {
            // No function is trusted: a guest cannot change its address or become promiscuous.
            entry["vf_trusted"] = false.into();
        }
        Some(entry)
    });
    tagged.collect()
}

/// The MTU; `None` if a DHCP server announces it, as in Nova. Our DHCP servers do not reach a
/// passed-through function, which therefore always has one.
fn mtu(interface: &Interface) -> Option<i64> {
    let told = interface.addresses.iter().any(|address| address.dhcp_server.is_some());
    (interface.device.is_some() || !told).then_some(interface.mtu)
}

fn network(number: usize, link: &str, interface: &Interface, address: &Address) -> Value {
    let v4 = address.address.is_ipv4();
    // DHCPv6 without a mode: a server of Neutron assigns the address. Kilonova's own server, which has
    // this MAC address, serves DHCPv6 only to subnets with a mode, so the guest configures the address.
    let six_dhcp = address.dhcp && interface.dhcp_mac.is_none();
    let mut entry = json!({
        "id": format!("network{number}"),
        "link": link,
        "network_id": interface.network,
        "type": match (v4, address.dhcp, address.six) {
            (true, true, _) => "ipv4_dhcp".to_owned(),
            (true, false, _) => "ipv4".to_owned(),
            (false, _, None) if six_dhcp => "ipv6_dhcp".to_owned(),
            (false, _, None) => "ipv6".to_owned(),
            (false, _, Some(mode)) => format!("ipv6_{}", mode.as_str()),
        },
    });
    if (v4 && address.dhcp) || (!v4 && address.six.is_none() && six_dhcp) {
        return entry;
    }
    entry["ip_address"] = json!(address.address);
    entry["netmask"] = json!(mask(v4, address.prefix));
    let any: IpAddr = if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let gateway =
        address.gateway.map(|gateway| json!({"network": any, "netmask": any, "gateway": gateway}));
    let routes = address.routes.iter().filter_map(|(to, by)| {
        let (network, prefix) = to.split_once('/')?;
        let network: IpAddr = network.parse().ok()?;
        let mask = mask(network.is_ipv4(), prefix.parse().ok()?);
        Some(json!({"network": network, "netmask": mask, "gateway": by}))
    });
    entry["routes"] = gateway.into_iter().chain(routes).collect();
    entry["services"] = services(&address.dns);
    entry
}

fn services(servers: &[IpAddr]) -> Value {
    servers.iter().map(|server| json!({"type": "dns", "address": server})).collect()
}

fn mask(v4: bool, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    if v4 {
        Ipv4Addr::from(u32::MAX.checked_shl(32_u32.saturating_sub(prefix)).unwrap_or(0)).into()
    } else {
        Ipv6Addr::from(u128::MAX.checked_shl(128_u32.saturating_sub(prefix)).unwrap_or(0)).into()
    }
}
