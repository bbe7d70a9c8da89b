//! Routers: the configuration that a router's gateway host applies.
//!
//! They accompany the documents like packet filters, and the list is always complete: a missing
//! router has moved to another host or was deleted.

use std::net::{IpAddr, Ipv4Addr};

use kilonova_ids::{NetworkId, PortId, RouterId};
use serde::{Deserialize, Serialize};

/// A router of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Router {
    /// Its id.
    pub id: RouterId,
    /// Its interfaces, oldest first. At most one of them is external.
    pub interfaces: Vec<RouterInterface>,
    /// True if guests without a floating IP reach the external network through the router's
    /// own address.
    pub snat: bool,
    /// Its floating IPs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub floating: Vec<FloatingAddress>,
    /// Additional routes: destination and next hop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<(String, IpAddr)>,
}

/// An interface of a router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterInterface {
    /// The port.
    pub port: PortId,
    /// Hardware address.
    pub mac: String,
    /// The network.
    pub network: NetworkId,
    /// The physical network.
    pub physical_network: String,
    /// The VLAN id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<i64>,
    /// MTU in bytes.
    pub mtu: i64,
    /// True for the gateway: addresses are translated there, and the default routes lead there.
    pub external: bool,
    /// Its addresses.
    pub addresses: Vec<RouterAddress>,
}

/// An address of a router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterAddress {
    /// The address.
    pub address: IpAddr,
    /// Prefix length.
    pub prefix: u8,
    /// The next hop of the default route, on the external network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The mode that the router advertises for the subnet, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertisement: Option<SixMode>,
    /// The name servers that it advertises.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<IpAddr>,
}

/// A floating IP, and the fixed address behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FloatingAddress {
    /// The address on the external network.
    pub floating: Ipv4Addr,
    /// The address of the guest.
    pub fixed: Ipv4Addr,
}

words! {
    /// The method by which guests of an IPv6 subnet get their addresses (Neutron's `ipv6_ra_mode`
    /// and `ipv6_address_mode`).
    SixMode {
        /// From router advertisements and their MAC address.
        Slaac = "slaac",
        /// From DHCPv6.
        Stateful = "dhcpv6-stateful",
        /// Addresses from router advertisements, other settings from DHCPv6.
        Stateless = "dhcpv6-stateless",
    }
}
