//! Translates a bound port into the interface that its host connects. Pure.

use std::net::IpAddr;

use kilonova_neutron::{FixedIp, Network, Port, Subnet};
use kilonova_node_api::{Address, Interface, MacvtapMode, SixMode, Vif};
use serde_json::Value;

/// The length to which upstream truncates the names of bridges.
const MAX_LINK: usize = 14;
/// The MTU for a network that specifies none.
const ETHERNET: i64 = 1500;

/// A bound port with its network and subnets.
#[derive(Debug, Clone, Copy)]
pub struct BoundPort<'a> {
    /// The port.
    pub port: &'a Port,
    /// Its network.
    pub network: &'a Network,
    /// The subnets of its addresses.
    pub subnets: &'a [Subnet],
    /// The DHCP ports of its network.
    pub dhcp: &'a [Port],
    /// The tag shown to the guest.
    pub tag: Option<&'a str>,
}

/// The interface of a bound port; `ovs_bridge` is the Open vSwitch bridge if the binding names none.
///
/// # Errors
/// The reason why none of our hosts can connect it.
pub fn interface(bound: &BoundPort<'_>, ovs_bridge: &str) -> Result<Interface, String> {
    let (port, network) = (bound.port, bound.network);
    let backend = Backend::of(port, ovs_bridge)?;
    let addresses = port.fixed_ips.iter().filter_map(|fixed| address(bound, fixed));
    Ok(Interface {
        port: port.id,
        mac: port.mac_address.clone(),
        network: network.id,
        network_type: network.network_type.clone().unwrap_or_default(),
        physical_network: network.physical_network.clone().unwrap_or_default(),
        vlan: backend.vlan,
        mtu: network.mtu.filter(|mtu| *mtu > 0).unwrap_or(ETHERNET),
        addresses: addresses.collect(),
        device: backend.device,
        tag: bound.tag.map(str::to_owned),
        dhcp_mac: None,
        vif: backend.vif,
    })
}

/// The part of an interface that the binding determines.
#[derive(Default)]
struct Backend {
    device: Option<String>,
    vlan: Option<i64>,
    vif: Option<Vif>,
}

impl Backend {
    fn of(port: &Port, ovs_bridge: &str) -> Result<Self, String> {
        let detail = |key: &str| port.vif_details.get(key);
        let text = |key: &str| detail(key).and_then(Value::as_str);
        match (port.vif_type.as_str(), port.vnic_type.as_str()) {
            ("ovs", "normal") => {
                let bridge = text("bridge_name").unwrap_or(ovs_bridge);
                let bridge = bridge.chars().take(MAX_LINK).collect();
                let is_hybrid = detail("ovs_hybrid_plug") == Some(&Value::Bool(true));
                let vif = if is_hybrid { Vif::OvsHybrid { bridge } } else { Vif::Ovs { bridge } };
                Ok(Self { vif: Some(vif), ..Self::default() })
            }
            ("hw_veb", "direct" | "accelerator-direct") => {
                let vlan = detail("vlan").and_then(|vlan| match vlan {
                    Value::String(text) => text.parse().ok(),
                    other => other.as_i64(),
                });
                Ok(Self { vlan: vlan.filter(|vlan| *vlan != 0), ..Self::function(port)? })
            }
            ("hostdev_physical", _) => Self::function(port),
            ("macvtap", _) => Self::macvtap(port),
            ("binding_failed", _) => Err(format!(
                "Binding failed for port {}, please check neutron logs for more information.",
                port.id
            )),
            ("ovs" | "hw_veb", other) => {
                Err(format!("Unexpected vif_type={} with vnic_type={other}", port.vif_type))
            }
            (other, _) => Err(format!("Unexpected vif_type={other}")),
        }
    }

    /// The backend of a port that is a PCI function, which the claim has chosen.
    fn function(port: &Port) -> Result<Self, String> {
        match port.profile.get("pci_slot").and_then(Value::as_str) {
            Some(slot) => Ok(Self { device: Some(slot.to_owned()), ..Self::default() }),
            None => Err(format!("Port {} has no pci_slot in its binding:profile", port.id)),
        }
    }

    fn macvtap(port: &Port) -> Result<Self, String> {
        let text = |key: &str| port.vif_details.get(key).and_then(Value::as_str);
        let keys = ["macvtap_source", "macvtap_mode", "physical_interface"];
        let missing: Vec<&str> = keys.into_iter().filter(|key| text(key).is_none()).collect();
        if !missing.is_empty() {
            return Err(format!(
                "Parameters {missing:?} not present in vif_details for vif {}. Check your Neutron \
                 configuration to validate that the macvtap parameters are correct.",
                port.id
            ));
        }
        let name = text("macvtap_mode").unwrap_or_default();
        let modes = [
            MacvtapMode::Bridge,
            MacvtapMode::Vepa,
            MacvtapMode::Private,
            MacvtapMode::Passthrough,
        ];
        let mode = modes.into_iter().find(|mode| mode.as_str() == name);
        let mode = mode.ok_or_else(|| format!("Port {} has the macvtap_mode {name}", port.id))?;
        let source = text("macvtap_source").unwrap_or_default().to_owned();
        Ok(Self { vif: Some(Vif::Macvtap { source, mode }), ..Self::default() })
    }
}

/// An address of the port; `None` if its subnet is not known.
fn address(bound: &BoundPort<'_>, fixed: &FixedIp) -> Option<Address> {
    let subnet = bound.subnets.iter().find(|subnet| subnet.id == fixed.subnet_id)?;
    let servers = bound.dhcp.iter().flat_map(|port| &port.fixed_ips);
    let dhcp_server: Option<IpAddr> = servers
        .filter(|server| server.subnet_id == subnet.id)
        .map(|server| server.ip_address)
        .next();
    Some(Address {
        address: fixed.ip_address,
        prefix: subnet.cidr.split_once('/').and_then(|(_, bits)| bits.parse().ok())?,
        gateway: subnet.gateway_ip,
        dns: subnet.dns_nameservers.clone(),
        routes: subnet
            .host_routes
            .iter()
            .map(|route| (route.destination.clone(), route.nexthop))
            .collect(),
        dhcp: subnet.enable_dhcp,
        dhcp_server,
        six: subnet.ipv6_address_mode.as_deref().and_then(SixMode::parse),
        floating: Vec::new(),
    })
}
