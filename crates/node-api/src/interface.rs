//! How a guest is connected to networks.

use std::net::IpAddr;

use kilonova_ids::{NetworkId, PortId};
use serde::{Deserialize, Serialize};

/// A connection of a guest to a network. It says all that a host needs to plug it in and to tell the
/// guest of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The port.
    pub port: PortId,
    /// Hardware address.
    pub mac: String,
    /// The network.
    pub network: NetworkId,
    /// `flat` or `vlan`.
    pub network_type: String,
    /// What the host is plugged into.
    pub physical_network: String,
    /// The VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<i64>,
    /// Bytes in a packet.
    pub mtu: i64,
    /// Addresses, in order.
    pub addresses: Vec<Address>,
    /// The host's device that it is, which is among the guest's devices too: PCI address, or uuid of
    /// a mediated device. Without one it is plugged into a bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// What the guest is told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Hardware address of what answers for the host on this network, the same on each host and
    /// seen by its own guests only. Nothing answers there without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp_mac: Option<String>,
}

/// An address of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub address: IpAddr,
    /// Length of its prefix.
    pub prefix: u8,
    /// Where all else goes by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Name servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<IpAddr>,
    /// Destination and next hop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<(String, IpAddr)>,
    /// Whether the guest may ask for it on the network.
    pub dhcp: bool,
    /// Whom it asks: the host's own address on the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp_server: Option<IpAddr>,
}

impl Interface {
    /// Name of its tap on the host: `tap` and the beginning of the port's id.
    pub fn tap(&self) -> String {
        let id = self.port.to_string();
        format!("tap{}", id.get(..11).unwrap_or(&id))
    }

    /// Whether a guest that has the other one need not have it plugged anew to have this one.
    pub fn is_plugged_like(&self, other: &Self) -> bool {
        self.port == other.port
            && self.mac == other.mac
            && self.network == other.network
            && self.device == other.device
            && self.vlan == other.vlan
            && self.mtu == other.mtu
    }

    /// Name of the bridge of its network on the host.
    pub fn bridge(&self) -> String {
        let id = self.network.to_string();
        format!("brq{}", id.get(..11).unwrap_or(&id))
    }
}
