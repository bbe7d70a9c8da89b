//! The guests' needs, grouped by network, and the names of our objects. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kilonova_ids::{NetworkId, ServerId};
use kilonova_node::DesiredNetworks;
use kilonova_node_api::{Address, Interface, SixMode};

use crate::config::{HostNetworkConfig, Uplink};
use crate::routers;

/// All networks of the host's guests and routers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Nets {
    pub all: BTreeMap<NetworkId, Net>,
    /// The guests' interfaces on these networks.
    pub interfaces: Vec<Interface>,
    /// The guests' interfaces on an external Neutron's Open vSwitch.
    pub hybrid: Vec<HybridPlug>,
}

/// A tap on a bridge of its own, which a veth pair connects to Open vSwitch.
#[derive(Debug, Clone)]
pub(crate) struct HybridPlug {
    pub server: ServerId,
    pub interface: Interface,
    /// The Open vSwitch bridge.
    pub switch: String,
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
    /// The bridge's ends of the veth pairs to routers.
    pub routers: BTreeSet<String>,
    pub dhcp: Option<Dhcp>,
    /// The guests that can ask for their metadata; `None` if the service is off.
    pub metadata: Option<Metadata>,
}

/// The metadata service on a network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Metadata {
    /// The addresses from which guests can ask.
    pub askers: BTreeSet<Asker>,
    /// Their IPv4 subnets, by network address.
    pub subnets: BTreeSet<(IpAddr, u8)>,
}

/// A guest's address from which it can ask for its metadata: one of its own, never an allowed address
/// pair.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asker {
    pub tap: String,
    pub mac: String,
    pub address: IpAddr,
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
    /// The subnets with DHCPv6, keyed by their network addresses.
    pub six_subnets: BTreeMap<IpAddr, SixSubnet>,
    /// The guests whose IPv6 addresses DHCPv6 assigns, by MAC address.
    pub six_hosts: BTreeMap<String, BTreeSet<IpAddr>>,
}

/// A subnet with DHCPv6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SixSubnet {
    pub prefix: u8,
    pub dns: Vec<IpAddr>,
}

/// A subnet with DHCP, keyed by its network address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subnet {
    pub prefix: u8,
    /// The DHCP server's address.
    pub server: IpAddr,
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

impl Dhcp {
    /// Adds an IPv6 address of a guest that uses DHCPv6: for the address (stateful), or only for other
    /// options (stateless).
    fn ask_six(&mut self, mac: &str, address: &Address) {
        match address.six {
            Some(SixMode::Stateful) => {
                self.six_hosts.entry(mac.to_owned()).or_default().insert(address.address);
            }
            Some(SixMode::Stateless) => {}
            Some(SixMode::Slaac) | None => return,
        }
        let subnet = SixSubnet { prefix: address.prefix, dns: address.dns.clone() };
        self.six_subnets.insert(base(address.address, address.prefix), subnet);
    }
}

impl Nets {
    /// True if the host needs nothing of ours.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.hybrid.is_empty()
    }

    pub fn of(wanted: &DesiredNetworks, config: &HostNetworkConfig) -> Self {
        let mut nets = Self::default();
        for (server, interface) in wanted.interfaces() {
            if let Some(switch) = interface.hybrid_plug() {
                let (interface, switch) = (interface.clone(), switch.to_owned());
                nets.hybrid.push(HybridPlug { server, interface, switch });
                continue;
            }
            let (id, physical) = (interface.network, &interface.physical_network);
            let net = nets.net(id, physical, interface.vlan, interface.mtu, config);
            if config.metadata {
                net.metadata.get_or_insert_default();
            }
            net.taps.insert(interface.tap());
            net.ask(interface);
            nets.interfaces.push(interface.clone());
        }
        for interface in wanted.routers.iter().flat_map(|router| &router.interfaces) {
            let (id, physical) = (interface.network, &interface.physical_network);
            let net = nets.net(id, physical, interface.vlan, interface.mtu, config);
            net.routers.insert(routers::outside(interface));
        }
        nets
    }

    fn net(
        &mut self,
        id: NetworkId,
        physical: &str,
        vlan: Option<i64>,
        mtu: i64,
        config: &HostNetworkConfig,
    ) -> &mut Net {
        self.all.entry(id).or_insert_with(|| Net {
            id,
            physical: physical.to_owned(),
            vlan,
            mtu,
            uplink: config.uplinks.get(physical).cloned(),
            taps: BTreeSet::new(),
            routers: BTreeSet::new(),
            dhcp: None,
            metadata: None,
        })
    }
}

impl Metadata {
    fn add(&mut self, interface: &Interface) {
        let fixed = interface.addresses.iter().filter(|address| address.address.is_ipv4());
        for address in fixed.clone() {
            self.subnets.insert((base(address.address, address.prefix), address.prefix));
        }
        let own = interface.link_local().map(IpAddr::V6);
        for address in fixed.map(|address| address.address).chain(own) {
            let (tap, mac) = (interface.tap(), interface.mac.to_ascii_lowercase());
            self.askers.insert(Asker { tap, mac, address });
        }
    }
}

/// True if it is a MAC address; anything else never enters a rule or a command.
pub(crate) fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    let byte = |part: &&str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
    parts.len() == 6 && parts.iter().all(byte)
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
        if let Some(metadata) = &mut self.metadata
            && is_mac(&interface.mac)
        {
            metadata.add(interface);
        }
        let Some(mac) = &interface.dhcp_mac else { return };
        for address in interface.addresses.iter().filter(|address| address.dhcp) {
            let Some(own) = address.dhcp_server else { continue };
            let dhcp = self.dhcp.get_or_insert_with(|| Dhcp {
                mac: mac.clone(),
                own: BTreeSet::new(),
                subnets: BTreeMap::new(),
                hosts: BTreeMap::new(),
                six_subnets: BTreeMap::new(),
                six_hosts: BTreeMap::new(),
            });
            dhcp.own.insert((own, address.prefix));
            if address.address.is_ipv6() {
                dhcp.ask_six(&interface.mac, address);
                continue;
            }
            let subnet = base(address.address, address.prefix);
            dhcp.subnets.insert(
                subnet,
                Subnet {
                    prefix: address.prefix,
                    server: own,
                    gateway: address.gateway,
                    dns: address.dns.clone(),
                    routes: address.routes.clone(),
                },
            );
            let host = DhcpClient { address: address.address, subnet };
            dhcp.hosts.entry(interface.mac.clone()).or_insert(host);
        }
    }

    /// True if the network has a namespace on this host.
    pub fn has_space(&self) -> bool {
        self.dhcp.is_some() || self.metadata.is_some()
    }

    /// The MAC address in the namespace: the DHCP port's, or one from the network's id. It is the
    /// same on every host, so that a migrated guest can keep using it.
    pub fn own_mac(&self) -> String {
        match &self.dhcp {
            Some(dhcp) => dhcp.mac.clone(),
            None => {
                let id = self.id.to_string().replace('-', "");
                let byte = |at: usize| id.get(at..at + 2).unwrap_or("00");
                let bytes = [0, 2, 4, 6, 8].map(byte);
                format!("02:{}", bytes.join(":"))
            }
        }
    }

    /// The IPv4 subnets of guests in which the namespace has no address.
    pub fn foreign_subnets(&self) -> BTreeSet<(IpAddr, u8)> {
        let all = self.metadata.iter().flat_map(|metadata| &metadata.subnets);
        let has = |(subnet, _): &&(IpAddr, u8)| {
            self.dhcp.as_ref().is_some_and(|dhcp| dhcp.subnets.contains_key(subnet))
        };
        all.filter(|subnet| !has(subnet)).copied().collect()
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

    /// The bridge's end of the veth pair to the namespace.
    pub fn space_link(&self) -> String {
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
