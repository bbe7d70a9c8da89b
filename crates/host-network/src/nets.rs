//! What guests want, put together by network, and the names of what is made for one. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kilonova_ids::NetworkId;
use kilonova_node::Wanted;
use kilonova_node_api::Interface;

use crate::config::{Config, Uplink};

/// All networks that guests of the host are on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Nets {
    pub all: BTreeMap<NetworkId, Net>,
    /// The guests' connections.
    pub interfaces: Vec<Interface>,
}

/// A network.
#[derive(Debug, Clone)]
pub(crate) struct Net {
    pub id: NetworkId,
    pub physical: String,
    pub vlan: Option<i64>,
    pub mtu: i64,
    /// Where its physical network begins; nothing for one that the operator does not map.
    pub uplink: Option<Uplink>,
    /// Taps of guests, there or not.
    pub taps: BTreeSet<String>,
    pub dhcp: Option<Dhcp>,
}

/// Who answers for addresses on a network.
#[derive(Debug, Clone)]
pub(crate) struct Dhcp {
    pub mac: String,
    /// Its addresses, with the lengths of their prefixes.
    pub own: BTreeSet<(IpAddr, u8)>,
    pub subnets: BTreeMap<IpAddr, Subnet>,
    /// Hardware address, address and name of each guest's connection.
    pub hosts: BTreeMap<String, Host>,
}

/// A subnet where guests ask, by its first address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subnet {
    pub prefix: u8,
    pub gateway: Option<IpAddr>,
    pub dns: Vec<IpAddr>,
    pub routes: Vec<(String, IpAddr)>,
}

/// Somebody who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub address: IpAddr,
    pub subnet: IpAddr,
}

impl Nets {
    pub fn of(wanted: &Wanted, config: &Config) -> Self {
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

/// The first address of the prefix that an address is in.
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
    /// Takes in what a guest asks for.
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
            let host = Host { address: address.address, subnet };
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

    /// The VLAN's interface.
    pub fn vlan_link(&self) -> String {
        self.named("kv")
    }

    /// Our end of the pair that leads to a bridge of the operator's, and the other end.
    pub fn pair(&self) -> (String, String) {
        (self.named("ku"), self.named("kp"))
    }

    /// The bridge's end of the pair that leads to who answers for addresses.
    pub fn dhcp_link(&self) -> String {
        self.named("kd")
    }

    /// What VLAN or bridge sit on.
    pub fn lower(&self) -> Option<String> {
        self.uplink.as_ref().map(|uplink| match uplink {
            Uplink::Interface(name) => name.clone(),
            Uplink::Bridge(_) => self.pair().0,
        })
    }

    /// What is plugged into the bridge and leads out.
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
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(base(address, prefix).to_string(), first);
        }
    }
}
