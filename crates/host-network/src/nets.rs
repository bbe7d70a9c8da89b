//! The guests' needs, grouped by network, and the names of our objects. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kilonova_ids::NetworkId;
use kilonova_node::DesiredNetworks;
use kilonova_node_api::Interface;

use crate::config::{HostNetworkConfig, Uplink};

/// All networks of the host's guests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Nets {
    pub all: BTreeMap<NetworkId, Net>,
    /// The guests' interfaces.
    pub interfaces: Vec<Interface>,
}

/// A network.
#[derive(Debug, Clone)]
pub(crate) struct Net {
    pub id: NetworkId,
    pub physical: String,
    pub vlan: Option<i64>,
    pub mtu: i64,
    /// The uplink of its physical network; `None` if it is not mapped.
    pub uplink: Option<Uplink>,
    /// The guests' taps, whether they exist or not.
    pub taps: BTreeSet<String>,
    pub dhcp: Option<Dhcp>,
}

/// DHCP on a network.
#[derive(Debug, Clone)]
pub(crate) struct Dhcp {
    pub mac: String,
    /// Its own addresses with prefix lengths.
    pub own: BTreeSet<(IpAddr, u8)>,
    pub subnets: BTreeMap<IpAddr, Subnet>,
    /// The guests by MAC address.
    pub hosts: BTreeMap<String, DhcpClient>,
}

/// A subnet with DHCP, keyed by its network address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subnet {
    pub prefix: u8,
    pub gateway: Option<IpAddr>,
    pub dns: Vec<IpAddr>,
    pub routes: Vec<(String, IpAddr)>,
}

/// A DHCP client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DhcpClient {
    pub address: IpAddr,
    pub subnet: IpAddr,
}

impl Nets {
    pub fn of(wanted: &DesiredNetworks, config: &HostNetworkConfig) -> Self {
        let mut nets = Self::default();
        for interface in wanted.interfaces() {
            let net = nets.all.entry(interface.network).or_insert_with(|| Net {
                id: interface.network,
                physical: interface.physical_network.clone(),
                vlan: interface.vlan,
                mtu: interface.mtu,
                uplink: config.uplinks.get(&interface.physical_network).cloned(),
                taps: BTreeSet::new(),
                dhcp: None,
            });
            net.taps.insert(interface.tap());
            net.ask(interface);
            nets.interfaces.push(interface.clone());
        }
        nets
    }
}

/// The network address of an address.
pub(crate) fn base(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(four) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(four) & mask).into())
        }
        IpAddr::V6(six) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            IpAddr::V6((u128::from(six) & mask).into())
        }
    }
}

impl Net {
    /// Adds a guest's interface.
    fn ask(&mut self, interface: &Interface) {
        let Some(mac) = &interface.dhcp_mac else { return };
        for address in interface.addresses.iter().filter(|address| address.dhcp) {
            let Some(own) = address.dhcp_server else { continue };
            let dhcp = self.dhcp.get_or_insert_with(|| Dhcp {
                mac: mac.clone(),
                own: BTreeSet::new(),
                subnets: BTreeMap::new(),
                hosts: BTreeMap::new(),
            });
            dhcp.own.insert((own, address.prefix));
            if address.address.is_ipv6() {
                continue;
            }
            let subnet = base(address.address, address.prefix);
            dhcp.subnets.insert(
                subnet,
                Subnet {
                    prefix: address.prefix,
                    gateway: address.gateway,
                    dns: address.dns.clone(),
                    routes: address.routes.clone(),
                },
            );
            let host = DhcpClient { address: address.address, subnet };
            dhcp.hosts.entry(interface.mac.clone()).or_insert(host);
        }
    }

    fn named(&self, prefix: &str) -> String {
        let id = self.id.to_string();
        format!("{prefix}{}", id.get(..11).unwrap_or(&id))
    }

    pub fn bridge(&self) -> String {
        self.named("brq")
    }

    /// The VLAN interface.
    pub fn vlan_link(&self) -> String {
        self.named("kv")
    }

    /// The veth pair to a bridge of the operator: our end and the other end.
    pub fn pair(&self) -> (String, String) {
        (self.named("ku"), self.named("kp"))
    }

    /// The bridge's end of the veth pair to the dnsmasq.
    pub fn dhcp_link(&self) -> String {
        self.named("kd")
    }

    /// The lower link of the VLAN or the bridge.
    pub fn lower(&self) -> Option<String> {
        self.uplink.as_ref().map(|uplink| match uplink {
            Uplink::Interface(name) => name.clone(),
            Uplink::Bridge(_) => self.pair().0,
        })
    }

    /// The port of the bridge that leads outside.
    pub fn out(&self) -> Option<String> {
        match self.vlan {
            Some(_) => self.uplink.as_ref().map(|_| self.vlan_link()),
            None => self.lower(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_have_a_first_address() {
        for (address, prefix, first) in [
            ("10.0.0.77", 24, "10.0.0.0"),
            ("10.0.0.77", 32, "10.0.0.77"),
            ("10.0.0.77", 0, "0.0.0.0"),
            ("fd00::1:2", 64, "fd00::"),
            ("fd00::2", 128, "fd00::2"),
            ("fd00::2", 0, "::"),
        ] {
            let address: IpAddr = address.parse().expect("the address is valid");
            assert_eq!(base(address, prefix).to_string(), first);
        }
    }
}
